"""Draws the queue's length and events, packet by packet: figure 12 of the Outcast paper."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from outcast.errors import InputError
from outcast.records.flows import BottleneckRecord
from outcast.records.run import Run
from outcast.records.run_directory import RunDirectory
from outcast.view.figures.drops import ZOOM_PACKETS, around, worst_blackout
from outcast.view.figures.parts import (
    MOST_LANES,
    Marks,
    busiest,
    draw_doubt,
    draw_lanes,
    lane_inches,
    of_each_output,
)
from outcast.view.figures.style import legend_below, new, nothing, save, styled, time_unit
from outcast.view.palette import DEPARTED, DROPPED, FORWARDED, GREY, VERMILION

EVENTS = (("enqueue", "^", FORWARDED), ("drop", "x", DROPPED), ("dequeue", "v", DEPARTED))
"""The events of a queue, each with its mark and colour."""
_INCHES = (9.0, 4.2)
UNITS = {"queue_bytes": (1024, "KiB"), "queue_packets": (1, "packets")}
"""The columns of a queue's length, each with its divisor and unit in a figure."""


def draw_queue(directory: RunDirectory, around_ns: int, within_ns: int, path: Path) -> None:
    """Draws figure 12 at any time, for the output with the most events then. Raises InputError."""
    run = Run(directory)
    middle = run.manifest.traffic.t_start_ns + around_ns
    low, high = middle - within_ns, middle + within_ns
    with run.reading(), styled():
        busiest = (
            run.scan("queue")
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
            figure = new(_INCHES)
            _queue(figure, run, record, (low, high), middle, "", title)
            legend_below(figure)
            save(figure, path)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InputError(f"{path}: cannot be written: {reason}") from None


def queue_in_blackout(run: Run) -> Figure:
    """Draws figure 12: each studied queue's length and events around its densest blackout.

    Without a blackout, it draws them around the time at which the queue was longest.
    """
    records = run.manifest.bottlenecks
    lanes = min(MOST_LANES, max(len(record.ingress) for record in records))
    width, height = _INCHES
    return of_each_output(run, records, _densest, (width, height + 2 * lane_inches(lanes)))


def _densest(run: Run, record: BottleneckRecord, figure: SubFigure) -> None:
    rows = ((port, worst_blackout(run, port, record.egress)) for port in record.ingress)
    worst = [(port, row) for port, row in rows if row is not None]
    if not worst:
        _longest_queue(run, record, figure)
        return
    port, row = max(worst, key=lambda item: (bool(item[1]["dense"]), int(item[1]["drops"])))
    title = (
        f"{run.summary.name}: queue of {record.egress} in the densest blackout, of "
        f"{run.port_label(port)}: {row['drops']} dropped, {row['others_through']} of other ports "
        f"through"
    )
    # The blackout's times are arrivals, and packets reach the queue only after the link's delay.
    # A join has estimated that, for each input by itself.
    zero_ns, end_ns = (_refused_ns(run, record, port, row[end]) for end in ("t_start", "t_end"))
    low, high = (time_ns + zero_ns - row["t_start"] for time_ns in around(run, row))
    came_ms, refused_ms = (
        (time_ns - run.manifest.traffic.t_start_ns) / 1e6 for time_ns in (row["t_start"], zero_ns)
    )
    since = f"the first of these drops, at {refused_ms:.4f} ms;\nit came in at {came_ms:.4f} ms"
    upper = _queue(figure, run, record, (low, high), zero_ns, since, title)
    scale, _ = time_unit(high - low)
    upper.axvspan(0, (end_ns - zero_ns) / scale, color=GREY, alpha=0.15, lw=0, label="blackout")


def _refused_ns(run: Run, record: BottleneckRecord, port: str, came_ns: int) -> int:
    """When the queue refused a packet that came in by this port at this time."""
    rows = run.scan("packets", whole=True).with_row_index("packet")
    rows = rows.filter(pl.col("t_in") == came_ns, pl.col("ingress").cast(pl.String) == port)
    drops = run.scan("queue").filter(pl.col("event") == "drop", egress=record.egress)
    drops = drops.join(rows.select(pl.col("packet").cast(pl.Int32)), on="packet", how="semi")
    return int(drops.select(pl.min("t")).collect().item())


def _longest_queue(run: Run, record: BottleneckRecord, figure: SubFigure) -> None:
    begin_ns = run.manifest.traffic.t_start_ns
    low, high = (begin_ns + round(at_s * 1e9) for at_s in (run.summary.start_s, run.summary.end_s))
    longest = (
        run.scan("queue")
        .filter(pl.col("egress") == record.egress, pl.col("t").is_between(low, high))
        .sort("queue_bytes", "t", descending=[True, False])
        .select("t")
        .head(1)
        .collect()
    )
    if not longest.height:
        nothing(figure.subplots(), f"no packet at {record.egress}")
        return
    t_ns = int(longest.item())
    half_ns = ZOOM_PACKETS * run.frame_ns_at(record) // 2
    title = f"{run.summary.name}: queue of {record.egress} when it was longest; no blackout counts"
    _queue(figure, run, record, (t_ns - half_ns, t_ns + half_ns), t_ns, "", title)


def _queue(
    figure: Figure | SubFigure,
    run: Run,
    record: BottleneckRecord,
    span: tuple[int, int],
    zero_ns: int,
    since: str,
    title: str,
) -> Axes:
    """Draws an output's queue over a span of time, with a mark for every event.

    Returns the panel of its length.
    """
    low, high = span
    scale, unit = time_unit(high - low)
    events = queue_events(run, record, span)
    counts = events.filter(pl.col("lane") != record.egress)["lane"].value_counts()
    inputs = busiest(record.ingress, dict(counts.iter_rows()))
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[2.2, 0.5 + 0.42 * len(inputs)])
    draw_length(upper, events, zero_ns, scale, "queue_bytes")
    if record.queue.limit_bytes:
        limit = record.queue.limit_bytes / 1024
        words = f"limit: {format(limit, '.4g' if limit < 9999.5 else ',.0f')} KiB"
        upper.axhline(limit, color=VERMILION, linestyle="--", linewidth=1, label=words)
        x, y = upper.lines[0].get_data()
        if np.max(y, initial=0) > limit:
            draw_doubt(upper, run, record, x, y)
    if record.queue.drops == "later":
        upper.set_ylabel(f"{upper.get_ylabel()},\nof what it forwarded")
    upper.set_title(title, fontsize=9)
    draw_events(lower, events, [*inputs, record.egress], zero_ns, scale)
    lower.set_xlim((low - zero_ns) / scale, (high - zero_ns) / scale)
    at_s = (zero_ns - run.manifest.traffic.t_start_ns) / 1e9
    most = ""
    if len(inputs) < len(record.ingress):
        most = f"\nthe {len(inputs)} of {len(record.ingress)} input ports with most packets here"
    lower.set_xlabel(f"time ({unit}) after {since or f'{at_s:.6f} s'}{most}")
    panel: Axes = upper
    return panel


