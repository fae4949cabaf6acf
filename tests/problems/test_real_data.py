"""The real sets, where they are: ALLFORONE_DATA names a folder with mnist, cifar10, heart_disease and ixi."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from allforone.problems import cifar10, heart_disease, ixi, mnist, sources
from allforone.problems.heart_disease import CENTRES, centre
from allforone.runs import execute, parse, prepare

pytestmark = pytest.mark.skipif(
    not Path(os.environ.get("ALLFORONE_DATA", "/nowhere"), "mnist").is_dir(),
    reason="the real data are not here: set ALLFORONE_DATA to a folder with mnist, cifar10, heart_disease and ixi",
)


def test_mnist_is_the_published_set():
    assert all(finding.fine for finding in sources.check("mnist"))
    problem = mnist()
    sizes = [len(c.train) + len(c.test) for c in problem.clients]
    assert sum(sizes) == 70_000
    for parity in (0, 1):
        assert max(sizes[parity::2]) - min(sizes[parity::2]) <= 1
    for i, client in enumerate(problem.clients):
        labels = client.train.tensors[1]
        assert labels.unique().tolist() == list(range(5 * (i % 2), 5 * (i % 2) + 5))
        assert len(client.test) == round(0.2 * sizes[i])


def test_cifar10_has_6000_of_each_class_and_the_published_channel_means():
    problem = cifar10()
    assert [len(c.train) for c in problem.clients] == [2400] * 20
    labels = torch.cat([part.tensors[1] for c in problem.clients for part in (c.train, c.test)])
    assert labels.bincount().tolist() == [6000] * 10
    images = torch.cat([part.tensors[0] for c in problem.clients for part in (c.train, c.test)])
    means = images.double().mean((0, 2, 3)) / 255
    assert means.tolist() == pytest.approx([0.4914, 0.4822, 0.4465], abs=1.5e-3)


def test_heart_disease_has_flambys_counts():
    problem = heart_disease()
    assert [(len(c.train), len(c.test)) for c in problem.clients] == [(199, 104), (172, 89), (30, 16), (85, 45)]
    assert problem.clients[0].train.tensors[0].shape[1] == 13
    assert problem.settings.inner == 121
    assert all(finding.fine for finding in sources.check("heart-disease"))


def test_pooled_logistic_regression_is_near_its_published_accuracy():
    from sklearn.linear_model import LogisticRegression

    centres = [centre(name, scaled=False) for name in CENTRES]
    (x, y), (x_test, y_test) = (
        (torch.cat([getattr(c, part)[0] for c in centres]), torch.cat([getattr(c, part)[1] for c in centres])[:, 0])
        for part in ("train", "test")
    )
    mean, std = x.mean(0), x.std(0)
    model = LogisticRegression(max_iter=1000).fit((x - mean) / std, y)
    assert len(x) == 486 and len(x_test) == 254
    assert np.mean(model.predict((x_test - mean) / std) == y_test.numpy()) == pytest.approx(0.796, abs=0.01)


def test_ixi_has_three_hospitals_and_brains_in_its_masks():
    problem = ixi(volumes_per_client=2)
    assert [c.name for c in problem.clients] == ["Guys", "HH", "IOP"]
    for client in problem.clients:
        volumes, masks = client.train.tensors
        assert volumes.shape[1:] == (1, 48, 60, 48)
        assert 0.1 < masks.double().mean() < 0.6


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mnist", {"clients": 4, "samples_per_client": 100}),
        ("cifar10", {"clients": 4, "samples_per_client": 100}),
        ("heart-disease", {}),
        ("ixi", {"volumes_per_client": 1}),
    ],
)
def test_each_real_problem_learns_in_a_few_steps(name, options):
    steps = {"ixi": 2, "heart-disease": 40}.get(name, 30)
    lr = {"cifar10": 0.02, "mnist": 0.05, "ixi": 0.05}.get(name)
    algorithm = {"name": "local"} if name == "ixi" else {"name": "all-for-one-binary", "samples": 16}
    config = parse(
        {
            "problem": {"name": name, **options},
            "rounds": 2,
            "inner": steps,
            "evaluate_every": 2,
            "algorithm": algorithm,
            "optimizer": {"lr": lr} if lr else None,
        }
    )
    metrics = execute(prepare(config)).metrics
    first, last = (metrics.filter(metrics["round"] == number)["loss"].mean() for number in (0, 2))
    assert last < 0.97 * first
