"""The user's own Python files, which are given as path/to/file.py:name."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from .errors import InputError, blaming


def load_file(path: Path) -> ModuleType:
    """The file as a module, under its whole path as its name, so that none is hidden."""
    name = str(path.resolve())
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))  # so that it can import its neighbours, as when it is run
    sys.modules[name] = module  # where its dataclasses look for the types that they name
    with blaming(f"{path}: could not be loaded"):
        spec.loader.exec_module(module)
    return module


def loaded_files() -> list[str]:
    """Which files of the user's were loaded so far."""
    return [name for name in sys.modules if name.endswith(".py") and Path(name).is_absolute()]
