"""Input that is odd, huge or made to hurt ends in one line, at once."""

import gzip
import os
import socket
import subprocess
import sys
from pathlib import Path
from resource import RLIMIT_FSIZE

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset

import allforone as afo
from allforone.catalogue import folder_name
from allforone.errors import InputError, Notice
from allforone.machines.ray import started
from allforone.problems import mnist, shuffle
from allforone.runs import parse, plan, prepare, read_yaml
from allforone.runs.names import find_client

from .commands import CONTEXT, PATIENCE, Command, is_one_line

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "\n".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
CONFIGS = {
    "an alias bomb": (BOMB, "aliases are not read"),
    "thousands of levels": ("rounds: " + "[" * 5000, "nested deeper than 32"),
    "a number of thousands of digits": ("rounds: " + "9" * 5000, "not YAML"),
    "a number of hundreds of digits": (
        "problem: synthetic\nrounds: " + "9" * 900,
        "rounds: expected less than or equal",
    ),
    "a key that is a number": ("1: 2", "every key must be a text"),
    "a key that is a list": ("? [1, 2]\n: 3", "every key must be a text"),
    "a key twice": ("rounds: 1\nrounds: 2", "the key 'rounds' is there twice"),
    "yes for a number": ("problem: synthetic\nrounds: true", "a number, not yes or no"),
    "too many updates": ("problem: synthetic\ninner: 1000000000000", "inner: expected less than or equal to 1000000"),
    "too many clients": ("problem: {name: synthetic, clients: 1000000000}", "at most 4096 and 100000"),
    "too many clients of digits": ("problem: {name: digits, clients: 1000000000}", "between 1 and 1797"),
    "an option torch refuses": (
        "problem: synthetic\noptimizer: {name: SGD, lr: 0.1, momentum: -1}",
        "SGD refuses its options: ValueError: Invalid momentum",
    ),
    "a scheduler torch refuses": (
        "problem: synthetic\nscheduler: {name: StepLR, step_size: many}",
        "StepLR refuses its options",
    ),
    "a tag": ("rounds: !!python/object/apply:os.system ['true']", "could not determine a constructor"),
    "fifty megabytes": ("#" * 50_000_000, "a config has at most 1048576"),
}


@pytest.mark.parametrize("what", CONFIGS)
def test_a_config_that_would_hurt_is_refused_with_the_reason(tmp_path, what):
    content, said = CONFIGS[what]
    path = tmp_path / "config.yaml"
    path.write_text(content)
    with pytest.raises(InputError) as caught:
        prepare(parse(read_yaml(path), str(path)))
    assert said in str(caught.value) and len(str(caught.value)) < 500


