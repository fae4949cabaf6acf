import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import allforone as afo
from allforone.problems.data import Finite, draw, places


@given(length=st.integers(1, 50), size=st.integers(1, 60), seed=st.integers(0, 10))
def test_every_sample_is_seen_once_per_epoch(length, size, seed):
    size = min(size, length)
    steps = length  # length·size places: `size` whole epochs
    seen = torch.cat([places(length, size, range(t, t + 1), seed, 0, "update") for t in range(steps)])
    for epoch in seen.split(length):
        assert epoch.sort().values.equal(torch.arange(length))


def test_a_batch_depends_on_its_name_alone():
    data = Finite((torch.arange(100.0), torch.arange(100)))
    name = {"seed": 1, "client": 2, "step": 3, "purpose": "update"}
    first = draw(data, 8, **name)[0]
    draw(data, 8, **{**name, "step": 17})
    assert first.equal(draw(data, 8, **name)[0])
    for part, other in (("seed", 2), ("client", 3), ("step", 4), ("purpose", "compare")):
        assert not first.equal(draw(data, 8, **{**name, part: other})[0])


def test_a_stream_depends_on_its_name_alone():
    stream = afo.synthetic(seed=1).clients[0].train
    name = {"seed": 1, "client": 0, "step": 3, "purpose": "update"}
    assert draw(stream, 4, **name)[0].equal(draw(stream, 4, **name)[0])
    assert not draw(stream, 4, **name)[0].equal(draw(stream, 4, **{**name, "purpose": "compare"})[0])


class Squares(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, i):
        return torch.tensor([float(i)]), i * i


def test_any_dataset_gives_what_the_same_tensors_give():
    tensors = (torch.arange(10.0)[:, None], torch.arange(10) ** 2)
    indices = torch.tensor([3, 1, 7])
    for source in (tensors, TensorDataset(*tensors), Squares()):
        inputs, targets = Finite(source).take(indices)
        assert inputs.equal(tensors[0][indices])
        assert targets.equal(tensors[1][indices])


class Endless(IterableDataset):
    def __iter__(self):
        yield torch.zeros(1), 0


@pytest.mark.parametrize("source", [Endless(), [1, 2, 3], "file.csv", (torch.zeros(3), None)])
def test_what_is_not_data_is_refused_with_what_would_be(source):
    with pytest.raises(afo.InputError, match="pair of tensors"):
        afo.Client(source, (torch.zeros(1), torch.zeros(1)))


def test_inputs_and_targets_must_be_as_many():
    with pytest.raises(afo.InputError, match="3 inputs but 2 targets"):
        afo.Client((torch.zeros(3), torch.zeros(2)), (torch.zeros(1), torch.zeros(1)))


class Augmented(Dataset):
    """Draws at random from every generator there is, as augmentations do."""

    def __len__(self):
        return 10

    def __getitem__(self, i):
        return torch.tensor([torch.rand(()), np.random.rand(), random.random()]), i


def test_a_dataset_that_draws_at_random_gives_the_same_batch_under_the_same_name():
    data = Finite(Augmented())
    name = {"seed": 1, "client": 0, "step": 3, "purpose": "update"}
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    first, again, other = (draw(data, 4, **{**name, "step": step})[0] for step in (3, 3, 4))
    assert first.equal(again)
    assert (first != other).all()
    assert torch.get_rng_state().equal(states[0])
    assert (np.random.get_state()[1] == states[1]).all()
    assert random.getstate() == states[2]
