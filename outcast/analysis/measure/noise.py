"""How much noise a bottleneck sees: whether packets of its inputs march in step with its output.

A full drop-tail queue has one free place for each packet that leaves. Who gets it is decided by
when, between two departures, the packets of each input come in: their phase. Where the inputs keep
their phases, the same input loses again and again (phase effects: Floyd and Jacobson, "On Traffic
Phase Effects in Packet-Switched Gateways", 1992), and the shares of a whole run hang on how it
began. docs/noise.md has the runs by which the words for it were chosen.

Everything is counted in packet times, and a phase is an angle: 0 and 1 packet time are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from outcast.analysis.compiled import I64, Array, Bool
from outcast.analysis.join.join import Joined
from outcast.analysis.measure.queue import Queue

LEAST_GAPS = 100
"""Of fewer gaps between full frames the packet time is not told."""
LEAST_ARRIVALS = 100
"""Of fewer arrivals at an input no phase is told. By chance alone 100 keep 10 % of it."""
LEAST_PAIRS = 100
LEAST_IDLE = 20
"""Of fewer packets that found the output idle the switch's own variation is not told."""
MOST_ARRIVALS = 1_000_000
"""Of more arrivals of one input the last ones count."""
LAGS = (64.0, 256.0)
"""In packet times: several times what a queue of 16 KB holds, and about a round trip and a minimum
RTO of 2 ms at 1 Gbps. A phase that is lost earlier hardly decides about a flow."""
LONGEST_LAG = 2**14
FILLS = 0.9
"""An input with so many arrivals per packet time nearly fills the output alone."""

Bound = Literal["is", "at least", "at most"]


@dataclass(frozen=True, slots=True)
class Phase:
    """How the full frames of one input came in while the output was busy; None for too few.

    Attributes:
        spread: 0 if all came at the same phase, 1 if their phases were even.
        kept: by how much arrivals `LAGS` apart have the same phase: 1 for always, 0 for none of it.
        lasts: after how many packet times less than 1/e of the phase is kept.
    """

    arrivals: int
    spread: float | None = None
    kept: float | None = None
    lasts: float | None = None
    bound: Bound = "is"


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
class Latency:
    """How the time from an input's capture to the queue varies.

    `kept` is the share of a phase that two packets keep on that way. A setting that was read back
    tells it, or packets that found the output idle.
    """

    kept: float
    told_by: Literal["setting", "idle packets"]


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
    """What the arrivals of one input show."""
    count = int(arrived_ns.size)
    if count < LEAST_ARRIVALS:
        return Phase(count)
    arrived_ns, phase = arrived_ns[-MOST_ARRIVALS:], phase[-MOST_ARRIVALS:]
    angle = np.exp(2j * np.pi * phase)
    spread = 1.0 - abs(complex(angle.mean()))
    lag, same, pairs = _by_lag(arrived_ns, angle, packet_ns)
    enough = pairs >= LEAST_PAIRS
    within = (lag >= LAGS[0]) & (lag < LAGS[1])
    kept = None
    if pairs[within].sum() >= LEAST_PAIRS:
        kept = max(0.0, float(np.average(same[within], weights=pairs[within])))
    lasts, bound = _lasts(lag[enough], same[enough])
    return Phase(count, spread, kept, lasts, bound)


def _by_lag(arrived_ns: I64, angle: Array, packet_ns: float) -> tuple[Array, Array, I64]:
    """The autocorrelation of the phase in bins of lags, each from a power of 2 to the next.

    Returns each bin's lower edge in packet times, its mean cosine of the difference of two phases,
    and its number of pairs.
    """
    edges = 2.0 ** np.arange(np.log2(LONGEST_LAG) + 1)
    sums, pairs = np.zeros(edges.size - 1), np.zeros(edges.size - 1, np.int64)
    # Lags are times. Pairs that are so many arrivals apart have all of them, also where an input
    # rests for a while.
    for apart in np.unique(np.round(2.0 ** np.arange(0, np.log2(LONGEST_LAG), 0.5))).astype(int):
        if apart >= arrived_ns.size:
            break
        lag = (arrived_ns[apart:] - arrived_ns[:-apart]) / packet_ns
        same = (angle[apart:] * angle[:-apart].conj()).real
        place = np.searchsorted(edges, lag, side="right") - 1
        inside = (place >= 0) & (place < sums.size)
        sums += np.bincount(place[inside], same[inside], sums.size)
        pairs += np.bincount(place[inside], minlength=sums.size)
    return edges[:-1], sums / np.maximum(pairs, 1), pairs


