import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from allforone.errors import InputError
from allforone.problems import splits

SPLITS = {
    "cluster": splits.cluster,
    "iid": splits.iid,
    "dirichlet": splits.dirichlet,
    "shards": splits.shards,
}


def labelled(samples: int, classes: int, seed: int) -> torch.Tensor:
    return torch.randint(classes, (samples,), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", SPLITS)
@given(clients=st.integers(2, 12), classes=st.integers(2, 10), seed=st.integers(0, 1000))
def test_parts_are_disjoint_and_cover_everything(name, clients, classes, seed):
    labels = labelled(2000, classes, seed)
    split = SPLITS[name](labels, clients, seed=seed)
    assert len(split.parts) == clients
    assert torch.cat(split.parts).sort().values.equal(torch.arange(2000))


@given(clients=st.integers(2, 12), seed=st.integers(0, 1000))
def test_cluster_split_keeps_each_client_inside_its_labels(clients, seed):
    labels = labelled(1000, 10, seed)
    split = splits.cluster(labels, clients, seed=seed)
    for i, part in enumerate(split.parts):
        assert split.clusters[i] == i % 2
        assert set(labels[part].tolist()) <= set(range(5 * (i % 2), 5 * (i % 2) + 5))


@given(clients=st.integers(2, 12), seed=st.integers(0, 1000))
def test_cluster_split_is_equal_within_a_cluster(clients, seed):
    split = splits.cluster(labelled(1000, 10, seed), clients, seed=seed)
    for parity in (0, 1):
        sizes = [len(part) for part in split.parts[parity::2]]
        assert max(sizes) - min(sizes) <= 1


def test_iid_clients_have_equal_sizes_and_similar_labels():
    labels = labelled(5000, 10, 0)
    split = splits.iid(labels, 5)
    assert {len(part) for part in split.parts} == {1000}
    for part in split.parts:
        assert (labels[part].bincount() - 100).abs().max() < 50


def test_smaller_concentration_makes_clients_less_alike():
    labels = labelled(5000, 10, 0)

    def unlikeness(concentration: float) -> float:
        parts = splits.dirichlet(labels, 5, concentration=concentration, seed=3).parts
        shares = torch.stack([labels[part].bincount(minlength=10) / len(part) for part in parts])
        return float((shares - shares.mean(0)).square().sum())

    assert unlikeness(0.2) > 2 * unlikeness(100.0)


@given(seed=st.integers(0, 1000))
def test_with_least_every_client_has_that_many_and_all_is_dealt(seed):
    labels = labelled(1000, 10, seed)
    parts = splits.dirichlet(labels, 8, concentration=0.2, least=30, seed=seed).parts
    assert min(map(len, parts)) >= 30
    assert torch.cat(parts).sort().values.equal(torch.arange(1000))


def test_least_changes_nothing_where_everybody_has_enough_already():
    labels = labelled(1000, 10, 0)
    plain, asked = (splits.dirichlet(labels, 4, seed=1, least=least) for least in (None, 1))
    assert all(a.equal(b) for a, b in zip(plain.parts, asked.parts, strict=True))


def test_five_clusters_of_ten_labels_have_two_labels_each_that_no_other_has():
    labels = labelled(2000, 10, 0)
    split = splits.cluster(labels, 10, clusters=5)
    seen = [set(labels[part].tolist()) for part in split.parts]
    assert split.clusters == [0, 1, 2, 3, 4] * 2
    assert all(seen[i] == {2 * (i % 5), 2 * (i % 5) + 1} for i in range(10))


def test_shards_give_each_client_few_labels():
    labels = torch.arange(10).repeat_interleave(100)
    split = splits.shards(labels, 10, per_client=2)
    assert all(len(labels[part].unique()) <= 3 for part in split.parts)


@pytest.mark.parametrize("name", SPLITS)
def test_a_split_is_a_function_of_its_seed(name):
    labels = labelled(300, 10, 0)
    one, same, other = (SPLITS[name](labels, 4, seed=seed) for seed in (5, 5, 6))
    assert all(a.equal(b) for a, b in zip(one.parts, same.parts, strict=True))
    assert not all(len(a) == len(b) and a.equal(b) for a, b in zip(one.parts, other.parts, strict=True))


@pytest.mark.parametrize(
    "call",
    [
        lambda labels: splits.iid(labels, 50),
        lambda labels: splits.cluster(labels, 4, clusters=5),
        lambda labels: splits.dirichlet(labels, 4, concentration=0.0),
        lambda labels: splits.dirichlet(labels, 4, least=6),
        lambda labels: splits.shards(labels, 4, per_client=0),
    ],
)
def test_an_impossible_split_says_what_to_change(call):
    with pytest.raises(InputError, match=r"must be|use fewer"):
        call(labelled(20, 10, 0))


def test_a_least_that_never_comes_is_said_after_many_deals(monkeypatch):
    monkeypatch.setattr(splits, "MOST_DEALS", 20)
    with pytest.raises(InputError, match="least is 5: in 20 deals some client had fewer; ask for less"):
        splits.dirichlet(labelled(20, 10, 0), 4, least=5, concentration=0.1)
