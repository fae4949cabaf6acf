"""Checks for algorithms and fleets from outside: what every one of ours keeps, in one call for a test of yours.

Example:
    >>> from allforone import Local, testing
    >>> testing.check_algorithm(Local())
"""

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .algorithms import Algorithm, State, advance
from .describe import described
from .errors import InputError
from .fleet import Fleet, Ledger, Optimizer, Round, Stacked, Walks, everybody, where_rows
from .machines.loop import Loop
from .problems import Client, Problem, Settings, accuracy
from .runs import checkpoint

__all__ = ["ContractOnly", "check_algorithm", "check_fleet", "small_problem", "with_batch_norm"]

#: Momentum and decay move a model whose gradient is 0, so that forgetting an absent client shows.
MOMENTUM = partial(torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=0.1)

#: fleet = make(problem, seed=…, batch_size=…, participation=…), as those of `allforone.fleet.FLEETS`.
MakeFleet = Callable[..., Fleet]


class ContractOnly:
    """A fleet of which nothing can be used but what the contract names."""

    NAMES = frozenset(name for name in {*Fleet.__annotations__, *vars(Fleet)} if not name.startswith("_"))

    def __init__(self, fleet: Fleet) -> None:
        object.__setattr__(self, "_fleet", fleet)

    def __getattr__(self, name: str) -> Any:
        if name not in self.NAMES:
            raise AttributeError(f"the contract of a fleet has no '{name}': it has {', '.join(sorted(self.NAMES))}")
        return getattr(self._fleet, name)

    def __setattr__(self, name: str, value: Any) -> None:
        assert name == "ledger", f"of a fleet only the ledger may be set, not '{name}'"
        setattr(self._fleet, name, value)


def small_problem(model: Callable[[], nn.Module] | None = None, clients: int = 4) -> Problem:
    """A few clients in two clusters, with unequally many samples, and a small network."""
    random = torch.Generator().manual_seed(0)

    def client(number: int) -> Client:
        x = torch.randn(34 + 3 * number, 6, generator=random) + number % 2
        y = (x.sum(1) > 6 * (number % 2)).long() + number % 2
        return Client((x[6:], y[6:]), (x[:6], y[:6]), cluster=number % 2)

    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))

    return Problem(
        model or network,
        F.cross_entropy,
        metrics={"accuracy": accuracy},
        settings=Settings(batch_size=4, estimation=6),
        name="small",
        clients=[client(number) for number in range(clients)],
    )


def with_batch_norm() -> nn.Module:
    """A model with buffers, which mixes the samples of a batch."""
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))


def check_algorithm(algorithm: Algorithm, problem: Problem | None = None) -> None:
    """Raise an AssertionError that says which promise of an algorithm is broken, or return.

    A round is a pure function of state and round; the absent keep all that is theirs and draw nothing, and nobody hears
    of their models; a round in which nobody is there changes nothing; what is remembered of the clients has a row for
    each; only the fleet's contract is used; the state survives a checkpoint; the fast fleet gives what the plain loop
    gives; the algorithm describes itself.

    Example:
        >>> from allforone import Local
        >>> check_algorithm(Local())
    """
    problem = problem or small_problem()
    n = len(problem.clients)
    _check_description(algorithm)
    absent = [tuple(bool((k + r) % 3) for k in range(n)) for r in range(4)]
    for table in ([(True,) * n] * 3, absent, [(True,) * n, (False,) * n, (True,) * n]):
        fleet = Loop(problem, seed=3, participation=partial(_by_table, table))
        state = algorithm.init(fleet.initial(), Optimizer(MOMENTUM))
        for number in range(len(table)):
            try:
                state = _check_round(algorithm, state, fleet, number)
            except InputError as error:
                raise AssertionError(f"a round was refused: {error}") from error
    _check_fleets_agree(algorithm, problem, absent)


