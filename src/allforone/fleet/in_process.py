"""What the fleets of this process share: the clients' data, their batches, one gradient, and evaluation."""

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..errors import Diverged, InputError, blaming
from ..problems import Problem, check
from ..problems.data import Batch, Finite, draw, generator
from .base import Direction, Evaluation, Models, PairStatistics, Validation, restricted, row, stack, trained_names
from .memory import keep_freed_memory
from .optimizer import Optimizer, where_rows
from .workers import Workers

Participation = float | Callable[[int], Tensor | Sequence[bool]]

PARTS = 20  # of a client's new data, whose losses tell how sure their mean is
EVALUATED_NUMBERS = 2**20  # entries of inputs that pass through a model at once when it is judged


class InProcess(ABC):
    """All clients in this process. A subclass says how gradients are mixed and compared.

    participation: with which probability a client is there in a round, or a function from the first step of a round to
    [N], who is there. Only those who are there are asked, and only their models are updated.
    """

    def __init__(
        self, problem: Problem, *, seed: int, batch_size: int | None = None, participation: Participation = 1.0
    ) -> None:
        if not callable(participation) and not 0 < participation <= 1:
            raise InputError(f"participation is {participation}: give a number above 0, at most 1, or a function")
        self.problem, self.seed, self.participation = problem, seed, participation
        self.clients, self.loss = problem.clients, problem.loss
        self.batch_size = batch_size or problem.settings.batch_size
        self.module = problem.initial_model(seed)
        check(problem, self.module)
        given = self.module.training  # layers that the user put to eval inside a model in training stay so: frozen
        self.modes = [layer.training or not given for layer in self.module.modules()]
        self.workers, self.drawing = Workers(self.module), Lock()
        keep_freed_memory()
        self.trained = trained_names(self.module)
        self.sizes = torch.tensor([float(client.size) for client in self.clients], dtype=torch.float64)
        self.clusters, self.smoothness = problem.clusters, problem.smoothness
        self.samples = torch.zeros(len(self.clients), dtype=torch.long)
        self.dropped = torch.zeros(len(self.clients), dtype=torch.long)  #: gradients refused, by sender
        self._ahead: dict[tuple[int, int, str, int], Batch] = {}
        self._counted: dict[tuple[int, str], int] = {}  # the first step whose batch is not counted yet
        self.draws, self.moves_buffers = self._try_layers()

    def initial(self) -> Models:
        """The initial model, once for each client."""
        return stack(self.module, len(self.clients))

    def present(self, step: int) -> Tensor:
        if callable(self.participation):
            here = torch.as_tensor(self.participation(step)).bool()
            if here.shape != (len(self.clients),):
                raise InputError(f"participation gave {list(here.shape)} at step {step}: must tell for each client")
            return here
        if self.participation == 1:
            return torch.ones(len(self.clients), dtype=torch.bool)
        return torch.rand(len(self.clients), generator=generator(self.seed, "present", step)) < self.participation

    def gradients(self, models: Models, mix: Tensor, step: int) -> Models:
        return self.mixed_gradients(models, restricted(mix, self.present(step)), step)

    @abstractmethod
    def mixed_gradients(self, models: Models, mix: Tensor, step: int) -> Models:
        """`gradients` of those who are there."""

    @abstractmethod
    def compare(
        self, models: Models, step: int, samples: int | None = None, among: Tensor | None = None
    ) -> PairStatistics: ...

    def descend(
        self, models: Models, mix: Tensor, optimizer: Optimizer, steps: range, direction: Direction | None = None
    ) -> tuple[Models, Optimizer]:
        here = self.present(steps.start)
        after, optimizer_after = self.descended(models, restricted(mix, here), optimizer, steps, direction)
        if here.all() or len(mix) != len(here):
            return after, optimizer_after
        kept = {name: where_rows(here, after[name], models[name]) for name in models}
        return kept, optimizer_after.only(here, optimizer)

    def descended(
        self, models: Models, mix: Tensor, optimizer: Optimizer, steps: range, direction: Direction | None
    ) -> tuple[Models, Optimizer]:
        running = optimizer.start(models, self.trained)
        for step in steps:
            gradients = self.mixed_gradients(running.models, mix, step)
            running.apply(direction(running.models, gradients) if direction else gradients)
        return running.finish()

    def batches(self, asked: Tensor, step: int, purpose: str, size: int) -> dict[int, Batch]:
        """A batch of every client that is asked."""
        found = {}
        for k in asked.nonzero().flatten().tolist():
            name = (k, step, purpose, size)
            found[k] = self._ahead.pop(name) if name in self._ahead else self._draw(*name)
            self.count(k, range(step, step + 1), purpose, len(found[k][0]))
        return found

    def _draw(self, client: int, step: int, purpose: str, size: int) -> Batch:
        return draw(self.clients[client].train, size, seed=self.seed, client=client, step=step, purpose=purpose)

    def draw_ahead(self, asked: Tensor, step: int) -> None:
        """Make the batches of a coming update while the cores are busy, where that takes time."""
        self._ahead.clear()
        for k in asked.nonzero().flatten().tolist():
            if self.clients[k].is_transformed:
                name = (k, step, "update", self.batch_size)
                self._ahead[name] = self._draw(*name)

    def compared(self, asked: Tensor, step: int, samples: int | None) -> dict[int, list[Batch]]:
        """What each client is compared on: one batch of its own, or the update's batch in two halves.

        A batch too small for halves (of one sample; of three, where layers mix them) is one half, and the batch of the
        step before the other.
        """
        if samples is not None:
            return {k: [batch] for k, batch in self.batches(asked, step, "compare", samples).items()}
        batches = self.batches(asked, step, "update", self.batch_size)
        least = 2 if self.moves_buffers else 1
        if all(len(inputs) >= 2 * least for inputs, _ in batches.values()):
            return {
                k: list(zip(x.split(len(x) // 2)[:2], y.split(len(x) // 2)[:2], strict=True))
                for k, (x, y) in batches.items()
            }
        other = self.batches(asked, step - 1 if step else 1, "update", self.batch_size)
        return {k: [other[k], batches[k]] for k in batches}

    def count(self, client: int, steps: range, purpose: str, size: int) -> None:
        """Enter the batches of these steps in the ledger; one that serves several times in a round counts once."""
        fresh = steps.stop - max(steps.start, self._counted.get((client, purpose), 0))
        if fresh > 0:
            self._counted[client, purpose] = steps.stop
            self.samples[client] += fresh * size

    def gradient(
        self, model: Models, owner: int, client: int, batch: Batch, step: int, purpose: str = "update"
    ) -> tuple[Models, Models]:
        """g_client(θ) of one model, and the buffers after the pass."""
        inputs, targets = batch
        leaves = {name: tensor.detach().requires_grad_(name in self.trained) for name, tensor in model.items()}
        buffers = {name: tensor.clone() for name, tensor in model.items() if name not in self.trained}
        with self.training(self.module, client, step, purpose):
            loss = self.loss(functional_call(self.module, {**leaves, **buffers}, inputs.clone()), targets)
        if not loss.isfinite():
            raise Diverged(owner, client, step)
        gradient = torch.autograd.grad(loss, [leaves[name] for name in self.trained], materialize_grads=True)
        return dict(zip(self.trained, gradient, strict=True)), buffers

    @contextmanager
    def training(self, module: nn.Module, client: int, step: int, purpose: str = "update") -> Iterator[None]:
        """Train mode; layers that draw at random (dropout) draw by the batch's name, whoever computes it."""
        self.train_mode(module)
        with blaming(
            f"client {client}: the model or the loss fails on its batch of step {step}",
            "Look at its data, or try another batch size",
        ):
            if not self.draws:
                yield
                return
            with self.drawing, torch.random.fork_rng(devices=[]):  # such layers know one generator only, the global one
                torch.manual_seed(generator(self.seed, client, step, purpose, "layers").initial_seed())
                yield

    def train_mode(self, module: nn.Module) -> None:
        for layer, mode in zip(module.modules(), self.modes, strict=True):
            layer.training = mode

    @torch.no_grad()
    def _try_layers(self) -> tuple[bool, bool]:
        """Whether a forward pass draws at random (dropout), and whether it changes buffers (BatchNorm)."""
        model = {name: tensor[0] for name, tensor in self.initial().items()}
        start = {name: tensor.clone() for name, tensor in model.items()}
        inputs, _ = draw(self.clients[0].train, self.batch_size, seed=0, client=0, step=0, purpose="try")
        with torch.random.fork_rng(devices=[]), self._trying():
            before, others = torch.get_rng_state(), (random.getstate(), repr(np.random.get_state()))
            functional_call(self.module, model, inputs)
            draws = not torch.equal(before, torch.get_rng_state())
            draws = draws or others != (random.getstate(), repr(np.random.get_state()))
        return draws, any(not torch.equal(start[name], model[name]) for name in model)

    @contextmanager
    def _trying(self) -> Iterator[None]:
        self.train_mode(self.module)
        remedy = f"batches have up to {self.batch_size} samples; BatchNorm needs at least 2, of every client"
        with blaming("client 0: the model fails on a training batch", remedy):
            yield

    def losses(self, models: Models, steps: range) -> Tensor:
        everyone = torch.ones(len(self.clients), dtype=torch.bool)
        count = len(models[self.trained[0]])
        total = torch.zeros(count, len(self.clients), dtype=torch.float64)
        for step in steps:
            batches = [
                self.arranged(batch) for batch in self.batches(everyone, step, "update", self.batch_size).values()
            ]

            @torch.no_grad()
            def losses(module: nn.Module, model: Models, batches: list[Batch] = batches) -> Tensor:
                module.eval()
                return torch.stack([self.loss(functional_call(module, model, x.clone()), y) for x, y in batches])

            rows = self.workers.each(losses, (row(models, m) for m in range(count)))
            total += torch.stack(rows)
        return total / len(steps)

    def validate(self, models: Models, steps: range, among: Tensor) -> Validation:
        @torch.no_grad()
        def losses(module: nn.Module, owned: tuple[int, list[Batch]]) -> Tensor:
            k, parts = owned
            module.eval()
            with blaming(f"client {k}: the model or the loss fails on held-out data", "Look at its data"):
                return torch.stack([self.loss(functional_call(module, row(models, k), x.clone()), y) for x, y in parts])

        asked = among.nonzero().flatten().tolist()
        found = self.workers.each(losses, [(k, self._new_data(k, steps[:PARTS])) for k in asked])
        table = torch.full((len(self.clients), PARTS), torch.nan, dtype=torch.float64)
        for k, values in zip(asked, found, strict=True):
            table[k, : len(values)] = values
        return Validation(table, torch.tensor([client.held is not None for client in self.clients]))

    def _new_data(self, client: int, steps: range) -> list[Batch]:
        held = self.clients[client].held
        if held is None and isinstance(self.clients[client].train, Finite):
            raise InputError("nothing is held out: make the problem by problems.hold_out(problem, share, seed)")
        if held is None:
            return [self.arranged(self._draw(client, step, "update", self.batch_size)) for step in steps]
        return [self.arranged(held.take(part)) for part in torch.arange(len(held)).tensor_split(min(PARTS, len(held)))]

    def evaluate(self, models: Models) -> Evaluation:
        known = [client.test for client in self.clients if not isinstance(client.test, Finite)]
        if len(known) == len(self.clients):
            with torch.no_grad():
                excess = torch.stack([test.excess(row(models, k)) for k, test in enumerate(known)]).double()
            return Evaluation(excess + torch.tensor([test.floor for test in known], dtype=torch.float64), None, excess)
        judged = self.workers.each(self._judge, [(k, row(models, k)) for k in range(len(self.clients))])
        loss, accuracy = torch.tensor(judged, dtype=torch.float64).unbind(1)
        return Evaluation(loss, accuracy if self.problem.accuracy and not known else None, None)

    @torch.no_grad()
    def _judge(self, module: nn.Module, owned: tuple[int, Models]) -> tuple[float, float]:
        """Loss and, where there is one, accuracy of client k's model on its test data."""
        k, model = owned
        test = self.clients[k].test
        if not isinstance(test, Finite):
            return float(test.excess(model)) + test.floor, math.nan
        module.eval()
        loss = accuracy = 0.0
        sample, _ = test.take(torch.tensor([0]))
        for places in torch.arange(len(test)).split(max(1, EVALUATED_NUMBERS // sample.numel())):
            with self.drawing:  # a user's Dataset need not be safe for threads
                inputs, targets = self.arranged(test.take(places))
            with blaming(f"client {k}, test data: model, loss or metric fails", "Look at its inputs and targets"):
                output, share = functional_call(module, model, inputs), len(places) / len(test)
                loss += share * float(self.loss(output, targets))
                if self.problem.accuracy:
                    accuracy += share * float(self.problem.accuracy(output, targets))
        return loss, accuracy

    def arranged(self, batch: Batch) -> Batch:
        """The same batch, in whatever order in memory suits the fleet."""
        return batch
