"""Whatever was cut, flipped, lost or edited in a run folder is named; what can be gone on with is, bit for bit."""

import os
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

import allforone as afo
from allforone.errors import InputError, Notice
from allforone.runs import Folder, compare, execute, export_client, parse, plan, prepare, read_run, resume, training
from allforone.runs.folder import METRICS, WEIGHTS

from .commands import is_one_line

CONFIG = {"problem": {"name": "digits", "clients": 3}, "rounds": 4, "algorithm": "fedavg"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A whole run, and one stopped after its third round with checkpoints of the second and the third."""
    torch.set_num_threads(1)
    folder, seconds = tmp_path_factory.mktemp("made"), training.CHECKPOINT_SECONDS
    run = prepare(parse(CONFIG))
    execute(run, folder / "whole")
    training.CHECKPOINT_SECONDS = 0.0

    def stop(record):
        if record.number == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(run, folder / "stopped", on_round=stop)
    training.CHECKPOINT_SECONDS = seconds
    return folder


@pytest.fixture
def stopped(made, tmp_path):
    return Folder(shutil.copytree(made / "stopped", tmp_path / "run"))


def assert_whole(run, made):
    ours, whole = Folder(run), Folder(made / "whole")
    for name, tensor in whole.models().items():
        assert ours.models()[name].equal(tensor), name
    assert ours.metrics().drop("seconds").equals(whole.metrics().drop("seconds"))
    assert (run / WEIGHTS).read_bytes() == (made / "whole" / WEIGHTS).read_bytes()


def flip(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.6, 0.999])
def test_a_flipped_bit_in_the_last_checkpoint_is_told_and_the_one_before_is_gone_on_with(made, stopped, share):
    assert Folder(stopped.path).label.round == 3
    flip(stopped.checkpoint, int(share * stopped.checkpoint.stat().st_size))
    with pytest.warns(Notice, match=r"checkpoint\.safetensors: .*going on from the checkpoint before, after round 2"):
        resume(stopped.path)
    assert_whole(stopped.path, made)


def test_of_two_damaged_checkpoints_neither_is_gone_on_with_and_nothing_is_changed(stopped):
    for path in stopped.checkpoints:
        flip(path, path.stat().st_size - 1)
    before = {path.name: path.read_bytes() for path in stopped.path.iterdir()}
    with pytest.raises(InputError, match=r"checkpoint\.safetensors: missing or damaged .*make the run anew"):
        resume(stopped.path)
    assert {path.name: path.read_bytes() for path in stopped.path.iterdir()} == before


def test_after_a_fall_back_the_good_checkpoint_is_not_replaced_by_the_damaged_one(made, stopped):
    flip(stopped.checkpoint, stopped.checkpoint.stat().st_size - 1)

    def stop(record):
        raise KeyboardInterrupt

    with pytest.warns(Notice), pytest.raises(KeyboardInterrupt):
        resume(stopped.path, stop)
    assert stopped.label.round == 2
    resume(stopped.path)
    assert_whole(stopped.path, made)


@pytest.mark.parametrize("name", [METRICS, WEIGHTS])
@pytest.mark.parametrize("how", ["half", "missing", "flipped"])
def test_files_that_are_not_those_of_the_checkpoint_are_refused_by_their_names(stopped, cli, name, how):
    path = stopped.path / name
    if how == "half":
        os.truncate(path, path.stat().st_size // 2)
    elif how == "missing":
        path.unlink()
    else:
        flip(path, path.stat().st_size // 3)
    for command in ("resume", "report"):
        code, _, err = cli(command, stopped.path)
        assert code == 2 and is_one_line(err), err
        assert name in err


@pytest.mark.parametrize("name", [METRICS, WEIGHTS])
def test_a_file_as_old_as_the_checkpoint_before_is_gone_on_with_from_there(made, stopped, name):
    from allforone.runs.checkpoint import read_label

    mark = read_label(stopped.checkpoint_before).marks[name]
    os.truncate(stopped.path / name, mark.size)
    with pytest.warns(Notice, match=rf"{name}: cut off, {mark.size} bytes .*after round 2"):
        resume(stopped.path)
    assert_whole(stopped.path, made)


def test_a_config_cut_before_its_rounds_is_damaged_and_does_not_go_on_for_the_default_number(stopped, cli):
    path = stopped.path / "config.yaml"
    path.write_text(path.read_text().partition("rounds:")[0])
    code, _, err = cli("resume", stopped.path)
    assert code == 2 and "has no rounds" in err


def test_a_config_edited_to_another_seed_is_noticed(stopped, cli):
    path = stopped.path / "config.yaml"
    path.write_text(path.read_text().replace("seed: 127", "seed: 128"))
    for command in ("resume", "report"):
        code, _, err = cli(command, stopped.path)
        assert code == 2 and is_one_line(err), err
        assert "another" in err and "seed" in err


@pytest.mark.parametrize("content", [b"", b"[", b"[]", b"{}", b"[1]", b"\xff\xfe", b'[{"name": 3}]', b"[" * 100_000])
def test_clients_that_cannot_be_read_are_told_before_anything_is_trained(stopped, cli, content):
    (stopped.path / "clients.json").write_bytes(content)
    rounds = Folder(stopped.path).label.round
    for command in ("resume", "report"):
        code, _, err = cli(command, stopped.path)
        assert code == 2 and is_one_line(err), err
        assert "clients.json" in err
    assert Folder(stopped.path).label.round == rounds


def test_final_models_with_a_flipped_bit_are_not_exported(made, tmp_path):
    run = shutil.copytree(made / "whole", tmp_path / "run")
    flip(run / "models.safetensors", (run / "models.safetensors").stat().st_size - 1)
    with pytest.raises(InputError, match=r"models\.safetensors: missing or damaged"):
        export_client(run, "0")


def test_final_models_of_another_program_are_told(made, tmp_path):
    run = shutil.copytree(made / "whole", tmp_path / "run")
    save_file(load_file(run / "models.safetensors"), run / "models.safetensors")
    with pytest.raises(InputError, match=r"models\.safetensors: not a file of a run of this version"):
        export_client(run, "0")


MODELS = """
from torch import nn
from torch.nn import functional as F
import torch, allforone as afo

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.{name} = nn.Linear(3, {outputs})
    def forward(self, x):
        return self.{name}(x)[:, :1]

def problem():
    data = torch.ones(8, 3), torch.ones(8, 1)
    return afo.Problem(Net, F.mse_loss, clients=[afo.Client(data, data)] * 2)
"""


@pytest.mark.parametrize(
    ("name", "outputs", "said"),
    [
        ("renamed", 1, "without renamed.bias, renamed.weight and with layer.bias, layer.weight"),
        ("layer", 2, "with layer.weight as float32 [1, 3] in the place of float32 [2, 3]"),
    ],
)
def test_weights_of_a_model_that_has_changed_since_are_not_exported(tmp_path, cli, name, outputs, said):
    mine = tmp_path / "mine.py"
    mine.write_text(MODELS.format(name="layer", outputs=1))
    execute(prepare(parse({"problem": f"{mine}:problem", "rounds": 1})), tmp_path / "run")
    mine.write_text(MODELS.format(name=name, outputs=outputs))
    os.utime(mine, (1, 1))  # so that it is read anew, though written in the same second
    code, _, err = cli("export", tmp_path / "run", "--client", 0)
    assert code == 2 and is_one_line(err) and said in err
    assert not (tmp_path / "run" / "export").exists()


HALF = ["config.yaml", "environment.json", "clients.json.unfinished"]
UNBORN = [[], ["config.yaml.unfinished"], ["config.yaml"], HALF]


@pytest.mark.parametrize("left", UNBORN, ids=len)
def test_a_run_that_ended_while_its_folder_was_made_is_begun_anew(made, tmp_path, cli, left):
    run = tmp_path / "run"
    run.mkdir()
    for name in left:
        whole = (made / "whole" / name.removesuffix(".unfinished")).read_bytes()
        (run / name).write_bytes(whole[: len(whole) // 2] if name.endswith(".unfinished") else whole)
    if left and "config.yaml" not in left:
        code, _, err = cli("resume", run)
        assert code == 2 and "begin it anew by its first command" in err
    if left is HALF:
        code, _, err = cli("run", "digits", "-p", "clients=3", "--algorithm", "fedavg", "--rounds", 4, "--out", run)
        assert code == 0, err
    else:
        execute(prepare(parse(CONFIG)), run)
    assert_whole(run, made)


@pytest.mark.parametrize("name", ["config.yaml", "metrics.csv", "thesis.txt"])
def test_a_folder_with_a_file_of_the_users_is_never_begun_anew(tmp_path, cli, name):
    (tmp_path / name).write_text("rounds: 3\n")
    code, _, err = cli("run", "digits", "--rounds", 1, "--out", tmp_path)
    assert code == 2 and "nothing was overwritten" in err
    assert [path.read_text() for path in tmp_path.iterdir()] == ["rounds: 3\n"]


def test_one_broken_run_does_not_hold_up_the_others_of_a_comparison(tmp_path, cli):
    problem = ["synthetic", "-p", "clients=3", "--rounds", 2]
    options = ["compare", *problem, "--algorithms", "local,fedavg", "--seeds", "1,2,"]
    out, base = tmp_path / "out", {"problem": {"name": "synthetic", "clients": 3}, "rounds": 2}
    assert compare(plan(base, ["local", "fedavg"], [1, 2], out), out) == {}
    runs = sorted(path.parent for path in out.glob("runs/*/*/config.yaml"))
    (runs[0] / "clients.json").write_text("garbage")  # finished, and damaged
    (runs[1] / "models.safetensors").unlink()  # not finished, and damaged
    for name in ("checkpoint.safetensors", "checkpoint-before.safetensors"):
        (runs[1] / name).write_text("garbage")
    (runs[2] / "models.safetensors").unlink()  # only not finished
    for path in runs[3].iterdir():  # ended before it began
        if path.name != "config.yaml":
            path.unlink()
    with pytest.warns(Notice, match=r"left out: .*clients\.json"):
        code, _, err = cli(*options, "--out", out, "--resume")
    assert code == 1
    assert len(err.splitlines()) == 2 and "clients.json" in err and "checkpoint.safetensors" in err
    assert [Folder(run).finished for run in runs] == [True, False, True, True]


@pytest.mark.parametrize("fleet", ["loop", "stacked"])
def test_a_run_has_the_same_bits_with_any_number_of_threads_and_keeps_its_own_when_resumed(tmp_path, fleet):
    generator = torch.Generator().manual_seed(0)
    data = [(torch.randn(700, 300, generator=generator), torch.randn(700, 1, generator=generator)) for _ in range(2)]
    clients = [afo.Client(pair, pair) for pair in data]
    model = torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.Tanh(), torch.nn.Linear(200, 1))
    given = {"loss": torch.nn.functional.mse_loss, "lr": 0.01, "batch_size": 700, "fleet": fleet}

    def train(threads, **more):
        torch.set_num_threads(threads)
        try:
            return afo.train(model, clients, algorithm=afo.Local(), **given, **more).stacked
        finally:
            torch.set_num_threads(1)

    whole = train(1, rounds=4)
    train(1, rounds=2, out=tmp_path / "run")
    assert Folder(tmp_path / "run").label.about.threads == 1
    resumed = train(2, rounds=4, out=tmp_path / "run", resume=True)
    assert all(resumed[name].equal(whole[name]) for name in whole)
    if fleet == "loop":
        other = train(2, rounds=4)
        assert all(other[name].equal(whole[name]) for name in whole)


def test_reading_a_run_that_goes_on_is_not_refused(made, tmp_path):
    run = shutil.copytree(made / "stopped", tmp_path / "run")
    with (run / METRICS).open("a") as file:
        file.write("4,0,0.2")
    assert read_run(run).metrics["round"].max() == 4
