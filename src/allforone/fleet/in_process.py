"""What the fleets of this process share: the clients' data, their batches, one gradient, and evaluation."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.func import functional_call

from ..errors import Diverged, blaming
from ..problems import Problem, check
from ..problems.data import Batch, Finite, draw, generator
from .base import Direction, Evaluation, Models, PairStatistics, row, stack, trained_names
from .optimizer import Optimizer

EVALUATED_NUMBERS = 2**20  # entries of inputs that pass through a model at once when it is judged


class InProcess(ABC):
    """All clients in this process. A subclass says how `gradients` and `compare` are computed."""

    def __init__(self, problem: Problem, *, seed: int, batch_size: int | None = None) -> None:
        self.problem, self.seed = problem, seed
        self.clients, self.loss = problem.clients, problem.loss
        self.batch_size = batch_size or problem.settings.batch_size
        self.module = problem.initial_model(seed)
        check(problem, self.module)
        given = self.module.training  # layers that the user put to eval inside a model in training stay so: frozen
        self.modes = [(layer, layer.training or not given) for layer in self.module.modules()]
        self.trained = trained_names(self.module)
        self.sizes = torch.tensor([float(client.size) for client in self.clients], dtype=torch.float64)
        self.clusters, self.smoothness = problem.clusters, problem.smoothness
        self.samples = torch.zeros(len(self.clients), dtype=torch.long)
        self._counted: dict[tuple[int, str], int] = {}  # the last step whose batch was counted
        self.draws, self.moves_buffers = self._try_layers()

    def initial(self) -> Models:
        """The initial model, once for each client."""
        return stack(self.module, len(self.clients))

    def present(self) -> Tensor:
        return torch.ones(len(self.clients), dtype=torch.bool)

    @abstractmethod
    def gradients(self, models: Models, mix: Tensor, step: int) -> Models: ...

    @abstractmethod
    def compare(self, models: Models, step: int, samples: int) -> PairStatistics: ...

    def descend(
        self, models: Models, mix: Tensor, optimizer: Optimizer, steps: range, direction: Direction | None = None
    ) -> tuple[Models, Optimizer]:
        running = optimizer.start(models, self.trained)
        for step in steps:
            gradients = self.gradients(running.models, mix, step)
            running.apply(direction(running.models, gradients) if direction else gradients)
        return running.finish()

    def batches(self, asked: Tensor, step: int, purpose: str, size: int) -> dict[int, Batch]:
        """A batch of every client that is asked; one that serves several times in a round is counted once."""
        found = {}
        for k in asked.nonzero().flatten().tolist():
            found[k] = draw(self.clients[k].train, size, seed=self.seed, client=k, step=step, purpose=purpose)
            if step > self._counted.get((k, purpose), -1):
                self._counted[k, purpose] = step
                self.samples[k] += len(found[k][0])
        return found

    def gradient(
        self, model: Models, owner: int, client: int, batch: Batch, step: int, purpose: str = "update"
    ) -> tuple[Models, Models]:
        """g_client(θ) of one model, and the buffers after the pass."""
        inputs, targets = batch
        leaves = {name: tensor.detach().requires_grad_(name in self.trained) for name, tensor in model.items()}
        buffers = {name: tensor.clone() for name, tensor in model.items() if name not in self.trained}
        with self.training(client, step, purpose):
            loss = self.loss(functional_call(self.module, {**leaves, **buffers}, inputs.clone()), targets)
        if not loss.isfinite():
            raise Diverged(owner, client, step)
        gradient = torch.autograd.grad(loss, [leaves[name] for name in self.trained], materialize_grads=True)
        return dict(zip(self.trained, gradient, strict=True)), buffers

    @contextmanager
    def training(self, client: int, step: int, purpose: str = "update") -> Iterator[None]:
        """Train mode; layers that draw at random (dropout) draw by the batch's name, whoever computes it."""
        self.train_mode()
        with blaming(f"client {client}: the model or the loss fails on its batch of step {step}",
                     "Look at its data, or try another batch size"):
            if not self.draws:
                yield
                return
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(generator(self.seed, client, step, purpose, "layers").initial_seed())
                yield

    def train_mode(self) -> None:
        for layer, mode in self.modes:
            layer.training = mode

    @torch.no_grad()
    def _try_layers(self) -> tuple[bool, bool]:
        """Whether a forward pass draws at random (dropout), and whether it changes buffers (BatchNorm)."""
        model = {name: tensor[0] for name, tensor in self.initial().items()}
        start = {name: tensor.clone() for name, tensor in model.items()}
        inputs, _ = draw(self.clients[0].train, self.batch_size, seed=0, client=0, step=0, purpose="try")
        with torch.random.fork_rng(devices=[]), self._trying():
            before = torch.get_rng_state()
            functional_call(self.module, model, inputs)
            draws = not torch.equal(before, torch.get_rng_state())
        return draws, any(not torch.equal(start[name], model[name]) for name in model)

    @contextmanager
    def _trying(self) -> Iterator[None]:
        self.train_mode()
        remedy = f"batches have up to {self.batch_size} samples; BatchNorm needs at least 2, of every client"
        with blaming("client 0: the model fails on a training batch", remedy):
            yield

    @torch.no_grad()
    def losses(self, models: Models, steps: range) -> Tensor:
        self.module.eval()
        count, everyone = len(models[self.trained[0]]), torch.ones(len(self.clients), dtype=torch.bool)
        total = torch.zeros(count, len(self.clients), dtype=torch.float64)
        for step in steps:
            for k, (inputs, targets) in self.batches(everyone, step, "update", self.batch_size).items():
                for m in range(count):
                    total[m, k] += self.loss(functional_call(self.module, row(models, m), inputs), targets)
        return total / len(steps)

    @torch.no_grad()
    def evaluate(self, models: Models) -> Evaluation:
        self.module.eval()
        rows = [self._judge(k, row(models, k)) for k in range(len(self.clients))]
        loss, accuracy, excess = ([values[j] for values in rows] for j in range(3))
        return Evaluation(
            torch.tensor(loss, dtype=torch.float64),
            None if None in accuracy else torch.tensor(accuracy, dtype=torch.float64),
            None if None in excess else torch.tensor(excess, dtype=torch.float64),
        )

    def _judge(self, k: int, model: Models) -> tuple[float | None, float | None, float | None]:
        """Loss, accuracy and excess loss of client k's model on its test data."""
        test = self.clients[k].test
        if not isinstance(test, Finite):
            excess = float(test.excess(model))
            return excess + test.floor, None, excess
        loss = accuracy = 0.0
        sample, _ = test.take(torch.tensor([0]))
        for places in torch.arange(len(test)).split(max(1, EVALUATED_NUMBERS // sample.numel())):
            inputs, targets = test.take(places)
            with blaming(f"client {k}, test data: model, loss or metric fails", "Look at its inputs and targets"):
                output, share = functional_call(self.module, model, inputs), len(places) / len(test)
                loss += share * float(self.loss(output, targets))
                if self.problem.accuracy:
                    accuracy += share * float(self.problem.accuracy(output, targets))
        return loss, accuracy if self.problem.accuracy else None, None
