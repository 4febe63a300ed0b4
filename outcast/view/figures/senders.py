"""Senders over time: round trips (the Outcast paper's figure 2(b)), congestion windows (figure 17
of the TCPRand paper), and timeouts by count and by the time halted (its figure 9).
"""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from outcast.view.figures.drawn_run import DrawnRun
from outcast.view.figures.style import CLASS_COLOURS, GREY, heading

MOST_LINES = len(CLASS_COLOURS)
"""Beyond this many flows, classes are drawn instead of flows."""
_BINS = 200
"""Captured round trips, one for each segment, are summed up in so many bins."""


def rtt_over_time(run: DrawnRun) -> Figure | None:
    """Figure 2(b): the round trips of each class over time."""
    frame = _round_trips(run)
    if frame is None:
        return None
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    axes = figure.subplots()
    _class_bands(run, axes, frame, "rtt_ms")
    axes.set_xlim(0, run.summary.duration_s)
    axes.set_ylim(0, None)
    axes.set_xlabel("time (s)")
    axes.set_ylabel("round trip (ms)")
    what = "captured, input port to receiver and back" if run.has("rtt") else "smoothed, by senders"
    heading(figure, f"{run.summary.name}: round trips of each class ({what})")
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def _round_trips(run: DrawnRun) -> pl.DataFrame | None:
    """Columns `t` (seconds), `flow` and `rtt_ms`."""
    if run.has("rtt"):
        width_ns = max(1, round(run.summary.duration_s * 1e9 / _BINS))
        begin = run.manifest.traffic.t_start_ns
        place = (pl.col("t") - begin) // width_ns
        frame = (
            run.table("rtt")
            .filter(place.is_between(0, _BINS - 1))
            .group_by("flow", t=(place + 0.5) * width_ns / 1e9)
            .agg(rtt_ms=pl.median("rtt_ns") / 1e6)
            .collect()
        )
    elif run.has("sockets"):
        frame = (
            run.table("sockets")
            .filter((pl.col("srtt_us") > 0) & (pl.col("t") <= run.summary.duration_s * 1e9))
            .select("flow", t=pl.col("t") / 1e9, rtt_ms=pl.col("srtt_us") / 1e3)
            .collect()
        )
    else:
        return None
    return frame if frame.height else None


def _class_bands(run: DrawnRun, axes: Axes, frame: pl.DataFrame, column: str) -> None:
    """The mean of each class over time; with several flows also the least and the most."""
    for hops in reversed(run.hops):
        flows = [flow.flow for flow in run.manifest.flows if flow.hops == hops]
        each = (
            frame.filter(pl.col("flow").is_in(flows))
            .group_by("t")
            .agg(middle=pl.mean(column), low=pl.min(column), high=pl.max(column))
            .sort("t")
        )
        colour = run.colour(hops)
        count = f"mean, least and most of {len(flows)} flows" if len(flows) > 1 else "1 flow"
        time = each["t"].to_numpy()
        if len(flows) > 1:
            axes.fill_between(time, each["low"], each["high"], color=colour, alpha=0.18, lw=0)
        axes.plot(time, each["middle"], color=colour, lw=1.2, label=f"{hops}-hop ({count})")


def windows_over_time(run: DrawnRun) -> Figure | None:
    """TCPRand's figure 17: congestion windows over time, of each flow or, of many, each class."""
    if not run.has("sockets"):
        return None
    frame = (
        run.table("sockets")
        .filter(pl.col("t") <= run.summary.duration_s * 1e9)
        .select("flow", "cwnd", t=pl.col("t") / 1e9)
        .collect()
    )
    if not frame.height:
        return None
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    axes = figure.subplots()
    if len(run.manifest.flows) <= MOST_LINES:
        for colour, flow in zip(CLASS_COLOURS, run.manifest.flows, strict=False):
            mine = frame.filter(flow=flow.flow)
            label = f"{flow.src} #{flow.flow} ({flow.hops}-hop)"
            axes.plot(
                mine["t"], mine["cwnd"], color=colour, lw=1, label=label, drawstyle="steps-post"
            )
    else:
        _class_bands(run, axes, frame, "cwnd")
    axes.set_xlim(0, run.summary.duration_s)
    axes.set_ylim(0, None)
    axes.set_xlabel("time (s)")
    axes.set_ylabel("congestion window (segments)")
    found = run.summary.synchronisation
    title = f"{run.summary.name}: congestion windows"
    if found is not None:
        pairs = "correlation" if found.flows == 2 else "mean correlation of two flows"
        title += f"; {pairs} {found.mean:.2f}"
    heading(figure, title)
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def timeouts_by_class(run: DrawnRun) -> Figure | None:
    """TCPRand's figure 9: timeouts of a flow by count and by the time that they halted it."""
    classes = run.summary.classes
    if not classes:
        return None
    figure = Figure(figsize=(7, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    places = np.arange(len(run.hops))
    colours = [run.colour(hops) for hops in run.hops]
    counts = []
    for hops in run.hops:
        part = classes[str(hops)]
        # The kernel's count where hosts tell the classes apart, else what the captures show.
        total = part.timeouts if part.timeouts is not None else run.summary.tcp[str(hops)].timeouts
        counts.append(total / part.flows)
    halted = [
        100 * run.summary.tcp[str(hops)].halted_s / classes[str(hops)].flows for hops in run.hops
    ]
    shares = [value / run.summary.duration_s for value in halted]
    for axes, values, what in (
        (left, counts, "timeouts of a flow"),
        (right, shares, "time halted before timeouts (%)"),
    ):
        bars = axes.bar(places, values, 0.6, color=colours)
        axes.bar_label(bars, [f"{value:.3g}" for value in values], padding=2, fontsize=8)
        axes.set_xticks(places, [f"{hops}-hop" for hops in run.hops])
        axes.set_ylabel(what)
        axes.margins(y=0.15)
        axes.axhline(0, color=GREY, lw=0.5)
    heading(figure, f"{run.summary.name}: timeouts, mean of each class's flows")
    return figure
