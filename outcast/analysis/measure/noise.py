"""How much noise a bottleneck sees: how regular its departures are, and its inputs beside them.

A full drop-tail queue has one free place for each packet that leaves. Who gets it is decided by
when, between two departures, the packets of each input come in: their phase (phase effects: Floyd
and Jacobson, "On Traffic Phase Effects in Packet-Switched Gateways", 1992). Measured is the share
of its phase that an input keeps. It is of one input against the departures. Whether two inputs are
in step with one another it does not say, nor by how much runs of other seeds differ.

Everything is counted in packet times, and a phase is an angle: 0 and 1 packet time are the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from outcast.analysis.compiled import I64, Array, Bool
from outcast.analysis.join.join import Joined

LEAST_GAPS = 100
"""Of fewer gaps between full frames the packet time is not told."""
LEAST_ARRIVALS = 100
"""Of fewer arrivals at an input no phase is told. By chance alone 100 keep 10 % of it."""
LEAST_PAIRS = 100
MOST_ARRIVALS = 1_000_000
"""Of more arrivals of one input the last ones count."""
LAGS = (64.0, 256.0)
"""In packet times: several times what a queue of 16 KB holds, and about a round trip and a minimum
RTO of 2 ms at 1 Gbps. A phase that is lost earlier hardly decides about a flow."""


@dataclass(frozen=True, slots=True)
class Phase:
    """How the full frames of one input came in while the output was busy.

    `kept` is by how much arrivals `LAGS` apart have the same phase: 1 for always, 0 for none of
    it. None for too few.
    """

    arrivals: int
    kept: float | None = None


@dataclass(frozen=True, slots=True)
class Gaps:
    """The gaps between full frames back to back.

    `packet_ns` is their median, and `spread` their p5 to p95 over the median.
    """

    count: int
    packet_ns: float
    mean_ns: float
    spread: float


@dataclass(frozen=True, slots=True)
class _Departures:
    """The packets that left an output.

    `back_to_back`: it and the one before are full frames, and it was waiting when the other left.
    """

    stamp_ns: I64
    frame_bytes: int
    back_to_back: Bool


def _departures(joined: Joined, egress: int, latest_ns: int) -> _Departures:
    mine = joined.departures.port == egress
    stamps, frames = joined.departures.stamp_ns[mine], joined.departures.frame_bytes[mine]
    came_as = joined.came_as[mine]
    full = int(np.bincount(frames).argmax()) if frames.size else 0
    came_ns = joined.arrivals.stamp_ns[np.maximum(came_as, 0)] if len(joined.arrivals) else stamps
    waited = (came_as[1:] >= 0) & (came_ns[1:] + latest_ns <= stamps[:-1])
    is_full = frames == full
    back_to_back = np.zeros(stamps.size, bool)
    back_to_back[1:] = waited & is_full[1:] & is_full[:-1] & (np.diff(stamps) > 0)
    return _Departures(stamps, full, back_to_back)


def gaps(departures: _Departures) -> Gaps | None:
    """The gaps between departures; None if there are too few."""
    between = np.diff(departures.stamp_ns)[departures.back_to_back[1:]]
    if between.size < LEAST_GAPS:
        return None
    p5, p50, p95 = (float(value) for value in np.percentile(between, (5, 50, 95)))
    return Gaps(int(between.size), p50, float(between.mean()), (p95 - p5) / p50)


def phases_of(departures: _Departures, arrived_ns: I64) -> tuple[I64, Array]:
    """The arrivals that fall between two full frames back to back, with their phases, 0 to 1."""
    before = np.searchsorted(departures.stamp_ns, arrived_ns, side="right") - 1
    inside = (before >= 0) & (before + 1 < departures.stamp_ns.size)
    arrived_ns, before = arrived_ns[inside], before[inside]
    busy = departures.back_to_back[before + 1]
    arrived_ns, before = arrived_ns[busy], before[busy]
    begin, end = departures.stamp_ns[before], departures.stamp_ns[before + 1]
    return arrived_ns, (arrived_ns - begin) / (end - begin)


def phase_of(arrived_ns: I64, phase: Array, packet_ns: float) -> Phase:
    """What the arrivals of one input show: the mean cosine of the turn between two of their phases.

    Counted are pairs that are `LAGS` apart in time, and a half power of 2 in arrivals.
    """
    count = int(arrived_ns.size)
    if count < LEAST_ARRIVALS:
        return Phase(count)
    arrived_ns, phase = arrived_ns[-MOST_ARRIVALS:], phase[-MOST_ARRIVALS:]
    angle = np.exp(2j * np.pi * phase)
    same, pairs = 0.0, 0
    for apart in np.unique(np.round(2.0 ** np.arange(0, 14, 0.5))).astype(int):
        if apart >= arrived_ns.size:
            break
        lag = (arrived_ns[apart:] - arrived_ns[:-apart]) / packet_ns
        within = (lag >= LAGS[0]) & (lag < LAGS[1])
        same += float((angle[apart:] * angle[:-apart].conj()).real[within].sum())
        pairs += int(within.sum())
    return Phase(count, max(0.0, same / pairs) if pairs >= LEAST_PAIRS else None)


@dataclass(frozen=True, slots=True)
class Noise:
    """What the captures of one output and its inputs show of noise; phases by input."""

    gaps: Gaps | None
    phases: dict[int, Phase]


def noise(joined: Joined, egress: int, latest_ns: int) -> Noise:
    """Measures an output's noise.

    `latest_ns` is the longest that a packet can take to the queue: one that came in so long before
    another left waited for it.
    """
    departures = _departures(joined, egress, latest_ns)
    between = gaps(departures)
    if between is None:
        return Noise(None, {})
    arrivals = joined.arrivals
    mine = (joined.egress == egress) & (arrivals.frame_bytes == departures.frame_bytes)
    seen = {}
    for port in np.unique(arrivals.port[mine]).tolist():
        came_ns = arrivals.stamp_ns[mine & (arrivals.port == port)]
        seen[int(port)] = phase_of(*phases_of(departures, came_ns), between.packet_ns)
    return Noise(between, seen)