def _lasts(lag: Array, same: Array) -> tuple[float | None, Bound]:
    if not lag.size:
        return None, "is"
    lost = np.flatnonzero(same < np.exp(-1))
    if not lost.size:
        return float(lag[-1]), "at least"
    first = int(lost[0])
    if first == 0:
        return float(2 * lag[0]), "at most"
    # On a logarithmic scale, between the middles of the two bins.
    above, below = same[first - 1], same[first]
    share = (above - np.exp(-1)) / (above - below)
    between = np.log(lag[first - 1]) + share * (np.log(lag[first]) - np.log(lag[first - 1]))
    return float(np.sqrt(2) * np.exp(between)), "is"


def latency_by_setting(jitter_ns: int, packet_ns: float) -> Latency:
    """The latency of a switch whose delay varies uniformly by up to `jitter_ns`, up and down."""
    return Latency(float(np.sinc(2 * jitter_ns / packet_ns)) ** 2, "setting")


def latency_of_idle(joined: Joined, queue: Queue, egress: int, packet_ns: float) -> Latency | None:
    """The latency by packets that found the output idle for a packet time; None for too few."""
    arrivals, departures = joined.arrivals, joined.departures
    mine = departures.port == egress
    left_ns = departures.stamp_ns[mine]
    # The row among this output's departures.
    place = np.cumsum(mine) - 1
    lone = (queue.found_packets == 0) & (joined.egress == egress) & (joined.left_as >= 0)
    rows = np.flatnonzero(lone)
    came_ns, at = arrivals.stamp_ns[rows], place[joined.left_as[rows]]
    first = at == 0
    idle = first | (came_ns - left_ns[np.maximum(at - 1, 0)] >= packet_ns)
    sojourn_ns = (left_ns[at] - came_ns)[idle]
    # Frames of one length, because the length adds to the sojourn time.
    frames = arrivals.frame_bytes[rows][idle]
    if not frames.size:
        return None
    sojourn_ns = sojourn_ns[frames == np.bincount(frames).argmax()]
    count = sojourn_ns.size
    if count < LEAST_IDLE:
        return None
    mean = abs(complex(np.exp(2j * np.pi * sojourn_ns / packet_ns).mean()))
    # Without the part that so few would have by chance.
    return Latency(max(0.0, (count * mean**2 - 1) / (count - 1)), "idle packets")


@dataclass(frozen=True, slots=True)
class Noise:
    """What the captures of one output and its inputs show of noise."""

    gaps: Gaps | None
    phases: dict[int, Phase]
    latency: Latency | None

    @property
    def kept(self) -> float | None:
        """The share of the phases that two inputs keep over `LAGS`, up to the queue.

        It takes two inputs for one to lose to the other all the time, so it is that of the second
        most regular one. None where that or the latency is not known.
        """
        arrivals = self.kept_by_arrivals
        return None if arrivals is None or self.latency is None else arrivals * self.latency.kept

    @property
    def kept_by_arrivals(self) -> float | None:
        """As `kept`, but as the captures at the inputs see the packets."""
        known = sorted(phase.kept for phase in self.phases.values() if phase.kept is not None)
        return known[-2] if len(known) > 1 else None

    @property
    def kept_by_filler(self) -> float | None:
        """The share of its phase that an input keeps up to the queue which nearly fills the output.

        Others get in only between a departure and that phase, however random their own are. As the
        captures see it where the latency is not known. None without such an input.
        """
        if self.gaps is None:
            return None
        least = FILLS * self.gaps.count
        phases = [phase for phase in self.phases.values() if phase.arrivals >= least]
        known = [phase.kept for phase in phases if phase.kept is not None]
        latency = 1.0 if self.latency is None else self.latency.kept
        return max(known) * latency if known else None


