"""The figures drawn like the sources': units, names and which mean, read back from the axes."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from matplotlib.figure import Figure

from outcast.analysis.run_measures import measures
from outcast.records.run import Run
from outcast.records.run_directory import RunDirectory
from outcast.uses.papers import recipe
from outcast.uses.papers.pictures import PICTURES
from tests.golden.run_directory import analysed_run

RECIPES = recipe.load_all()


@pytest.fixture(scope="module")
def analysed(tmp_path_factory) -> RunDirectory:
    return analysed_run(tmp_path_factory.mktemp("pictures") / "run", 80_000_000, 9, 6_000)


class Valued(Run):
    """A run of which only one number is known, whichever measure is taken."""

    def __init__(self, value: float) -> None:
        self.value = value


def drawn(name: str, values: Sequence[float], monkeypatch: pytest.MonkeyPatch) -> Figure:
    monkeypatch.setattr(measures, "take", lambda run, _measure: run.value)
    figure = Figure()
    chosen = RECIPES[name]
    runs = {point.label: [Valued(value) for value in values] for point in chosen.points}
    figure.set_size_inches(*PICTURES[chosen.picture.kind](figure, chosen, runs))
    return figure


def test_bars_of_shares_are_medians_as_in_the_verdict(monkeypatch):
    chosen = RECIPES["P-tab2"]
    (axes,) = drawn("P-tab2", [1.0, 10.0, 100.0], monkeypatch).axes
    assert [bar.get_height() for bar in axes.patches] == pytest.approx([10] * len(chosen.points))


@pytest.mark.parametrize("name", ["F1", "F6", "F8"])
@pytest.mark.parametrize("values", [[0.9, 1.1], [0.001, 10_000.0]])
def test_the_findings_numbers_are_read_apart(name, values, monkeypatch):
    # Labels over two decades or more stood on top of one another, or only 10^0 was labelled.
    figure = drawn(name, values, monkeypatch)
    figure.set_layout_engine("constrained")
    figure.draw_without_rendering()
    for axes in figure.axes:
        low, high = axes.get_xlim()
        ticks = [tick for tick in axes.xaxis.get_major_ticks() if low <= tick.get_loc() <= high]
        boxes = [tick.label1.get_window_extent() for tick in ticks]
        labels = [tick.label1.get_text().replace("\N{MINUS SIGN}", "-") for tick in ticks]
        assert [float(label) for label in labels] == [tick.get_loc() for tick in ticks]
        assert not any(a.x1 > b.x0 for a, b in itertools.pairwise(boxes))


def test_own_findings_are_drawn_with_a_panel_for_each_place(monkeypatch):
    figure = drawn("F1", [0.5, 1.0, 2.0], monkeypatch)
    places = dict.fromkeys(point.series for point in RECIPES["F1"].points)
    assert [axes.get_title() for axes in figure.axes] == list(places)
    units = [axes.get_xlabel() for axes in figure.axes]
    assert units == ["us", "us", "us", "ppm"]
    for axes in figure.axes:
        assert float(np.asarray(axes.lines[-2].get_ydata())[0]) == pytest.approx(1)
