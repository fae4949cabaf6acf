"""Going on with a run is refused where its numbers would change, which is said, and nothing is touched."""

import os
import shutil
from dataclasses import dataclass
from functools import partial
from itertools import count

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import allforone as afo
from allforone.algorithms import Ditto, FedAvg, Local
from allforone.runs import Folder, execute, parse, prepare, resume

pytestmark = pytest.mark.slow


def sites(count=3, names=("north", "south", "west"), **options):
    random = torch.Generator().manual_seed(0)
    data = [(torch.randn(8, 3, generator=random), torch.randn(8, 1, generator=random)) for _ in range(count)]
    return [afo.Client(pair, pair, name=name, **options) for pair, name in zip(data, names, strict=True)]


def settings(out, **changes):
    return {
        "model": partial(nn.Linear, 3, 1),
        "clients": sites(),
        "loss": F.mse_loss,
        "algorithm": afo.BySimilarity(afo.binary(0.1), afo.FreshSamples(4)),
        "rounds": 2,
        "lr": 0.01,
        "seed": 1,
        "out": out,
        **changes,
    }


def contents(folder):
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in sorted(folder.rglob("*"))}


def assert_refused(out, said, **changes):
    """Going on with these changes, and two rounds more, is refused for this one reason."""
    before = contents(out)
    with pytest.raises(afo.InputError, match=f"holds a run with another {said}: nothing was changed"):
        afo.train(**settings(out, **{"rounds": 4, **changes}), resume=True)
    assert contents(out) == before


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    torch.set_num_threads(1)
    path = tmp_path_factory.mktemp("made") / "run"
    afo.train(**settings(path))
    return path


@pytest.fixture
def run(made, tmp_path):
    return shutil.copytree(made, tmp_path / "run")


def test_the_same_settings_made_anew_and_more_rounds_are_accepted(run):
    longer = afo.train(**settings(run, rounds=5), resume=True)
    whole = afo.train(**settings(None, rounds=5))
    assert all(longer.stacked[name].equal(whole.stacked[name]) for name in whole.stacked)
    assert longer.metrics.drop("seconds").equals(whole.metrics.drop("seconds"))
    assert Folder.open(run).config["rounds"] == 5


def test_other_rounds_between_evaluations_are_accepted(run):
    result = afo.train(**settings(run, rounds=6, evaluate_every=2), resume=True)
    assert result.metrics["round"].unique().sort().to_list() == [0, 1, 2, 4, 6]


def defined(source, **names):
    """What a file of the user's own would define by this source, in which these names have these values."""
    scope = {"F": F, "nn": nn, "afo": afo, "__name__": "mine", **names}
    exec(source, scope)
    return scope["mine"]


class Silent(afo.FreshSamples):
    """An estimator of the user's own, with the fields of another."""


@dataclass(frozen=True)
class Square(afo.Criterion):
    """A criterion of the user's own, without a field."""

    def phi(self, x):
        return x**2


ALGORITHM = """
class mine(afo.Local):
    def step(self, state, fleet, round):
        return super().step(state, fleet, round._replace(steps=round.steps[:{}]))
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (afo.BySimilarity(afo.binary(0.1)), afo.BySimilarity(afo.binary(0.2))),
        (afo.BySimilarity(afo.binary(0.1)), afo.BySimilarity(afo.continuous())),
        (afo.BySimilarity(), afo.BySimilarity(afo.CustomCriterion(lambda x: x**2))),
        (afo.BySimilarity(), afo.BySimilarity(Square())),
        (
            afo.BySimilarity(afo.CustomCriterion(lambda x: x**2)),
            afo.BySimilarity(afo.CustomCriterion(lambda x: x**3)),
        ),
        (afo.BySimilarity(estimator=afo.FreshSamples(4)), afo.BySimilarity(estimator=afo.FreshSamples(5))),
        (afo.BySimilarity(), afo.BySimilarity(estimator=Silent())),
        (afo.BySimilarity(), afo.BySimilarity(weighting="definition")),
        (afo.BySimilarity(), afo.AllForOne()),
        (afo.AllForOne(), afo.AllForOne(samples=8)),
        (afo.AllForOne(), afo.AllForOne(sketch=2)),
        (afo.AllForOne(), Local()),
        (afo.Local(), defined(ALGORITHM.format(1))()),
        (defined(ALGORITHM.format(1))(), defined(ALGORITHM.format(2))()),
        (FedAvg(), FedAvg(proximal=0.1)),
        (FedAvg(), FedAvg(finetune=2)),
        (Ditto(), Ditto(0.2)),
    ],
    ids=count(),
)
def test_another_algorithm_or_option_of_it_is_refused(tmp_path, before, after):
    afo.train(**settings(tmp_path / "run", algorithm=before))
    assert_refused(tmp_path / "run", "algorithm", algorithm=after)


def times(factor):
    return lambda output, target: factor * F.mse_loss(output, target)


def by_default(factor):
    return lambda output, target, factor=factor: factor * F.mse_loss(output, target)


def scaled(factor, output, target):
    return factor * F.mse_loss(output, target)


class Weighted(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.register_buffer("weight", torch.tensor(weight))

    def forward(self, output, target):
        return self.weight * F.mse_loss(output, target)


class Scaled:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, output, target):
        return self.factor * F.mse_loss(output, target)


FUNCTION = """
def mine(factor, output, target):
    return {} * factor * F.mse_loss(output, target)
