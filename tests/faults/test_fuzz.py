"""Configs and run folders of any content end in an error of ours, in one line, or work."""

import shutil

import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import allforone as afo
from allforone.errors import InputError, explained
from allforone.reports.watch import Watched
from allforone.runs import Folder, execute, export_client, parse, prepare, read_comparison, read_yaml, resume
from allforone.runs.config import RunConfig

CONFIG = {"problem": {"name": "synthetic", "clients": 3}, "rounds": 2, "algorithm": "fedavg"}

PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=12), st.integers(min_value=10**30),
    st.sampled_from(["SGD", "Adam", "StepLR", "local", "ditto", "loop", "synthetic", "flip:1", "horizon", ".nan"]),
)  # fmt: skip
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
NAMED = st.fixed_dictionaries(
    {"name": PLAIN},
    optional={
        "lr": PLAIN,
        "momentum": PLAIN,
        "step_size": PLAIN,
        "clients": PLAIN,
        "penalty": PLAIN,
        "dimension": PLAIN,
    },
)
#: In an order of their own, not a set's, so that the same configs are tried everywhere.
OPTIONAL = [field for field in RunConfig.model_fields if field != "problem"]
CONFIGS = st.fixed_dictionaries(
    {"problem": st.just("synthetic") | NAMED | VALUES},
    optional={**dict.fromkeys(OPTIONAL, NAMED | VALUES), "odd": VALUES},
)


def survives(function, *arguments):
    """Whether it works; if not, it is an error of ours that says so in one line."""
    said = None
    try:
        function(*arguments)
    except InputError as error:
        said = explained(error)
    assert said is None or 0 < len(said) < 2000
    return said is None


@given(CONFIGS)
@settings(max_examples=150)
def test_any_config_is_refused_in_one_line_or_taken(tmp_path_factory, config):
    path = tmp_path_factory.mktemp("config") / "config.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    survives(lambda: prepare(parse(read_yaml(path), str(path))).check())


def test_a_config_with_every_key_wrong_names_some_and_counts_the_rest():
    config = {"problem": {"name": []}, "odd": None} | {name: {"x": [0] * 50} for name in OPTIONAL}
    with pytest.raises(InputError, match=r"and \d+ more$") as error:
        parse(config)
    assert len(str(error.value)) < 1000


@given(st.binary(max_size=200) | st.text(alphabet="abc:[]{}&*!-#\n\t \"'0.|>%@", max_size=200).map(str.encode))
@settings(max_examples=200)
def test_any_bytes_for_a_config_are_refused_in_one_line_or_taken(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("config") / "config.yaml"
    path.write_bytes(content)
    survives(lambda: parse(read_yaml(path), str(path)))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    torch.set_num_threads(1)
    path = tmp_path_factory.mktemp("finished") / "run"
    execute(prepare(parse(CONFIG)), path)
    return path


COMMANDS = {
    "report": read_comparison,
    "resume": resume,
    "export": lambda path: export_client(path, "0"),
    "watch": lambda path: Watched(path).now(),
    "metrics": lambda path: (Folder(path).metrics(), list(Folder(path).tables())),
}
NAMES = [
    *("config.yaml", "clients.json", "metrics.csv", "weights.rounds", "models.safetensors"),
    *("checkpoint.safetensors", "checkpoint-before.safetensors"),
]
DEEP = b"[" * 50_000
CORPUS = {
    "empty": b"",
    "binary": bytes(range(256)) * 8,
    "zeros": bytes(4096),
    "deep": DEEP,
    "object": b'{"a": [1, {"b": null}]}',
    "list": b"[1, 2]",
    "words": "pröblem: [synthetic\n".encode("latin-1"),
    "header": (1 << 40).to_bytes(8, "little") + b'{"a": 1}',
    "tensors": (100).to_bytes(8, "little")
    + b'{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,4]}}'.ljust(100)
    + bytes(4),
    "folder": None,
}


@pytest.mark.filterwarnings("ignore::allforone.errors.Notice")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("what", CORPUS)
def test_a_folder_with_a_file_of_something_else_is_refused_in_one_line_or_works(finished, tmp_path, name, what):
    for command in COMMANDS.values():
        path = shutil.copytree(finished, tmp_path / "run")
        (path / name).unlink()
        if CORPUS[what] is None:
            (path / name).mkdir()
        else:
            (path / name).write_bytes(CORPUS[what])
        survives(command, path)
        shutil.rmtree(path)


@pytest.mark.filterwarnings("ignore::allforone.errors.Notice")
@given(
    st.sampled_from(NAMES),
    st.floats(0, 1),
    st.sampled_from(["cut", "flip", "insert", "double"]),
    st.sampled_from([*COMMANDS]),
)
@settings(max_examples=100)
def test_a_folder_damaged_anywhere_is_refused_in_one_line_or_gives_the_same(
    finished, tmp_path_factory, name, share, how, command
):
    path = shutil.copytree(finished, tmp_path_factory.mktemp("damaged") / "run")
    content = bytearray((path / name).read_bytes())
    place = min(int(share * len(content)), len(content) - 1)
    if how == "cut":
        del content[place:]
    elif how == "flip":
        content[place] ^= 1
    else:
        content[place:place] = b"\xff{" if how == "insert" else content[: place + 1]
    (path / name).write_bytes(content)
    if survives(COMMANDS[command], path) and command == "resume":
        models, whole = Folder(path).models(), Folder(finished).models()
        assert all(models[key].equal(whole[key]) for key in whole)


def test_what_nobody_foresaw_is_told_in_one_line_as_our_fault(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)

    def broken(*given):
        raise KeyError("something\ndeep inside")

    monkeypatch.setattr("allforone.runs.read_comparison", broken)
    code, _, err = cli("report", tmp_path)
    assert code == 2 and err.count("\n") == 1
    (details,) = tmp_path.glob("allforone-fault-*.txt")
    assert f"this is a fault of allforone, not yours: please report it with {details}" in err
    assert "Traceback" in details.read_text() and "deep inside" in details.read_text()
    assert afo.__version__ in details.read_text()


def test_a_panic_of_compiled_code_for_want_of_memory_is_told_as_that(cli, monkeypatch, tmp_path):
    class Panic(BaseException):
        """As those of Rust, which are no Exceptions."""

    def broken(*given):
        raise Panic("memory allocation of 8589934592 bytes failed")

    monkeypatch.setattr("allforone.runs.read_comparison", broken)
    code, _, err = cli("report", tmp_path)
    assert (code, err) == (2, "allforone: not enough memory: try a smaller batch_size, fewer clients, or --workers 1\n")
