"""The queue and what happened to it, packet by packet: figure 12 of the Outcast paper."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
import polars as pl
from matplotlib.figure import Figure

from outcast.errors import InputError
from outcast.records.run_directory import BottleneckRecord, RunDirectory
from outcast.view.figures.drawn_run import DrawnRun
from outcast.view.figures.drops import around, worst_blackout
from outcast.view.figures.style import EVENT_MARKS, GREY, STYLE, VERMILION, nothing, save, time_unit
from outcast.view.terminal.tables import read_summary, reading


def draw_queue(directory: RunDirectory, around_ns: int, within_ns: int, path: Path) -> None:
    """Draws figure 12 for any time of an analysed run, of the output with most packets then.

    Args:
        directory: the run.
        around_ns: the middle, after the traffic's start.
        within_ns: how far either way.
        path: the picture's name; the ending says its format (png, pdf, svg).

    Raises InputError where there is nothing to draw or the picture cannot be written.
    """
    run = DrawnRun(directory, directory.read_manifest(), read_summary(directory))
    middle = run.manifest.traffic.t_start_ns + around_ns
    low, high = middle - within_ns, middle + within_ns
    with reading(directory), matplotlib.rc_context(STYLE):
        busiest = (
            run.table("queue")
            .filter(pl.col("t").is_between(low, high))
            .group_by(pl.col("egress").cast(pl.String))
            .len()
            .sort("len", "egress", descending=True)
            .collect()
        )
        if not busiest.height:
            raise InputError(
                f"{directory.path}: no packet within {within_ns / 1e6:g} ms of "
                f"{around_ns / 1e9:g} s"
            )
        record = next(
            item for item in run.manifest.bottlenecks if item.egress == busiest["egress"][0]
        )
        title = f"{run.summary.name}: queue of {record.egress} around {around_ns / 1e9:g} s"
        try:
            save(_queue(run, record, (low, high), middle, "", title), path)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InputError(f"{path}: cannot be written: {reason}") from None


def queue_in_blackout(run: DrawnRun) -> Figure:
    """Figure 12: the queue and what happened to it around the densest blackout."""
    worst = [
        (port, row)
        for record in run.manifest.bottlenecks
        for port in record.ingress
        if (row := worst_blackout(run, port)) is not None
    ]
    if not worst:
        figure = Figure(figsize=(9, 4.2), layout="constrained")
        nothing(figure.subplots(), "no blackout: no chain of drops while other ports got through")
        return figure
    port, row = max(worst, key=lambda item: (bool(item[1]["dense"]), int(item[1]["drops"])))
    record = next(item for item in run.manifest.bottlenecks if item.egress == row["egress"])
    title = (
        f"{run.summary.name}: queue of {record.egress} in the densest blackout, of "
        f"{run.port_label(port)}: {row['drops']} dropped, {row['others_through']} of other ports "
        f"through"
    )
    # Packets reach the queue only after the link's delay.
    delay_ns = record.queue.delay_ns
    low, high = (time_ns + delay_ns for time_ns in around(run, row))
    zero_ns = row["t_start"] + delay_ns
    figure = _queue(run, record, (low, high), zero_ns, "the first of these drops, at ", title)
    upper = figure.axes[0]
    scale, _ = time_unit(high - low)
    upper.axvspan(0, (row["t_end"] - row["t_start"]) / scale, color=GREY, alpha=0.15, lw=0)
    return figure


def _queue(
    run: DrawnRun,
    record: BottleneckRecord,
    span: tuple[int, int],
    zero_ns: int,
    zero_is: str,
    title: str,
) -> Figure:
    """The queue of an output over a span of time, with a mark for every event of every port."""
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    upper, lower = figure.subplots(
        2, 1, sharex=True, height_ratios=[2.2, 0.5 + 0.42 * len(record.ingress)]
    )
    low, high = span
    scale, unit = time_unit(high - low)
    events = (
        run.table("queue")
        .filter((pl.col("egress") == record.egress) & pl.col("t").is_between(low, high))
        .select("t", pl.col("event").cast(pl.String), "packet", "queue_bytes")
        .collect()
    )
    ingress = (
        run.table("packets")
        .select(pl.col("ingress").cast(pl.String))
        .with_row_index("packet")
        .with_columns(pl.col("packet").cast(pl.Int32))
        .join(events.lazy().select("packet").unique(), on="packet", how="semi")
        .collect()
    )
    events = events.join(ingress, on="packet", how="left").sort("t", maintain_order=True)
    time = (events["t"].to_numpy() - zero_ns) / scale
    held = events["queue_bytes"].to_numpy() / 1024
    upper.step(time, held, where="post", color="black", linewidth=1)
    if record.queue.limit_bytes:
        limit = record.queue.limit_bytes / 1024
        upper.axhline(limit, color=VERMILION, linestyle="--", linewidth=1)
        upper.annotate(
            f"limit\n{limit:g} KiB",
            (1.005, limit),
            (0, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            ha="left",
            va="center",
            fontsize=8,
            color=VERMILION,
        )
    of_what = ", of what it forwarded" if record.queue.drops == "later" else ""
    upper.set_ylabel(f"queue (KiB){of_what}")
    upper.set_title(title, fontsize=9)
    rows = [*record.ingress, record.egress]
    for place, name in enumerate(reversed(rows)):
        lower.axhline(place, color=GREY, linewidth=0.4, zorder=0)
        for event, marker, colour in EVENT_MARKS:
            if (event == "dequeue") != (name == record.egress):
                continue
            chosen = events["event"].eq(event).to_numpy()
            if event != "dequeue":
                chosen &= events["ingress"].eq_missing(name).to_numpy()
            lower.scatter(
                time[chosen],
                np.full(int(chosen.sum()), place),
                s=24,
                marker=marker,
                color=colour,
                linewidths=1.2,
                label=event if place in (0, len(rows) - 1) else None,
            )
    lower.set_yticks(range(len(rows)), list(reversed(rows)))
    lower.set_ylim(-0.6, len(rows) - 0.4)
    lower.set_xlim((low - zero_ns) / scale, (high - zero_ns) / scale)
    at_s = (zero_ns - run.manifest.traffic.t_start_ns) / 1e9
    lower.set_xlabel(f"time after {zero_is}{at_s:.6f} s ({unit})")
    handles, labels = lower.get_legend_handles_labels()
    distinct = dict(zip(labels, handles, strict=True))
    lower.legend(
        [distinct[name] for name in ("enqueue", "drop", "dequeue") if name in distinct],
        [name for name in ("enqueue", "drop", "dequeue") if name in distinct],
        loc="lower right",
        bbox_to_anchor=(1, 1),
        ncols=3,
        borderaxespad=0,
        handletextpad=0.2,
    )
    return figure
