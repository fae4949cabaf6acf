"""The training loop and every algorithm ask a fleet for nothing beyond the contract."""

from functools import partial

import pytest
import torch

from allforone.algorithms import ALGORITHMS, Guarded
from allforone.fleet import Attack, Attacked, Fleet, Optimizer, Stacked
from allforone.machines.loop import Loop
from allforone.problems import hold_out
from allforone.runs import PYTHON, parse, train

from .models import problem

NAMED = {*Fleet.__annotations__, *(name for name in vars(Fleet) if name[0] != "_")}


class ContractOnly:
    """A fleet of which only what the contract names can be seen, and only the ledger be set."""

    def __init__(self, fleet):
        object.__setattr__(self, "_fleet", fleet)

    def __getattr__(self, name):
        assert name in NAMED, f"{name} is not in the contract"
        return getattr(self._fleet, name)

    def __setattr__(self, name, value):
        assert name == "ledger", f"{name} may not be set"
        setattr(self._fleet, name, value)


def fleets(subject):
    options = {"seed": 3, "batch_size": 4, "participation": 0.7}
    return {
        "stacked": lambda: Stacked(subject, **options),
        "loop": lambda: Loop(subject, **options),
        "attacked": lambda: Attacked(Stacked(subject, **options), Attack("flip", 1)),
    }


#: One for each kind of question; `check_algorithm` sees to it that of a loop the others use the contract alone, too.
OF_EACH_KIND = ["all-for-one", "all-for-one-round", "all-for-one-binary", "apfl", "cobo", "fedala", "ifca", "guarded"]
PAIRS = [
    *((name, "stacked") for name in (*ALGORITHMS, "guarded")),
    *((name, kind) for kind in ("loop", "attacked") for name in OF_EACH_KIND),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_a_run_needs_the_contract_alone(name, kind):
    options = {"samples": 4} if ("-binary" in name or "-continuous" in name) else {}
    algorithm = Guarded(ALGORITHMS["all-for-one"]()) if name == "guarded" else ALGORITHMS[name](**options)
    subject = hold_out(problem("perceptron", sizes=(25,)), 0.2, seed=3)
    config = parse({"problem": PYTHON, "rounds": 2, "inner": 2})
    optimizer = Optimizer(partial(torch.optim.SGD, lr=0.05, momentum=0.9))
    make = fleets(subject)[kind]
    ours, theirs = (train(config, subject, fleet, algorithm, optimizer) for fleet in (ContractOnly(make()), make()))
    assert all(ours.stacked[key].equal(theirs.stacked[key]) for key in theirs.stacked)
    assert ours.metrics.drop("seconds").equals(theirs.metrics.drop("seconds"))
