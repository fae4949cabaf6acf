"""The rounds of a run as scalars for TensorBoard."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .errors import InputError
from .runs import Record
from .runs.quantities import Readings, judged


def require_tensorboard() -> None:
    if find_spec("tensorboard") is None:
        raise InputError("--tensorboard needs the package tensorboard: pip install 'allforone[tensorboard]'")


@contextmanager
def scalars(folder: Path, metrics: Readings | None) -> Iterator[Callable[[Record], None]]:
    """Mean, worst and every client, of those who are known; `metrics` says how the run's own are read.

    Nothing is written before the first round, when the run has its folder. A resumed run writes a file of its own;
    TensorBoard joins them.
    """
    require_tensorboard()
    from torch.utils.tensorboard import SummaryWriter  # slow to import, and an extra

    with ExitStack() as stack:

        @cache
        def opened() -> Any:
            return stack.enter_context(SummaryWriter(str(folder)))

        def on_round(record: Record) -> None:
            writer, number = opened(), record.number
            for quantity, values in judged(record.evaluation, metrics).items():
                known = (~values.isnan()).nonzero().flatten()
                writer.add_scalar(f"{quantity.name}/mean", values[known].mean(), number)
                writer.add_scalar(f"{quantity.name}/worst", getattr(values[known], quantity.worst)(), number)
                for client in known.tolist():
                    writer.add_scalar(f"{quantity.name} by client/{client}", values[client], number)
            if record.info is not None:
                weights = record.info.weights
                others = (weights != 0).sum(1) - (weights.diagonal() != 0).long()
                writer.add_scalar("collaborators/mean", others.double().mean(), number)
            writer.add_scalar("samples per client", record.ledger.samples.double().mean(), number)
            writer.flush()

        yield on_round
