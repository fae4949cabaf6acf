"""YAML that cannot hurt: plain values of bounded size and depth, without aliases and without a key twice."""

import stat
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError
from yaml.events import AliasEvent

from ..errors import InputError

#: Bytes of a config, many times what one with every setting has.
MOST_BYTES = 2**20
#: Lists in lists in lists.
MOST_DEPTH = 32


class _Loader(yaml.SafeLoader):
    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        place: Any = event.start_mark
        if isinstance(event, AliasEvent):
            raise ConstructorError(None, None, "aliases are not read; write the value again", place)
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise ConstructorError(None, None, f"nested deeper than {MOST_DEPTH}", place)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        found: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                raise ConstructorError(None, None, "every key must be a text; quote it", key.start_mark)
            if key.value in found:
                raise ConstructorError(None, None, f"the key '{key.value[:40]}' is there twice", key.start_mark)
            found.add(key.value)
        return super().construct_mapping(node, deep)


def load(text: str | bytes) -> Any:
    """Raises ValueError, which says what is wrong and where."""
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "not YAML"
        raise ValueError(f"{problem}{where}") from None
    except (RecursionError, OverflowError):
        raise ValueError("nested too deeply, or a number too large") from None


def read(path: Path) -> dict[str, Any]:
    """A file with keys and values."""
    try:
        kind = path.stat()
        if not stat.S_ISREG(kind.st_mode):
            raise InputError(f"{path}: not a file; give the path of a YAML config")
        if kind.st_size > MOST_BYTES:
            raise InputError(f"{path}: {kind.st_size} bytes; a config has at most {MOST_BYTES}")
        content = load(path.read_bytes())
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; give the path of a YAML config") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); give the path of a YAML config") from None
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{path}: not YAML: {error}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected keys and values such as 'rounds: 100'")
    return content
