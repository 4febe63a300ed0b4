"""Draws fairness over time, and goodput of flows that join and leave (TCPRand's figure 16)."""

from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from outcast.records.run import Run
from outcast.units import format_time
from outcast.view.figures.goodput import flow_rates
from outcast.view.figures.parts import Line, draw_lines
from outcast.view.figures.senders import MOST_LINES, flow_label
from outcast.view.figures.style import heading, new
from outcast.view.palette import GREY, ramp, run_colours, shaded


def fairness_over_time(run: Run) -> Figure | None:
    """Draws Jain's index over sliding windows, with a curve for each length of window."""
    if "fairness" not in run.tables:
        return None
    figure = new((8, 3))
    axes = figure.subplots()
    _indices(run, axes)
    few = run.table("fairness")["t_end"].n_unique() == 1
    more = "\nonly one window fits; more do with a shorter analysis.bin" if few else ""
    axes.set_xlabel(f"end of the window (s){more}")
    heading(figure, f"{run.summary.name}: fairness of the active flows over sliding windows")
    return figure


def _indices(run: Run, axes: Axes) -> None:
    frame = run.table("fairness").with_columns(width=pl.col("t_end") - pl.col("t_start"))
    lines = []
    parts = [*frame.sort("width", maintain_order=True).group_by("width", maintain_order=True)]
    for ((width,), part), colour in zip(parts, ramp(len(parts)), strict=True):
        # The curve has a gap while fewer than two flows were active.
        time_s = part["t_end"].to_numpy() / 1e9
        steps_s = np.diff(time_s)
        gaps = np.flatnonzero(steps_s > 1.5 * steps_s.min(initial=np.inf)) + 1
        x, jain = (np.insert(column, gaps, np.nan) for column in (time_s, part["jain"].to_numpy()))
        label = f"windows of {format_time(int(width))}"
        lines.append(Line(label, colour, x, jain))
    draw_lines(axes, lines)
    axes.axhline(1, color=GREY, lw=0.5, ls=":", label="all equal")
    axes.set(xlim=(0, run.summary.duration_s), ylim=(0, 1.05), ylabel="Jain's index")
    _mark_changes(run, axes)


def _mark_changes(run: Run, axes: Axes) -> None:
    for change in run.summary.convergence:
        if change.t_s > 0:
            look: Any = {"color": GREY, "lw": 0.7, "ls": "--", "zorder": 0}
            axes.axvline(change.t_s, **look, label="a flow joins or leaves")


def convergence(run: Run) -> Figure | None:
    """Draws TCPRand's figure 16: goodput of every flow while flows join and leave, and fairness."""
    flows = run.manifest.flows
    if len({(flow.start_ns, flow.duration_ns) for flow in flows}) < 2:
        return None
    if len(flows) > MOST_LINES or "fairness" not in run.tables:
        return None
    edges, rates = flow_rates(run)
    colours = shaded(run.group_of, run_colours(run))
    figure = new((8, 5))
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    lines = []
    for flow in flows:
        begin_s, end_s = flow.start_ns / 1e9, run.summary.duration_s
        if flow.duration_ns is not None:
            end_s = begin_s + flow.duration_ns / 1e9
        active = (edges[:-1] >= begin_s) & (edges[:-1] < end_s)
        x, y = edges[:-1][active], rates[flow.flow][active] / 1e6
        lines.append(Line(flow_label(run, flow), colours[flow.flow], x, y))
    draw_lines(upper, lines)
    upper.set(ylabel="goodput (Mbps)", ylim=(0, None))
    _mark_changes(run, upper)
    _indices(run, lower)
    lower.set_xlabel("time (s)")
    heading(figure, f"{run.summary.name}: flows that join and leave")
    return figure
