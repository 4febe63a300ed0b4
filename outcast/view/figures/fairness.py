"""Fairness over time, and goodput of flows that join and leave (TCPRand's figure 16)."""

from __future__ import annotations

from itertools import pairwise

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from outcast.units import format_time
from outcast.view.figures.drawn_run import DrawnRun
from outcast.view.figures.goodput import goodput_curves
from outcast.view.figures.style import CLASS_COLOURS, GREY, heading


def fairness_over_time(run: DrawnRun) -> Figure | None:
    """Jain's index over windows that slide, one curve for each length."""
    if not run.has("fairness"):
        return None
    figure = Figure(figsize=(8, 3), layout="constrained")
    axes = figure.subplots()
    _indices(run, axes)
    axes.set_xlabel("end of the window (s)")
    heading(figure, f"{run.summary.name}: fairness of the active flows over sliding windows")
    figure.legend(loc="outside lower center", ncols=4)
    return figure


def _indices(run: DrawnRun, axes: Axes) -> None:
    frame = run.table("fairness").with_columns(width=pl.col("t_end") - pl.col("t_start")).collect()
    for colour, ((width,), part) in zip(
        CLASS_COLOURS[1:] * 10, frame.group_by("width", maintain_order=True), strict=False
    ):
        # Where at a time fewer than two flows were active, the curve has a gap.
        time_s = part["t_end"].to_numpy() / 1e9
        step_s = min((b - a for a, b in pairwise(time_s)), default=0)
        breaks = [n + 1 for n, (a, b) in enumerate(pairwise(time_s)) if b - a > 1.5 * step_s]
        bounds = [0, *breaks, time_s.size]
        jain = part["jain"].to_numpy()
        for n, (first, last) in enumerate(pairwise(bounds)):
            label = f"windows of {format_time(int(width))}" if n == 0 else None
            axes.plot(time_s[first:last], jain[first:last], color=colour, lw=1.2, label=label)
    axes.axhline(1, color=GREY, lw=0.5, ls=":")
    axes.set_xlim(0, run.summary.duration_s)
    axes.set_ylim(0, 1.05)
    axes.set_ylabel("Jain's index")
    _mark_changes(run, axes)


def _mark_changes(run: DrawnRun, axes: Axes) -> None:
    for change in run.summary.convergence:
        if change.t_s > 0:
            axes.axvline(change.t_s, color=GREY, lw=0.7, ls="--", zorder=0)


def convergence(run: DrawnRun) -> Figure | None:
    """TCPRand's figure 16: goodput of every flow where flows join or leave, and the index."""
    spans = {(flow.start_ns, flow.duration_ns) for flow in run.manifest.flows}
    if len(spans) < 2 or len(run.manifest.flows) > len(CLASS_COLOURS) or not run.has("fairness"):
        return None
    time_s, drawn = goodput_curves(run)
    figure = Figure(figsize=(8, 5), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    by_label = {curve.label: curve for curve in drawn}
    for colour, flow in zip(CLASS_COLOURS, run.manifest.flows, strict=False):
        curve = by_label[f"{flow.src} #{flow.flow}"]
        begin_s = flow.start_ns / 1e9
        end_s = run.summary.duration_s
        if flow.duration_ns is not None:
            end_s = begin_s + flow.duration_ns / 1e9
        inside = (time_s >= begin_s) & (time_s < end_s)
        label = f"{curve.label} ({flow.hops}-hop)"
        upper.plot(
            time_s[inside], curve.goodput_bps[inside] / 1e6, color=colour, lw=1.2, label=label
        )
    upper.set_ylabel("goodput (Mbps)")
    upper.set_ylim(0, None)
    _mark_changes(run, upper)
    _indices(run, lower)
    lower.set_xlabel("time (s)")
    heading(figure, f"{run.summary.name}: flows that join and leave")
    figure.legend(*upper.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure
