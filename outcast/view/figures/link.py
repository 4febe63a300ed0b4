"""Draws the bottleneck: its link, queue, drops and marks over time, and its classes of service."""

from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from outcast.plan.grouping import UNKNOWN
from outcast.records.flows import BottleneckRecord
from outcast.records.link_rate import steps_of
from outcast.records.run import Run
from outcast.view.figures.parts import Bars, draw_bars, draw_doubt, of_each_output
from outcast.view.figures.style import heading, new
from outcast.view.palette import BLUE, DROPPED, GREEN, GREY, VERMILION, ramp


def link_over_time(run: Run) -> Figure | None:
    """Draws utilisation, queue length, drops and marks of every studied port in bins.

    All is at the queue's times: a link's delay after a packet's capture at the input.
    """
    ports = run.scan("bins").select(pl.col("port").cast(pl.String).unique()).collect()["port"]
    records = [record for record in run.manifest.bottlenecks if record.egress in ports]
    if not records:
        return None
    has_rate = any(_has_rate(record) for record in records)
    return of_each_output(run, records, _link, (8, 5.0 if has_rate else 3.6))


def _has_rate(record: BottleneckRecord) -> bool:
    return record.queue.kind != UNKNOWN or record.queue.rate_bps is not None


def _link(run: Run, record: BottleneckRecord, figure: SubFigure) -> None:
    frame = run.scan("bins").filter(pl.col("port") == record.egress).collect()
    start = frame["t"].to_numpy() / 1e9
    edges = np.append(start, run.summary.duration_s)
    what = "link and queue"
    if not _has_rate(record):
        what = "queue"
        middle, lower = figure.subplots(2, 1, sharex=True, height_ratios=[1.4, 1.2])
    else:
        upper, middle, lower = figure.subplots(3, 1, sharex=True, height_ratios=[1, 1.4, 1.2])
        top = 100.0
        if frame["utilisation"].null_count() < frame.height:
            percent = 100 * frame["utilisation"].to_numpy()
            upper.stairs(percent, edges, baseline=None, color=GREEN, lw=1.2, label="link used")
            # A frame counts in one bin, so a bin of few frames can be above 100 %.
            top = max(top, float(np.nanmax(percent)))
        upper.set(ylim=(0, top * 1.05), ylabel="link used (%)")
        _rate(run, record, upper)
    _queue(run, record, middle, frame, edges)
    _losses(run, record, lower, edges)
    lower.set(xlim=(0, run.summary.duration_s), xlabel="time (s)")
    width_ms = 1e3 * (edges[1] - edges[0])
    heading(figure, f"{run.summary.name}: {what} of {record.egress} in bins of {width_ms:g} ms")


def _rate(run: Run, record: BottleneckRecord, axes: Axes) -> None:
    rate = run.link_rate(record)
    if rate is None or rate.is_constant:
        return
    right = axes.twinx()
    edges_s = np.append(np.maximum(np.array(rate.t_ns), 0) / 1e9, run.summary.duration_s)
    within = edges_s[:-1] < run.summary.duration_s
    edges_s = np.append(edges_s[:-1][within], run.summary.duration_s)
    rates = np.array(rate.rate_bps)[within] / 1e6
    right.stairs(rates, edges_s, baseline=None, color=GREY, lw=1, label="link's rate")
    right.set_ylim(0, rates.max() * 1.05)
    right.set_ylabel("link's rate (Mbps)", color=GREY)
    right.tick_params(axis="y", colors=GREY)
    # The utilisation stands in front of the rate.
    axes.set_zorder(right.get_zorder() + 1)
    axes.patch.set_visible(False)


