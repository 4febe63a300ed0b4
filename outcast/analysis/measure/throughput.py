"""Goodput and throughput per flow at an output.

Goodput counts unique TCP payload bytes. A byte counts once, when its first copy leaves the output,
so a retransmission of what had already passed adds nothing. Throughput counts Ethernet frames
without preamble and check sequence. A UDP flow has no sequence numbers, so all its payload counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from outcast.analysis.capture.headers import SYN, TCP, FlowKey
from outcast.analysis.compiled import I32, I64, U8, U32, Array, Bool, compiled, first_at_least
from outcast.analysis.join.packets import Packets
from outcast.analysis.join.pairs import grouped


@compiled
def _unwrap(seq: U32, flags: U8, start: I64) -> None:
    """Unwraps sequence numbers. A SYN's own number precedes its data."""
    last = np.int64(0)
    for i in range(seq.size):
        if i == 0:
            last = np.int64(seq[0])
        else:
            step = (np.int64(seq[i]) - last) & 0xFFFFFFFF
            if step >= 0x80000000:
                step -= 0x100000000
            last += step
        start[i] = last + (1 if flags[i] & SYN else 0)


@compiled
def _paint(low: I64, high: I64, covers: Bool, edges: I64, fresh: I32) -> None:
    """See `paint`. Union-find over the segments between `edges`; a covered one is visited once."""
    following = np.arange(edges.size)
    for i in range(low.size):
        if high[i] <= low[i]:
            fresh[i] = 0
            continue
        at = first_at_least(edges, low[i])
        total = np.int64(0)
        while True:
            root = at
            while following[root] != root:
                root = following[root]
            while following[at] != root:
                above = following[at]
                following[at] = root
                at = above
            at = root
            if edges[at] >= high[i]:
                break
            total += edges[at + 1] - edges[at]
            if covers[i]:
                following[at] = at + 1
            at += 1
        fresh[i] = total


def unwrap(seq: U32, flags: U8) -> I64:
    """The first sequence number of each segment's data, on a scale that does not wrap."""
    start = np.empty(seq.size, np.int64)
    _unwrap(seq, flags, start)
    return start


def paint(low: I64, high: I64, covers: Bool) -> I32:
    """For each interval [low, high), how many numbers no earlier one in `covers` covered."""
    fresh = np.empty(low.size, np.int32)
    # Segments come nearly in order, so a stable sort is quicker than the hashing of np.unique.
    edges = np.sort(np.concatenate([low, high]), kind="stable")
    _paint(low, high, covers, edges[np.diff(edges, prepend=edges[:1] - 1) > 0], fresh)
    return fresh


def fresh_bytes(packets: Packets, flows: tuple[FlowKey, ...]) -> I32:
    """For each packet, how many payload bytes it has that no earlier packet of its flow had."""
    fresh = packets.payload_bytes.copy()
    for number, rows in grouped(packets.flow).items():
        if flows[number].protocol != TCP:
            continue
        low = unwrap(packets.seq[rows], packets.flags[rows])
        high = low + packets.payload_bytes[rows]
        fresh[rows] = paint(low, high, np.ones(rows.size, np.bool_))
    return fresh


@dataclass(frozen=True, slots=True)
class Series:
    """What each flow sent through the output per bin; arrays of [flow, bin]."""

    goodput_bytes: I64
    frame_bytes: I64
    packets: I64


def series(
    packets: Packets, fresh: I32, flows: int, start_ns: int, bin_ns: int, end_ns: int
) -> Series:
    """Bins the fresh bytes and the frame bytes of the packets in [start_ns, end_ns)."""
    bins = -(-(end_ns - start_ns) // bin_ns)
    place = (packets.stamp_ns - start_ns) // bin_ns
    inside = (packets.stamp_ns >= start_ns) & (packets.stamp_ns < end_ns)
    cell = packets.flow[inside].astype(np.int64) * bins + place[inside]

    def total(weights: Array | None) -> I64:
        counted = np.bincount(cell, weights, flows * bins)
        return np.rint(counted).astype(np.int64).reshape(flows, bins)

    return Series(total(fresh[inside]), total(packets.frame_bytes[inside]), total(None))


def bytes_between(packets: Packets, values: I32, flows: int, start_ns: int, end_ns: int) -> I64:
    """The sum of `values` per flow over the packets stamped in [start_ns, end_ns)."""
    stamps = packets.stamp_ns
    inside = slice(*np.searchsorted(stamps, [start_ns, end_ns]).tolist())
    total = np.bincount(packets.flow[inside], values[inside], flows)
    return np.rint(total).astype(np.int64)
