"""The rounds of a run as scalars for TensorBoard."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from .errors import InputError
from .runs import Record


def require_tensorboard() -> None:
    if find_spec("tensorboard") is None:
        raise InputError("--tensorboard needs the package tensorboard: pip install 'allforone[tensorboard]'")


@contextmanager
def scalars(folder: Path) -> Iterator[Callable[[Record], None]]:
    """Mean, worst and every client. A resumed run writes a file of its own; TensorBoard joins them."""
    require_tensorboard()
    from torch.utils.tensorboard import SummaryWriter  # slow to import, and an extra

    with SummaryWriter(str(folder)) as writer:

        def on_round(round: Record) -> None:
            evaluation, number = round.evaluation, round.number
            for name, values, worst in (
                ("loss", evaluation.loss, "max"),
                ("accuracy", evaluation.accuracy, "min"),
                ("excess_loss", evaluation.excess, "max"),
            ):
                if values is not None:
                    writer.add_scalar(f"{name}/mean", values.mean(), number)
                    writer.add_scalar(f"{name}/worst", getattr(values, worst)(), number)
                    for client, value in enumerate(values.tolist()):
                        writer.add_scalar(f"{name} by client/{client}", value, number)
            if round.info is not None:
                weights = round.info.weights
                others = (weights != 0).sum(1) - (weights.diagonal() != 0).long()
                writer.add_scalar("collaborators/mean", others.double().mean(), number)
            writer.add_scalar("samples per client", round.samples.double().mean(), number)
            writer.flush()

        yield on_round
