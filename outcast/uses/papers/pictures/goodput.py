"""Goodput by class, window and flow; chains of drops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase

from outcast.analysis import Measure, kinds
from outcast.records import Run
from outcast.uses.papers.pictures.parts import Runs, Size, grid, hops_of, interval, label_of, panels
from outcast.uses.papers.recipe import Point, Recipe
from outcast.view import (
    Bars,
    Line,
    bounds,
    class_colours,
    draw_bars,
    draw_lines,
    run_colours,
    series_colour,
    shaded,
)
from outcast.view.figures.goodput import draw_rows, flow_rates, goodput_curves

LONGEST_CHAIN = 5
"""Chains of this many drops or more share the last bar, as in figure 11 of the Outcast paper."""


def draw_window_bars(axes: Axes, runs: Sequence[Run], *, per_host: bool = False) -> None:
    """Draws the goodput of each class in each window, and in the second half.

    Windows count from when all flows are active.
    """
    parts: dict[str, kinds.Interval] = {name: ("0s", name) for name in runs[0].summary.windows}
    parts["2nd half"] = "second_half"
    groups = []
    for hops, colour in class_colours(hops_of(runs[0])).items():
        means = [
            interval(runs, Measure(kind="class_goodput_bps", hops=hops, interval=part))
            for part in parts.values()
        ]
        unit = 1e6 / (_flows_per_host(runs[0], hops) if per_host else 1.0)
        groups.append(Bars(label_of(hops), colour, *bounds(means, unit)))
    draw_bars(axes, groups, list(parts))
    axes.set_xlabel("from when all flows are active")
    axes.set_ylabel("Mbps a host" if per_host else "Mbps a flow")
    axes.set_ylim(0, 1.25 * axes.get_ylim()[1])
    axes.legend(fontsize=7, ncols=len(groups), loc="upper left")


def _flows_per_host(run: Run, hops: int) -> float:
    mine = run.table("flows").filter(pl.col("hops") == hops)
    return mine.height / max(1, mine["src"].n_unique())


def window_bars(figure: FigureBase, recipe: Recipe, runs: Runs) -> Size:
    """A panel for each point: mean goodput by class, in each window of the configuration."""
    return grid(figure, recipe, runs, lambda axes, point: draw_window_bars(axes, runs[point.label]))


def host_bars(figure: FigureBase, recipe: Recipe, runs: Runs) -> Size:
    """Like window_bars, for all flows of a host together (figure 4)."""
    return grid(
        figure, recipe, runs,
        lambda axes, point: draw_window_bars(axes, runs[point.label], per_host=True),
    )  # fmt: skip


def figure3(figure: FigureBase, recipe: Recipe, runs: Runs) -> Size:
    """Above, every flow's goodput over time, one above the other; below, means by class."""
    points = panels(recipe, runs)
    for number, point in enumerate(points):
        above = figure.add_subplot(2, len(points), number + 1)
        above.set_title(f"({chr(97 + number)}) {point.label}")
        run = runs[point.label][0]
        edges, curves = goodput_curves(run)
        named = [replace(curve, label=label_of(curve.hops or 0)) for curve in curves]
        fair_bps = run.summary.total_goodput_bps / len(run.manifest.flows)
        draw_rows(above, edges, named, fair_bps, run_colours(run), run.marked, fontsize=6)
        below = figure.add_subplot(2, len(points), len(points) + number + 1)
        count = len(runs[point.label])
        of_runs = f"median of {count} runs" if count > 1 else "one run"
        below.set_title(f"({chr(97 + len(points) + number)}) {of_runs}")
        draw_window_bars(below, runs[point.label])
    return 3.3 * len(points), 5.6


MOST_FLOWS = 6
"""If there are more flows of one class than this, each sender has its own colour."""


def _kinds_of_flows(run: Run) -> tuple[dict[int, str], dict[str, str], set[str]]:
    """The label of each flow, the labels' colours, and the labels whose curves are wider.

    Colours are of classes. If all flows are of one class and they are many, colours are of senders.
    """
    flows = run.manifest.flows
    if len(run.hops) > 1:
        labels = {flow.flow: label_of(flow.hops or 0) for flow in flows}
        of_class = class_colours(run.hops)
        colours = {label_of(hops): of_class[hops] for hops in run.hops}
        return labels, colours, {label_of(run.hops[0])}
    if len(flows) <= MOST_FLOWS:
        labels = {flow.flow: f"flow {flow.flow + 1}" for flow in flows}
        of_flow = shaded(run.group_of, run_colours(run))
        return labels, {labels[flow]: of_flow[flow] for flow in labels}, set()
    count = Counter(flow.src for flow in flows)
    labels = {
        flow.flow: f"{count[flow.src]} {'flows' if count[flow.src] > 1 else 'flow'} of {flow.src}"
        for flow in flows
    }
    least = min(count.values())
    names = dict.fromkeys(labels.values())
    colours = {name: series_colour(number) for number, name in enumerate(names)}
    return labels, colours, {labels[flow.flow] for flow in flows if count[flow.src] == least}


def flow_curves(figure: FigureBase, recipe: Recipe, runs: Runs) -> Size:
    """A panel for each point: every flow's goodput over time, in one frame."""

    def panel(axes: Axes, point: Point) -> None:
        run = runs[point.label][0]
        edges, rates = flow_rates(run)
        label_of_flow, colours, marked = _kinds_of_flows(run)
        lines: list[Line] = []
        # What is marked is drawn above the others.
        for flow in sorted(rates, key=lambda flow: (label_of_flow[flow] not in marked, flow)):
            label = label_of_flow[flow]
            known = any(label == other.label for other in lines)
            width = 1.6 if label in marked else 0.7
            y = rates[flow] / 1e6
            lines.append(Line(None if known else label, colours[label], edges[:-1], y, width=width))
        draw_lines(axes, lines)
        axes.set(xlabel="s", ylabel="Mbps")
        # Room for the legend above the curves, which it would cover otherwise.
        axes.set_ylim(0, 1.25 * axes.get_ylim()[1])
        axes.legend(fontsize=7, ncols=3, loc="upper left")

    return grid(figure, recipe, runs, panel)


def chains(figure: FigureBase, recipe: Recipe, runs: Runs) -> Size:
    """A panel for each point: the share of a class's chains of drops that have k drops."""

    def panel(axes: Axes, point: Point) -> None:
        kinds = ["chain_share"] * (LONGEST_CHAIN - 1) + ["long_chain_share"]
        groups = []
        for hops, colour in class_colours(hops_of(runs[point.label][0])).items():
            shares = [
                interval(runs[point.label], Measure(kind=kind, hops=hops, length=length))
                for length, kind in enumerate(kinds, 1)
            ]
            groups.append(Bars(label_of(hops), colour, *bounds(shares, 0.01)))
        draw_bars(axes, groups, [*map(str, range(1, LONGEST_CHAIN)), f"{LONGEST_CHAIN}+"])
        axes.set(xlabel="consecutive drops of a flow", ylabel="% of episodes")
        axes.legend(fontsize=7)

    return grid(figure, recipe, runs, panel)


def bars_and_chains(figure: FigureBase, recipe: Recipe, runs: Runs) -> Size:
    """Figures 14, 15 and 16: above, the goodput by class; below, the chains of drops."""
    upper = figure.add_subfigure(figure.add_gridspec(2, 1)[0])
    lower = figure.add_subfigure(figure.add_gridspec(2, 1)[1])
    width, height = window_bars(upper, recipe, runs)
    chains(lower, recipe, runs)
    return width, 2 * height