"""
GLOBAL = """
def mine(output, target):
    return FACTOR * F.mse_loss(output, target)
"""
MODULE = """
class mine(nn.Module):
    def forward(self, output, target):
        return {} * F.mse_loss(output, target)
"""
OBJECT = """
class mine:
    def __call__(self, output, target):
        return {} * F.mse_loss(output, target)
"""
on_one_line = {2: lambda o, t: 2 * F.mse_loss(o, t), 3: lambda o, t: 3 * F.mse_loss(o, t)}  # fmt: skip

LOSSES = {
    "another function": (lambda: F.mse_loss, lambda: F.l1_loss),
    "a lambda with another constant": (
        lambda: lambda output, target: 2 * F.mse_loss(output, target),
        lambda: lambda output, target: 3 * F.mse_loss(output, target),
    ),
    "a lambda on the same line": (lambda: on_one_line[2], lambda: on_one_line[3]),
    "a partial with another keyword": (
        lambda: partial(F.huber_loss, delta=1.0),
        lambda: partial(F.huber_loss, delta=2.0),
    ),
    "a partial with another tensor": (
        lambda: partial(scaled, torch.tensor(1.0)),
        lambda: partial(scaled, torch.tensor(2.0)),
    ),
    "a partial of a function with other code": (
        lambda: partial(defined(FUNCTION.format(2)), 1.0),
        lambda: partial(defined(FUNCTION.format(3)), 1.0),
    ),
    "a closure over another number": (lambda: times(2.0), lambda: times(3.0)),
    "another default": (lambda: by_default(2.0), lambda: by_default(3.0)),
    "another number in its file": (lambda: defined(GLOBAL, FACTOR=2.0), lambda: defined(GLOBAL, FACTOR=3.0)),
    "a module with other weights": (lambda: Weighted(2.0), lambda: Weighted(3.0)),
    "a module with another setting": (lambda: nn.HuberLoss(delta=1.0), lambda: nn.HuberLoss(delta=2.0)),
    "a module with other code": (lambda: defined(MODULE.format(2))(), lambda: defined(MODULE.format(3))()),
    "another module": (nn.MSELoss, nn.L1Loss),
    "an object with another attribute": (lambda: Scaled(2.0), lambda: Scaled(3.0)),
    "an object with other code": (lambda: defined(OBJECT.format(2))(), lambda: defined(OBJECT.format(3))()),
    "a method of another object": (lambda: Scaled(2.0).__call__, lambda: Scaled(3.0).__call__),
}


@pytest.mark.parametrize("what", LOSSES)
def test_another_loss_is_refused_and_the_same_made_anew_is_not(tmp_path, what):
    before, after = LOSSES[what]
    afo.train(**settings(tmp_path / "run", loss=before()))
    assert_refused(tmp_path / "run", "loss", loss=after())
    afo.train(**settings(tmp_path / "run", loss=before(), rounds=3), resume=True)


def test_a_lambda_written_elsewhere_is_the_same_loss(tmp_path):
    afo.train(**settings(tmp_path / "run", loss=lambda output, target: F.mse_loss(output, target)))
    same = {"loss": lambda output, target: F.mse_loss(output, target), "rounds": 3}
    assert afo.train(**settings(tmp_path / "run", **same), resume=True).metrics["round"].max() == 3


@pytest.mark.parametrize(
    ("said", "changes"),
    [
        ("optimizer", {"lr": 0.02}),
        ("optimizer", {"lr": None, "optimizer": partial(torch.optim.Adam, lr=0.01)}),
        ("optimizer", {"lr": None, "optimizer": partial(torch.optim.SGD, lr=0.01, momentum=0.9)}),
        ("optimizer", {"lr": None, "optimizer": lambda p: torch.optim.SGD(p, lr=0.02)}),
        ("scheduler", {"scheduler": partial(torch.optim.lr_scheduler.StepLR, step_size=1)}),
        ("seed", {"seed": 2}),
        ("inner", {"inner": 2}),
        ("batch_size", {"batch_size": 4}),
        ("participation", {"participation": 0.5}),
        ("participation", {"participation": lambda step: [True] * 3}),
        ("smoothness", {"smoothness": 4.0}),
        ("fleet", {"fleet": "loop"}),
        ("metrics", {"metrics": {"distance": F.l1_loss}}),
        ("model", {"model": partial(nn.Linear, 3, 1, bias=False)}),
        ("model", {"model": lambda: nn.Sequential(nn.Linear(3, 1), nn.Identity())}),
        (r"number of clients \(3, now 2\)", {"clients": sites()[:2]}),
        (r"client 1 \(east\)", {"clients": sites(names=("north", "east", "west"))}),
        (r"client 0 \(south\), client 1 \(north\)", {"clients": [sites()[k] for k in (1, 0, 2)]}),
        (
            r"data of client 0 \(north\), data of client 1 \(south\), data of client 2 \(west\)",
            {"clients": sites(transform=lambda x: 2 * x)},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_whatever_else_changes_the_numbers_is_refused_by_its_name(run, said, changes):
    assert_refused(run, said, **changes)


def test_a_model_that_computes_otherwise_is_refused_also_where_it_prints_the_same(tmp_path):
    source = "class mine(nn.Linear):\n    def forward(self, x):\n        return super().forward(x){}"
    tanh, sigmoid = (partial(defined(source.format(end)), 3, 1) for end in (".tanh()", ".sigmoid()"))
    afo.train(**settings(tmp_path / "run", model=tanh))
    assert_refused(tmp_path / "run", "model", model=sigmoid)
    afo.train(**settings(tmp_path / "run", model=partial(defined(source.format(".tanh()")), 3, 1)), resume=True)


@pytest.mark.parametrize("part", ["train", "test"])
@pytest.mark.parametrize("place", [0, 1])
def test_one_other_number_in_one_tensor_is_refused(run, part, place):
    other = sites()
    data = tuple(tensor.clone() for tensor in getattr(other[2], part).tensors)
    data[place][7, 0] += 1e-6
    parts = {"train": other[2].train.tensors, "test": other[2].test.tensors, part: data}
    other[2] = afo.Client(**parts, name="west")
    assert_refused(run, r"data of client 2 \(west\)", clients=other)


def test_an_optimizer_that_is_the_same_however_given_is_accepted(run):
    given = {"lr": None, "optimizer": partial(torch.optim.SGD, lr=0.01), "rounds": 3}
    assert afo.train(**settings(run, **given), resume=True).metrics["round"].max() == 3


def test_all_that_differs_is_named_at_once(run):
    assert_refused(run, r"algorithm, seed, data of client 0 \(north\)", algorithm=Local(), seed=2, clients=changed())


def changed():
    first, *others = sites()
    x, y = first.train.tensors
    return [afo.Client((x + 1, y), first.test.tensors, name="north"), *others]


MINE = """
import torch
import torch.nn.functional as F
from torch import nn
import allforone as afo

