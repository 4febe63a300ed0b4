"""The figures of outcast's own findings: noise by its place, chains of drops, start-up."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase
from matplotlib.ticker import LogLocator, NullLocator

from outcast.analysis import Measure, intervals, measures
from outcast.records import Run
from outcast.uses.papers.effects import WITHIN_MS
from outcast.uses.papers.own_measures import EffectsRun
from outcast.uses.papers.pictures.parts import (
    Runs,
    Size,
    grid,
    hops_of,
    interval,
    label_of,
    measure_of,
    series_of,
)
from outcast.uses.papers.recipe import Point, Recipe
from outcast.view import GREY, Line, bounds, class_colours, draw_lines, log_scale, series_colour

Values = npt.NDArray[np.float64]
CHAIN_TICKS = (0.5, 0.7, 1, 1.5, 2, 3, 5, 10)
PARTS = 20
"""The number of equal parts into which `shares_over_time` cuts a run."""


def by_place(figure: FigureBase, recipe: Recipe, runs: Runs) -> Size:
    """A panel for each series: the measure over x, with its interval, and a dot for each run."""
    measure = measure_of(recipe)
    points_run = [point for point in recipe.points if runs.get(point.label)]
    places = [name for name in series_of(recipe) if any(p.series == name for p in points_run)]
    panels = figure.subplots(1, len(places), sharey=True, squeeze=False)[0]
    reached: list[float] = []
    for number, (axes, name) in enumerate(zip(panels, places, strict=True)):
        points = [point for point in points_run if point.series == name]
        for point in points:
            values = [measures.take(run, measure) for run in runs[point.label]]
            axes.plot([point.x] * len(values), values, ".", color=GREY, markersize=3)
            reached += [value for value in values if math.isfinite(value) and value > 0]
        x = np.array([point.x or 0.0 for point in points])
        reach = bounds([interval(runs[point.label], measure) for point in points])
        draw_lines(axes, [Line(None, series_colour(number), x, *reach, marker="o")])
        axes.axhline(1, color=GREY, lw=0.8)
        log_scale(axes, "xy")
        axes.set_title(name)
        _label_decades(axes, (1, 2, 5))
        axes.set_xlabel(points[0].label.split()[-1])
    if reached:
        # An interval of few runs can span decades, and would make the dots a line.
        panels[0].set_ylim(min(reached) / 2, max(reached) * 2)
    panels[0].set_ylabel(recipe.picture.y)
    figure.supxlabel(recipe.picture.x, fontsize="medium")
    return 2.4 * len(places) + 0.6, 3.2


def _label_decades(axes: Axes, at: Sequence[int]) -> None:
    """Labels x, which is logarithmic, at these multiples of powers of ten and nowhere else."""
    axes.xaxis.set_major_locator(LogLocator(subs=at))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(NullLocator())


def chains_and_losses(figure: FigureBase, recipe: Recipe, runs: Runs) -> Size:
    """A dot for each run: how much longer chains are than by lot, over the ratio of loss rates."""
    axes = figure.add_subplot()
    nearest = Measure(kind="chains_over_chance", hops=2)
    for number, name in enumerate(series_of(recipe)):
        dots = [
            (measures.take(run, Measure(kind="loss_ratio")), measures.take(run, nearest))
            for point in recipe.points
            if point.series == name
            for run in runs.get(point.label, [])
        ]
        known = [dot for dot in dots if all(math.isfinite(value) and value > 0 for value in dot)]
        colour = series_colour(number)
        if known:
            axes.plot(*zip(*known, strict=True), ".", color=colour, label=name)
    axes.axhline(1, color=GREY, lw=0.8)
    axes.axvline(1, color=GREY, lw=0.8)
    log_scale(axes, "xy")
    # Chains span about a decade, so powers of ten would label two ticks.
    axes.set_yticks(CHAIN_TICKS, [f"{tick:g}" for tick in CHAIN_TICKS])
    axes.minorticks_off()
    axes.set_xlabel("loss rate of the 2-hop flow's port over that of the other")
    axes.set_ylabel("its chains of drops over those by lot")
    axes.legend(fontsize=7, title="noise at", title_fontsize=7)
    return 5.2, 3.8


def shares_over_time(figure: FigureBase, recipe: Recipe, runs: Runs) -> Size:
    """A panel for each point: the nearest class's share over time, every run and their mean."""

    def panel(axes: Axes, point: Point) -> None:
        curves = [_shares(run) for run in runs[point.label]]
        colour = next(iter(class_colours(hops_of(runs[point.label][0])).values()))
        for centres_s, shares in curves:
            axes.plot(centres_s, shares, color=GREY, lw=0.5)
        logs = np.mean([np.log(shares) for _, shares in curves], axis=0)
        mean = Line("geometric mean", colour, curves[0][0], np.exp(logs), marker="o")
        draw_lines(axes, [mean])
        axes.axhline(1, color=GREY, lw=0.8)
        log_scale(axes, "y")
        axes.set_xlabel("s from when all flows are active")
        axes.set_ylabel(f"{label_of(hops_of(runs[point.label][0])[0])} flows, fair shares")

    return grid(figure, recipe, runs, panel)


