"""The figures of outcast's own findings: noise by its place, and what undone drops give."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase
from matplotlib.ticker import LogLocator, NullLocator

from outcast.analysis import Measure, measures
from outcast.uses.papers.effects import WITHIN_MS
from outcast.uses.papers.pictures.parts import (
    Runs,
    Size,
    interval,
    measure_of,
    series_of,
)
from outcast.uses.papers.recipe import Recipe
from outcast.view import GREY, Line, bounds, draw_lines, log_scale, series_colour


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