def _by_table(table: Sequence[Sequence[bool]], step: int) -> Sequence[bool]:
    """Who is there, where a round has two steps; the table is gone through again and again."""
    return table[step // 2 % len(table)]


def _check_round(algorithm: Algorithm, state: State, fleet: Loop, number: int) -> State:
    round = fleet.begin(number + 1, range(2 * number, 2 * number + 2))
    before, drawn = _flat(state), fleet.ledger.samples
    contract: Any = ContractOnly(fleet)
    after, info = advance(algorithm, state, contract, round)
    again, _ = advance(algorithm, state, contract, round)
    assert _same(_flat(state), before), "the state that was given has been changed in place: a round must be pure"
    assert _same(_flat(after), _flat(again)), "the same round from the same state gave something else: it must be pure"
    n = len(fleet.roster)
    assert info.weights.shape == (n, n) and info.weights.isfinite().all(), "Info.weights must be [N, N] and finite"
    away = ~round.present
    assert (fleet.ledger.samples[away] == drawn[away]).all(), "a client that is absent was asked"
    for name, tensor in _flat(after._replace(common={})).items():
        if name in before and tensor.dim():  # a counter of steps is common to all rows of an optimizer
            kept = _same({name: tensor[away]}, {name: before[name][away]})
            assert kept, f"{name} of a client that is absent was changed"
    if number and away.any():  # at first the model of who is absent is that of all
        _check_unheard(algorithm, state, after, contract, round)
    if away.all():
        assert _same(_flat(after.common), _flat(state.common)), "a round in which nobody was there changed something"
    assert _same(_flat(_through_checkpoint(after, fleet.ledger)), _flat(after)), (
        "a checkpoint does not give the state back"
    )
    return after


def _check_unheard(algorithm: Algorithm, state: State, after: State, fleet: Fleet, round: Round) -> None:
    """With anything else in the rows of the absent, the others and what is nobody's come out the same."""
    away, n = ~round.present, len(round.present)
    other = state._replace(models=_spoiled(state.models, away), own=_spoiled(state.own, away))
    found, expected = (_flat(s) for s in (advance(algorithm, other, fleet, round)[0], after))
    for name, tensor in expected.items():
        common = name.startswith("/common") or tensor.shape[:1] != (n,)
        kept = ... if common else round.present
        same = _same({name: tensor[kept]}, {name: found[name][kept]})
        assert same, f"the model of a client that is absent was used: {name} depends on it"


def _spoiled(value: Any, rows: Tensor) -> Any:
    if isinstance(value, dict):
        return {key: _spoiled(item, rows) for key, item in value.items()}
    floats = isinstance(value, Tensor) and value.is_floating_point()
    return where_rows(rows, torch.full_like(value, 1e3), value) if floats else value


def _check_description(algorithm: Algorithm) -> None:
    assert isinstance(algorithm, Algorithm), "an algorithm inherits from allforone.Algorithm"
    assert isinstance(algorithm.name, str) and algorithm.name, "an algorithm has a name"
    assert isinstance(algorithm.label, str) and algorithm.label, "an algorithm has a label"
    assert is_dataclass(algorithm), "an algorithm is a frozen dataclass: write @dataclass(frozen=True) above its class"
    assert described(algorithm) == described(replace(algorithm)), (
        "an algorithm is a frozen dataclass whose fields describe it: made again from them, it must be the same"
    )


def _check_fleets_agree(algorithm: Algorithm, problem: Problem, table: Sequence[Sequence[bool]]) -> None:
    ends = []
    for make in (Stacked, Loop):
        fleet = make(problem, seed=3, participation=partial(_by_table, table))
        state = algorithm.init(fleet.initial(), Optimizer(MOMENTUM))
        for number in range(len(table)):
            round = fleet.begin(number + 1, range(2 * number, 2 * number + 2))
            state, _ = advance(algorithm, state, fleet, round)
        ends.append((state.models, fleet.ledger.samples))
    (fast, fast_samples), (plain, plain_samples) = ends
    for name in plain:
        torch.testing.assert_close(fast[name], plain[name], rtol=1e-3, atol=1e-4, msg=f"{name}: stacked is not loop")
    assert torch.equal(fast_samples, plain_samples), "stacked draws other samples than loop"


def check_fleet(make: MakeFleet, exact: bool = False) -> None:
    """Raise an AssertionError that says where a fleet answers otherwise than the plain loop, or return.

    Args:
        make: a function from a problem and the options seed, batch_size and participation to a fleet.
        exact: whether it must be equal bit for bit.

    Example:
        >>> check_fleet(Stacked)
    """
    tables = [[True, True, True, True], [True, False, True, True], [False, False, False, False]]
    for model in (None, with_batch_norm):
        problem = small_problem(model)
        ours, plain = (
            kind(problem, seed=3, batch_size=4, participation=partial(_by_table, tables)) for kind in (make, Loop)
        )
        assert [*ours.roster] == [*plain.roster], "the roster is another"
        assert ours.trained == plain.trained and ours.smoothness == plain.smoothness
        for number in range(4):
            rounds = [fleet.begin(number + 1, range(2 * number, 2 * number + 2)) for fleet in (ours, plain)]
            assert torch.equal(rounds[0].present, rounds[1].present), "begin: others are there than the table says"
            _check_answers(ours, plain, rounds[1], exact)


def _check_answers(ours: Fleet, plain: Fleet, round: Round, exact: bool) -> None:
    n, random = len(plain.roster), torch.Generator().manual_seed(round.number)
    mix = torch.rand(n, n, generator=random, dtype=torch.float64) + torch.eye(n)
    mix[0, 1] = mix[1, 0] = 0
    some, starting = torch.tensor([1, 0, 1]), plain.initial()
    few = torch.tensor([[i, (i + 1) % n, -1] for i in range(n)])
    three = {name: tensor[:3].clone() for name, tensor in starting.items()}
    asked: dict[str, Callable[[Fleet], Any]] = {
        "initial": lambda fleet: fleet.initial(),
        "gradients": lambda fleet: fleet.gradients(starting, mix, round, round.steps[0], fleet.roster.numbers),
        "gradients of rows owned by others": lambda fleet: fleet.gradients(three, mix[:3], round, round.steps[0], some),
        "gradients of nobody's models": lambda fleet: fleet.gradients(three, mix[:3], round, round.steps[0], None),
        "descend": lambda fleet: fleet.descend(starting, mix, Optimizer(MOMENTUM), round)[0],
        "compare on fresh samples": lambda fleet: fleet.compare(starting, round, 5)._asdict(),
        "look": lambda fleet: fleet.look(starting, round, everybody(n), 6, 16)._asdict(),
        "look apart": lambda fleet: fleet.look(starting, round, everybody(n), 5, 16, apart=True)._asdict(),
        "look at few": lambda fleet: fleet.look(starting, round, few, 6, 16)._asdict(),
        "walks": lambda fleet: _ways(fleet.walks(starting, everybody(n), Optimizer(MOMENTUM), round, 2)),
        "walks of few": lambda fleet: _ways(fleet.walks(starting, few, Optimizer(MOMENTUM), round, 1)),
        "losses": lambda fleet: {"losses": fleet.losses(three, round)},
        "evaluate": lambda fleet: _flat(fleet.evaluate(starting, round)._asdict()),
        "ledger": lambda fleet: {"samples": fleet.ledger.samples},
    }
    for what, question in asked.items():
        answer, expected = _flat(question(ours)), _flat(question(plain))
        assert answer.keys() == expected.keys(), f"{what}: gives {sorted(answer)} instead of {sorted(expected)}"
        for name, value in expected.items():
            if exact:
                assert _same({name: answer[name]}, {name: value}), f"{what}: {name} is not equal bit for bit"
            else:
                difference = partial("{}: {} differs. {}".format, what, name)
                torch.testing.assert_close(answer[name], value, rtol=1e-3, atol=1e-5, equal_nan=True, msg=difference)


def _ways(found: Iterable[Walks]) -> dict[str, Tensor]:
    """Of all rows, however many came at a time."""
    parts = list(found)
    if not parts:
        return {}
    tables = {name: torch.cat([getattr(walks, name) for walks in parts]) for name in ("rows", "ways", "read")}
    return {**tables, **{name: torch.cat([walks.buffers[name] for walks in parts]) for name in parts[0].buffers}}


def _through_checkpoint(state: State, ledger: Ledger) -> State:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "checkpoint.safetensors"
        checkpoint.save(path, checkpoint.Checkpoint(state, 1, ledger, 0.0))
        return checkpoint.load(path, state.optimizer).state


def _flat(value: Any, name: str = "") -> dict[str, Tensor]:
    """All tensors in a state, by their places; an optimizer's entries by theirs."""
    if isinstance(value, Tensor):
        return {name: value.clone()}
    if isinstance(value, Optimizer):
        state = (value.state or {}).get("optimizer", {}).get("state", {})
        return _flat(state, name)
    items = value._asdict() if hasattr(value, "_asdict") else value
    if not isinstance(items, dict):
        return {}
    return {place: t for key, item in items.items() for place, t in _flat(item, f"{name}/{key}").items()}


def _same(these: dict[str, Tensor], those: dict[str, Tensor]) -> bool:
    return these.keys() == those.keys() and all(
        these[name].shape == those[name].shape and torch.equal(these[name].nan_to_num(), those[name].nan_to_num())
        for name in these
    )
