"""What the documents show works as shown."""

import re
import shlex
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from allforone.cli.leaderboard import MARK
from allforone.runs import Folder, parse, run

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(document, language):
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL)
    return [text for spoken, text in fenced if spoken == language]


PYTHON = [(path.name, number, code) for path in DOCUMENTS for number, code in enumerate(blocks(path, "python"))]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number", "code"), PYTHON, ids=lambda value: str(value)[:20])
def test_python_in_the_documents_runs(name, number, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope = {}
    exec(compile(code, f"{name} block {number}", "exec"), scope)
    clients = scope["clients"] if "clients" in scope else scope["problem"].clients
    assert len(scope["result"].models) == len(clients)
    if "report(" in code:
        assert (tmp_path / "out" / "report.html").read_text().startswith("<!doctype html>")


@pytest.fixture
def few_rounds(monkeypatch):
    """Every problem's own number of rounds is small: what is shown is that commands work, not what they give."""
    filled = run._filled

    def in_small(config, task):
        return filled(config, replace(task, settings=replace(task.settings, rounds=min(3, task.settings.rounds))))

    monkeypatch.setattr(run, "_filled", in_small)


@pytest.mark.slow
def test_the_commands_of_the_readme_run_in_their_order(tmp_path, monkeypatch, cli, few_rounds):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    lines = [
        line for block in blocks(ROOT / "README.md", "") for line in block.splitlines() if line.startswith("allforone")
    ]
    assert len(lines) >= 5
    for line in lines:
        code, _, err = cli(*shlex.split(line, comments=True)[1:])
        assert code == 0, f"{line}: {err}"
    for path in ("out/digits", "out/local", "out/sites", "out/comparison"):
        assert (tmp_path / path / "report.html").exists()


def test_the_config_of_the_guide_is_taken_whole(tmp_path, cli):
    (text,) = blocks(ROOT / "docs" / "guide.md", "yaml")
    (tmp_path / "settings.yaml").write_text(text)
    options = ("--config", tmp_path / "settings.yaml", "--rounds", 2)
    code, _, err = cli("run", "synthetic", *options, "--out", tmp_path / "run")
    assert code == 0, err
    written = Folder.open(tmp_path / "run").config
    filled_in = {key: written.pop(key) for key in ("metrics", "identity", "title")}
    assert written == parse({**yaml.safe_load(text), "rounds": 2}).plain()
    assert filled_in["identity"]["loss"] == "torch.nn.functional.mse_loss"


def test_links_between_documents_lead_somewhere():
    for document in [*DOCUMENTS, ROOT / "CONTRIBUTING.md"]:
        for link in re.findall(r"\]\(([^)#]+)", document.read_text()):
            assert link.startswith("http") or (document.parent / link).exists(), f"{document.name}: {link}"


#: What prints numbers; or the words for those that nothing prints any more.
PRINTED_BY = re.compile(r"(?<![\w/])(allforone [a-z]|python -m (allforone|benchmarks)|make [a-z])")
NOT_KEPT = "measured once, by a script that is not kept"
#: A cell that begins with what was measured: a decimal fraction, a percentage, or three digits.
MEASURED = re.compile(r"\W{0,4}(\d[\d,]*\.\d|\d+ ?%|\d{3})")


def sections(text):
    """The text, cut before each heading that is not in a block of code."""
    fenced = re.sub(r"^```.*?^```", lambda block: block[0].replace("\n#", "\n "), text, flags=re.MULTILINE | re.DOTALL)
    cuts = [0, *(found.start() for found in re.finditer(r"^#+ ", fenced, re.MULTILINE)), len(text)]
    return [text[start:end] for start, end in pairwise(cuts)]


def tables_of_numbers(section):
    for table in re.findall(r"(?:^\|.*$\n?)+", section, re.MULTILINE):
        cells = [cell.strip() for row in table.splitlines()[2:] for cell in row.strip("| ").split("|")[1:]]
        if sum(bool(MEASURED.match(cell)) for cell in cells) > 1:
            yield table
    yield from re.findall(r"^```\n[^`]*──[^`]*^```", section, re.MULTILINE)  # as a terminal shows them


def untraced(text):
    """Tables of numbers in whose section nothing says where the numbers are from."""
    found = []
    for section in sections(text):
        code = re.findall(r"^```.*?^```", section, re.MULTILINE | re.DOTALL)
        code += re.findall(r"`[^`]+`", re.sub(r"^```.*?^```", "", section, flags=re.MULTILINE | re.DOTALL))
        if not any(map(PRINTED_BY.search, code)) and NOT_KEPT not in " ".join(section.split()):
            found += tables_of_numbers(section)
    return found


def test_beside_every_table_of_numbers_stands_the_command_that_printed_it():
    table = "\n| a | b | c |\n|---|---|---|\n| x | 12.5 | 7 % |\n"
    assert untraced(f"# One\n`make bench`\n# Two\n{table}") and untraced(f"allforone run{table}")
    assert not untraced(f"# One{table}`allforone run\ndigits`") and not untraced(f"# One{table}It was {NOT_KEPT}.")
    assert not untraced("| a | b |\n|---|---|\n| x | 2 P up |\n| y | 16 N |\n")
    for document in DOCUMENTS:
        written = document.read_text().partition(MARK)[0]  # below it is what tests/leaderboard/test_published.py proves
        assert not (found := untraced(written)), f"{document.name}: no command beside\n{found[0]}"
    assert sum(len([*tables_of_numbers(document.read_text())]) for document in DOCUMENTS) > 25


PUBLISHED = re.compile(r"`(allforone paper (?:table\d|costs) [^`]*--from docs/results)`")


@pytest.mark.slow
def test_every_table_of_the_results_is_what_its_command_writes(tmp_path, monkeypatch, cli):
    text = (ROOT / "docs" / "results.md").read_text()
    shown = {table.strip() for section in sections(text) for table in tables_of_numbers(section)}
    monkeypatch.chdir(ROOT)
    commands = [" ".join(found.split()) for found in PUBLISHED.findall(text)]
    assert len(commands) >= 4
    for number, command in enumerate(commands):
        code, _, err = cli(*shlex.split(command)[1:], "--out", tmp_path / str(number))
        assert code == 0, f"{command}: {err}"
        files = [*(tmp_path / str(number)).glob("*.md")]
        assert len(files) == 2, f"{command} has written {files}"
        for written in files:
            table = written.read_text().partition("\n\n")[0].strip()
            assert table in shown, f"{command} now writes\n{table}"
