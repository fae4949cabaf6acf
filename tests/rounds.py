"""The shortest ways to ask a fleet outside a run, where every question needs its round."""

from allforone.algorithms import advance
from allforone.fleet import Optimizer
from allforone.runs import PYTHON, parse
from allforone.runs import train as train_run


def over(fleet, steps):
    """The first round, with these updates."""
    return fleet.begin(1, steps)


def at(fleet, step):
    """A round of one update."""
    return fleet.begin(step + 1, range(step, step + 1))


def gradients(fleet, models, mix, step):
    """At the clients' own models."""
    return fleet.gradients(models, mix, at(fleet, step), step, fleet.roster.numbers)


def evaluate(fleet, models):
    """Of everybody."""
    return fleet.evaluate(models, fleet.begin(0, range(0)))


def go_on(algorithm, state, fleet, rounds, inner=1, done=0):
    """State and info after `rounds` rounds more than those that are done."""
    info = None
    for number in range(done, done + rounds):
        round = fleet.begin(number + 1, range(number * inner, (number + 1) * inner))
        state, info = advance(algorithm, state, fleet, round)
    return state, info


def play(fleet, algorithm, make, rounds, inner=1):
    """State and info after the first rounds."""
    return go_on(algorithm, algorithm.init(fleet.initial(), Optimizer(make)), fleet, rounds, inner)


def train(fleet, algorithm, optimizer, rounds, inner=1, evaluate_every=1):
    """The training loop on a fleet that is there already."""
    config = parse({"problem": PYTHON, "rounds": rounds, "inner": inner, "evaluate_every": evaluate_every})
    problem = getattr(fleet, "honest", fleet).problem
    return train_run(config, problem, fleet, algorithm, optimizer)
