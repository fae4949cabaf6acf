"""Clients in the processes of Ray: the same numbers, and a process that dies costs a round nothing but its clients."""

import importlib.util
import os
import signal
from functools import partial

import pytest
import torch

import allforone as afo
from allforone.errors import InputError
from allforone.fleet import in_round
from allforone.testing import check_fleet, small_problem

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra allforone[ray]"),
    pytest.mark.filterwarnings("ignore"),  # of Ray's own
]


@pytest.fixture(scope="module")
def started():
    from allforone.machines.ray import started

    try:
        ray = started(None)
    except InputError as error:
        if "timed out during startup" not in str(error):
            raise
        pytest.skip("this machine is too busy: Ray gives itself 30 seconds to start")
    yield ray
    ray.shutdown()


def test_ray_answers_as_the_loop_bit_for_bit(started):
    from allforone.machines.ray import Ray

    made = []

    def make(problem, **options):
        made.append(Ray(problem, actors=1 if made else 2, **options))  # each process takes seconds to start
        return made[-1]

    check_fleet(make, exact=True)
    for fleet in made:
        fleet.close()


def test_it_listens_to_this_machine_alone(started):
    assert {node["NodeManagerAddress"] for node in started.nodes()} == {"127.0.0.1"}


def test_a_process_that_dies_is_started_again_and_its_clients_are_absent_until_then(started):
    from allforone.machines.ray import Ray

    fleet = Ray(small_problem(), seed=3, actors=2, deadline=60.0)
    try:
        (pid,) = {process(started, fleet, 1)}
        os.kill(pid, signal.SIGKILL)
        losses = in_round(fleet, 1, range(2), partial(fleet.losses, fleet.initial()))
        assert losses[:, [0, 2]].isfinite().all() and losses[:, [1, 3]].isnan().all()
        assert {contact.site for contact in fleet.contacts() if contact.why} == {"1", "3"}
        assert came_back(fleet)
    finally:
        fleet.close()


def test_a_run_begins_without_a_process_that_is_not_there_and_it_comes_later(started, monkeypatch):
    from allforone.machines import ray

    monkeypatch.setattr(ray, "Patience", partial(ray.Patience, returning=0.0, ping=5.0))
    usual = ray.Processes.__init__

    def lame(self, *given):
        usual(self, *given)
        os.kill(started.get(self.actors[1].__ray_call__.remote(lambda self: os.getpid())), signal.SIGKILL)

    monkeypatch.setattr(ray.Processes, "__init__", lame)
    fleet = ray.Ray(small_problem(), seed=3, actors=2, deadline=60.0)
    try:
        assert [member.size for member in fleet.roster] == [client.size for client in small_problem().clients]
        assert fleet.begin(1, range(1)).present.tolist() == [True, False, True, False]
        assert came_back(fleet)
    finally:
        fleet.close()


def came_back(fleet):
    for number in range(2, 240):  # a busy machine starts processes slowly
        if fleet.begin(number, range(number, number + 1)).present.all():
            return True
        fleet.asking.presence.sleep(0.5)
    return False


def process(ray, fleet, number):
    """The process of an actor."""
    actor = fleet.transport.actors[number]
    return ray.get(actor.__ray_call__.remote(lambda self: os.getpid()))


def test_training_on_ray_is_training_in_this_process(started):
    options = {"algorithm": afo.AllForOne(), "rounds": 2, "progress": False}
    found = afo.train(small_problem(), fleet={"name": "ray", "actors": 1}, **options)
    expected = afo.train(small_problem(), fleet="loop", **options)
    assert all(torch.equal(found.stacked[name], tensor) for name, tensor in expected.stacked.items())
    assert (found.history.sites["received"] > 0).all()
