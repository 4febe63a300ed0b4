"""Draws when packets came: at a full queue within a packet time, and in gaps and batches of noise.

The first is figure 9 of the Outcast paper.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from outcast.analysis.machine_code import I64, Array
from outcast.analysis.measure.noise import Contests, contests
from outcast.records.flows import BottleneckRecord, QueueRecord
from outcast.records.link_rate import steps_of
from outcast.records.run import Run
from outcast.units import round_time
from outcast.view.figures.parts import of_each_output
from outcast.view.figures.style import heading, log_scale, new
from outcast.view.palette import GREY, port_colours, run_colours

LEAST_LOST = 10
"""A port that lost fewer packets has no panel, because so few show no pattern."""
MOST_PORTS = 3
"""With more ports no port has a rival that it meets again and again."""
MOST_DOTS = 400
"""The most dots of each kind; more would cover one another."""
NEARLY_FULL_FRAMES = 2
"""A queue with space for fewer full frames counts as nearly full."""
FORWARDED, LOST = (0.35, 0.7), (0.8, 1.15)
"""The rings of packets that were forwarded and lost, each from the run's start to its end."""


def arrivals_in_a_packet_time(run: Run) -> Figure | None:
    """Draws where in a packet time packets reached the full queue, and which of them were lost."""
    found = {
        record.egress: seen
        for record in run.manifest.bottlenecks
        if ports_shown(seen := contests_by_port(run, record))
    }
    records = [record for record in run.manifest.bottlenecks if record.egress in found]
    if not records:
        return None

    def clocks(run: Run, record: BottleneckRecord, figure: SubFigure) -> None:
        _clocks(run, record, found[record.egress], figure)

    return of_each_output(run, records, clocks, (4.2 * max(map(len, found.values())), 5.6))


def _clocks(
    run: Run, record: BottleneckRecord, seen: Mapping[str, Contests], figure: SubFigure
) -> None:
    ports = ports_shown(seen)
    colours = port_colours({port: run.port_groups(port) for port in ports}, run_colours(run))
    panels = figure.subplots(1, len(ports), subplot_kw={"projection": "polar"}, squeeze=False)[0]
    for axes, port in zip(panels, ports, strict=True):
        _clock(axes)
        _dots(axes, seen[port], colours[port])
        shares = [seen[port].lost_share(second) for second in (True, False)]
        after, first = ("none" if share is None else f"{share:.0%}" for share in shares)
        what = (
            f"lost: {first} of the packets that came first in their packet time, {after} of those "
            "that came after another port's packet"
        )
        axes.set_xlabel("\n".join([run.port_label(port), *textwrap.wrap(what, 45)]))
    heading(
        figure,
        f"{run.summary.name}: who takes the free place at {record.egress}?\n"
        f"arrivals at the full queue, within {packet_time(run, record)}",
    )


def packet_time(run: Run, record: BottleneckRecord) -> str:
    jitter_ns = record.queue.jitter_ns or 0
    known = f" (times known to {round_time(jitter_ns)})" if jitter_ns else ""
    return f"a packet time of {round_time(run.frame_ns_at(record))}{known}"


def ports_shown(seen: Mapping[str, Contests]) -> list[str]:
    """The ports that have a clock, the one with the fewest packets first; none if too many."""
    if len(seen) > MOST_PORTS:
        return []
    return sorted(seen, key=lambda port: seen[port].queued_ns.size)


def contests_by_port(run: Run, record: BottleneckRecord) -> dict[str, Contests]:
    """The full frames of each input that reached an output's nearly full queue.

    Empty where another rule than a full queue drops, where no port meets another one, and where an
    event changes the delay.
    """
    full = _nearly_full(record.queue)
    varies = steps_of(run.manifest, record.egress, "delay_ns")
    if full is None or record.queue.drops != "at_limit" or varies:
        return {}
    seen = (
        run.scan("packets")
        .filter(pl.col("egress").cast(pl.String) == record.egress, pl.col("verdict") != "unknown")
        .select(
            pl.col("ingress").cast(pl.String),
            (pl.col("t_in") + record.queue.delay_ns).alias("queued"),
            "t_out",
            (pl.col("verdict") == "dropped").alias("lost"),
            # Small packets can find room where a full frame does not.
            (full & (pl.col("frame") >= record.queue.frame_bytes)).alias("contends"),
        )
        .sort("queued")
        .collect()
    )
    out_ns = seen["t_out"].drop_nulls().sort().to_numpy()
    found, frame_ns = {}, run.frame_ns_at(record)
    for (port,), rows in seen.filter("contends").group_by("ingress", maintain_order=True):
        others = seen.filter(pl.col("ingress") != port, ~pl.col("lost"))["queued"].to_numpy()
        lost = rows["lost"].to_numpy()
        if lost.sum() >= LEAST_LOST and others.size:
            found[str(port)] = contests(rows["queued"].to_numpy(), lost, others, out_ns, frame_ns)
    return found


def _nearly_full(queue: QueueRecord) -> pl.Expr | None:
    if queue.limit_bytes is not None:
        room_bytes = NEARLY_FULL_FRAMES * queue.frame_bytes
        return pl.col("queue_bytes") >= queue.limit_bytes - room_bytes
    if queue.limit_packets is not None:
        return pl.col("queue_packets") >= queue.limit_packets - NEARLY_FULL_FRAMES
    return None


