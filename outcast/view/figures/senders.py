"""Draws round trips, congestion windows and timeouts of the senders.

Round trips are figure 2(b) of the Outcast paper. Congestion windows are figure 17 of the TCPRand
paper. Timeouts, with the time waiting for them, are its figure 9.
"""

from collections.abc import Callable

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from outcast.analysis.machine_code import Array
from outcast.analysis.measure.kernel_counts import while_active
from outcast.plan.grouping import controls, title
from outcast.records.flows import FlowRecord
from outcast.records.run import Run
from outcast.view import sender_series
from outcast.view.figures.parts import Line, draw_lines, shown_groups
from outcast.view.figures.style import heading, name_ticks, new
from outcast.view.palette import GREY, run_colours, shaded
from outcast.view.summary_words import noun, rto_share

MOST_LINES = 6
"""The most flows that have a line each. If there are more, each group has a line."""
_BINS = 200
"""The number of bins for means of values that come at any time."""
_MOST_POINTS = 50_000
"""The most points of all flows' curves; a figure is some 2,000 pixels wide."""


def flow_label(run: Run, flow: FlowRecord) -> str:
    used = controls([flow])
    if run.summary.group_by == "sender":
        return title(f"{flow.src} #{flow.flow}", used)
    return f"{flow.src} #{flow.flow}, {title(run.group_of[flow.flow], used)}"


def rtt_over_time(run: Run) -> Figure | None:
    """Draws figure 2(b): the round trips of each group over time."""
    captured = "rtt" in run.tables
    if captured:
        lines = captured_rtt_lines(run, run.scan("rtt"))
    else:
        lines = _group_bands(run, _sampled(run, "srtt_us", 1e3))
    if not lines:
        return None
    how = "captured, input port to receiver and back" if captured else "smoothed, by senders"
    title = f"{run.summary.name}: round trips of each {noun(run)} ({how})"
    return _over_time(run, lines, "round trip (ms)", title)


def _over_time(run: Run, lines: list[Line], what: str, title: str) -> Figure:
    figure = new((8, 2.8))
    axes = figure.subplots()
    draw_lines(axes, lines)
    axes.set(xlim=(0, run.summary.duration_s), ylim=(0, None), xlabel="time (s)", ylabel=what)
    heading(figure, title)
    return figure


def captured_rtt_lines(run: Run, trips: pl.LazyFrame) -> list[Line]:
    """Each group's round trips in ms over time; `trips` has the columns of the table rtt."""
    width_ns = max(1, round(run.summary.duration_s * 1e9 / _BINS))
    place = (pl.col("t") - run.manifest.traffic.t_start_ns) // width_ns
    frame = (
        trips.filter(place.is_between(0, _BINS - 1))
        .group_by("flow", t=(place + 0.5) * width_ns / 1e9)
        .agg(value=pl.median("rtt_ns") / 1e6)
        .collect()
    )
    return _group_bands(run, frame, lambda rtt_ms: 1.5 * width_ns / 1e9 + rtt_ms / 1e3)


def window_lines(run: Run) -> list[Line]:
    """Congestion windows in segments over time, of each flow, or of each group if there are many.

    They are exact if the run has the kernel's events, and samples otherwise.
    """
    many = len(run.manifest.flows) > MOST_LINES
    in_full = sender_series.exact(run) and not many
    frame = _points(run, "cwnd") if in_full else _sampled(run, "cwnd")
    if many or frame.is_empty():
        return _group_bands(run, frame)
    colours = shaded(run.group_of, run_colours(run))
    lines = []
    for flow in run.manifest.flows:
        x, y = (frame.filter(flow=flow.flow)[name].to_numpy() for name in ("t", "value"))
        label = flow_label(run, flow)
        lines.append(Line(label, colours[flow.flow], x, y, width=1, steps=True))
    return lines


def _sampled(run: Run, column: str, unit: float = 1.0) -> pl.DataFrame:
    """A column of the sockets' samples where it is positive and the flow is active.

    With the kernel's events it is the means of bins instead. The columns are `flow`, `t` in
    seconds, and `value`, divided by `unit`.
    """
    if sender_series.exact(run):
        means = sender_series.means(run, column, _BINS)
        return means.select("flow", t=pl.col("t") / 1e9, value=pl.col(column) / unit)
    if "sockets" not in run.tables:
        return pl.DataFrame()
    names = ("t", "flow", "unacked", "notsent_bytes", column)
    samples = while_active(run.scan("sockets").select(names).collect(), run.manifest.flows)
    return samples.filter(pl.col(column) > 0, pl.col("t") <= run.summary.duration_s * 1e9).select(
        "flow", t=pl.col("t") / 1e9, value=pl.col(column) / unit
    )


