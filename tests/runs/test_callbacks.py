"""Who looks on while a run goes."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import allforone as afo
from allforone.errors import InputError
from allforone.fleet import Optimizer
from allforone.problems import hold_out
from allforone.runs import checkpoint
from allforone.testing import small_problem


class Seen(afo.Callback):
    def __init__(self):
        self.told = []

    def on_start(self, beginning):
        self.told.append(("start", beginning.metrics is not None))

    def on_round(self, round):
        self.told.append(round.number)

    def on_end(self):
        self.told.append("end")


def test_a_callback_sees_start_rounds_and_end():
    seen = Seen()
    afo.train(small_problem(), rounds=3, callbacks=[seen])
    assert seen.told == [("start", False), 0, 1, 2, 3, "end"]


def test_a_callback_is_told_the_end_of_a_run_that_failed():
    seen = Seen()
    with pytest.raises(InputError, match=r"the callback wrong fails in round 2: ZeroDivisionError"):
        afo.train(small_problem(), rounds=3, callbacks=[wrong, seen])
    assert seen.told[-1] == "end"


def wrong(round):
    assert 1 / (2 - round.number)


def test_what_is_neither_true_nor_false_does_not_end_a_run_by_chance():
    with pytest.raises(InputError, match=r"returned 0\.5: True ends the run"):
        afo.train(small_problem(), rounds=3, callbacks=[lambda round: 0.5])


def test_what_returns_true_ends_the_run_as_if_it_had_been_shorter(tmp_path):
    stopped = afo.train(small_problem(), rounds=9, callbacks=[lambda round: round.number == 4], out=tmp_path / "run")
    shorter = afo.train(small_problem(), rounds=4)
    assert all(stopped.stacked[name].equal(shorter.stacked[name]) for name in shorter.stacked)
    assert stopped.metrics.drop("seconds").equals(shorter.metrics.drop("seconds"))
    assert len(afo.load(tmp_path / "run", small_problem()).weights) == 4


@pytest.mark.parametrize("wrong", [[3], ["x"], [afo.EarlyStopping], 3, "ab"])
def test_what_is_no_callback_is_refused(wrong):
    with pytest.raises(InputError, match="callbacks"):
        afo.train(small_problem(), rounds=1, callbacks=wrong)


def overfitting():
    """Labels at random, so that what is held out gets worse while training."""
    random = torch.Generator().manual_seed(1)
    clients = [
        afo.Client(
            *[(torch.randn(40, 12, generator=random), torch.randint(2, (40,), generator=random)) for _ in range(2)]
        )
        for _ in range(3)
    ]
    model = nn.Linear(12, 2)
    nn.init.zeros_(model.weight), nn.init.zeros_(model.bias)
    return afo.Problem(model, F.cross_entropy, clients=clients, settings=afo.Settings(rounds=40, inner=2))


def test_early_stopping_stops_by_held_out_data_and_no_test_data():
    stop = afo.EarlyStopping(patience=3)
    result = afo.train(overfitting(), algorithm=afo.Local(), callbacks=[stop])
    held = hold_out(overfitting(), 0.2, 127)
    assert [member.size for member in result.roster] == [32] * 3
    rounds = int(result.metrics["round"].max())
    assert rounds < 40
    means = result.metrics.group_by("round").agg(mean=afo_mean()).sort("round")["mean"].to_list()
    best = means.index(min(means))
    assert rounds == best + 3
    for k, client in enumerate(held.clients):
        inputs, targets = client.held.tensors
        expected = F.cross_entropy(result.model(k)(inputs), targets).item()
        least = result.metrics.filter(result.metrics["round"] == best)["held_out"][k]
        assert least == pytest.approx(expected, rel=1e-5)
    without = overfitting()
    for client in without.clients:
        client.test.tensors[1].copy_(1 - client.test.tensors[1])
    again = afo.train(without, algorithm=afo.Local(), callbacks=[afo.EarlyStopping(patience=3)])
    assert again.metrics["round"].max() == rounds


def same_models(a, b):
    return all(torch.equal(a.stacked[name], b.stacked[name]) for name in a.stacked)


class Told(afo.EarlyStopping):
    """By losses that are told beforehand: the least is that of round 2, and three rounds later it ends."""

    def on_round(self, round):
        return self._look(round.number, [5.0, 4.0, 3.0, 4.0, 5.0, 6.0][round.number])


def test_early_stopping_gives_the_models_of_the_best_round_or_if_asked_of_the_last(tmp_path):
    stop = Told(patience=3)
    best = afo.train(overfitting(), algorithm=afo.Local(), callbacks=[stop], out=tmp_path / "run")
    last = afo.train(overfitting(), algorithm=afo.Local(), callbacks=[Told(patience=3, keep="last")])
    assert (stop.kept, best.rounds, last.rounds) == (2, 5, 5)
    for result, rounds in ((best, 2), (last, 5)):
        watch = afo.EarlyStopping(patience=40, keep="last")  # so that the same data are held out
        plain = afo.train(overfitting(), algorithm=afo.Local(), rounds=rounds, callbacks=[watch])
        assert same_models(result, plain)
    assert same_models(best, afo.load(tmp_path / "run", overfitting()))
    kept = checkpoint.load(tmp_path / "run" / "checkpoint.safetensors", Optimizer(torch.optim.SGD)).kept
    assert all(torch.equal(kept[name], tensor) for name, tensor in best.stacked.items())


def afo_mean():
    import polars

    return polars.col("held_out").mean()


def test_early_stopping_of_a_resumed_run_is_that_of_one_never_interrupted(tmp_path):
    def interrupt(round):
        if round.number == 2:
            raise KeyboardInterrupt

    whole = afo.train(overfitting(), algorithm=afo.Local(), callbacks=[afo.EarlyStopping(patience=3)])
    settings = {"algorithm": afo.Local(), "out": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt):
        afo.train(overfitting(), **settings, callbacks=[afo.EarlyStopping(patience=3), interrupt])
    again = afo.train(overfitting(), **settings, callbacks=[afo.EarlyStopping(patience=3)], resume=True)
    assert again.metrics.drop("seconds").equals(whole.metrics.drop("seconds"))
    assert same_models(again, whole)
    once_more = afo.train(overfitting(), **settings, callbacks=[afo.EarlyStopping(patience=3)], resume=True)
    assert once_more.metrics.equals(again.metrics)
    assert same_models(once_more, whole)
    with pytest.raises(InputError, match="another hold_out"):
        afo.train(overfitting(), **settings, resume=True)


def test_streams_are_watched_by_their_coming_batches():
    result = afo.train(afo.synthetic(clients=4), rounds=3, callbacks=[afo.EarlyStopping()])
    assert result.metrics.filter(result.metrics["round"] > 0)["held_out"].null_count() == 0


@pytest.mark.parametrize("options", [{"patience": 0}, {"patience": True}, {"hold_out": 1.0}, {"keep": "first"}])
def test_odd_options_of_early_stopping_are_refused(options):
    with pytest.raises(InputError, match=next(iter(options))):
        afo.EarlyStopping(**options)