def _clock(axes: Axes) -> None:
    """Prepares a clock of one packet time, which begins at the top with a departure."""
    axes.set_theta_zero_location("N")  # type: ignore[attr-defined]
    axes.set_theta_direction(-1)  # type: ignore[attr-defined]
    axes.set_ylim(0, 1.2)
    axes.set_yticks([])
    axes.grid(False)
    axes.spines["polar"].set_visible(False)
    axes.set_xticks(np.arange(4) * np.pi / 2, ["0", "1/4", "1/2", "3/4"])
    axes.tick_params(labelsize=8)
    axes.plot([0, 0], [0, 1.2], color="black", lw=0.8, label="a packet leaves")


def ring(seen: Contests, lost: bool) -> tuple[Array, Array]:
    """The dots of packets lost or forwarded: angles in radians, and radii that grow with time."""
    low, high = LOST if lost else FORWARDED
    rows = np.flatnonzero((seen.lost == lost) & np.isfinite(seen.phase))
    if not rows.size:
        return np.empty(0), np.empty(0)
    begin, end = seen.queued_ns[0], seen.queued_ns[-1]
    rows = rows[:: max(1, -(-rows.size // MOST_DOTS))]
    done = (seen.queued_ns[rows] - begin) / max(1, end - begin)
    return 2 * np.pi * seen.phase[rows], low + (high - low) * done


def _dots(axes: Axes, seen: Contests, colour: str) -> None:
    for lost, dot, shade, label in (
        (False, "o", colour, "forwarded (inner ring)"),
        (True, "x", "black", "lost (outer ring)"),
    ):
        axes.scatter(
            *ring(seen, lost),
            s=9, linewidths=0.8, marker=dot, color=shade, alpha=0.7, label=label,
        )  # fmt: skip


LEAST_PACKETS = 100
EDGES = 2.0 ** (np.arange(-5, 8, 0.125) - 0.0625)
"""Edges of bins in packet times, with 1 in the middle of a bin; the end bins hold all beyond."""
LEAST_SHARE = 0.01
"""The beginning of the axis, in percent."""
WITHIN = 1.5
"""Packets of one batch come in less than 1.5 packet times apart."""
MOST_INPUTS = 6
"""The most inputs in the figure: those with the most packets, and at least LEAST_PACKETS."""


def gaps_and_batches(run: Run) -> Figure | None:
    """Draws gaps between the packets of each input of the first bottleneck, and their batches."""
    record = run.manifest.bottlenecks[0]
    seen = (
        run.scan("packets")
        .filter(pl.col("payload") > 0, pl.col("ingress").cast(pl.String).is_in(record.ingress))
        .select(pl.col("ingress").cast(pl.String), "t_in", "t_out")
        .collect()
    )
    came = {
        port: rows["t_in"].sort().to_numpy()
        for (port,), rows in seen.group_by("ingress", maintain_order=True)
        if rows.height >= LEAST_PACKETS
    }
    if not came:
        return None
    ports = sorted(came, key=lambda port: came[port].size, reverse=True)[:MOST_INPUTS]
    out_ns = seen["t_out"].drop_nulls().sort().to_numpy()
    colours = port_colours({port: run.port_groups(port) for port in ports}, run_colours(run))
    figure = new((8.4, 3.6))
    first, second = figure.subplots(1, 2)
    for port in sorted(ports):
        label, colour = run.port_label(port), colours[port]
        _gaps(first, came[port], run.frame_ns, label, colour)
        sizes, share = batches(came[port], run.frame_ns)
        second.step(sizes, 100 * share, where="post", color=colour, lw=1.3, label=label)
    if out_ns.size >= LEAST_PACKETS:
        _gaps(first, out_ns, run.frame_ns, f"{record.egress} (out)", GREY)
    log_scale(first, "xy")
    first.set(xlim=(EDGES[0], EDGES[-1]), ylim=(LEAST_SHARE, 130))
    first.set(xlabel="gap to the packet before (packet times)", ylabel="packets (%)")
    log_scale(second, "x")
    second.set(xlim=(1, None), ylim=(0, 102), xlabel="size of the batch (packets)")
    second.set(ylabel="packets in batches of this size\nor a larger one (%)")
    number = seen["ingress"].n_unique()
    inputs = "the inputs" if number == len(ports) else f"{len(ports)} of {number} inputs"
    heading(figure, f"{run.summary.name}: gaps and batches at {inputs} of {record.egress}")
    return figure


def batches(came_ns: I64, packet_ns: int) -> tuple[Array, Array]:
    """The sizes of batches from 1 on, and the share of packets in batches of this size or more."""
    begins = np.flatnonzero(np.diff(came_ns) >= WITHIN * packet_ns) + 1
    lengths = np.diff(np.concatenate([[0], begins, [came_ns.size]]))
    sizes, counts = np.unique(lengths, return_counts=True)
    held = sizes * counts
    at_least = np.cumsum(held[::-1])[::-1] / came_ns.size
    if sizes[0] > 1:
        sizes, at_least = np.concatenate([[1], sizes]), np.concatenate([[1.0], at_least])
    # A step ends where the next one begins.
    return np.append(sizes, sizes[-1] + 1), np.append(at_least, 0.0)


def _gaps(axes: Axes, times_ns: I64, packet_ns: int, label: str, colour: str) -> None:
    between = np.clip(np.diff(times_ns) / packet_ns, EDGES[0], EDGES[-1])
    counts, _ = np.histogram(between, EDGES)
    # A share of 0 stands at the axis, because it has no logarithm.
    share = np.maximum(100 * counts / between.size, LEAST_SHARE / 10)
    axes.stairs(share, EDGES, baseline=None, color=colour, lw=1.3, label=label)