def _points(run: Run, column: str) -> pl.DataFrame:
    """A column of the senders' exact series during the traffic, in the form of `_sampled`."""
    series = run.table(sender_series.TABLE).sort("flow", "t_ns", maintain_order=True)
    keep, _ = sender_series.thin(series, _MOST_POINTS)
    return (
        series.filter(keep)
        .filter(pl.col("t_ns") <= run.summary.duration_s * 1e9)
        .select(pl.col("flow").cast(pl.Int32), t=pl.col("t_ns") / 1e9, value=pl.col(column))
    )


def _group_bands(
    run: Run, frame: pl.DataFrame, longest_s: Callable[[Array], Array] | None = None
) -> list[Line]:
    """The mean of each group over time; a group of several flows has a band of extremes.

    A curve is broken where five values are missing, or, with `longest_s`, where no value follows
    within the time that it computes from the lower of the values before and after.
    """
    lines = []
    colours = run_colours(run)
    for group in shown_groups(run):
        flows, colour = group.flows, colours[group.label]
        if frame.is_empty():
            continue
        value = pl.col("value")
        spread = frame.filter(pl.col("flow").is_in(flows)).group_by("t")
        x, mean, low, high = (
            column.to_numpy()
            for column in spread.agg(value.mean(), low=value.min(), high=value.max()).sort("t")
        )
        steps_s = np.diff(x)
        if longest_s is not None:
            most_s = longest_s(np.minimum(high[:-1], high[1:]))
        else:
            most_s = 5 * np.median(steps_s) if steps_s.size else steps_s
        ends = np.flatnonzero(steps_s > most_s)
        lone = np.intersect1d(np.append(ends, x.size - 1), np.append(ends + 1, 0))
        dots = (x[lone], mean[lone])
        x, mean, low, high = (
            np.insert(column.astype(float), ends + 1, np.nan) for column in (x, mean, low, high)
        )
        if len(flows) == 1:
            lines.append(Line(group.counted, colour, x, mean))
        else:
            label = f"{group.title}: mean, least and most of {len(flows)} flows"
            lines.append(Line(label, colour, x, mean, low, high))
        if ends.size and lone.size:
            lines.append(Line(None, colour, *dots, marker=".", dash=""))
    return lines


def windows_over_time(run: Run) -> Figure | None:
    """Draws TCPRand's figure 17: congestion windows over time."""
    lines = window_lines(run)
    if not lines:
        return None
    how = " (from every acknowledgement)" if sender_series.exact(run) else ""
    title = f"{run.summary.name}: congestion windows{how}"
    synchronisation = run.summary.synchronisation
    if synchronisation is not None:
        pairs = "correlation" if synchronisation.flows == 2 else "mean correlation of two flows"
        title += f"; {pairs} {synchronisation.mean:.2f}"
    return _over_time(run, lines, "congestion window (segments)", title)


def timeouts_by_class(run: Run) -> Figure | None:
    """Draws TCPRand's figure 9: a flow's timeouts, and its time waiting for timeouts."""
    if not run.groups or not run.manifest.tells_senders:
        return None
    groups = shown_groups(run)
    colours = run_colours(run)
    counts, shares = [], []
    for group in groups:
        part = group.summary
        # The kernel's count is better, but it is missing if a host sends flows of several groups.
        total = part.timeouts if part.timeouts is not None else part.timeouts_seen or 0
        counts.append(total / part.flows)
        shares.append(100 * (rto_share(run.summary, part) or 0))
    if not any(counts + shares):
        return None
    figure = new((max(7, 1.6 * len(groups)), 3))
    of_shown = [colours[group.label] for group in groups]
    panels = (("timeouts of a flow", counts), ("time waiting for timeouts (%)", shares))
    for axes, (what, values) in zip(figure.subplots(1, 2), panels, strict=True):
        bars = axes.bar(np.arange(len(groups)), values, 0.6, color=of_shown)
        axes.bar_label(bars, fmt="{:.3g}", padding=2, fontsize=8)
        name_ticks(axes, [group.title for group in groups])
        axes.set_ylabel(what)
        axes.margins(y=0.15)
        axes.set_ylim(0, None)
        axes.axhline(0, color=GREY, lw=0.5)
    heading(figure, f"{run.summary.name}: timeouts, mean of each {noun(run)}'s flows")
    return figure