def problem():
    random = torch.Generator().manual_seed(0)
    data = [(torch.randn(8, 3, generator=random), torch.randn(8, 1, generator=random)) for _ in range(3)]
    return afo.Problem(
        lambda: nn.Linear(3, 1), lambda o, t: 2 * F.mse_loss(o, t), clients=[afo.Client(d, d) for d in data]
    )

def algorithm(threshold: float = 0.1):
    return afo.BySimilarity(afo.binary(threshold))
"""


def written(path, text):
    """Write a Python file so that it is read anew, were it written twice in a second."""
    version = path.stat().st_mtime + 10 if path.exists() else path.parent.stat().st_mtime
    path.write_text(text)
    os.utime(path, (version, version))


@pytest.mark.parametrize(
    ("said", "old", "new"),
    [
        ("loss", "2 * F.mse", "3 * F.mse"),
        ("model", "nn.Linear(3, 1)", "nn.Linear(3, 1, bias=False)"),
        ("number of clients", "range(3)", "range(4)"),
        ("data of client 0", "manual_seed(0)", "manual_seed(1)"),
        ("algorithm", "threshold: float = 0.1", "threshold: float = 0.2"),
    ],
)
def test_a_users_file_that_has_changed_is_refused_and_taken_when_it_is_as_it_was(tmp_path, said, old, new):
    mine, out = tmp_path / "mine.py", tmp_path / "run"

    def stop(record):
        if record.number == 2:
            raise KeyboardInterrupt

    written(mine, MINE)
    names = {"problem": f"{mine}:problem", "algorithm": f"{mine}:algorithm"}
    whole = execute(prepare(parse({**names, "rounds": 4})), tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        execute(prepare(parse({**names, "rounds": 4})), out, on_round=stop)
    before = contents(out)
    written(mine, MINE.replace(old, new))
    with pytest.raises(afo.InputError, match=f"holds a run with another {said}"):
        resume(out)
    assert contents(out) == before
    written(mine, MINE)
    assert resume(out).stacked["weight"].equal(whole.stacked["weight"])