def queue_events(run: Run, record: BottleneckRecord, span_ns: tuple[int, int]) -> pl.DataFrame:
    """The events of an output's queue in a span of time.

    `ingress` and `lane` are added to the columns of the queue's table. `lane` is the output port
    for a departure, and the input port for any other event.
    """
    events = (
        run.scan("queue")
        .filter((pl.col("egress") == record.egress) & pl.col("t").is_between(*span_ns))
        .select("t", pl.col("event").cast(pl.String), "packet", "queue_bytes", "queue_packets")
        .collect()
    )
    ingress = (
        run.scan("packets", whole=True)
        .select(pl.col("ingress").cast(pl.String))
        .with_row_index("packet")
        .with_columns(pl.col("packet").cast(pl.Int32))
        .join(events.lazy().select("packet").unique(), on="packet", how="semi")
        .collect()
    )
    is_departure = pl.col("event") == "dequeue"
    return (
        events.join(ingress, on="packet", how="left")
        .sort("t", maintain_order=True)
        .with_columns(lane=pl.when(is_departure).then(pl.lit(record.egress)).otherwise("ingress"))
    )


def draw_length(axes: Axes, events: pl.DataFrame, zero_ns: int, scale: float, column: str) -> None:
    """Draws a queue's length. Time counts from `zero_ns` in units of `scale` nanoseconds."""
    divisor, unit = UNITS[column]
    x, y = (events["t"].to_numpy() - zero_ns) / scale, events[column].to_numpy() / divisor
    axes.step(x, y, where="post", color="black", linewidth=1, label="queue")
    axes.set_ylabel(f"queue ({unit})")


def draw_events(
    axes: Axes, events: pl.DataFrame, lanes: Sequence[str], zero_ns: int, scale: float
) -> None:
    """Draws a mark for every event of a queue, in a lane for each input and for the output."""
    marks = []
    for event, marker, colour in EVENTS:
        rows = events.filter(pl.col("lane").is_in(list(lanes)), event=event)
        x = (rows["t"].to_numpy() - zero_ns) / scale
        label = event if rows.height else None
        marks.append(Marks(label, marker, colour, rows["lane"].to_list(), x))
    draw_lanes(axes, lanes, marks)
    for place in range(len(lanes)):
        axes.axhline(place, color=GREY, linewidth=0.4, zorder=0)