def noise(
    joined: Joined, queue: Queue, egress: int, *, delay_ns: int, jitter_ns: int | None
) -> Noise:
    """Measures an output's noise. `jitter_ns` is all that delays vary by; None to measure it."""
    departures = _departures(joined, egress, delay_ns + (jitter_ns or 0))
    between = gaps(departures)
    if between is None:
        return Noise(None, {}, None)
    arrivals = joined.arrivals
    mine = (joined.egress == egress) & (arrivals.frame_bytes == departures.frame_bytes)
    seen = {}
    for port in np.unique(arrivals.port[mine]).tolist():
        came_ns = arrivals.stamp_ns[mine & (arrivals.port == port)]
        seen[int(port)] = phase_of(*phases_of(departures, came_ns), between.packet_ns)
    if jitter_ns is not None:
        return Noise(between, seen, latency_by_setting(jitter_ns, between.packet_ns))
    return Noise(between, seen, latency_of_idle(joined, queue, egress, between.packet_ns))


Regime = Literal["phase-locked", "partly locked", "mixed", "unknown"]

LOCKED_FROM, MIXED_BELOW = 0.25, 0.1
"""Of `Noise.kept`; docs/noise.md has the runs that say so."""


def regime_of(
    noise: Noise, drop_tail: bool | None, dropped: bool, has_classes: bool = False
) -> tuple[Regime, str]:
    """The regime of an output, and a sentence about it that begins with it.

    `drop_tail` says whether the queue drops exactly those arrivals that find it full; None if that
    is not known. With `has_classes` each class of service has a queue of its own.
    """
    known = (
        (dropped, "nothing was dropped, so phases decided nothing"),
        (
            not has_classes,
            "each class of service has a drop-tail queue of its own, and phases are measured only "
            "where all packets share one",
        ),
        (
            drop_tail is not None,
            "phases decide at drop-tail queues, and whether this is one does not show",
        ),
        (drop_tail, "phases decide at drop-tail queues, and this one drops otherwise"),
        (noise.gaps is not None, f"fewer than {LEAST_GAPS} full frames left back to back"),
        (
            len(noise.phases) > 1,
            "only one input sent full frames, so that none could lose to another by its phase",
        ),
    )
    for is_so, otherwise in known:
        if not is_so:
            return "unknown", f"unknown: {otherwise}"
    return _by_phases(noise)


def _by_phases(noise: Noise) -> tuple[Regime, str]:
    """The regime of a drop-tail output that dropped packets of two inputs or more."""
    arrivals, kept, filler = noise.kept_by_arrivals, noise.kept, noise.kept_by_filler
    lags = f"over {LAGS[0]:g} to {LAGS[1]:g} packet times"
    share = kept if kept is not None else arrivals
    is_mixed = arrivals is None or share is None or min(arrivals, share) < MIXED_BELOW
    if is_mixed and filler is not None and filler >= LOCKED_FROM:
        return "unknown", (
            f"unknown, perhaps phase-locked: one input nearly fills the output, and keeps "
            f"{filler:.0%} of its phase {lags}. Whether others get in can hang on that phase, so "
            "on how the run began, although they keep none of theirs; conclude from many"
        )
    if arrivals is None:
        return "unknown", (
            f"unknown: fewer than two inputs sent {LEAST_ARRIVALS} full frames while the output "
            "was busy"
        )
    keeping = f"inputs keep {share:.0%} of their phase {lags}"
    if is_mixed:
        return "mixed", (
            f"mixed: {keeping}, so shares do not hang on how the run began; by how much runs "
            "differ, only repetitions tell"
        )
    if kept is None:
        perhaps = ", perhaps phase-locked" if may_be_locked(noise) else ""
        return "unknown", (
            f"unknown{perhaps}: {keeping}, but fewer than {LEAST_IDLE} packets found the output "
            "idle, so it is not known how the switch's own latency varies"
        )
    if kept < LOCKED_FROM:
        return "partly locked", (
            f"partly locked: {keeping}, so repetitions can differ widely; conclude from many"
        )
    return "phase-locked", (
        f"phase-locked: {keeping}, so this run's shares are one draw, and another run can show the "
        "opposite; not a result (docs/noise.md)"
    )


def may_be_locked(noise: Noise) -> bool:
    """Whether the inputs are as regular as in a phase-locked run, whatever the switch adds."""
    arrivals, kept = noise.kept_by_arrivals, noise.kept
    return arrivals is not None and (arrivals if kept is None else kept) >= LOCKED_FROM
