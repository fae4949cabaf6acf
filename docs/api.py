"""How the API reference reads the source: examples are code, and what `__init__` computes is not told as a default."""

from typing import Any

from griffe import Attribute, Extension, Object


class Reading(Extension):
    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = obj.docstring.value.replace("\nExample:\n", "\nExamples:\n")

    def on_attribute(self, *, attr: Attribute, **_: Any) -> None:
        if "instance-attribute" in attr.labels and "class-attribute" not in attr.labels:
            attr.value = None
