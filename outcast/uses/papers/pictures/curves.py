"""Measures over an axis, the senders' sockets over time, and rows under profiles of noise."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase

from outcast.analysis import Measure, measures, sender_measures
from outcast.uses.papers.claims import Claim, OrderClaim
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
from outcast.uses.papers.together import Row, in_order
from outcast.uses.papers.verdict import Verdict, verdict_text
from outcast.view import (
    BLUE,
    GREEN,
    GREY,
    PURPLE,
    VERMILION,
    Bars,
    Line,
    bounds,
    draw_bars,
    draw_lines,
    log_scale,
    save,
    series_colour,
    set_amounts,
    styled,
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


FILE = "over-noise.png"
MARKS: Mapping[Verdict | None, tuple[str, str]] = {
    Verdict.REPRODUCED: ("o", GREEN),
    Verdict.UNCONTROLLED: ("v", GREEN),
    Verdict.OTHER_SIZE: ("^", BLUE),
    Verdict.VACUOUS: ("s", GREY),
    Verdict.CONTRADICTED: ("X", VERMILION),
    Verdict.INCONCLUSIVE: ("D", GREY),
    None: ("_", PURPLE),
}
"""The marker and the colour of a main claim's verdict."""
_BEYOND = 10.0
"""By this factor a logarithmic axis reaches beyond the values; intervals are cut off there."""


_TITLE_LETTERS = 52
"""In a line of a panel's title, where there is one profile of noise."""


def draw_band(
    bands: Mapping[str, Sequence[Row]], recipes: Mapping[str, Recipe], path: Path
) -> None:
    """Draws `over_noise` into a PNG file, which is written whole or not at all."""
    with styled():
        figure = Figure(layout="constrained")
        figure.set_size_inches(*over_noise(figure, bands, recipes))
        save(figure, path)


def over_noise(
    figure: FigureBase, bands: Mapping[str, Sequence[Row]], recipes: Mapping[str, Recipe]
) -> Size:
    """A row of two panels for each recipe, with a place for each profile of noise.

    The left panel has the main claim's measure with its interval, by verdict, and a line where it
    would be without the effect. The right one has the burst ratio of the flows with the fewest
    hops; at 1 drops have no memory.
    """
    noises = in_order({row.result.noise for band in bands.values() for row in band})
    panels = figure.subplots(len(bands), 2, sharex=True, squeeze=False)
    for (effect, burst), (name, band) in zip(panels, bands.items(), strict=True):
        places = {row.result.noise: noises.index(row.result.noise) for row in band}
        _effect(effect, recipes[name].claims[0], band, places)
        _burst(burst, band, places)
        title = f"{name}: {band[0].result.claims[0].text}"
        effect.set_title(textwrap.fill(title, _TITLE_LETTERS), fontsize=7)
    for axes in panels[-1]:
        axes.set_xticks(range(len(noises)), noises, rotation=20, ha="right", fontsize=7)
        axes.set_xlim(-0.5, len(noises) - 0.5)
    panels[0][1].set_title("burst ratio of the nearest flows' drops", fontsize=7)
    used = {row.claims[0].verdict for band in bands.values() for row in band}
    for verdict, (marker, colour) in MARKS.items():
        if verdict in used:
            panels[0][0].plot([], [], marker, color=colour, label=verdict_text(verdict))
    figure.legend(loc="outside upper center", ncols=min(4, len(used)), fontsize=7)
    return 4.2 + 0.8 * len(noises), 0.9 + 1.1 * len(bands)


def _effect(axes: Axes, claim: Claim, band: Sequence[Row], places: Mapping[str, int]) -> None:
    quotient = not isinstance(claim, OrderClaim) and claim.over is not None
    logarithmic = measures.is_logarithmic(claim.measure)
    scale = 1.0 if quotient or logarithmic else in_mbps(claim.measure)
    none = claim.without_effect(logarithmic) / scale
    reached = [none]
    axes.axhline(none, color=GREY, lw=0.8)
    for row in band:
        main_claim = row.claims[0]
        record, place = main_claim.record, places[row.result.noise]
        if record.mean is None:
            continue
        marker, colour = MARKS[main_claim.verdict]
        if record.low is not None and record.high is not None:
            axes.plot([place] * 2, [record.low / scale, record.high / scale], color=colour, lw=1.2)
        axes.plot([place], [record.mean / scale], marker, color=colour, markersize=5)
        reached.append(record.mean / scale)
    kind = claim.measure.kind.removesuffix("_bps").replace("_", " ")
    label = f"{kind}, Mbps" if scale > 1 else kind
    axes.set_ylabel(textwrap.fill(label, 16), fontsize=7)
    axes.tick_params(axis="y", labelsize=7)
    if logarithmic:
        log_scale(axes, "y")
        positive = [value for value in reached if value > 0 and math.isfinite(value)]
        axes.set_ylim(min(positive) / _BEYOND, max(positive) * _BEYOND)


def _burst(axes: Axes, band: Sequence[Row], places: Mapping[str, int]) -> None:
    axes.axhline(1, color=GREY, lw=0.8)
    axes.tick_params(axis="y", labelsize=7)
    for row in band:
        burst, place = row.result.burst, places[row.result.noise]
        if burst is None or burst.mean is None:
            continue
        if burst.low is not None and burst.high is not None:
            axes.plot([place] * 2, [burst.low, burst.high], color=BLUE, lw=1.2)
        axes.plot([place], [burst.mean], "o", color=BLUE, markersize=4)
