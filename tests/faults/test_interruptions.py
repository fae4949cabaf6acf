"""Runs that are stopped, killed or diverge lose nothing, and go on as if nothing had happened."""

import os
import shutil
import signal
import time
from functools import partial
from itertools import pairwise

import polars
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import allforone as afo
from allforone.algorithms import ALGORITHMS
from allforone.runs import Folder, checkpoint, execute, parse, prepare, resume, training
from allforone.runs.durable import write_text
from allforone.runs.folder import WEIGHTS
from allforone.testing import small_problem

from .commands import CONTEXT, PATIENCE

CONFIG = {
    "problem": {"name": "digits", "clients": 4},
    "rounds": 6,
    "inner": 2,
    "algorithm": {"name": "all-for-one-binary", "samples": 20},
    "optimizer": {"name": "Adam", "lr": 0.01},
    "scheduler": {"name": "MultiStepLR", "milestones": [2, 4]},
}


def stop_after(rounds):
    def on_round(record):
        if record.number == rounds:
            raise KeyboardInterrupt

    return on_round


def assert_same_run(one, other):
    ours, theirs = Folder.open(one), Folder.open(other)
    for name, tensor in theirs.models().items():
        assert ours.models()[name].equal(tensor), name
    assert ours.metrics().drop("seconds").equals(theirs.metrics().drop("seconds"))
    assert (ours.path / WEIGHTS).read_bytes() == (theirs.path / WEIGHTS).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "rounds"), [("all-for-one", 1), *((name, 3) for name in ALGORITHMS)])
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(tmp_path, monkeypatch, algorithm, rounds):
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0.0)
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"

    def copy(record):  # what is on the disk in the middle of this round is what a kill would have left
        if record.number == rounds:
            shutil.copytree(whole, stopped)

    execute(prepare(parse({**CONFIG, "rounds": 4, "algorithm": {"name": algorithm}})), whole, on_round=copy)
    assert Folder.open(stopped).label.round == rounds - 1 and not Folder.open(stopped).finished
    resume(stopped)
    assert_same_run(stopped, whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        {"attack": "nan:1", "algorithm": "oracle"},
        {"guard": True},
        {"participation": 0.5},
        {"fleet": "loop"},
        {"batch_size": 1, "algorithm": "all-for-one"},
        {"algorithm": {"name": "fedavg-finetune", "finetune": 5}, "participation": 0.5},
    ],
    ids=str,
)
def test_a_resumed_run_goes_on_with_whatever_stood_in_its_way(tmp_path, more):
    run = prepare(parse({**CONFIG, **more}))
    execute(run, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        execute(run, tmp_path / "stopped", on_round=stop_after(3))
    resume(tmp_path / "stopped")
    assert_same_run(tmp_path / "stopped", tmp_path / "whole")
    if "attack" in more:
        assert Folder.open(tmp_path / "whole").metrics()["refused"].max() > 0


def _killed_in_round_4(out):
    """In a process of its own."""
    torch.set_num_threads(1)
    training.CHECKPOINT_SECONDS = 0.0

    def on_round(record):
        if record.number == 4:
            os.kill(os.getpid(), signal.SIGKILL)

    execute(prepare(parse(CONFIG)), out, on_round=on_round)


@pytest.mark.slow
@pytest.mark.parametrize("unwritten", [0, 7], ids="{} bytes unwritten".format)
def test_a_killed_run_goes_on_from_its_last_checkpoint(tmp_path, monkeypatch, unwritten):
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0.0)
    execute(prepare(parse(CONFIG)), tmp_path / "whole")
    out = tmp_path / "killed"
    process = CONTEXT.Process(target=_killed_in_round_4, args=(out,))
    process.start()
    process.join(PATIENCE)
    assert process.exitcode == -signal.SIGKILL
    assert Folder.open(out).metrics()["round"].max() == 4  # written, but after the last checkpoint
    assert checkpoint.load(Folder.open(out).checkpoint, prepare(parse(CONFIG)).optimizer).round == 3
    assert Folder.open(out).tables().rounds == [1, 2, 3, 4]
    if unwritten:  # as if it had been killed while it wrote the weights of round 4
        os.truncate(out / WEIGHTS, (out / WEIGHTS).stat().st_size - unwritten)
        assert Folder.open(out).tables().rounds == [1, 2, 3]
    resume(out)
    assert_same_run(out, tmp_path / "whole")


