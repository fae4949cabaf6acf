"""What the site holds beyond docs/: README as its home, the files that documents link to, and the API reference."""

import inspect
import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent

#: The parts of the package with a page of their own; the page of the package links to them.
ROOMS = ["algorithms", "collaboration", "fleet", "leakage", "problems", "theory", "testing"]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    home = "---\nhide: [navigation]\n---\n" + (ROOT / "README.md").read_text()
    files.append(File.generated(config, "index.md", content=home))
    for path in sorted(linked(Path(config.docs_dir))):
        files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    for name, text in reference():
        files.append(File.generated(config, f"api/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    return re.sub(r"\]\((docs/|\.\./)", "](", markdown)


def linked(docs: Path) -> Iterator[Path]:
    """The files of the repository, outside docs/, that a document links to."""
    for document in [*ROOT.glob("*.md"), *docs.glob("*.md")]:
        for link in re.findall(r"\]\(([^):#]+)", document.read_text()):
            path = (document.parent / link).resolve()
            if path.is_file() and path.is_relative_to(ROOT) and not path.is_relative_to(docs):
                yield path


def reference() -> Iterator[tuple[str, str]]:
    """A page for each room with what is public of it; the package's page has a table of its names, and the rest."""
    described = set()
    for room in ROOMS:
        module = import_module(f"allforone.{room}")
        paths = [path for path in dict.fromkeys(public(module).values()) if path.startswith(module.__name__)]
        described.update(paths)
        yield room, page(module, paths)
    package = import_module("allforone")
    names = public(package)
    table = [f"| [`{name}`][{path}] | {summary(getattr(package, name))} |" for name, path in names.items()]
    rest = [path for path in names.values() if path not in described]
    yield "index", page(package, rest, ["| name | what it is |\n|---|---|\n" + "\n".join(table)])


def page(module: ModuleType, paths: list[str], before: Iterable[str] = ()) -> str:
    return "\n\n".join(
        [f"# {module.__name__}", inspect.getdoc(module) or "", *before, *(f"::: {path}" for path in paths)]
    )


def public(module: ModuleType) -> dict[str, str]:
    """Public name → the place of its definition."""
    defined = (name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__)
    names = getattr(module, "__all__", None) or [name for name in defined if not name.startswith("_")]
    return {name: place(module, name) for name in names}


def place(module: ModuleType, name: str) -> str:
    value = getattr(module, name)
    if isinstance(value, ModuleType):
        return value.__name__
    if isinstance(value, type | FunctionType):
        return f"{value.__module__}.{value.__qualname__}"
    return f"{module.__name__}.{name}"


def summary(value: Any) -> str:
    return (inspect.getdoc(value) or "").partition("\n")[0]