def test_a_config_that_is_no_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero"), tmp_path, tmp_path / "missing", tmp_path / ("n" * 300)):
        with pytest.raises(InputError, match="give the path of a YAML config"):
            read_yaml(path)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "synthetic", "-p", "name=digits"], "the name itself is no option"),
        (["run", "synthetic", "-p", "clients=" + "9" * 5000], "cannot read the value"),
        (["run", "synthetic", "--seed", "9" * 100], "seed: expected less than or equal to"),
        (["run", "synthetic", "--attack", "flip:" + "9" * 5000], "say how many clients lie, as flip:4"),
        (["run", "synthetic", "--device", "cuda:" + "9" * 5000], "give cuda, cuda:1, mps, cpu or auto"),
        (["run", "synthetic", "--rounds", "1", "--out", "/proc/nowhere/run"], "/proc/nowhere"),
        (["run", "synthetic", "--rounds", "1", "--out", "/dev/null"], "/dev/null"),
        (["run", "synthetic", "--rounds", "1", "--out", "/tmp/" + "n" * 300], "too long"),
        (["run", "n/" * 2500 + "mine.py:problem"], "…"),
        (["report", "n" * 5000], "nnn…nnn"),
        (["data", "show", "digits", "--out", "picture.odd"], "ends in .png, .pdf or .svg"),
        (["report", "/dev/null"], "no runs there"),
        (["watch", ".", "--port", "0", "--host", "ü" * 100], "choose another --port or --host"),
        (["compare", "synthetic", "--algorithms", "local,local:,local"], "each once"),
        (["run", "synthetic", "--algorithm", "fedavg \x1b[2J"], "unknown algorithm 'fedavg ?[2J'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_odd_command_gets_one_line_and_exit_code_two(cli, arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = cli(*arguments)
    assert code == 2 and is_one_line(err) and len(err) < 600
    assert said in err


def _refuse_kits():
    """In a process of its own, where nothing else has imported FLARE."""
    from allforone.machines.flare.submit import Remote

    for fleet, said in (({"kit": "nowhere"}, "no kit there"), ({"kit": "x", "dead": 1}, "unknown key 'dead'")):
        with pytest.raises(InputError, match=said):
            Remote(parse({"problem": "task.py:task", "fleet": {"name": "flare", **fleet}}), Path("run"))
    assert "nvflare" not in sys.modules


def test_a_kit_and_its_options_are_refused_before_flare_is_imported():
    process = CONTEXT.Process(target=_refuse_kits)
    process.start()
    process.join(PATIENCE)
    assert process.exitcode == 0


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_where_no_cluster_is_is_refused_before_ray_looks_for_it(scheme):
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(InputError, match=r"nobody answers at .*127\.0\.0\.1:\d+ .*; is the cluster up\?"):
            started(f"{scheme}127.0.0.1:{taken.getsockname()[1]}")
    for odd in ("nonsense", "host:", "host:99999", ":1", "[::1", "host:" + "9" * 5000):
        with pytest.raises(InputError, match="give a cluster's, as ray://host:10001"):
            started(scheme + odd)


FILES = {
    "that ends the program": ("import sys; sys.exit(3)", "could not be loaded: SystemExit: 3"),
    "whose error cannot say why": (
        "class Odd(Exception):\n    def __str__(self): raise ValueError\nraise Odd",
        "could not be loaded: Odd: (it cannot say why)",
    ),
    "that is a link to itself": (None, "which leads nowhere; give another path"),
}


@pytest.mark.parametrize("what", FILES)
def test_a_file_is_told_in_one_line(cli, tmp_path, what):
    content, said = FILES[what]
    file = tmp_path / "odd.py"
    file.write_text(content) if content else file.symlink_to(file)
    code, _, err = cli("run", f"{file}:problem", "--rounds", 1, "--out", tmp_path / "run")
    assert code == 2 and is_one_line(err) and said in err and "fault of allforone" not in err, err


@pytest.mark.parametrize(
    "label", ["ditto:penalty=1 #/../../evil", "..", ".", "../..", "/etc/passwd", "a\0b", "x" * 5000, "con\n", "...", ""]
)
def test_a_label_never_becomes_a_path(label, tmp_path):
    name = folder_name(label)
    place = tmp_path / name / "1"
    assert name and len(name) < 150 and place.resolve().parent.parent == tmp_path.resolve()


def test_a_run_of_a_comparison_lies_in_its_folder_whatever_it_is_called(tmp_path):
    base, odd = {"problem": {"name": "synthetic", "clients": 2}, "rounds": 1}, "ditto:penalty=1 #/../../../../evil"
    (job,) = plan(base, [odd], [1], tmp_path / "out")
    assert job.path.resolve().parents[2] == (tmp_path / "out").resolve()


def test_labels_of_one_folder_are_refused(cli, tmp_path):
    named = "ditto:penalty=1 #?a,ditto:penalty=1 ##a"
    code, _, err = cli("compare", "synthetic", "--algorithms", named, "--out", tmp_path / "out")
    assert code == 2 and is_one_line(err) and "would be that of another" in err
    assert not (tmp_path / "out").exists()


def test_a_client_is_found_by_its_name_before_its_number_which_is_said():
    clients = ["2", "0", "1", None]
    with pytest.warns(Notice, match="'1' is taken by its name: it is number 2"):
        assert find_client(clients, "1") == 2
    assert find_client(clients, "3") == 3
    with pytest.raises(InputError, match="several are called so"):
        find_client(["north"] * 2, "north")
    for wanted in ("9" * 5000, "²", "-1", ""):
        with pytest.raises(InputError, match="numbered from 0"):
            find_client(clients, wanted)


DATA = torch.ones(8, 3), torch.ones(8, 1)


def trained(**changes):
    clients = changes.pop("clients", None) or [afo.Client(DATA, DATA) for _ in range(2)]
    given = {"loss": F.mse_loss, "rounds": 1, "algorithm": afo.Local(), **changes}
    return afo.train(nn.Linear(3, 1), clients, **given)


class Stream:
    def __init__(self, made):
        self.made = made

    def draw(self, size, generator):
        return self.made(size)


PROBLEMS = {
    "a number of clients": ({"clients": 3}, "clients is a int"),
    "a dict of what is no client": ({"clients": {"a": (1, 2)}}, "client a: cannot read data from int"),
    "a dict of clients without texts as names": ({"clients": {1: DATA}}, "name of a client is 1"),
    "a share of all as test data": ({"clients": lambda: [afo.Client(DATA, 1.0)]}, "share of test data is 1.0"),
    "too few samples to part": (
        {"clients": lambda: [afo.Client((DATA[0][:2], DATA[1][:2]))]},
        "2 samples are too few to hold out 20%",
    ),
    "a stream without test data": (
        {"clients": lambda: [afo.Client(Stream(lambda n: (torch.ones(n, 3), torch.ones(n, 1))))]},
        "a stream has no test data",
    ),
    "no client": ({"clients": [1]}, r"clients\[0\] is a int"),
    "a transform that fails": (
        {"clients": lambda: [afo.Client(DATA, DATA, transform=lambda x: x.no)]},
        "transform fails: AttributeError",
    ),
    "a transform without a result": (
        {"clients": lambda: [afo.Client(DATA, DATA, transform=print)]},
        "transform gives NoneType",
    ),
    "a stream that fails": (
        {"clients": lambda: [afo.Client(Stream(lambda n: 1 / 0), DATA)]},
        "draw fails: ZeroDivision",
    ),
    "a stream without a result": (
        {"clients": lambda: [afo.Client(Stream(lambda n: None), DATA)]},
        "draw gives NoneType",
    ),
    "a stream that gives too much": (
        {"clients": lambda: [afo.Client(Stream(lambda n: (torch.ones(n + 1, 3), torch.ones(n + 1, 1))), DATA)]},
        "must have the",
    ),
    "a detached loss": ({"loss": lambda o, t: F.mse_loss(o, t).detach()}, "detached"),
    "an integer loss": ({"loss": lambda o, t: F.mse_loss(o, t).long()}, "the loss is int64"),
    "a complex loss": ({"loss": lambda o, t: F.mse_loss(o, t) + 1j}, "the loss is complex64"),
    "sparse data": ({"clients": lambda: [afo.Client((DATA[0].to_sparse(), DATA[1]), DATA)]}, "sparse tensors"),
    "meta data": ({"clients": lambda: [afo.Client((DATA[0].to("meta"), DATA[1]), DATA)]}, "meta tensors"),
    "a name that is no text": ({"clients": lambda: [afo.Client(DATA, DATA, name=b"x")]}, "name of a client"),
    "smoothness of another kind": ({"smoothness": "large"}, "smoothness is large"),
}


@pytest.mark.parametrize("what", PROBLEMS)
def test_a_problem_that_cannot_be_trained_is_refused_with_the_reason(what):
    changes, said = PROBLEMS[what]
    with pytest.raises(InputError, match=said):
        trained(**{key: value() if key == "clients" and callable(value) else value for key, value in changes.items()})


def test_clients_may_come_from_a_generator():
    assert len(trained(clients=(afo.Client(DATA, DATA) for _ in range(3))).models) == 3


def test_settings_that_no_config_can_hold_are_refused():
    with pytest.raises(InputError, match="lr of the optimizer"):
        afo.Settings(optimizer={"name": "SGD", "lr": torch.tensor(0.1)})


class Endless(Dataset):
    def __len__(self):
        return 10**9

    def __getitem__(self, place):
        return torch.full((3,), place / 1e9), torch.ones(1)


def test_a_data_set_of_a_thousand_million_samples_is_trained_on_without_an_order_in_memory():
    result = trained(clients=[afo.Client(Endless(), DATA)])
    assert result.roster[0].size == 10**9 and result.metrics["loss"].is_finite().all()
    before, after = (t.weight for t in (result.problem.initial_model(result.config.seed), result.model(0)))
    assert not after.equal(before)


@pytest.mark.parametrize("size", [5, 64, 1000, 4097])
def test_the_order_computed_place_by_place_is_a_permutation_that_depends_on_its_name(size, monkeypatch):
    monkeypatch.setattr(shuffle, "HELD", 1)
    order = shuffle.shuffled(torch.arange(size), size, 1, "update", 0)
    assert order.sort().values.equal(torch.arange(size))
    assert shuffle.shuffled(torch.arange(size).flip(0), size, 1, "update", 0).flip(0).equal(order)
    other = shuffle.shuffled(torch.arange(size), size, 1, "update", 1)
    assert not other.equal(order)
    if size >= 1000:  # no place of one order tells that of the other
        assert abs(np.corrcoef(order, other)[0, 1]) < 0.1 and abs(np.corrcoef(order, np.arange(size))[0, 1]) < 0.1


def test_a_packed_file_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("ALLFORONE_DATA", str(tmp_path))
    monkeypatch.setattr(sys.modules[mnist.__module__], "MOST_BYTES", 2**20)
    (tmp_path / "mnist").mkdir()
    with gzip.open(tmp_path / "mnist" / "train-images-idx3-ubyte.gz", "wb") as file:
        file.write(bytes(2**21))
    with pytest.raises(InputError, match="at most 1048576 bytes when unpacked"):
        mnist()


def test_a_full_disk_ends_a_run_in_one_line_and_what_was_written_before_is_kept(tmp_path):
    given = ["run", "synthetic", "--algorithm", "local", "--rounds", 2000, "--out", tmp_path / "run"]
    code, err = Command(*given, limits={RLIMIT_FSIZE: 60_000}).ended()
    assert code == 2 and is_one_line(err), err
    assert "cannot be written (File too large)" in err
    assert (tmp_path / "run" / "checkpoint.safetensors").exists()


@pytest.mark.slow
def test_a_terminal_that_knows_ascii_only_is_no_reason_to_fail(tmp_path):
    out = tmp_path / "run"
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "allforone", "run", "synthetic", "--rounds", "1", "--out", str(out)]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "–" in (out / "report.html").read_text(encoding="utf-8")
