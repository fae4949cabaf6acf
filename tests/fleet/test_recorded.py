import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap

from allforone.errors import Notice
from allforone.fleet.recorded import AGAIN, EARNED, MOST_OPERATIONS, Recorded

SCALE = torch.tensor([1.0, 2.0, 3.0])


def gradients(models: Tensor, inputs: Tensor) -> tuple[Tensor, ...]:
    def loss(model: Tensor, x: Tensor) -> Tensor:
        return ((x * SCALE) @ model).sigmoid().square().mean()

    return (vmap(grad(loss), (0, None))(models, inputs),)


def test_a_replay_gives_the_same_bits_on_data_it_has_never_seen() -> None:
    recorded, random = Recorded(gradients), torch.Generator().manual_seed(0)
    for _ in range(EARNED + 5):
        models, inputs = torch.randn(4, 3, generator=random), torch.randn(5, 3, generator=random)
        assert torch.equal(recorded(models, inputs)[0], gradients(models, inputs)[0])
    assert len(recorded.recordings) == 1
    assert next(iter(recorded.recordings.values())) is not gradients


def test_every_shape_has_its_own_recording_and_none_is_made_before_it_is_earned() -> None:
    recorded = Recorded(gradients)
    for batch, calls in ((2, EARNED), (3, EARNED), (4, EARNED - 1)):
        for _ in range(calls):
            recorded(torch.ones(4, 3), torch.ones(batch, 3))
    assert len(recorded.recordings) == 2
    assert torch.equal(
        recorded(torch.ones(4, 3), torch.ones(3, 3).neg())[0], gradients(torch.ones(4, 3), torch.ones(3, 3).neg())[0]
    )


@pytest.mark.parametrize("moving", [True, False])
def test_what_cannot_be_recorded_or_would_be_recorded_wrongly_is_called_as_before(moving: bool) -> None:
    calls = 0

    def stubborn(x: Tensor) -> tuple[Tensor, ...]:
        nonlocal calls
        calls += 1
        if moving:
            return (x * calls,)  # a recording would repeat the number of its call
        return (x * float(x.sum()),)  # a recording would fix the value

    recorded = Recorded(stubborn)
    for i in range(EARNED + 5):
        before = calls
        (found,) = recorded(torch.full((2,), float(i)))
        assert torch.equal(found, torch.full((2,), float(i) * (calls if moving else 2 * i)))
        assert calls > before


def test_what_would_take_minutes_to_compile_is_replayed_and_the_user_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allforone.fleet.recorded.machine_code", lambda *_: pytest.fail("compiled"))

    def long(x: Tensor) -> tuple[Tensor, ...]:
        for _ in range(MOST_OPERATIONS):
            x = x.sin()
        return (x,)

    recorded, x = Recorded(long, compiled=True), torch.randn(3)
    with pytest.warns(Notice, match="would take minutes to compile"):
        found = recorded(x)
    assert torch.equal(found[0], long(x)[0])
    assert torch.equal(recorded(-x)[0], long(-x)[0])


def test_a_function_that_changes_its_ways_is_found_out() -> None:
    state = {"factor": 1.0}
    recorded = Recorded(lambda x: (x * state["factor"],))
    for _ in range(EARNED):
        recorded(torch.ones(2))
    state["factor"] = 3.0
    for _ in range(AGAIN):
        (found,) = recorded(torch.ones(2))
    assert torch.equal(found, torch.full((2,), 3.0))
