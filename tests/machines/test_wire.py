"""What crosses the wire comes out as it went in, or is said to be unreadable; it is never code."""

import contextlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from allforone.machines.wire import Unreadable, decode, encode


def test_a_message_comes_out_as_it_went_in():
    tensors = {
        "a/b.c": torch.randn(3, 2),
        "whole": torch.arange(4),
        "half": torch.randn(2).bfloat16(),
        "no": torch.ones(0, 3),
    }
    message = {
        "ask": "it",
        "step": 3,
        "owners": [0, None],
        "lr": 0.1,
        "models": tensors,
        "deep": [{"x": torch.tensor(1.5)}],
    }
    found = decode(encode(message))
    assert {key: found[key] for key in ("ask", "step", "owners", "lr")} == {
        "ask": "it",
        "step": 3,
        "owners": [0, None],
        "lr": 0.1,
    }
    for name, tensor in tensors.items():
        assert found["models"][name].dtype == tensor.dtype and torch.equal(found["models"][name], tensor)
    assert found["deep"][0]["x"].item() == 1.5


def test_rows_of_one_tensor_and_a_tensor_sent_twice_arrive_each_by_itself():
    whole = torch.arange(6.0).reshape(3, 2)
    found = decode(encode({"first": whole[0], "second": whole[1:], "across": whole.T, "again": whole}))
    assert torch.equal(found["first"], whole[0]) and torch.equal(found["across"], whole.T)
    found["again"].zero_()
    assert torch.equal(found["second"], whole[1:])


def test_tensors_lie_in_memory_as_tensors_do():
    message = {str(n): torch.randn(2 * n + 1) for n in range(9)}
    assert all(tensor.data_ptr() % 64 == 0 for tensor in decode(encode(message)).values())


@given(st.binary(max_size=200))
def test_other_bytes_are_unreadable_and_nothing_else(content):
    with pytest.raises(Unreadable):
        decode(content)


@given(st.integers(0, 400), st.integers(0, 255))
def test_a_changed_byte_is_read_or_unreadable(place, value):
    content = bytearray(encode({"ask": "gradients", "models": {"w": torch.ones(2, 3)}}))
    content[place % len(content)] = value
    with contextlib.suppress(Unreadable):
        assert isinstance(decode(bytes(content)), dict)
