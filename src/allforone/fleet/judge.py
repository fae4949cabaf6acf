"""What judges models: on test data, on data held out, and on the batches of a round."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..errors import InputError, blaming, within
from ..problems import Problem, unheld
from ..problems.data import Batch, Finite
from .base import Evaluation, NewLosses
from .batches import Batches
from .models import Models, row
from .passes import Passes

#: A client's new data are judged in this many parts, whose losses tell how sure their mean is.
PARTS = 20
#: Numbers in the inputs that pass through a model at once when it is judged.
PASSED_NUMBERS = 2**20


class Judge:
    """`arranged` puts a batch into the order in memory that suits the passes."""

    def __init__(self, problem: Problem, batches: Batches, passes: Passes, arranged: Callable[[Batch], Batch]) -> None:
        self.problem, self.batches, self.passes, self.arranged = problem, batches, passes, arranged

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

            rows = self.passes.workers.each(losses, (row(models, m) for m in range(count)))
            total[:, asked] += torch.stack(rows)
        return total / len(steps)

    def new_losses(self, models: Models, present: Tensor, coming: range) -> NewLosses:
        def losses(module: nn.Module, owned: tuple[int, list[Batch]]) -> Tensor:
            k, parts = owned
            with blaming(f"client {k}: the model or the loss fails on held-out data", "Look at its data"):
                found = [self._loss(module, row(models, k), part, k, j, "new") for j, part in enumerate(parts)]
            return torch.stack(found) if found else torch.empty(0)

        asked, clients = present.nonzero().flatten().tolist(), self.problem.clients
        found = self.passes.workers.each(losses, [(k, self._new_data(k, coming[:PARTS])) for k in asked])
        table = torch.full((len(clients), PARTS), torch.nan, dtype=torch.float64)
        for k, values in zip(asked, found, strict=True):
            table[k, : len(values)] = values
        return NewLosses(table, torch.tensor([client.held is not None for client in clients]))

    def _new_data(self, client: int, coming: range) -> list[Batch]:
        held, clients = self.problem.clients[client].held, self.problem.clients
        if client in (without := unheld(clients)):
            if len(without) == len(clients):
                raise InputError("nothing is held out: make the problem by problems.hold_out(problem, share, seed)")
            return []
        if held is None:
            return [self.arranged(self.batches.uncounted(client, step)) for step in coming]
        parts = torch.arange(len(held)).tensor_split(min(PARTS, len(held)))
        with within(f"client {client}, held-out data"):
            return [self.arranged(held.take(part)) for part in parts]

    @torch.no_grad()
    def _loss(self, module: nn.Module, model: Models, batch: Batch, *name: int | str) -> Tensor:
        with self.passes.judging(module, *name):
            return self.problem.loss(functional_call(module, model, batch[0].clone()), batch[1])

    def evaluate(self, models: Models, present: Tensor) -> Evaluation:
        asked = present.nonzero().flatten().tolist()
        judged = self.passes.workers.each(self._judge, [(k, row(models, k)) for k in asked])
        names = ("loss", *self.problem.metrics, "excess")
        table = torch.full((len(names), len(present)), torch.nan, dtype=torch.float64)
        for k, found in zip(asked, judged, strict=True):
            table[:, k] = torch.tensor([found.get(name, torch.nan) for name in names], dtype=torch.float64)
        tests = [client.test for client in self.problem.clients]
        known = [isinstance(test, Finite) for test in tests]
        metrics = dict(zip(self.problem.metrics, table[1:-1], strict=True)) if all(known) else {}
        return Evaluation(present.clone(), table[0], metrics, None if any(known) else table[-1])

    @torch.no_grad()
    def _judge(self, module: nn.Module, owned: tuple[int, Models]) -> dict[str, float]:
        """Loss and metrics of client k's model on all of its test data at once."""
        k, model = owned
        test = self.problem.clients[k].test
        if not isinstance(test, Finite):
            excess = float(test.excess(model))
            return {"loss": excess + test.floor, "excess": excess}
        outputs, targets = [], []
        with (
            within(f"client {k}, test data"),
            blaming("model or loss fails", "Look at its inputs and targets"),
            self.passes.judging(module, k, "test"),
        ):
            sample, _ = test.take(torch.tensor([0]))
            for places in torch.arange(len(test)).split(max(1, PASSED_NUMBERS // sample.numel())):
                with self.passes.drawing:  # a user's Dataset need not be safe for threads
                    inputs, target = self.arranged(test.take(places))
                outputs.append(functional_call(module, model, inputs))
                targets.append(target)
            output, target = torch.cat(outputs), torch.cat(targets)
            found = {"loss": float(self.problem.loss(output, target))}
        for name, metric in self.problem.metrics.items():
            with blaming(
                f"client {k}: the metric {name} fails on its test data", "Give one that fits, or leave it out"
            ):
                found[name] = metric(output, target)
        return found