def exploding(rounds):
    """A problem whose second client diverges: its inputs are large for the step."""
    torch.manual_seed(0)
    data = [(torch.randn(8, 3) * (1 if k == 0 else 1e4), torch.randn(8, 1)) for k in range(2)]
    return partial(
        afo.train,
        nn.Linear(3, 1),
        [afo.Client(d, d) for d in data],
        loss=F.mse_loss,
        lr=0.05,
        rounds=rounds,
        algorithm=afo.Local(),
    )


def test_a_loss_that_is_not_finite_stops_at_once_and_keeps_what_was_before(tmp_path):
    with pytest.raises(afo.Diverged, match=r"round \d+, client 1: .*everything up to round \d+ is kept") as caught:
        exploding(200)(out=tmp_path / "run")
    folder = Folder.open(tmp_path / "run")
    kept = folder.metrics()["round"].max()
    assert f"up to round {kept} is kept" in str(caught.value)
    assert folder.metrics()["loss"].is_finite().all()
    assert folder.tables().rounds == list(range(1, kept + 1))
    assert folder.checkpoint.exists()
    assert not folder.finished
    exploding(kept)()  # one round less is fine
    with pytest.raises(afo.Diverged):
        exploding(kept + 1)()


@pytest.mark.parametrize("fleet", ["stacked", "loop"])
def test_nan_that_appears_in_the_loss_names_round_and_client(fleet):
    data = (torch.ones(8, 3), torch.ones(8, 1))
    clients = [afo.Client(data, data) for _ in range(3)]

    def loss(output, target):
        return F.mse_loss(output, target) + torch.where(output.mean() > 0.9, torch.nan, 0.0)

    model = nn.Linear(3, 1)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    # the output nears 1 by a factor 0.6 a step and passes 0.9 with the fifth
    with pytest.raises(afo.Diverged, match=r"round 5, client 0: .*not finite at step 4"):
        afo.train(model, clients, loss=loss, lr=0.05, rounds=50, fleet=fleet, algorithm=afo.Local())


@pytest.mark.slow
def test_a_diverging_algorithm_does_not_hold_up_the_others(cli, tmp_path):
    (tmp_path / "mine.py").write_text("""
import torch, torch.nn.functional as F
from torch import nn
import allforone as afo
from allforone.algorithms import ALGORITHMS
torch.manual_seed(0)
data = [(torch.randn(8, 3) * (1e4 if k else 1), torch.randn(8, 1)) for k in range(2)]
problem = afo.Problem(nn.Linear(3, 1), F.mse_loss, clients=[afo.Client(d, d) for d in data])
""")
    code, _, err = cli(
        "compare",
        f"{tmp_path / 'mine.py'}:problem",
        "--algorithms",
        "local,fedavg",
        "--lr",
        1e-9,
        "--rounds",
        5,
        "--seeds",
        "1,2",
        "--out",
        tmp_path / "calm",
    )
    assert code == 0, err
    code, _, err = cli(
        "compare",
        f"{tmp_path / 'mine.py'}:problem",
        "--algorithms",
        "local,fedavg",
        "--lr",
        0.05,
        "--rounds",
        100,
        "--seeds",
        "1,2",
        "--out",
        tmp_path / "wild",
    )
    assert code == 2
    assert "local, seed 1: round" in err


