"""How the house is built, read off its source: who imports whom, how long things are, what is explained."""

import ast
import subprocess
import sys
from pathlib import Path

import allforone

SOURCE = Path(allforone.__file__).parent
REPOSITORY = Path(__file__).parent.parent

#: The rooms in the order in which data flows, and where the modules beside them stand. Each imports only from its left.
ORDER = [
    *("errors", "stopping", "opening", "describe", "files", "catalogue"),  # words that every room may use
    *("problems", "fleet", "machines", "collaboration", "algorithms", "theory", "runs"),
    *("notebook", "progress", "tensorboard", "loggers"),  # show the rounds of a run
    "machines/flare",  # a run that is started, followed and kept going from elsewhere
    *("reports", "paper", "testing", "leakage", "results", "leaderboard", "api", "estimator"),
    *("cli", "__main__", "__init__"),  # the doors
]

#: Lines of code; a longer function has a comment on its first line that says why.
LONGEST_FUNCTION = 60
LONGEST_FILE = 350

#: What takes long to import, and is imported when it is used.
HEAVY = {"matplotlib", "polars", "pydantic", "scipy", "sklearn", "torch"}


def python_files(*folders):
    return sorted(path for folder in folders for path in (REPOSITORY / folder).rglob("*.py"))


def executed(tree):
    """Every node but those that only the type checker reads."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")):
            yield node
            yield from executed(node)


def imported_rooms(path):
    """(line, room) of each import from this package, those inside functions included."""
    package = ["allforone", *path.relative_to(SOURCE).parent.parts]
    for node in executed(ast.parse(path.read_text())):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) + 1 - node.level] if node.level else []
            within = [*start, *(node.module.split(".") if node.module else [])]
            modules = [[*within, alias.name] for alias in node.names]
        for module in modules:
            if module[0] == "allforone":
                yield node.lineno, room(module[1:]) if module[1:] else "__init__"


def room(parts):
    """Where a module stands: in a room within a room, if that has a place of its own."""
    return next(place for place in ("/".join(parts[:2]), parts[0]) if place in ORDER or place == parts[0])


def test_a_room_imports_only_from_rooms_to_its_left():
    wrong = []
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        here = room(path.relative_to(SOURCE).with_suffix("").parts)
        if here not in ORDER:
            wrong.append(f"{name} has no place in the order of rooms")
            continue
        allowed = {"__version__", here, *ORDER[: ORDER.index(here)]}
        wrong += [f"{name}:{line} imports {room}" for line, room in imported_rooms(path) if room not in allowed]
    assert not wrong, "\n".join(wrong)


def functions(path):
    """(first line, name, lines of code) of each function; its docstring is not code."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            prose = node.body[0].end_lineno - node.body[0].lineno + 1 if ast.get_docstring(node) else 0
            yield node.lineno, node.name, node.end_lineno - node.lineno + 1 - prose


def test_a_long_function_says_why():
    long = []
    for path in python_files("src", "benchmarks", "docs", "examples"):
        lines = path.read_text().splitlines()
        for line, name, length in functions(path):
            reason = lines[line - 1].partition("# ")[2]
            if length > LONGEST_FUNCTION and (not reason or reason.startswith(("noqa", "type:"))):
                long.append(f"{path.relative_to(REPOSITORY)}:{line} {name} has {length} lines")
    assert not long, "\n".join(long)


def test_files_are_short():
    files = python_files("src", "benchmarks", "docs", "examples", "tests")
    lengths = {str(path.relative_to(REPOSITORY)): len(path.read_text().splitlines()) for path in files}
    assert not {name: length for name, length in lengths.items() if length > LONGEST_FILE}


def test_public_names_have_docstrings():
    bare = []
    for name in allforone.__all__:
        value = getattr(allforone, name)
        made = f"{getattr(value, '__name__', name)}("  # what a dataclass without a docstring is given as one
        if not value.__doc__ or value.__doc__.startswith(made):
            bare.append(name)
    assert not bare


def test_importing_the_package_imports_nothing_heavy():
    program = f"import allforone, sys; print(*sorted({HEAVY} & set(sys.modules)))"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.split() == []
