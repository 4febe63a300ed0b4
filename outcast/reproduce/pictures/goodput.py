"""Goodput by class, window and flow, and chains of drops beneath it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase

from outcast.reproduce import measures
from outcast.reproduce.measures import Run
from outcast.reproduce.pictures.parts import (
    Runs,
    Size,
    class_colours,
    grid,
    hops_of,
    label_of,
    panels,
    spread,
)
from outcast.reproduce.recipe import Measure, Point, Recipe
from outcast.view.figures.style import CLASS_COLOURS

LONGEST_CHAIN = 5
"""Chains of so many drops and more share the last bar, as in figure 11 of the Outcast paper."""


def draw_window_bars(axes: Axes, runs: Sequence[Run], *, per_host: bool = False) -> None:
    """Mean goodput of each class in each window."""
    first = runs[0]
    windows = list(first.summary.windows) or [""]
    hops = hops_of(first)
    colours = class_colours(hops)
    width = 0.8 / len(hops)
    scale = 1e6
    for place, each in enumerate(hops):
        heights, below, above = [], [], []
        for window in windows:
            measure = Measure(kind="class_goodput_bps", hops=each, window=window or None)
            factor = _flows_per_host(first, each) if per_host else 1.0
            mean, down, up = spread([factor * measures.take(run, measure) for run in runs])
            heights.append(mean / scale)
            below.append(down / scale)
            above.append(up / scale)
        at = np.arange(len(windows)) + (place - (len(hops) - 1) / 2) * width
        axes.bar(
            at, heights, width, yerr=(below, above), color=colours[each],
            label=label_of(each), error_kw={"elinewidth": 0.8, "capsize": 2},
        )  # fmt: skip
    axes.set_xticks(np.arange(len(windows)), windows)
    axes.set_ylabel("Mbps a host" if per_host else "Mbps a flow")
    axes.set_ylim(0, 1.25 * axes.get_ylim()[1])
    axes.legend(fontsize=7, ncols=len(hops), loc="upper left")


def _flows_per_host(run: Run, hops: int) -> float:
    mine = run.flows.filter(pl.col("hops") == hops)
    return mine.height / max(1, mine["src"].n_unique())


def window_bars(figure: FigureBase, recipe: Recipe, runs: Runs) -> Size:
    """A panel for each point: mean goodput by class, in each window of the configuration."""
    return grid(figure, recipe, runs, lambda axes, point: draw_window_bars(axes, runs[point.label]))


def host_bars(figure: FigureBase, recipe: Recipe, runs: Runs) -> Size:
    """As window_bars, of all flows of a host together (figure 4)."""
    return grid(
        figure, recipe, runs,
        lambda axes, point: draw_window_bars(axes, runs[point.label], per_host=True),
    )  # fmt: skip


def figure3(figure: FigureBase, recipe: Recipe, runs: Runs) -> Size:
    """Above, every flow's goodput over time, offset to be told apart; below, means by class."""
    points = panels(recipe, runs)
    for number, point in enumerate(points):
        above = figure.add_subplot(2, len(points), number + 1)
        above.set_title(f"({chr(97 + number)}) {point.label}")
        _offset_curves(above, runs[point.label][0])
        below = figure.add_subplot(2, len(points), len(points) + number + 1)
        below.set_title(f"({chr(97 + len(points) + number)}) mean of {len(runs[point.label])} runs")
        draw_window_bars(below, runs[point.label])
    return 3.3 * len(points), 5.6


def _curves(run: Run) -> list[tuple[int, int, np.ndarray, np.ndarray]]:
    """Flow, hops, seconds after the start, bps; flows with fewer hops first."""
    table = run.table("throughput")
    order = run.flows.sort("hops", "flow").select("flow", "hops").iter_rows()
    found = []
    for flow, hops in order:
        mine = table.filter(pl.col("flow") == flow).sort("t")
        seconds = mine["t"].to_numpy() / 1e9
        found.append((flow, hops, seconds, mine["goodput_bps"].to_numpy()))
    return found


def _offset_curves(axes: Axes, run: Run) -> None:
    curves = _curves(run)
    colours = class_colours(hops_of(run))
    step = max((float(bps.max()) for *_, bps in curves if bps.size), default=1.0) / 1e6
    step = math.ceil(step / 50) * 50 / (2.0 if len(curves) > 4 else 1.0)
    for place, (_, hops, seconds, bps) in enumerate(curves):
        base = place * step
        axes.axhline(base, color="0.85", linewidth=0.5)
        axes.plot(seconds, base + bps / 1e6, color=colours[hops], linewidth=0.8)
    axes.set_xlabel("s")
    axes.set_ylabel(f"Mbps, each flow offset by {step:g}")
    axes.set_yticks(
        [place * step for place in range(len(curves))],
        [f"{label_of(hops)}" for _, hops, *_ in curves],
        fontsize=6,
    )


def goodput_over_time(figure: FigureBase, recipe: Recipe, runs: Runs) -> Size:
    """A panel for each point: every flow's goodput over time, in one frame."""

    def panel(axes: Axes, point: Point) -> None:
        run = runs[point.label][0]
        colours = class_colours(hops_of(run))
        named: set[int] = set()
        several = len(colours) > 1
        for number, (flow, hops, seconds, bps) in enumerate(reversed(_curves(run))):
            label = label_of(hops) if several else f"flow {flow + 1}"
            axes.plot(
                seconds, bps / 1e6,
                color=colours[hops] if several else CLASS_COLOURS[number % len(CLASS_COLOURS)],
                linewidth=1.6 if several and hops == min(colours) else 0.7,
                label=None if several and hops in named else label,
            )  # fmt: skip
            named.add(hops)
        axes.set_xlabel("s")
        axes.set_ylabel("Mbps")
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=7)

    return grid(figure, recipe, runs, panel)


def chains(figure: FigureBase, recipe: Recipe, runs: Runs) -> Size:
    """A panel for each point: what share of a class's episodes of drops has k drops."""

    def panel(axes: Axes, point: Point) -> None:
        hops = hops_of(runs[point.label][0])
        colours = class_colours(hops)
        width = 0.8 / len(hops)
        lengths = range(1, LONGEST_CHAIN + 1)
        for place, each in enumerate(hops):
            means, below, above = [], [], []
            for length in lengths:
                kind = "long_chain_share" if length == LONGEST_CHAIN else "chain_share"
                measure = Measure(kind=kind, hops=each, length=length)
                mean, down, up = spread([measures.take(run, measure) for run in runs[point.label]])
                means.append(100 * mean)
                below.append(100 * down)
                above.append(100 * up)
            at = np.array(lengths) + (place - (len(hops) - 1) / 2) * width
            axes.bar(
                at, means, width, yerr=(below, above), color=colours[each],
                label=label_of(each), error_kw={"elinewidth": 0.8, "capsize": 2},
            )  # fmt: skip
        axes.set_xticks(list(lengths), [*map(str, lengths[:-1]), f"{LONGEST_CHAIN}+"])
        axes.set_xlabel("consecutive drops of a flow")
        axes.set_ylabel("% of episodes")
        axes.legend(fontsize=7)

    return grid(figure, recipe, runs, panel)


def bars_and_chains(figure: FigureBase, recipe: Recipe, runs: Runs) -> Size:
    """Figures 14 and 15, 16: above the goodput by class, below the chains of drops."""
    upper = figure.add_subfigure(figure.add_gridspec(2, 1)[0])
    lower = figure.add_subfigure(figure.add_gridspec(2, 1)[1])
    width, height = window_bars(upper, recipe, runs)
    chains(lower, recipe, runs)
    return width, 2 * height
