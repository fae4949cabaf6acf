"""What judges models: on test data, on data held out, and on the batches of a round."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from ..errors import InputError, blaming, within
from ..problems import Client, Task, unheld
from ..problems.calling import called
from ..problems.data import Batch, Finite, Population
from ..problems.tree import Tree, clone, joined, kind, leaves, length, mapped, numbers
from .base import Evaluation, NewLosses
from .batches import Batches
from .devices import CPU
from .models import Models, alone
from .passes import Passes

#: A client's new data are judged in this many parts, whose losses tell how sure their mean is.
PARTS = 20
#: Numbers in the inputs that pass through a model at once when it is judged.
PASSED_NUMBERS = 2**20
#: What is said where a guard has nothing to judge by.
NOTHING_HELD = "nothing is held out: make the problem by problems.hold_out(problem, share, seed)"


class Judge:
    """`arranged` puts a batch into the order in memory that suits the passes."""

    def __init__(
        self,
        task: Task,
        clients: Sequence[Client] | Mapping[int, Client],
        batches: Batches,
        passes: Passes,
        arranged: Callable[[Batch], Batch],
    ) -> None:
        self.task, self.clients, self.batches = task, clients, batches
        self.passes, self.arranged = passes, arranged

    def losses(self, models: Models, present: Tensor, steps: range) -> Tensor:
        """[M, N], the mean loss of each model on the batches of those present; NaN of the others."""
        asked = present.nonzero().flatten()
        count = len(models[self.passes.trained[0]])
        total = torch.full((count, len(present)), torch.nan, dtype=torch.float64)
        total[:, asked] = 0
        for step in steps if len(asked) else ():
            batches = {k: self.arranged(batch) for k, batch in self.batches.of(present, step).items()}

            def losses(
                module: nn.Module, model: Models, batches: dict[int, Batch] = batches, step: int = step
            ) -> Tensor:
                return torch.stack([self._loss(module, model, batch, k, step) for k, batch in batches.items()])

            rows = self.passes.workers.each(losses, (alone(models, m) for m in range(count)))
            total[:, asked] += torch.stack(rows).cpu()
        return total / len(steps)

    def new_losses(self, models: Models, present: Tensor, coming: range) -> NewLosses:
        def losses(module: nn.Module, k: int) -> Tensor:
            return self.on_new_data(module, k, alone(models, k), coming)

        asked, clients = present.nonzero().flatten().tolist(), [self.clients[k] for k in range(len(self.clients))]
        if asked and len(unheld(clients)) == len(clients):
            raise InputError(NOTHING_HELD)
        found = dict(zip(asked, self.passes.workers.each(losses, asked), strict=True))
        return new_losses_of(found, [client.held is not None for client in clients])

    def on_new_data(self, module: nn.Module, k: int, model: Models, coming: range) -> Tensor:
        """The losses of client k's model on the parts of what it has held out or, of a stream, on the coming batches;
        none of who has neither."""
        parts = self._new_data(k, coming[:PARTS])
        with blaming(f"client {k}: the model or the loss fails on held-out data", "Look at its data"):
            found = [self._loss(module, model, part, k, j, "new") for j, part in enumerate(parts)]
        return torch.stack(found).cpu() if found else torch.empty(0)

    def _new_data(self, client: int, coming: range) -> list[Batch]:
        held = self.clients[client].held
        if held is None:
            streams = self.clients[client].is_stream
            return [self.arranged(self.batches.uncounted(client, step)) for step in coming] if streams else []
        parts = torch.arange(len(held)).tensor_split(min(PARTS, len(held)))
        with within(f"client {client}, held-out data"):
            return [self.arranged(held.take(part)) for part in parts]

    @torch.no_grad()
    def _loss(self, module: nn.Module, model: Models, batch: Batch, *name: int | str) -> Tensor:
        with self.passes.judging(module, *name):
            return self.passes.loss(called(module, clone(batch[0]), model), batch[1])

    def evaluate(self, models: Models, present: Tensor) -> Evaluation:
        def judged(module: nn.Module, k: int) -> dict[str, float]:
            return self.on_test_data(module, k, alone(models, k))

        asked = present.nonzero().flatten().tolist()
        found = dict(zip(asked, self.passes.workers.each(judged, asked), strict=True))
        tested = [not isinstance(self.clients[k].test, Population) for k in range(len(self.clients))]
        return evaluation_of(found, list(self.task.metrics), tested, present)

    @torch.no_grad()
    def on_test_data(self, module: nn.Module, k: int, model: Models) -> dict[str, float]:
        """Loss and metrics of client k's model on all of its test data at once."""
        test = self.clients[k].test
        if test is None:
            return {}
        if not isinstance(test, Finite):
            excess = float(test.excess({name: tensor.cpu() for name, tensor in model.items()}))
            return {"loss": excess + test.floor, "excess": excess}
        with (
            within(f"client {k}, test data"),
            blaming("model or loss fails", "Look at its inputs and targets"),
            self.passes.judging(module, k, "test"),
        ):
            sample, _ = test.take(torch.tensor([0]))
            whole = torch.arange(len(test))
            pieces = whole.split(max(1, PASSED_NUMBERS // numbers(sample)))
            judged = [self._judged(module, model, test, places) for places in pieces]
            if len(judged) > 1 and not _joinable(judged):
                judged = [self._judged(module, model, test, whole)]
            output, target = judged[0] if len(judged) == 1 else joined(judged)
            found = {"loss": float(self.passes.loss(output, target))}
            if self.task.metrics and self.passes.device != CPU:  # metrics are the user's, who may take them to numpy
                output, target = mapped(Tensor.cpu, (output, target))
        for name, metric in self.task.metrics.items():
            with blaming(
                f"client {k}: the metric {name} fails on its test data", "Give one that fits, or leave it out"
            ):
                found[name] = metric(output, target)
        return found

    def _judged(self, module: nn.Module, model: Models, test: Finite, places: Tensor) -> tuple[Tree, Tree]:
        """Outputs and targets of these samples."""
        with self.passes.drawing:  # a user's Dataset need not be safe for threads
            inputs, targets = self.arranged(test.take(places))
        return called(module, inputs, model), targets


def _joinable(judged: list[tuple[Tree, Tree]]) -> bool:
    """Not where batches were padded to different lengths, nor of outputs that are not one for each sample."""
    try:
        counted = all(len(part) == length(targets) for output, targets in judged for part in leaves(output))
        return counted and len({kind(both) for both in judged}) == 1
    except (InputError, TypeError):  # no tensors, or none with samples
        return False


def new_losses_of(found: Mapping[int, Tensor], held: list[bool]) -> NewLosses:
    """The losses of those who were asked as one table; held: of all, who has data held out."""
    table = torch.full((len(held), PARTS), torch.nan, dtype=torch.float64)
    for k, values in found.items():
        table[k, : len(values)] = values
    return NewLosses(table, torch.tensor(held))


def evaluation_of(
    found: Mapping[int, Mapping[str, float]], metrics: list[str], tested: list[bool], present: Tensor
) -> Evaluation:
    """What was found of those who were asked, as tables; tested: of all, who is not judged by a distribution."""
    names = ("loss", *metrics, "excess")
    table = torch.full((len(names), len(present)), torch.nan, dtype=torch.float64)
    for k, values in found.items():
        table[:, k] = torch.tensor([values.get(name, torch.nan) for name in names], dtype=torch.float64)
    named = dict(zip(metrics, table[1:-1], strict=True)) if all(tested) else {}
    return Evaluation(present.clone(), table[0], named, None if any(tested) else table[-1])
