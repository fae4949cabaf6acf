"""Tables of a benchmark: on the terminal, or as a document has them."""

from collections.abc import Iterable

from rich.console import Console

from allforone.reports import table as form


def show(tables: Iterable[form.Table], markdown: bool) -> None:
    for table in tables:
        if markdown:
            print(form.markdown(table))
        else:
            Console().print(form.terminal(table))
