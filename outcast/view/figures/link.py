"""Draws the bottleneck over time: its link's utilisation, its queue, its drops and marks."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from outcast.records.run import Run
from outcast.records.run_directory import BottleneckRecord
from outcast.view.figures.style import ShownFigure, heading
from outcast.view.palette import BLUE, BROWN, DROPPED, GREEN, VERMILION


def link_over_time(run: Run) -> Figure | None:
    """Draws utilisation, queue length, drops and marks of the first bottleneck port in bins."""
    record = run.manifest.bottlenecks[0]
    frame = run.scan("bins").filter(pl.col("port") == record.egress).collect()
    if not frame.height:
        return None
    start = frame["t"].to_numpy() / 1e9
    edges = np.append(start, run.summary.duration_s)
    figure = ShownFigure(figsize=(8, 5.2), layout="constrained")
    upper, middle, lower = figure.subplots(3, 1, sharex=True, height_ratios=[1, 1.4, 1.2])
    if frame["utilisation"].null_count() == 0:
        upper.stairs(
            100 * frame["utilisation"].to_numpy(), edges, baseline=None, color=GREEN, lw=1.2
        )
    upper.set_ylim(0, 105)
    upper.set_ylabel("link used (%)")
    _queue(run, record, middle, frame, edges)
    _losses(run, record, lower, frame, edges)
    lower.set_xlim(0, run.summary.duration_s)
    lower.set_xlabel("time (s)")
    width_ms = 1e3 * (edges[1] - edges[0])
    heading(
        figure,
        f"{run.summary.name}: link and queue of {record.egress} in bins of {width_ms:g} ms",
    )
    return figure


def _queue(
    run: Run,
    record: BottleneckRecord,
    axes: Axes,
    frame: pl.DataFrame,
    edges: np.ndarray,
) -> None:
    most, mean = (frame[name].to_numpy() / 1024 for name in ("queue_max_bytes", "queue_mean_bytes"))
    axes.stairs(most, edges, baseline=None, color=BROWN, lw=0.9, label="most")
    axes.stairs(mean, edges, baseline=None, color=BLUE, lw=1.2, label="mean over time")
    limit = record.queue.limit_bytes
    if limit is not None and limit / 1024 <= 3 * most.max():
        axes.axhline(limit / 1024, color=VERMILION, ls="--", lw=1, label="limit")
    axes.set_ylim(0, None)
    axes.set_ylabel("queue (KiB)")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=4, borderaxespad=0.1)
    port = run.summary.queue.get(record.egress)
    if port is not None and port.counted == "forwarded":
        axes.set_title("of packets forwarded", fontsize=8)


def _losses(
    run: Run,
    record: BottleneckRecord,
    axes: Axes,
    frame: pl.DataFrame,
    edges: np.ndarray,
) -> None:
    axes.stairs(
        frame["dropped"].to_numpy() / np.diff(edges) / 1e3,
        edges,
        fill=True,
        color=DROPPED,
        alpha=0.8,
        label="dropped",
    )
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
            axes.stairs(rate, time, color=BLUE, lw=1.2, label="marked (sampled)")
    axes.set_ylim(0, None)
    axes.set_ylabel("packets per ms")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0.1)
