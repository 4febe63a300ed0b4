"""How much noise a bottleneck sees: how regular its departures are, and its inputs beside them.

A full drop-tail queue has one free place for each packet that leaves. Who gets it is decided by
when, between two departures, the packets of each input come in: their phase (phase effects: Floyd
and Jacobson, "On Traffic Phase Effects in Packet-Switched Gateways", 1992). Measured is the share
of its phase that an input keeps, against the departures. It does not say whether two inputs are in
step with one another, nor by how much runs of other seeds differ.

Times are counted in packet times, and a phase is an angle: 0 and 1 packet time are the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from outcast.analysis.join.join import Joined
from outcast.analysis.machine_code import I32, I64, Array, Bool
from outcast.analysis.measure.blackout import Chains
from outcast.analysis.port_analysis import PortAnalysis
from outcast.analysis.run_analysis import Analysis
from outcast.experiment.links import Framing
from outcast.records.port_summaries import NoiseInput, NoiseSummary, PhaseSummary

LEAST_GAPS = 100
"""Fewer gaps between full frames show no packet time."""
LEAST_ARRIVALS = 100
"""Fewer arrivals at an input show no phase. By chance alone 100 keep 10 % of it."""
LEAST_PAIRS = 100
MOST_ARRIVALS = 1_000_000
"""Of more arrivals of one input the last ones count."""
LAGS = (64.0, 256.0)
"""In packet times: several times what a queue of 16 KB holds, and about a round trip and a minimum
RTO of 2 ms at 1 Gbps. A phase that is lost earlier hardly decides about a flow."""


def noise_summary(analysis: Analysis, port: PortAnalysis) -> NoiseSummary:
    forwarded = port.joined.left_as >= 0
    delays = port.reached_ns[forwarded] - port.joined.arrivals.stamp_ns[forwarded]
    latest_ns = int(delays.max(initial=0)) + (port.record.queue.jitter_ns or 0)
    queue = port.record.queue
    # Captures of others do not show what a frame takes on their link besides its bytes.
    rate_bps = None if analysis.manifest.engine is None else queue.rate_bps
    if rate_bps and not analysis.link_rate(port.record.egress, rate_bps).is_constant:
        rate_bps = None
    nominal_ns = packet_time_ns(port.joined, 0, rate_bps, queue.framing) if rate_bps else None
    return noise(port.joined, 0, latest_ns, nominal_ns)


def noise(joined: Joined, egress: int, latest_ns: int, nominal_ns: int | None) -> NoiseSummary:
    """Measures the gaps between an output's frames, and the phase of each input.

    `latest_ns` is the longest that a packet can take to the queue: one that came in earlier than
    that before another left waited for it. `nominal_ns` is the packet time by the link's rate.
    """
    mine = joined.departures.port == egress
    left_ns, frames = joined.departures.stamp_ns[mine], joined.departures.frame_bytes[mine]
    came_as, arrivals = joined.came_as[mine], joined.arrivals
    full = int(np.bincount(frames).argmax()) if frames.size else 0
    came_ns = arrivals.stamp_ns[np.maximum(came_as, 0)] if len(arrivals) else left_ns
    waited = (came_as[1:] >= 0) & (came_ns[1:] + latest_ns <= left_ns[:-1])
    # A packet and the one before it are full frames, and it waited when the other left.
    back_to_back = np.zeros(left_ns.size, bool)
    is_full = frames == full
    back_to_back[1:] = waited & is_full[1:] & is_full[:-1] & (np.diff(left_ns) > 0)
    gaps_ns = np.diff(left_ns)[back_to_back[1:]]
    if gaps_ns.size < LEAST_GAPS:
        return NoiseSummary(
            back_to_back=0, packet_time_us=None, of_nominal=None, gap_spread=None, inputs={}
        )
    p5, packet_ns, p95 = (float(value) for value in np.percentile(gaps_ns, (5, 50, 95)))
    came = (joined.egress == egress) & (arrivals.frame_bytes == full)
    inputs = {}
    for port in np.unique(arrivals.port[came]).tolist():
        came_ns = arrivals.stamp_ns[came & (arrivals.port == port)]
        own = phases_of(left_ns, back_to_back, came_ns)
        inputs[joined.inputs[port]] = kept_phase(*own, packet_ns)
    return NoiseSummary(
        back_to_back=gaps_ns.size,
        packet_time_us=round(packet_ns / 1e3, 4),
        of_nominal=nominal_ns and round(packet_ns / nominal_ns, 4),
        mean_of_nominal=nominal_ns and round(float(gaps_ns.mean()) / nominal_ns, 4),
        gap_spread=round((p95 - p5) / packet_ns, 4),
        inputs=inputs,
    )


def phases_of(left_ns: I64, back_to_back: Bool, arrived_ns: I64) -> tuple[I64, Array]:
    """The arrivals that fall between two full frames back to back, with their phases, 0 to 1."""
    before = np.searchsorted(left_ns, arrived_ns, side="right") - 1
    inside = (before >= 0) & (before + 1 < left_ns.size)
    arrived_ns, before = arrived_ns[inside], before[inside]
    busy = back_to_back[before + 1]
    arrived_ns, before = arrived_ns[busy], before[busy]
    begin, end = left_ns[before], left_ns[before + 1]
    return arrived_ns, (arrived_ns - begin) / (end - begin)


def kept_phase(arrived_ns: I64, phase: Array, packet_ns: float) -> NoiseInput:
    """What the arrivals of one input show: the mean cosine of the turn between two of their phases.

    Pairs count that are `LAGS` apart in time, and a half power of 2 in arrivals.
    """
    count = int(arrived_ns.size)
    if count < LEAST_ARRIVALS:
        return NoiseInput(arrivals=count, kept=None)
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
    kept = round(max(0.0, same / pairs), 4) if pairs >= LEAST_PAIRS else None
    return NoiseInput(arrivals=count, kept=kept)


LEAST_DROPS = 2
BINS = 10


def phase_summary(analysis: Analysis, port: PortAnalysis) -> PhaseSummary:
    first_bps, framing = port.record.queue.rate_bps, port.record.queue.framing
    packet_ns = packet_time_ns(port.joined, 0, first_bps, framing)
    packet_times: int | I64 = packet_ns
    rate = analysis.link_rate(port.record.egress, first_bps) if first_bps else None
    if rate is not None and first_bps and not rate.is_constant:
        traffic = analysis.manifest.traffic
        in_force_bps = rate.at(port.reached_ns - traffic.t_start_ns)
        with np.errstate(divide="ignore"):
            times = np.where(in_force_bps > 0, packet_ns * (first_bps / in_force_bps), 0.0)
        packet_times = times.astype(np.int64)
        whole = np.array([0, traffic.duration_ns], np.int64)
        packet_ns = packet_time_ns(port.joined, 0, float(rate.mean_bps(whole)[0]) or None, framing)
    chains = port.chains.only(analysis.counts(port.reached_ns[port.chains.first]))
    arrivals = phases(port.joined, chains, 0, packet_times, port.reached_ns)
    return PhaseSummary(
        packet_time_us=packet_ns / 1e3,
        blackouts=int(np.unique(arrivals.chain).size),
        during_lost=arrivals.share(lost=True, during=True),
        during_others=arrivals.share(lost=False, during=True),
        before_lost=arrivals.share(lost=True, during=False),
        before_others=arrivals.share(lost=False, during=False),
    )


@dataclass(frozen=True, slots=True)
class Phases:
    """Arrivals `during` blackouts of at least LEAST_DROPS drops, and as long a time before.

    `lost` are those of the port that is blacked out. `phase` is the fractional part of the time
    since the last departure in packet times, 0 to 1.
    """

    chain: I32
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
        chains.is_blackout & (chains.drops >= LEAST_DROPS) & (chains.egress == egress)
    )
    begin, end = chains.t_start_ns[blackouts], chains.t_end_ns[blackouts]
    left_ns = joined.departures.stamp_ns[joined.departures.port == egress]
    first = np.searchsorted(arrivals.stamp_ns, begin - (end - begin))
    sizes = np.searchsorted(arrivals.stamp_ns, end, side="right") - first
    chain = np.repeat(blackouts, sizes)
    row = np.arange(sizes.sum()) + np.repeat(first - (np.cumsum(sizes) - sizes), sizes)
    before = np.searchsorted(left_ns, reached_ns[row], side="right") - 1
    lasts = np.broadcast_to(np.asarray(packet_ns, np.int64), len(arrivals))[row]
    keep = (before >= 0) & (joined.egress[row] == egress) & (lasts > 0)
    chain, row, before, lasts = chain[keep], row[keep], before[keep], lasts[keep]
    return Phases(
        chain=chain.astype(np.int32),
        lost=arrivals.port[row] == chains.ingress[chain],
        during=arrivals.stamp_ns[row] >= chains.t_start_ns[chain],
        phase=(reached_ns[row] - left_ns[before]) % lasts / lasts,
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
