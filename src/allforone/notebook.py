"""A run's progress in a notebook, which has no terminal: one line that is written again."""

import html
import sys
from collections.abc import Callable


def is_one() -> bool:
    """Whether a notebook's kernel runs this."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


def bar(rounds: int | None) -> Callable[[int, str], None]:
    """Takes the number of a round that is done, and its numbers in words."""
    from IPython.display import HTML, display

    shown = display(HTML(_line(0, rounds, "")), display_id=True)

    def update(number: int, numbers: str) -> None:
        shown.update(HTML(_line(number, rounds, numbers)))

    return update


def _line(number: int, rounds: int | None, numbers: str) -> str:
    how_far = f'value="{number}" max="{rounds}"' if rounds else ""
    of = f" of {rounds}" if rounds else ""
    return f"<progress {how_far}></progress> round {number}{of} &nbsp; {html.escape(numbers)}"