def _queue(
    run: Run, record: BottleneckRecord, axes: Axes, frame: pl.DataFrame, edges: np.ndarray
) -> None:
    most, mean = (frame[name].to_numpy() / 1024 for name in ("queue_max_bytes", "queue_mean_bytes"))
    light, dark = ramp(2)
    axes.stairs(most, edges, baseline=None, color=light, lw=0.9, label="queue, most")
    axes.stairs(mean, edges, baseline=None, color=dark, lw=1.2, label="queue, mean over time")
    limit = record.queue.limit_bytes
    if limit is not None and limit / 1024 <= 3 * most.max():
        changes = steps_of(run.manifest, record.egress, "limit_bytes")
        steps = [(0.0, limit), *((at_ns / 1e9, new_limit) for at_ns, new_limit in changes)]
        at_s, bytes_ = zip(*steps, (edges[-1], steps[-1][1]), strict=True)
        look: Any = {"drawstyle": "steps-post", "color": VERMILION, "ls": "--", "lw": 1}
        axes.plot(at_s, np.array(bytes_) / 1024, label="queue's limit", **look)
        if most.max() > max(bytes_) / 1024:
            draw_doubt(axes, run, record, edges[:-1], most)
    axes.set(ylim=(0, None), ylabel="queue (KiB)")
    port = run.summary.queue.get(record.egress)
    if port is not None and port.counted == "forwarded":
        axes.set_title("of packets forwarded", fontsize=8)


def _losses(run: Run, record: BottleneckRecord, axes: Axes, edges: np.ndarray) -> None:
    is_drop = (pl.col("egress") == record.egress) & (pl.col("event") == "drop")
    drops = run.scan("queue").filter(is_drop).select("t").collect()["t"].to_numpy()
    at_s = (drops - run.manifest.traffic.t_start_ns) / 1e9
    per_ms = np.histogram(at_s, edges)[0] / np.diff(edges) / 1e3
    axes.stairs(per_ms, edges, fill=True, color=DROPPED, alpha=0.8, label="dropped")
    if "ports" in run.tables:
        samples = (
            run.scan("ports")
            .filter((pl.col("port") == record.egress) & (pl.col("t") <= edges[-1] * 1e9))
            .select("t", "marks")
            .collect()
        )
        if samples.height > 1 and samples["marks"][-1] > samples["marks"][0]:
            time = samples["t"].to_numpy() / 1e9
            rate = np.diff(samples["marks"].to_numpy()) / np.diff(time) / 1e3
            axes.stairs(rate, time, baseline=None, color=BLUE, lw=1.2, label="marked (sampled)")
    axes.set(ylim=(0, None), ylabel="packets per ms")


def service_classes(run: Run) -> Figure | None:
    """Draws rate, loss and queueing delay of each class of service, one above the other.

    Returns None where no queue has classes.
    """
    several = len(run.summary.queue) > 1
    classes = {
        f"{name}\n{port}" if several else name: part
        for port, queue in run.summary.queue.items()
        for name, part in (queue.classes or {}).items()
    }
    if not classes:
        return None
    parts = list(classes.values())
    waits = [part.queueing_ms for part in parts]
    median, most = (
        np.array([np.nan if wait is None else getattr(wait, name) for wait in waits])
        for name in ("p50", "p99")
    )
    figure = new((max(5.0, 1.3 * len(parts)), 5.6))
    rate, loss, wait = figure.subplots(3, 1, sharex=True)
    ticks = list(classes)
    light, dark = ramp(2)
    rates = np.array([part.rate_bps / 1e6 for part in parts])
    lost = np.array([100 * part.dropped / max(1, part.packets) for part in parts])
    for axes, bars, what in (
        (rate, [Bars(None, GREEN, rates)], "rate (Mbps)"),
        (loss, [Bars(None, DROPPED, lost)], "packets lost (%)"),
        (wait, [Bars("median", light, median), Bars("99 %", dark, most)], "queueing (ms)"),
    ):
        draw_bars(axes, bars, ticks, written=True)
        axes.set_ylabel(what)
        axes.margins(y=0.2)
        axes.set_ylim(0, None)
    ports = ", ".join(port for port, queue in run.summary.queue.items() if queue.classes)
    heading(figure, f"{run.summary.name}: classes of service at {ports}")
    return figure
