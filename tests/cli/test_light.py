"""Help, version and completion answer at once: nothing heavy is imported before a command needs it."""

import importlib
import json
import os
import subprocess
import sys

import pytest

import allforone

HEAVY = ("torch", "numpy", "polars", "scipy", "sklearn", "matplotlib", "allforone.runs", "allforone.problems")


def imported(code, **environment):
    """What of HEAVY, and pydantic, a fresh Python has imported after this code, and what it printed before."""
    said = f"import json, sys\ntry:\n    {code}\nfinally:\n    print(json.dumps(list(sys.modules)), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", said], capture_output=True, text=True, env={**os.environ, **environment}, timeout=60
    )
    return {*HEAVY, "pydantic"} & {*json.loads(done.stderr.splitlines()[-1])}, done.stdout


def command(*arguments):
    return f"from allforone.cli import main; sys.argv = {['allforone', *arguments]!r}; main()"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--help"], "compare"),
        (["--version"], f"allforone {allforone.__version__}"),
        (["run", "--help"], "all-for-one-binary"),
        (["compare", "--help"], "mimicry"),
        (["data", "fetch", "--help"], "heart-disease"),
        (["theory", "plan", "--help"], "--epsilon"),
        (["privacy", "--help"], "--batch-size"),
        (["paper", "table2", "--help"], "cifar10"),
        (["leaderboard", "--help"], "--publish"),
        (["--show-completion", "bash"], "_ALLFORONE_COMPLETE"),
    ],
)
def test_help_version_and_completion_import_nothing_heavy(arguments, said):
    heavy, printed = imported(command(*arguments), _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert said in printed
    assert heavy <= {"pydantic"}  # typer itself checks its options with it


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("allforone re", {"resume", "report"}),
        ("allforone run dig", {"digits"}),
        ("allforone leaderboard cifar10-f", {"cifar10-fedala-labels", "cifar10-fedala-dirichlet"}),
        ("allforone run x --algorithm wg", {"wga-bc", "wga-bc-as-published"}),
    ],
)
def test_the_shell_completes_commands_and_names_without_importing_anything_heavy(words, found):
    completing = {"_ALLFORONE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    heavy, printed = imported(command(), **completing)
    assert {*printed.split()} == found
    assert heavy <= {"pydantic"}


def test_importing_the_package_or_its_names_imports_nothing_heavy():
    assert imported("import allforone, allforone.cli; dir(allforone)")[0] == set()
    assert imported("from allforone.catalogue import ALGORITHMS; 'ditto' in ALGORITHMS; [*ALGORITHMS]")[0] == set()


@pytest.mark.slow
def test_a_run_of_digits_imports_no_scikit_learn(tmp_path):
    run = command("run", "digits", "--algorithm", "local", "--rounds", "1", "--out", str(tmp_path / "run"))
    assert imported(run)[0] & {"torch", "sklearn", "matplotlib"} == {"torch"}


@pytest.mark.slow
def test_every_public_name_is_there_when_asked_for():
    heavy, printed = imported("from allforone import train; print(train.__name__)")
    assert "torch" in heavy and printed.strip() == "train"
    assert {*allforone.__all__, "__version__"} <= {*dir(allforone)}
    names = {name: home for home, names in allforone._HOMES.items() for name in names}
    assert {*names} == {*allforone.__all__}
    for name, home in names.items():
        assert getattr(allforone, name) is getattr(importlib.import_module(f"allforone.{home}"), name)
    with pytest.raises(AttributeError, match="no attribute 'tarin'"):
        allforone.tarin  # noqa: B018


@pytest.mark.slow
def test_rooms_are_attributes_without_an_import_of_their_own():
    assert imported("import allforone; print(allforone.algorithms.Ditto.__name__)")[1].strip() == "Ditto"


def test_help_shows_extras_as_they_are_installed(cli):
    assert "allforone[tensorboard]" in cli("run", "--help")[1]
    assert "allforone[onnx]" in cli("export", "--help")[1]
