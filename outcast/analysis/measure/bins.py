"""Goodput, queue and drops at the bottleneck over time, in bins of `analysis.bin`.

Bin j covers [j, j + 1) bins after the traffic's start. The end of the experiment's duration may
cut the last bin short.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import polars as pl

from outcast.analysis.join.join import Verdict
from outcast.analysis.join.packets import Packets
from outcast.analysis.machine_code import I32, I64, Array
from outcast.analysis.measure.queue import Event, Queue, on_wire
from outcast.analysis.port_analysis import PortAnalysis
from outcast.analysis.run_analysis import Analysis
from outcast.records.flows import FlowRecord


@dataclass(frozen=True, slots=True)
class FlowBins:
    """What flows of the run sent through the bottleneck; arrays of [flow, bin]."""

    flows: tuple[int, ...]
    start_ns: I64
    width_ns: I64
    goodput_bytes: I64
    frame_bytes: I64
    packets: I64


def edges_ns(analysis: Analysis) -> I64:
    """The edges of the bins, after the traffic's start."""
    duration_ns = analysis.manifest.traffic.duration_ns
    bins = -(-duration_ns // analysis.bin_ns)
    edges = np.arange(bins + 1, dtype=np.int64) * analysis.bin_ns
    return np.asarray(np.minimum(edges, duration_ns), np.int64)


def port_series(analysis: Analysis, port: PortAnalysis) -> I64:
    """The `series` of every flow at a port, also of workloads."""
    traffic = analysis.manifest.traffic
    until_ns = traffic.t_start_ns + traffic.duration_ns
    span = traffic.t_start_ns, analysis.bin_ns, until_ns
    return series(port.joined.departures, port.fresh, len(port.joined.flows), *span)


def series(
    packets: Packets, fresh: I32, flows: int, start_ns: int, bin_ns: int, end_ns: int
) -> I64:
    """Fresh bytes, frame bytes and packets in [start_ns, end_ns), as [quantity, flow, bin]."""
    bins = -(-(end_ns - start_ns) // bin_ns)
    inside = (packets.stamp_ns >= start_ns) & (packets.stamp_ns < end_ns)
    place = (packets.stamp_ns[inside] - start_ns) // bin_ns
    cell = packets.flow[inside].astype(np.int64) * bins + place
    sums = [
        np.bincount(cell, weights, flows * bins)
        for weights in (fresh[inside], packets.frame_bytes[inside], None)
    ]
    return np.rint(sums).astype(np.int64).reshape(3, flows, bins)


def bytes_between(packets: Packets, values: I32, flows: int, start_ns: int, end_ns: int) -> I64:
    """The sum of `values` per flow over the packets stamped in [start_ns, end_ns)."""
    inside = slice(*np.searchsorted(packets.stamp_ns, [start_ns, end_ns]).tolist())
    total = np.bincount(packets.flow[inside], values[inside], flows)
    return np.rint(total).astype(np.int64)


def flow_bins(analysis: Analysis, records: Sequence[FlowRecord]) -> FlowBins:
    edges = edges_ns(analysis)
    flows = tuple(record.flow for record in records)
    row_of = {flow: row for row, flow in enumerate(flows)}
    sums = np.zeros((3, len(flows), edges.size - 1), np.int64)
    for port in analysis.ports:
        of_port = port_series(analysis, port)
        for number, flow in enumerate(port.numbers):
            if flow in row_of:
                sums[:, row_of[flow]] += of_port[:, number]
    return FlowBins(flows, edges[:-1], np.diff(edges), *sums)


def throughput_table(analysis: Analysis) -> pl.DataFrame:
    """One row per flow of the run and bin. `t` is the bin's start after the traffic's start."""
    records = analysis.manifest.flows
    bins = flow_bins(analysis, records)
    return pl.DataFrame(
        {
            "flow": np.repeat(np.array(bins.flows, np.int32), bins.start_ns.size),
            "t": np.tile(bins.start_ns, len(bins.flows)),
            "goodput_bps": (bins.goodput_bytes * 8e9 / bins.width_ns).ravel(),
            "throughput_bps": (bins.frame_bytes * 8e9 / bins.width_ns).ravel(),
            "packets": bins.packets.ravel(),
            **{
                name: _repeated([getattr(record, name) for record in records], bins.start_ns.size)
                for name in ("name", "congestion_control")
            },
        }
    )


def _repeated(texts: Sequence[str | None], times: int) -> pl.Series:
    """Each text repeated in a row. An Enum takes 4 bytes a row, however long the texts are."""
    kinds = pl.Enum(sorted({text for text in texts if text is not None}))
    rows = np.repeat(np.arange(len(texts)), times)
    return pl.Series(texts, dtype=kinds).gather(rows)


def utilisation_table(analysis: Analysis) -> pl.DataFrame:
    """One row per bottleneck port and bin.

    `utilisation` is the bytes that left, with what goes with a frame on the link, over what the
    link could carry; null where it was down. `queue_mean_bytes` is over time. `forwarded` and
    `dropped` are packets, by when they reached the queue.
    """
    return pl.concat(_port_bins(analysis, port, edges_ns(analysis)) for port in analysis.ports)


def _port_bins(analysis: Analysis, port: PortAnalysis, edges: I64) -> pl.DataFrame:
    begin = analysis.manifest.traffic.t_start_ns
    reached = port.reached_ns - begin
    verdict = port.joined.verdict
    mean, most = queue_in_bins(port.queue, begin + edges)
    width_s = np.diff(edges) / 1e9
    first_bps = port.record.queue.rate_bps
    used = np.full(edges.size - 1, np.nan)
    if first_bps:
        rate_bps = analysis.link_rate(port.record.egress, first_bps).mean_bps(edges)
        with np.errstate(divide="ignore", invalid="ignore"):
            used = carried_bytes(analysis, port, first_bps, edges) * 8 / width_s / rate_bps
        used[rate_bps == 0] = np.nan
    return pl.DataFrame(
        {
            "t": edges[:-1],
            "port": pl.Series([port.record.egress] * (edges.size - 1), dtype=pl.String),
            "utilisation": pl.Series(used, dtype=pl.Float64, nan_to_null=True),
            "queue_mean_bytes": mean if port.joined.shows_content(0) else None,
            "queue_max_bytes": most if port.joined.shows_content(0) else None,
            "forwarded": np.histogram(reached[verdict == Verdict.FORWARDED], edges)[0],
            "dropped": np.histogram(reached[verdict == Verdict.DROPPED], edges)[0],
        }
    )


def carried_bytes(
    analysis: Analysis, port: PortAnalysis, first_bps: int, edges_ns: I64
) -> npt.NDArray[np.float64]:
    """What a link carried between each two neighbours of these times after the traffic's start.

    A frame counts with what goes with it on the link, over the time that it takes there from its
    first bit on. So the part beyond an edge counts beyond it.
    """
    departures, begin = port.joined.all_left.departures, analysis.manifest.traffic.t_start_ns
    first, last = np.searchsorted(port.all_sent_ns, begin + edges_ns[[0, -1]]).tolist()
    # The last frame before the first edge may be on the link at that edge.
    near = slice(max(0, first - 1), last)
    stamps_ns = port.all_sent_ns[near] - begin
    if not stamps_ns.size:
        return np.zeros(edges_ns.size - 1)
    frames = on_wire(departures.frame_bytes[near], port.record.queue.framing)
    rate_bps = analysis.link_rate(port.record.egress, first_bps).at(stamps_ns)
    took_ns = np.divide(frames * 8e9, rate_bps, out=np.zeros(frames.size), where=rate_bps > 0)
    ends_ns = stamps_ns + took_ns
    ends_ns[:-1] = np.minimum(ends_ns[:-1], stamps_ns[1:])
    until = np.cumsum(frames)
    at_edges = np.interp(
        edges_ns,
        np.column_stack([stamps_ns, ends_ns]).ravel(),
        np.column_stack([until - frames, until]).ravel(),
    )
    return np.asarray(np.diff(at_edges), np.float64)


def queue_in_bins(queue: Queue, edges_ns: I64) -> tuple[Array, I64]:
    """Mean over time and maximum of an output's queue, in bytes, in each bin.

    Bin j lies between the times of edges j and j + 1, which increase, on the captures' clock.
    """
    begin = np.concatenate([edges_ns[:1], queue.time_ns[:1]]).min()
    time = np.concatenate([[begin], queue.time_ns])
    # If the first event is a departure, that packet was there before; else the queue is empty.
    first = queue.bytes[0] if queue.event.size and queue.event[0] == Event.DEQUEUE else 0
    held = np.concatenate([[first], queue.bytes]).astype(np.int64)
    area = np.concatenate([[0], np.cumsum(held[:-1] * np.diff(time))])
    at = np.searchsorted(time, edges_ns, side="right") - 1
    until = area[at] + held[at] * (edges_ns - time[at])
    mean = np.diff(until) / np.diff(edges_ns)
    most = np.array([held[here : there + 1].max() for here, there in pairwise(at)], np.int64)
    return mean, most


def utilisation(analysis: Analysis, port: PortAnalysis) -> float | None:
    """The share of the link used in the main interval; None without a rate, or if always down."""
    first_bps = port.record.queue.rate_bps
    if not first_bps:
        return None
    interval = np.array([analysis.interval.start_ns, analysis.interval.end_ns], np.int64)
    rate_bps = float(analysis.link_rate(port.record.egress, first_bps).mean_bps(interval)[0])
    if not rate_bps:
        return None
    (sent_bytes,) = carried_bytes(analysis, port, first_bps, interval)
    return float(sent_bytes) * 8 / (rate_bps * analysis.interval.seconds)
