"""What the documents show works as shown."""

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

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
