import pytest
import torch
from sklearn.datasets import load_digits

import allforone as afo
from allforone.problems.data import draw
from allforone.problems.digits import read_digits


def test_clients_of_a_cluster_share_their_optimum_as_published():
    problem = afo.synthetic(seed=3, dimension=4, clients=7, clusters=3)
    optima = [client.train.optimum for client in problem.clients]
    for i, optimum in enumerate(optima):
        assert optimum.equal(optima[i % 3])
        assert (optimum.abs() <= 10).all()
    assert len({tuple(o.tolist()) for o in optima}) == 3
    assert problem.clusters == [0, 1, 2, 0, 1, 2, 0]


def test_the_excess_loss_is_the_mean_squared_error_above_the_noise():
    problem = afo.synthetic(seed=3, dimension=3, clients=2, spectrum=[0.5, 1.0, 3.0], noise=0.7)
    stream = problem.clients[1].train
    model = {"weight": torch.randn(1, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))}
    x, y = draw(stream, 400_000, seed=0, client=1, step=0, purpose="test")
    measured = (x @ model["weight"].T - y).square().mean()
    assert measured == pytest.approx(float(stream.excess(model)) + 0.7**2, rel=0.02)
    assert float(stream.excess({"weight": stream.optimum[None]})) == 0


def test_features_have_the_spectrum_asked_for_each_client_rotated_differently():
    spectrum = [0.5, 1.0, 3.0]
    problem = afo.synthetic(seed=3, dimension=3, clients=2, spectrum=spectrum)
    for client in problem.clients:
        covariance = client.train.root @ client.train.root
        assert torch.linalg.eigvalsh(covariance).tolist() == pytest.approx(spectrum)
        x, _ = draw(client.train, 200_000, seed=0, client=0, step=0, purpose="test")
        assert torch.allclose(x.T @ x / len(x), covariance, atol=0.05)
    assert not torch.allclose(problem.clients[0].train.root, problem.clients[1].train.root)
    assert problem.smoothness == 6.0


def test_spread_moves_each_optimum_by_as_much():
    problem = afo.synthetic(seed=3, dimension=50, clients=40, clusters=1, spread=0.1)
    optima = torch.stack([client.train.optimum for client in problem.clients])
    assert float((optima - optima.mean(0)).std()) == pytest.approx(0.1, rel=0.1)


def test_the_papers_settings():
    small, large = afo.synthetic(dimension=2).settings, afo.synthetic(dimension=10).settings
    assert (small.rounds, small.batch_size, small.estimation, small.optimizer["lr"]) == (40, 2, 2, 1 / 4)
    assert (large.rounds, large.batch_size, large.estimation, large.optimizer["lr"]) == (200, 2, 2, 1 / 8)


@pytest.mark.parametrize(
    "options",
    [
        {"dimension": 0},
        {"clients": 0},
        {"clusters": 21},
        {"noise": -1.0},
        {"spread": -0.1},
        {"spectrum": [1.0]},
        {"spectrum": [1.0, 0.0]},
    ],
)
def test_impossible_options_are_refused(options):
    with pytest.raises(afo.InputError):
        afo.synthetic(**options)


def test_digits_are_those_of_scikit_learn():
    images, labels = load_digits(return_X_y=True)
    read = read_digits()
    assert read[0].equal(torch.from_numpy(images / 16).float())
    assert read[1].equal(torch.from_numpy(labels))


def test_digits_are_real_and_dealt_by_label():
    problem = afo.digits()
    assert len(problem.clients) == 10
    assert sum(len(c.train) + len(c.test) for c in problem.clients) == 1797
    for i, client in enumerate(problem.clients):
        inputs, labels = client.train.tensors
        assert inputs.shape[1:] == (64,)
        assert 0 <= inputs.min() <= inputs.max() == 1
        assert ((labels >= 5) == (i % 2 == 1)).all()