def _shares(run: Run) -> tuple[Values, Values]:
    """The middles of the parts in seconds, and what a flow of the nearest class has of its share.

    A part in which the class got nothing counts as if one segment had arrived.
    """
    span = intervals.span_of(run, "all_active")
    edges_ns = np.linspace(span.start_ns, span.end_ns, PARTS + 1)
    nearest = Measure(kind="class_share", hops=hops_of(run)[0])
    origin_ns = span.start_ns
    shares = []
    for begin_ns, end_ns in itertools.pairwise(edges_ns):
        part = (f"{(begin_ns - origin_ns) / 1e6:.6f}ms", f"{(end_ns - origin_ns) / 1e6:.6f}ms")
        shares.append(measures.take(run, nearest.model_copy(update={"interval": part})))
    return (edges_ns[:-1] + edges_ns[1:] - 2 * origin_ns) / 2e9, np.array(shares)


def spread(figure: FigureBase, recipe: Recipe, runs: Runs) -> Size:
    """A line for each point: a dot for each run, and the mean with its interval."""
    measure, axes = measure_of(recipe), figure.add_subplot()
    points_run = [point for point in recipe.points if runs.get(point.label)]
    places = series_of(recipe)
    for row, point in enumerate(reversed(points_run)):
        values = [measures.take(run, measure) for run in runs[point.label]]
        axes.plot(values, [row] * len(values), ".", color=GREY, markersize=4)
        (centre,), (low,), (high,) = bounds([interval(runs[point.label], measure)])
        colour = series_colour(places.index(point.series))
        axes.plot([low, high], [row, row], color=colour, lw=1.5)
        axes.plot([centre], [row], "|", color=colour, markersize=9, markeredgewidth=2)
    axes.axvline(1, color=GREY, lw=0.8)
    axes.set_ylim(-0.6, len(points_run) - 0.4)
    log_scale(axes, "x")
    # Values often span less than a decade, so powers of ten would label one tick.
    low, high = axes.get_xlim()
    _label_decades(axes, (1, 2, 5) if high < 1000 * low else (1,))
    names = [point.label for point in reversed(points_run)]
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.set_xlabel(recipe.picture.x)
    return 7.0, 0.25 * len(points_run) + 0.8


def gains(figure: FigureBase, recipe: Recipe, runs: Runs) -> Size:
    """A panel for each point: what undone drops give, together and apart, over the time."""
    points_run = [point for point in recipe.points if runs.get(point.label)]
    panels = figure.subplots(1, len(points_run), sharey=True, squeeze=False)[0]
    for axes, point in zip(panels, points_run, strict=True):
        for number, kind in enumerate(("undone_together_bps", "undone_apart_bps")):
            measures = [Measure(kind=kind, within_ms=ms) for ms in WITHIN_MS]
            means = bounds([interval(runs[point.label], measure) for measure in measures])
            if np.isnan(means[0]).all():
                continue
            mean, low, high = (values / 1e6 for values in means)
            name = kind.removesuffix("_bps").replace("_", " ")
            x = np.array(WITHIN_MS, float)
            draw_lines(axes, [Line(name, series_colour(number), x, mean, low, high, marker="o")])
        axes.axhline(0, color=GREY, lw=0.8)
        log_scale(axes, "x")
        axes.set_xticks(WITHIN_MS, [str(ms) for ms in WITHIN_MS])
        axes.minorticks_off()
        axes.set_title(point.label, fontsize=8)
        axes.set_xlabel("within (ms)")
    panels[0].set_ylabel("gain (Mbps)")
    panels[0].legend(fontsize=7)
    return 2.6 * len(points_run) + 0.6, 3.0


def radii(figure: FigureBase, recipe: Recipe, runs: Runs) -> Size:
    """A line for each point: the share of its fates up to each share of changed packets."""
    axes = figure.add_subplot()
    for number, point in enumerate(recipe.points):
        tables = [run.effects for run in runs.get(point.label, []) if isinstance(run, EffectsRun)]
        changed = np.sort([share for table in tables for share in table["changed"]])
        shares = np.arange(1, changed.size + 1) / max(1, changed.size)
        label = f"{point.label} ({changed.size})"
        axes.step(changed, shares, where="post", color=series_colour(number), label=label)
    axes.set(xlabel="share of packets with another fate", ylabel="share of the fates")
    axes.legend(fontsize=7)
    return 5.0, 3.2
