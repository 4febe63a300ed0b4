"""When, within one packet time, the packets of a blackout come in (the paper's figure 9).

It explains blackouts: after a packet has left, the next one to come in takes its place, and
a packet that comes later within that packet time finds the queue full. An arrival's phase is the
time from the last departure to when it reaches the queue, in packet times. It distinguishes the
port that gets through from the one that loses.

A link's delay is spent before the queue of the port that sends into it. So a packet reaches the
queue later than it was captured at the input, and a delay of 5 us is two fifths of a packet time at
1 Gbps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from outcast.analysis.compiled import I32, I64, Array, Bool
from outcast.analysis.join.join import Joined
from outcast.analysis.measure.blackout import Chains
from outcast.experiment.wire import Framing

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
