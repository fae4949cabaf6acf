"""What an algorithm remembers comes back as it was, or is refused before the first round."""

from collections import Counter
from functools import partial
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import allforone as afo
from allforone.algorithms import State
from allforone.fleet import Ledger, Optimizer
from allforone.runs import checkpoint, execute, parse, prepare, resume
from allforone.runs.checkpoint import Checkpoint
from allforone.runs.writing import Written

CONFIG = {"problem": {"name": "digits", "clients": 4}, "rounds": 4, "inner": 2}
MOMENTUM = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
HALVED = partial(torch.optim.lr_scheduler.MultiStepLR, milestones=[1, 3], gamma=0.5)


class Pair(NamedTuple):
    one: Tensor
    other: Tensor


class Remembering(afo.Local):
    """Local, with a memory of any kind."""

    def __init__(self, own, common):
        object.__setattr__(self, "kept", {"own": own, "common": common})

    def init(self, models, optimizer):
        return State(models, optimizer, **self.kept)

    def step(self, state, fleet, round):
        after, info = super().step(state, fleet, round)
        return after._replace(own=state.own, common=state.common), info


@pytest.mark.parametrize("where", ["own", "common"])
@pytest.mark.parametrize(
    "memory",
    [
        Pair(torch.zeros(3), torch.ones(3)),
        {"deep": {"deeper": [Pair(torch.zeros(3), torch.ones(3))]}},
        {"set": {1, 2}},
        {"complex": 1j},
        {("a", "key"): torch.zeros(3)},
    ],
    ids=["named tuple", "named tuple inside", "set", "complex number", "key that is a tuple"],
)
def test_what_could_not_be_restored_is_refused_before_the_first_round(tmp_path, where, memory):
    algorithm = Remembering(**{"own": {}, "common": {}, where: {"kept": memory}})
    data = (torch.randn(8, 3), torch.randn(8, 1))
    given = {"loss": F.mse_loss, "algorithm": algorithm, "rounds": 3, "out": tmp_path / "run"}
    with pytest.raises(afo.InputError, match=rf"cannot save state/{where}/kept.*must be made of tensors"):
        afo.train(nn.Linear(3, 1), [afo.Client(data, data)], **given)
    assert not (tmp_path / "run" / "checkpoint.safetensors").exists()
    metrics = tmp_path / "run" / "metrics.csv"
    assert not metrics.exists() or "\n1," not in metrics.read_text()


def stepped():
    """An optimizer with a state, after two rounds."""
    models, optimizer = {"w": torch.zeros(3, 2)}, Optimizer(MOMENTUM, HALVED)
    for slope in (1.0, 2.0):
        running = optimizer.start(models, ["w"])
        running.apply({"w": torch.full((3, 2), slope)})
        models, optimizer = running.finish()
    return models, optimizer


def assert_alike(one, other):
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_alike(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for ours, theirs in zip(one, other, strict=True):
            assert_alike(ours, theirs)
    elif isinstance(one, Optimizer):
        assert_alike(one.state, other.state)
    elif isinstance(one, Tensor):
        assert one.dtype == other.dtype and one.equal(other)
    else:
        assert one == other


def test_nested_memory_comes_back_as_it_was(tmp_path):
    models, optimizer = stepped()
    own = {
        "models": {"w": torch.randn(3, 2), "mask": torch.tensor([True, False, True])},
        "inner": {"optimizer": optimizer, "deep": {"deeper": {"deepest": torch.randn(3, 1, dtype=torch.float64)}}},
        "half": torch.randn(3).bfloat16(),
    }
    common = {
        "centres": {"w": torch.randn(2, 2)},
        "numbers": [1, 2.5, True, None, "text", float("inf")],
        "pair": (torch.zeros(1), [torch.ones(1)]),
        "counts": Counter({3: 1, 7: 2}),
        5: torch.arange(4),
        "nothing": {},
    }
    ledger = Ledger(torch.tensor([1, 2, 3]), torch.tensor([0, 1, 0]), 12, None)
    kept = Checkpoint(State(models, optimizer, own, common), 7, ledger, 1.5)
    checkpoint.save(tmp_path / "checkpoint.safetensors", kept)
    found = checkpoint.load(tmp_path / "checkpoint.safetensors", Optimizer(MOMENTUM, HALVED))
    assert_alike(found, kept)
    assert found.state.optimizer.lr == optimizer.lr == 0.05
    assert found.state.own["inner"]["optimizer"].make is MOMENTUM


def test_names_that_look_alike_are_kept_apart(tmp_path):
    models, optimizer = stepped()
    common = {"a/b": torch.zeros(1), "a": {"b": torch.ones(1)}, 1: torch.tensor(2.0), "1": torch.tensor(3.0)}
    ledger = Ledger(torch.zeros(3), torch.zeros(3))
    kept = Checkpoint(State(models, optimizer, {}, common), 7, ledger, 1.5)
    checkpoint.save(tmp_path / "checkpoint.safetensors", kept)
    found = checkpoint.load(tmp_path / "checkpoint.safetensors", Optimizer(MOMENTUM, HALVED))
    assert_alike(found.state.common, common)


@pytest.mark.parametrize("algorithm", ["all-for-one", "all-for-one-round", "fedavg"])
def test_a_run_that_was_stopped_has_sent_as_much_as_one_that_was_not(tmp_path, algorithm):
    def stop(record):
        if record.number == 2:
            raise KeyboardInterrupt

    config = parse({**CONFIG, "algorithm": algorithm})
    whole = execute(prepare(config)).metrics
    with pytest.raises(KeyboardInterrupt):
        execute(prepare(config), tmp_path / "run", on_round=stop)
    found = resume(tmp_path / "run").metrics
    assert found.select("round", "messages", "bytes").equals(whole.select("round", "messages", "bytes"))
    assert found["bytes"].max() > 0


def test_a_run_killed_while_it_writes_its_first_line_goes_on(tmp_path, monkeypatch):
    whole = execute(prepare(parse(CONFIG)))

    def killed(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(Written, "add", killed)
    with pytest.raises(KeyboardInterrupt):
        execute(prepare(parse(CONFIG)), tmp_path / "run")
    monkeypatch.undo()
    again = resume(tmp_path / "run")
    assert all(again.stacked[name].equal(whole.stacked[name]) for name in whole.stacked)
    assert again.metrics.drop("seconds").equals(whole.metrics.drop("seconds"))
