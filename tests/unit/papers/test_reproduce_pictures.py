"""The figures drawn like the sources': units, names and which mean, read back from the axes."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from matplotlib.figure import Figure

from outcast.analysis import Measure
from outcast.analysis.run_measures import measures
from outcast.records.run import Run
from outcast.records.run_directory import RunDirectory
from outcast.uses.papers import recipe, together
from outcast.uses.papers.pictures import PICTURES, curves
from outcast.uses.papers.verdict import Verdict
from tests.golden.run_directory import analysed_run
from tests.unit.papers.test_index import make_result

RECIPES = recipe.load_all()


@pytest.fixture(scope="module")
def analysed(tmp_path_factory) -> RunDirectory:
    return analysed_run(tmp_path_factory.mktemp("pictures") / "run", 80_000_000, 9, 6_000)


class Valued(Run):
    """A run of which only one number is known, whichever measure is taken."""

    def __init__(self, value: float) -> None:
        self.value = value


def drawn(name: str, values: Sequence[float], monkeypatch: pytest.MonkeyPatch) -> Figure:
    monkeypatch.setattr(measures, "rivals", lambda _run, _measure: None)
    monkeypatch.setattr(measures, "take", lambda run, _measure: run.value)
    figure = Figure()
    chosen = RECIPES[name]
    runs = {point.label: [Valued(value) for value in values] for point in chosen.points}
    figure.set_size_inches(*PICTURES[chosen.picture.kind](figure, chosen, runs))
    return figure


def test_bars_of_shares_are_means_as_in_the_verdict(monkeypatch):
    chosen = RECIPES["P-tab2"]
    assert measures.is_logarithmic(chosen.picture.measure or Measure(kind="jain_index"))
    (axes,) = drawn("P-tab2", [1.0, 10.0, 100.0], monkeypatch).axes
    assert [bar.get_height() for bar in axes.patches] == pytest.approx([37] * len(chosen.points))


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


def test_shares_over_time_are_those_of_the_run(analysed):
    run, chosen = Run(analysed), RECIPES["F3"]
    figure = Figure()
    PICTURES["shares_over_time"](figure, chosen, {chosen.points[0].label: [run, run]})
    (axes,) = figure.axes
    one_run, mean = (np.asarray(axes.lines[number].get_ydata()) for number in (0, 2))
    assert np.allclose(one_run, mean, equal_nan=True)
    # The flows of this run end before it does, and then nobody has a share.
    assert np.isfinite(one_run[:16]).all()
    assert (one_run[:16] > 0).all()


def test_a_row_under_two_profiles_has_a_place_for_each():
    results = [
        make_result("P13", verdict, profile=profile)
        for profile, verdict in (("jitter", Verdict.CONTRADICTED), ("exact", Verdict.REPRODUCED))
    ]
    bands = together.over_noise(together.rows(results))
    figure = Figure()
    curves.over_noise(figure, bands, RECIPES)
    effect, burst = figure.axes
    assert [label.get_text() for label in burst.get_xticklabels()] == ["exact", "jitter"]
    # A line without the effect, and for each profile an interval and a marker; then the legend.
    values = [np.asarray(line.get_ydata(), dtype=float).tolist() for line in effect.lines[:5]]
    assert values == [[0, 0], [5e-6, 9e-6], [6.5e-6], [5e-6, 9e-6], [6.5e-6]]
    markers = [effect.lines[number].get_marker() for number in (2, 4)]
    assert markers == [
        curves.MARKS[verdict][0] for verdict in (Verdict.REPRODUCED, Verdict.CONTRADICTED)
    ]
    assert effect.get_ylabel() == "total goodput,\nMbps"
    assert [np.asarray(line.get_ydata()).tolist() for line in burst.lines[1:3]] == [
        [1.2, 1.6],
        [1.4],
    ]


def test_own_findings_are_drawn_with_a_panel_for_each_place(monkeypatch):
    figure = drawn("F1", [0.5, 1.0, 2.0], monkeypatch)
    places = dict.fromkeys(point.series for point in RECIPES["F1"].points)
    assert [axes.get_title() for axes in figure.axes] == list(places)
    units = [axes.get_xlabel() for axes in figure.axes]
    assert units == ["us", "us", "us", "ppm"]
    for axes in figure.axes:
        assert float(np.asarray(axes.lines[-2].get_ydata())[0]) == pytest.approx(1)