def test_training_from_python_can_be_resumed_there(tmp_path, cli):
    torch.manual_seed(0)
    data = [(torch.randn(8, 3), torch.randn(8, 1)) for _ in range(3)]
    model = nn.Linear(3, 1)
    train = partial(afo.train, model, [afo.Client(d, d) for d in data], loss=F.mse_loss, lr=0.01, out=tmp_path / "run")
    train(rounds=3)
    code, _, err = cli("resume", tmp_path / "run")
    assert code == 2
    assert "is finished" in err
    longer = train(rounds=5, resume=True)
    whole = afo.train(model, [afo.Client(d, d) for d in data], loss=F.mse_loss, lr=0.01, rounds=5)
    for name in whole.stacked:
        assert longer.stacked[name].equal(whole.stacked[name])
    assert longer.metrics.drop("seconds").equals(whole.metrics.drop("seconds"))
    assert longer.metrics.filter(polars.col("round") == 5).height == 3


@pytest.mark.parametrize("change", [{"seed": 2}, {"inner": 2}, {"lr": 0.5}, {"algorithm": afo.FedAvg()}])
def test_training_from_python_is_not_resumed_with_other_settings(tmp_path, change):
    data = [(torch.randn(8, 3), torch.randn(8, 1)) for _ in range(3)]
    given = {
        "model": nn.Linear(3, 1),
        "clients": [afo.Client(d, d) for d in data],
        "loss": F.mse_loss,
        "lr": 0.01,
        "out": tmp_path / "run",
        "rounds": 2,
    }
    afo.train(**given)
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with pytest.raises(afo.InputError, match="holds a run with another"):
        afo.train(**{**given, **change}, resume=True)
    with pytest.raises(afo.InputError, match=r"another number of clients \(3, now 2\)"):
        afo.train(**{**given, "clients": given["clients"][:2]}, resume=True)
    assert before == {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}


def test_a_write_that_fails_half_way_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "checkpoint.safetensors"
    checkpoint.write_tensors(path, {"a": torch.ones(3)})

    def fails(tensors, target, metadata):
        target.write_bytes(b"half a file")
        raise OSError("no space left on device")

    monkeypatch.setattr(checkpoint, "save_file", fails)
    with pytest.raises(afo.InputError, match=r"checkpoint\.safetensors: cannot be written \(no space"):
        checkpoint.write_tensors(path, {"a": torch.zeros(3)})
    assert checkpoint.read_tensors(path)["a"].tolist() == [1, 1, 1]


def test_a_file_is_on_the_disk_before_it_has_its_name_and_the_name_thereafter(tmp_path, monkeypatch):
    done, replace = [], os.replace
    monkeypatch.setattr(os, "fsync", lambda file: done.append(os.fstat(file).st_ino))
    monkeypatch.setattr(os, "replace", lambda *names: done.append("named") or replace(*names))
    write_text(tmp_path / "file", "text")
    assert done == [(tmp_path / "file").stat().st_ino, "named", tmp_path.stat().st_ino]


def test_all_that_a_checkpoint_goes_with_is_on_the_disk_before_it(tmp_path, monkeypatch):
    flushed = []
    monkeypatch.setattr(os, "fsync", lambda file: flushed.append((os.fstat(file).st_ino, os.fstat(file).st_size)))
    afo.train(small_problem(), rounds=2, out=tmp_path)
    files = [(tmp_path / name).stat() for name in ("checkpoint.safetensors", "metrics.csv", WEIGHTS)]
    last, *others = [flushed.index((file.st_ino, file.st_size)) for file in files]
    assert max(others) < last


def test_rounds_hold_consecutive_updates_and_seconds_add_up():
    seen = []

    class Watched(afo.Local):
        def step(self, state, fleet, round):
            seen.append((round.number, list(round.steps)))
            time.sleep(0.02 if len(seen) == 1 else 0.0)  # so that seconds per round would fall, not rise
            return super().step(state, fleet, round)

    data = (torch.randn(8, 3), torch.randn(8, 1))
    client = afo.Client(data, data)
    result = afo.train(nn.Linear(3, 1), [client], loss=F.mse_loss, algorithm=Watched(), rounds=4, inner=3)
    assert seen == [(1, [0, 1, 2]), (2, [3, 4, 5]), (3, [6, 7, 8]), (4, [9, 10, 11])]
    seconds = result.metrics["seconds"].to_list()
    assert all(later > earlier for earlier, later in pairwise(seconds))
