"""Measures over an axis, and the senders' sockets over time."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase

from outcast.analysis import Measure, sender_measures
from outcast.uses.papers.pictures.goodput import draw_window_bars
from outcast.uses.papers.pictures.parts import (
    Runs,
    Size,
    grid,
    in_mbps,
    interval,
    measure_of,
    panels,
    series_of,
)
from outcast.uses.papers.recipe import Point, Recipe
from outcast.view import (
    Bars,
    Line,
    bounds,
    draw_bars,
    draw_lines,
    series_colour,
    set_amounts,
)
from outcast.view.figures.senders import captured_rtt_lines, window_lines


def _draw_over_time(axes: Axes, lines: list[Line], what: str) -> None:
    draw_lines(axes, lines)
    axes.set(xlabel="s", ylabel=what)
    axes.legend(fontsize=7)


def goodput_and_rtt(figure: FigureBase, recipe: Recipe, runs: Runs) -> Size:
    """Figure 2: mean goodput by class, and the round trips of their segments over time."""
    point = panels(recipe, runs)[0]
    left, right = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)
    left.set_title("(a) goodput")
    draw_window_bars(left, runs[point.label])
    right.set_title("(b) round-trip time of segments, one run")
    run = runs[point.label][0]
    _draw_over_time(right, captured_rtt_lines(run, sender_measures.segments(run).lazy()), "ms")
    return 7.5, 3.0


def window_curves(figure: FigureBase, recipe: Recipe, runs: Runs) -> Size:
    """Figure 17: the flows' congestion windows."""

    def panel(axes: Axes, point: Point) -> None:
        lines = window_lines(runs[point.label][0])
        _draw_over_time(axes, lines, "congestion window, segments")

    return grid(figure, recipe, runs, panel)


def enqueue_probabilities(figure: FigureBase, recipe: Recipe, runs: Runs) -> Size:
    """Figure 5: the four shares over the least payload."""
    axes = figure.add_subplot()
    x = np.array([point.x or 0.0 for point in recipe.points])
    lines = []
    for number, (kind, label) in enumerate(
        (
            ("x2_queued", "X2"), ("y2_queued", "Y2"),
            ("both_queued", "both"), ("neither_queued", "neither"),
        )
    ):  # fmt: skip
        measure = Measure(kind=kind)
        shares, _, _ = bounds([interval(runs.get(p.label, []), measure) for p in recipe.points])
        lines.append(Line(label, series_colour(number), x, shares, marker="o"))
    draw_lines(axes, lines)
    axes.set(xlabel="rMin, B", ylabel="share of cases in which it is queued")
    axes.legend(fontsize=7)
    return 5.2, 3.4


def lines(figure: FigureBase, recipe: Recipe, runs: Runs) -> Size:
    """The picture's measure over the points' x, a curve for each series, with its interval."""
    axes = figure.add_subplot()
    measure = measure_of(recipe)
    curves = []
    for number, series in enumerate(series_of(recipe)):
        points = [p for p in recipe.points if p.series == series and runs.get(p.label)]
        rows = [(p.x or 0.0, interval(runs[p.label], measure)) for p in points]
        known = [row for row in rows if row[1].value is not None]
        x = np.array([at for at, _ in known])
        reach = bounds([value for _, value in known], in_mbps(measure))
        curves.append(Line(series, series_colour(number), x, *reach, marker="o"))
    draw_lines(axes, curves)
    places = sorted({point.x for point in recipe.points if point.x})
    if places:
        set_amounts(axes, places, [f"{place:g}" for place in places])
    return _labelled(axes, recipe, (5.2, 3.6))


def bars(figure: FigureBase, recipe: Recipe, runs: Runs) -> Size:
    """The picture's measure at every point, grouped by x where points have one."""
    series, measure = series_of(recipe), measure_of(recipe)
    axes = figure.add_subplot()
    at = {(p.series, p.label if len(series) == 1 else p.x): p.label for p in recipe.points}
    places = list(dict.fromkeys(place for _, place in at))
    groups = []
    for number, name in enumerate(series):
        labels = [at.get((name, place), "") for place in places]
        means = [interval(runs.get(label, []), measure) for label in labels]
        groups.append(Bars(name, series_colour(number), *bounds(means, in_mbps(measure))))
    draw_bars(axes, groups, [f"{x:g}" if isinstance(x, float) else str(x) for x in places])
    if len(series) == 1:
        for tick in axes.get_xticklabels():
            tick.set(rotation=30, ha="right")
    return _labelled(axes, recipe, (max(4.5, 0.45 * len(recipe.points) + 1.5), 3.4))


def _labelled(axes: Axes, recipe: Recipe, size: Size) -> Size:
    series = len(series_of(recipe))
    axes.set(xlabel=recipe.picture.x, ylabel=recipe.picture.y)
    axes.set_ylim(bottom=0)
    if series > 1:
        axes.legend(fontsize=7, ncols=min(3, series), loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return size
