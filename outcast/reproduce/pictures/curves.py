"""One number against another, and the senders' sockets over time."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase

from outcast.reproduce.measures import Run
from outcast.reproduce.pictures.goodput import draw_window_bars
from outcast.reproduce.pictures.parts import (
    Runs,
    Size,
    grid,
    interval,
    label_of,
    measure_of,
    panels,
    series_of,
    spread,
    values,
)
from outcast.reproduce.recipe import Measure, Point, Recipe
from outcast.view.figures.style import CLASS_COLOURS, GREY

SERIES_COLOURS = (*CLASS_COLOURS, GREY)
WIDE = 20
"""Places on an axis whose greatest is so many times the least are drawn on a logarithmic one."""


def _socket_curves(axes: Axes, run: Run, column: str, scale: float, *, of_flows: bool) -> None:
    """A column of sockets.parquet: a curve for each class's mean, or for each flow."""
    table = run.table("sockets").join(run.flows.select("flow", "hops"), on="flow")
    key = "flow" if of_flows else "hops"
    means = table.group_by(key, "t").agg(pl.col(column).mean()).sort(key, "t")
    for number, (value, part) in enumerate(means.group_by(key, maintain_order=True)):
        name = f"flow {int(str(value[0])) + 1}" if of_flows else label_of(int(str(value[0])))
        axes.plot(
            part["t"].to_numpy() / 1e9, part[column].to_numpy() / scale, linewidth=0.9,
            color=SERIES_COLOURS[number % len(SERIES_COLOURS)], label=name,
        )  # fmt: skip
    axes.set_xlabel("s")
    axes.legend(fontsize=7)


def goodput_and_rtt(figure: FigureBase, recipe: Recipe, runs: Runs) -> Size:
    """Figure 2: mean goodput by class, and the round-trip time that their sockets see over time."""
    point = panels(recipe, runs)[0]
    left, right = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)
    left.set_title("(a) goodput")
    draw_window_bars(left, runs[point.label])
    right.set_title("(b) smoothed round-trip time, one run")
    _socket_curves(right, runs[point.label][0], "srtt_us", 1e3, of_flows=False)
    right.set_ylabel("ms")
    return 7.5, 3.0


def windows_over_time(figure: FigureBase, recipe: Recipe, runs: Runs) -> Size:
    """Figure 17: the flows' congestion windows."""

    def panel(axes: Axes, point: Point) -> None:
        _socket_curves(axes, runs[point.label][0], "cwnd", 1.0, of_flows=True)
        axes.set_ylabel("congestion window, segments")

    return grid(figure, recipe, runs, panel)


def enqueue_probabilities(figure: FigureBase, recipe: Recipe, runs: Runs) -> Size:
    """Figure 5: the four shares over the least payload."""
    axes = figure.add_subplot()
    for number, (kind, label) in enumerate(
        (
            ("x2_queued", "X2"), ("y2_queued", "Y2"),
            ("both_queued", "both"), ("neither_queued", "neither"),
        )
    ):  # fmt: skip
        shares = [spread(values(runs, p, Measure(kind=kind)))[0] for p in recipe.points]
        xs = [p.x or 0.0 for p in recipe.points]
        axes.plot(xs, shares, "o-", markersize=3, color=CLASS_COLOURS[number], label=label)
    axes.set_xlabel("rMin, B")
    axes.set_ylabel("share of cases in which it is queued")
    axes.legend(fontsize=7)
    return 5.2, 3.4


def lines(figure: FigureBase, recipe: Recipe, runs: Runs) -> Size:
    """The picture's measure over the points' x, a curve for each series, with its interval."""
    axes = figure.add_subplot()
    measure = measure_of(recipe)
    for number, series in enumerate(series_of(recipe)):
        points = [p for p in recipe.points if p.series == series and runs.get(p.label)]
        found = [interval(runs[p.label], measure) for p in points]
        kept = [(p.x or 0.0, f) for p, f in zip(points, found, strict=True) if f.value is not None]
        colour = SERIES_COLOURS[number % len(SERIES_COLOURS)]
        xs = [x for x, _ in kept]
        axes.plot(
            xs, [f.value or 0.0 for _, f in kept], "o-", color=colour, label=series, markersize=4
        )
        axes.fill_between(
            np.array(xs, float),
            [f.value or 0.0 if f.low is None else f.low for _, f in kept],
            [f.value or 0.0 if f.high is None else f.high for _, f in kept],
            color=colour, alpha=0.2, linewidth=0,
        )  # fmt: skip
    places = sorted({point.x for point in recipe.points if point.x})
    if places and places[-1] >= WIDE * places[0]:
        axes.set_xscale("log")
        axes.set_xticks(places, [f"{place:g}" for place in places])
        axes.minorticks_off()
    axes.set_xlabel(recipe.picture.x)
    axes.set_ylabel(recipe.picture.y)
    axes.set_ylim(bottom=0)
    _legend_above(axes, len(series_of(recipe)))
    return 5.2, 3.6


def bars(figure: FigureBase, recipe: Recipe, runs: Runs) -> Size:
    """The picture's measure at every point, grouped by x where points have one."""
    measure = measure_of(recipe)
    series = series_of(recipe)
    groups = list(dict.fromkeys(p.x for p in recipe.points))
    axes = figure.add_subplot()
    if len(series) == 1:
        for place, point in enumerate(recipe.points):
            _bar(axes, place, 0.7, values(runs, point, measure), CLASS_COLOURS[1], None)
        axes.set_xticks(
            range(len(recipe.points)), [p.label for p in recipe.points], rotation=30, ha="right"
        )
    else:
        width = 0.8 / len(series)
        for number, name in enumerate(series):
            for place, x in enumerate(groups):
                for point in recipe.points:
                    if (point.series, point.x) == (name, x):
                        at = place + (number - (len(series) - 1) / 2) * width
                        label = name if place == 0 else None
                        colour = SERIES_COLOURS[number % len(SERIES_COLOURS)]
                        _bar(axes, at, width, values(runs, point, measure), colour, label)
        axes.set_xticks(range(len(groups)), [f"{x:g}" for x in groups if x is not None])
        _legend_above(axes, len(series))
    axes.set_xlabel(recipe.picture.x)
    axes.set_ylabel(recipe.picture.y)
    return max(4.5, 0.45 * len(recipe.points) + 1.5), 3.4


def _legend_above(axes: Axes, series: int) -> None:
    if series > 1:
        axes.legend(fontsize=7, ncols=min(4, series), loc="lower center", bbox_to_anchor=(0.5, 1.0))


def _bar(
    axes: Axes, at: float, width: float, values: list[float], colour: str, label: str | None
) -> None:
    mean, down, up = spread(values)
    axes.bar(at, mean, width, color=colour, label=label, yerr=([down], [up]), capsize=2)
