"""JSON of small files that are kept under version control: a line for each key, so that a change shows where it is."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from ..opening import content_of


def text(values: dict[str, Any], nested: Collection[str] = ()) -> str:
    """A line for each key, and for each key of what is `nested`."""
    return _lines(values, nested, "") + "\n"


def _lines(values: dict[str, Any], nested: Collection[str], indent: str) -> str:
    def told(key: str, value: Any) -> str:
        if key in nested and value:
            return _lines(value, (), indent + " ")
        return json.dumps(value, ensure_ascii=False, allow_nan=False)

    lines = (f"{json.dumps(key, ensure_ascii=False)}: {told(key, value)}" for key, value in values.items())
    return f"{{\n{indent} " + f",\n{indent} ".join(lines) + f"\n{indent}}}"


def read(path: Path) -> Any:
    return json.loads(content_of(path))
