from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from allforone.paper import figures
from allforone.paper.figures import show_what_is_late
from allforone.paper.summary import read

PUBLISHED = Path(__file__).parents[2] / "docs" / "results"


def test_a_panel_of_accuracy_shows_how_runs_end_and_not_that_all_begin_by_chance():
    axis = Figure().subplots()
    axis.plot(np.concatenate([np.full(10, 0.1), np.linspace(0.90, 0.99, 90)]))
    axis.plot(np.concatenate([np.full(10, 0.1), np.linspace(0.93, 0.97, 90)]))
    show_what_is_late(axis)
    low, high = axis.get_ylim()
    assert 0.85 < low < 0.90 and 0.99 < high < 1.01


def test_a_panel_of_runs_that_do_not_move_still_has_a_height():
    axis = Figure().subplots()
    axis.plot([0.5, 0.5])
    show_what_is_late(axis)
    low, high = axis.get_ylim()
    assert low < 0.5 < high


def test_a_panel_without_runs_or_with_unjudged_rounds_is_drawn_all_the_same():
    axis = Figure().subplots()
    before = axis.get_ylim()
    show_what_is_late(axis)
    assert axis.get_ylim() == before
    axis.plot([0.1, np.nan, 0.5, 0.6])
    show_what_is_late(axis)
    assert axis.get_ylim()[1] > 0.6


@pytest.mark.parametrize("problems", [["mnist"], ["mnist", "heart-disease"], ["mnist", "heart-disease", "cifar10"]])
def test_the_legend_is_no_wider_than_the_figure(problems, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(figures, "save", lambda figure, out: drawn.append(figure) or [])
    figures.draw_real({name: read(PUBLISHED / name, []) for name in problems}, tmp_path / "figure3")
    figure = drawn[0]
    figure.draw_without_rendering()
    legend = figure.legends[0].get_window_extent()
    assert figure.bbox.x0 <= legend.x0 and legend.x1 <= figure.bbox.x1
