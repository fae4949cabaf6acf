"""The worlds in which rules are judged: who resembles whom, how much data, noise and time there is, and who lies.

Nothing was tuned on the second half of them, nor on its seeds.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch

from allforone.fleet import ATTACKS, Attack, Attacked, Fleet, Optimizer, Stacked
from allforone.problems import Problem, cifar10, digits, heart_disease, mnist, synthetic
from allforone.runs.config import Choice
from allforone.runs.parts import build_optimizer

SPLITS = ("iid", "dirichlet", "cluster", "shards")


@dataclass(frozen=True)
class World:
    """A problem of a seed, and how it is trained; what is None is as the problem has it."""

    name: str
    problem: Callable[..., Problem]
    family: str = "streams"
    seeds: tuple[int, ...] = ()
    rounds: int | None = None
    inner: int | None = None
    batch_size: int | None = None
    lr: float | None = None
    participation: float = 1.0
    attack: str | None = None

    @property
    def decades(self) -> bool:
        """Whether it is scored by −log10 of the excess loss; else by accuracy in points. More is better in both."""
        return self.family in ("streams", "attacks", "correction")

    def begin(self, seed: int) -> tuple[Fleet, Optimizer, int, int]:
        """The clients, the optimizer, how many rounds, and how many updates in each."""
        problem = self.problem(seed=seed)
        settings = problem.settings
        options = {**settings.optimizer, **({"lr": self.lr} if self.lr else {})}
        scheduler = Choice(**settings.scheduler) if settings.scheduler else None
        optimizer = build_optimizer(Choice(**options), scheduler)
        fleet = Stacked(problem, seed=seed, batch_size=self.batch_size, participation=self.participation)
        attacked = Attacked(fleet, Attack.parse(self.attack)) if self.attack else fleet
        return attacked, optimizer, self.rounds or settings.rounds, self.inner or settings.inner


def resplit(seed: int, scaling: Literal["apart", "together"] = "apart") -> Problem:
    """Heart disease, its patients split anew into those to train on and those to test on."""
    return heart_disease(seed=seed, split=seed, scaling=scaling)


def unequal(seed: int, least: int = 10) -> Problem:
    """Digits dealt alike, but of ten clients each is left with less to train on than the one before."""
    made = digits(seed=seed, split="iid")
    for k, client in enumerate(made.clients):
        data: Any = client.train
        kept = round(len(data) * (least / len(data)) ** (k / (len(made.clients) - 1)))
        client.train = data.part(torch.arange(kept))
    return made


def mislabelled(seed: int, share: float = 0.2) -> Problem:
    """Digits dealt alike, with a share of the labels to train on drawn at random."""
    made, random = digits(seed=seed, split="iid"), torch.Generator().manual_seed(seed)
    for client in made.clients:
        data: Any = client.train
        labels = data.tensors[1]
        wrong = torch.rand(len(labels), generator=random) < share
        labels[wrong] = torch.randint(0, 10, (int(wrong.sum()),), generator=random)
    return made


def renamed(seed: int, groups: int, samples_per_client: int | None = None) -> Problem:
    """Digits dealt alike, but each group of clients calls them by names of its own: what is a 3 here is an 8 there."""
    names = [torch.randperm(10, generator=torch.Generator().manual_seed(100 * seed + group)) for group in range(groups)]
    return in_groups(seed, groups, samples_per_client, lambda group, x, y: (x, names[group][y]))


def turned(seed: int, samples_per_client: int | None = None) -> Problem:
    """Digits dealt alike, but turned by 0, 90, 180 and 270 degrees."""

    def turn(group: int, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.rot90(x.unflatten(1, (8, 8)), group, (1, 2)).flatten(1).contiguous(), y

    return in_groups(seed, 4, samples_per_client, turn)


def in_groups(seed: int, groups: int, samples_per_client: int | None, change: Callable[..., Any]) -> Problem:
    made = digits(seed=seed, split="iid", samples_per_client=samples_per_client)
    for k, client in enumerate(made.clients):
        client.cluster = k % groups
        for data in (client.train, client.test):
            dealt: Any = data
            dealt.tensors = change(client.cluster, *dealt.tensors)
    return made


def one_class(seed: int, clients: int = 2) -> Problem:
    """Digits in shards, of which the first clients are left with one class: hardly a gradient, once it is learned."""
    made = digits(seed=seed, split="shards")
    for client in made.clients[:clients]:
        kept: Any = client.train
        only = kept.tensors[1].mode().values
        for name in ("train", "test"):
            data: Any = getattr(client, name)
            setattr(client, name, data.part((data.tensors[1] == only).nonzero().flatten()))
    return made


def on_a_line(seed: int, noise: float = 1.0) -> Problem:
    """Twenty streams whose optima lie on a line, in a random order, with noisy labels."""
    made = synthetic(seed=seed, dimension=5, clusters=1, noise=noise)
    random = torch.Generator().manual_seed(seed)
    way = torch.randn(5, generator=random, dtype=torch.float64)
    for place, k in enumerate(torch.randperm(20, generator=random).tolist()):
        stream: Any = made.clients[k].train
        stream.optimum = stream.optimum + place / 5 * way / way.norm()
    return made


def unlike_noise(seed: int) -> Problem:
    """Two clusters of which every other pair of clients has labels thirty times as noisy as the rest."""
    made = synthetic(seed=seed, dimension=10)
    for k, client in enumerate(made.clients):
        stream: Any = client.train
        stream.noise = 9.0 if k % 4 < 2 else 0.3
    return made


def half(seeds: tuple[int, ...], resplits: tuple[int, ...], *worlds: World) -> list[World]:
    return [replace(world, seeds=resplits if world.family == "heart" else seeds) for world in worlds]


def dealt(family: str, problem: Callable[..., Problem], **options: Any) -> list[World]:
    return [World(f"{family}, {split}", partial(problem, split=split), family, **options) for split in SPLITS]


TUNED = half(
    (11, 12, 13),
    tuple(range(1000, 1010)),
    World("d = 2, clusters", synthetic),
    World("d = 10, clusters", partial(synthetic, dimension=10)),
    World("spread 0.1", partial(synthetic, spread=0.1)),
    World("spread 3", partial(synthetic, spread=3.0)),
    World("8 unrelated, d = 2", partial(synthetic, clients=8, clusters=8)),
    World("d = 10, clusters, noisy", partial(synthetic, dimension=10, noise=1.0), rounds=100),
    World("spread 1, noisy, step 1/64", partial(synthetic, spread=1.0, noise=1.0), rounds=100, lr=1 / 64),
    World(
        "spread 0.3, noisy, step 1/32", partial(synthetic, dimension=5, spread=0.3, noise=0.3), rounds=100, lr=1 / 32
    ),
    World("spread 0.3, very noisy", partial(synthetic, dimension=5, spread=0.3, noise=2.0), rounds=150),
    World("d = 2, clusters, batch 1", synthetic, batch_size=1),
    World("d = 10, clusters, 30 % present", partial(synthetic, dimension=10), participation=0.3),
    *dealt("digits", digits),
    World("digits, unequal sizes", unequal, "digits"),
    World("digits, Dirichlet, five times as long", partial(digits, split="dirichlet"), "digits", rounds=150),
    World("digits, shards, two of one class, five times as long", one_class, "digits", rounds=150),
    World("ten ways to name digits", partial(renamed, groups=10), "tasks"),
    World("five ways to name digits, 30 images", partial(renamed, groups=5, samples_per_client=30), "tasks"),
    World("digits turned", turned, "tasks"),
    World("heart, batch 1, step 0.05", resplit, "heart", lr=0.05),
    World("optima on a line, noisy", on_a_line, "correction", rounds=100),
    World("spread 1, noisy", partial(synthetic, dimension=5, spread=1.0, noise=1.0), "correction", rounds=200),
    World(
        "10 unrelated, very noisy",
        partial(synthetic, dimension=5, clients=10, clusters=10, noise=2.0),
        "correction",
        rounds=200,
    ),
    World("d = 2, 4 of 20 flip", synthetic, "attacks", attack="flip:4"),
    World("d = 2, 4 of 20 mimic", synthetic, "attacks", attack="mimicry:4"),
)
JUDGED = half(
    (127, 496, 1729),
    tuple(range(20)),
    World("d = 2, clusters", synthetic),
    World("d = 10, clusters", partial(synthetic, dimension=10)),
    World(
        "d = 4, three clusters, unlike directions",
        partial(synthetic, dimension=4, clusters=3, clients=18, spectrum=[1.0, 0.5, 0.2, 0.1]),
        rounds=100,
    ),
    *(
        World(
            f"d = {d}, spread {spread:g}", partial(synthetic, dimension=d, spread=spread), rounds=40 if d == 2 else 80
        )
        for d, spread in ((2, 0.01), (3, 0.03), (2, 0.3), (5, 1.0), (2, 3.0))
    ),
    World("8 unrelated, d = 10", partial(synthetic, dimension=10, clients=8, clusters=8)),
    World("12 unrelated, d = 4", partial(synthetic, dimension=4, clients=12, clusters=12), rounds=80),
    World(
        "spread 0.5, noisy, step 1/64", partial(synthetic, dimension=3, spread=0.5, noise=0.5), rounds=150, lr=1 / 64
    ),
    World("spread 2, noisy, step 1/128", partial(synthetic, spread=2.0, noise=1.0), rounds=200, lr=1 / 128),
    World("clusters, noisy, step 1/32", partial(synthetic, dimension=5, noise=1.0), rounds=150, lr=1 / 32),
    World("on a line, noisy", on_a_line, rounds=100),
    World("half of the labels very noisy", unlike_noise, rounds=100),
    World("d = 4, clusters, batch 1", partial(synthetic, dimension=4), rounds=100, batch_size=1),
    World("d = 4, clusters, 30 % present", partial(synthetic, dimension=4), rounds=100, participation=0.3),
    World("spread 1, 30 % present", partial(synthetic, spread=1.0), participation=0.3),
    *dealt("digits", digits),
    World("digits, twenty clients, Dirichlet", partial(digits, clients=20, split="dirichlet"), "digits"),
    World("digits, cluster, 30 % present", digits, "digits", participation=0.3),
    World("digits, iid, five times as long", partial(digits, split="iid"), "digits", rounds=150),
    World("digits, cluster, five times as long", digits, "digits", rounds=150),
    World("digits, unequal sizes", unequal, "digits"),
    World("digits, iid, a fifth mislabelled", mislabelled, "digits"),
    World("digits, Dirichlet, batch 1", partial(digits, split="dirichlet"), "digits", batch_size=1, lr=0.02, inner=40),
    *(
        World(f"{name}{few}", partial(problem, samples_per_client=count), "tasks")
        for count, few in ((None, ""), (30, ", 30 images"))
        for name, problem in (
            ("ten ways to name digits", partial(renamed, groups=10)),
            ("five ways to name digits", partial(renamed, groups=5)),
            ("digits turned", turned),
        )
    ),
    *(
        World(f"heart, batch {b}, step {lr}", resplit, "heart", batch_size=b, lr=lr)
        for b, lr in ((1, 0.01), (1, 0.05), (4, 0.05))
    ),
    *(
        World(
            f"3 of 12 lie: {kind}",
            partial(synthetic, dimension=3, clients=12),
            "attacks",
            rounds=60,
            attack=f"{kind}:3",
        )
        for kind in ATTACKS
    ),
    *dealt("mnist", partial(mnist, clients=10, samples_per_client=300), rounds=20, inner=20),
    *dealt("cifar10", partial(cifar10, clients=10, samples_per_client=1500), rounds=40, inner=20, lr=0.01),
)
