"""What is kept of runs, and what is made of it."""

import json

import numpy as np
import pytest

from allforone.errors import InputError
from allforone.paper import contenders
from allforone.paper.figures import line_of
from allforone.paper.summary import MOST_POINTS, read, summarise, write
from allforone.reports.curves import curve
from allforone.runs import Comparison, execute, parse, prepare, read_run
from allforone.runs.quantities import EXCESS


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Of two seeds, with more rounds than a curve has points."""
    out = tmp_path_factory.mktemp("runs")
    problem = {"name": "synthetic", "clients": 4, "dimension": 2}
    for seed in (127, 496):
        config = parse({"problem": problem, "rounds": 2 * MOST_POINTS, "algorithm": "fedavg", "seed": seed})
        execute(prepare(config), out / str(seed))
    return {seed: (out / str(seed), read_run(out / str(seed))) for seed in (127, 496)}


def test_a_published_run_is_small_and_says_what_was_run_and_what_it_cost(runs, tmp_path):
    path, run = runs[127]
    written = write(summarise("fedavg", run, path, trained=False), tmp_path)
    assert written == tmp_path / "fedavg" / "127" / "summary.json" and written.stat().st_size < 10_000
    (kept,) = read(tmp_path, ["fedavg"])
    assert kept["config"]["problem"]["dimension"] == 2 and kept["seed"] == 127 and kept["rounds"] == 2 * MOST_POINTS
    last = run.metrics.filter(run.metrics["round"] == kept["rounds"])
    assert kept["test"]["excess_loss"] == last["excess_loss"].to_list()
    assert (kept["messages"], kept["bytes"]) == (last["messages"][0], last["bytes"][0])
    assert kept["samples"] == last["samples"].mean() and kept["seconds"] == last["seconds"][0]
    assert str(path.parent) not in written.read_text()


def test_a_curve_of_summaries_is_that_of_the_runs_at_its_points(runs):
    kept = [summarise("fedavg", run, path, trained=False) for path, run in runs.values()]
    whole = curve(Comparison("p", [run for _, run in runs.values()], None), "fedavg", EXCESS)
    line = line_of(kept, EXCESS, "samples")
    rounds = kept[0]["curve"]["round"]
    assert rounds[0] == 0 and rounds[-1] == 2 * MOST_POINTS and len(rounds) == MOST_POINTS + 1
    places = [whole.rounds.index(number) for number in rounds]
    np.testing.assert_allclose(line.mean, whole.mean[places], rtol=1e-3)
    np.testing.assert_allclose(line.std, whole.std[places], atol=1e-3 * abs(whole.mean).max())
    assert line.x.tolist() == [whole.samples[place] for place in places]


def test_a_file_that_is_no_summary_is_named(tmp_path):
    path = tmp_path / "local" / "127" / "summary.json"
    path.parent.mkdir(parents=True)
    for content in ("", "[1]", json.dumps({"algorithm": "local"})):
        path.write_text(content)
        with pytest.raises(InputError, match=r"summary\.json: no summary of a run"):
            read(tmp_path, [])


def test_what_the_authors_had_otherwise_about_a_problem_is_run_apart_with_local_too():
    cifar = contenders("cifar10")
    assert cifar["local"] == ("local", "cifar10", False)
    assert cifar["local-as-published"] == ("local", "cifar10-as-published", True)
    assert cifar["fedavg-as-published"] == ("fedavg-as-published", "cifar10-as-published", True)
    assert "local-as-published" not in contenders("heart-disease")


def test_the_form_that_asks_once_a_round_is_run_on_real_data_too():
    assert [*contenders("mnist")][:2] == ["all-for-one", "all-for-one-round"]
    assert "all-for-one-round" not in contenders("synthetic-2")
