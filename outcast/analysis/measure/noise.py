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

from outcast.analysis.compiled import I32, I64, Array, Bool
from outcast.analysis.join.join import Joined
from outcast.analysis.measure.blackout import Chains
from outcast.experiment.links import Framing

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


def noise(joined: Joined, egress: int, latest_ns: int) -> tuple[Gaps | None, dict[int, Phase]]:
    """Measures an output's noise: the gaps between its frames, and the phase of each input.

    `latest_ns` is the longest that a packet can take to the queue: one that came in so long before
    another left waited for it.
    """
    departures = _departures(joined, egress, latest_ns)
    between = gaps(departures)
    if between is None:
        return None, {}
    arrivals = joined.arrivals
    mine = (joined.egress == egress) & (arrivals.frame_bytes == departures.frame_bytes)
    seen = {}
    for port in np.unique(arrivals.port[mine]).tolist():
        came_ns = arrivals.stamp_ns[mine & (arrivals.port == port)]
        seen[int(port)] = phase_of(*phases_of(departures, came_ns), between.packet_ns)
    return between, seen


LEAST_DROPS = 2
BINS = 10


@dataclass(frozen=True, slots=True)
class Phases:
    """Arrivals `during` blackouts of at least LEAST_DROPS drops, and as long a time before.

    `lost` are those of the port that is blacked out. `phase` is the fractional part of the time
    since the last departure in packet times, 0 to 1.
    """

    chain: I32
    row: I32
    lost: Bool
    during: Bool
    phase: Array

    def share(self, lost: bool, during: bool) -> list[float]:
        """The distribution of the phases over BINS equal parts of a packet time."""
        chosen = self.phase[(self.lost == lost) & (self.during == during)]
        counts, _ = np.histogram(chosen, BINS, (0, 1))
        return [round(float(count) / max(chosen.size, 1), 4) for count in counts]


def packet_time_ns(joined: Joined, egress: int, rate_bps: float | None, framing: Framing) -> int:
    """How long a usual frame takes at the output's rate; without one, the median gap."""
    mine = joined.departures.port == egress
    frames = joined.departures.frame_bytes[mine]
    if rate_bps and frames.size:
        wire_bytes = framing.wire_bytes(int(np.bincount(frames).argmax()))
        return int(wire_bytes * 8 * 10**9 // rate_bps)
    gaps = np.diff(joined.departures.stamp_ns[mine])
    return int(np.median(gaps)) if gaps.size else 0


def phases(
    joined: Joined, chains: Chains, egress: int, packet_ns: int | I64, reached_ns: I64
) -> Phases:
    """The phases of arrivals during and before the blackouts of one output.

    `packet_ns` is the packet time, or that of each arrival where the link's rate changed: 0 where
    it was down, and such arrivals are left out. `reached_ns` is when each arrival reached the
    queue, by the link's mean delay.
    """
    arrivals = joined.arrivals
    blackouts = np.flatnonzero(
        (chains.others_through > 0) & (chains.drops >= LEAST_DROPS) & (chains.egress == egress)
    )
    begin, end = chains.t_start_ns[blackouts], chains.t_end_ns[blackouts]
    left_ns = joined.departures.stamp_ns[joined.departures.port == egress]
    if not blackouts.size or not np.any(packet_ns) or not left_ns.size:
        none = np.empty(0, np.int32)
        return Phases(none, none, none.astype(bool), none.astype(bool), none.astype(float))
    first = np.searchsorted(arrivals.stamp_ns, begin - (end - begin))
    last = np.searchsorted(arrivals.stamp_ns, end, side="right")
    sizes = last - first
    chain = np.repeat(blackouts, sizes)
    row = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    row = row + np.repeat(first, sizes)
    stamps = arrivals.stamp_ns[row]
    queued = reached_ns[row]
    before = np.searchsorted(left_ns, queued, side="right") - 1
    lasts = np.broadcast_to(np.asarray(packet_ns, np.int64), len(arrivals))[row]
    keep = (before >= 0) & (joined.egress[row] == egress) & (lasts > 0)
    chain, row, stamps, queued, before = (
        column[keep] for column in (chain, row, stamps, queued, before)
    )
    phase = (queued - left_ns[before]) % lasts[keep] / lasts[keep]
    return Phases(
        chain=chain.astype(np.int32),
        row=row.astype(np.int32),
        lost=arrivals.port[row] == chains.ingress[chain],
        during=stamps >= chains.t_start_ns[chain],
        phase=phase,
    )


@dataclass(frozen=True, slots=True)
class Contests:
    """Packets of one port that reached a nearly full queue.

    `phase` is the time since the last departure in packet times, 0 to 1; `second` says whether a
    packet of another port had been taken since then.
    """

    queued_ns: I64
    phase: Array
    lost: Bool
    second: Bool

    def lost_share(self, second: bool) -> float | None:
        """The share that was dropped of those that came second, or first; None without any."""
        chosen = self.lost[self.second == second]
        return float(chosen.mean()) if chosen.size else None


def contests(queued_ns: I64, lost: Bool, others_ns: I64, left_ns: I64, packet_ns: int) -> Contests:
    """Where in a packet time packets of a port came, and whether another port came before them.

    A departure from a full queue frees one place, which the next packet takes. `queued_ns` is when
    the port's packets reached the queue, `others_ns` when those of other ports that were taken did,
    and `left_ns` the departures, both ascending. Packets before the first departure are left out.
    """
    before = np.searchsorted(left_ns, queued_ns, side="right") - 1
    queued_ns, lost, before = queued_ns[before >= 0], lost[before >= 0], before[before >= 0]
    since = left_ns[before]
    taken = np.searchsorted(others_ns, queued_ns) - np.searchsorted(others_ns, since)
    return Contests(queued_ns, (queued_ns - since) % packet_ns / packet_ns, lost, taken > 0)
