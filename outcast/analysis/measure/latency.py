"""The constant time that every packet takes between two captures, apart from queueing.

A link, a slow switch or a constant difference of clocks adds it to all waits. It is at most the
least time from an input to an output. It equals this least time if packets that found the output
empty took no longer, because such packets do not wait.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from outcast.analysis.join.join import Joined
from outcast.analysis.join.service import NO_FLOW, NO_PORT
from outcast.analysis.machine_code import I64, Array, Bool

LEAST_EMPTY = 3
"""The fewest packets that show that an output had run empty, because one can come in a pause."""
RATE_PARTS = 20
"""The number of parts of the packets from which a rate's error is estimated."""
GAPS_SAMPLED = 100_000
UNSTEADY = 0.03
"""A rate whose error is a larger share of it is the mean of several rates."""
FEW_SHARE = 0.01
LEAST_BUSY = 5 * RATE_PARTS
"""The fewest packets from which a rate is estimated."""
PAUSE_NS = 100_000_000
PAUSE_GAPS = 20
"""An output stands still if it sends nothing for both; the second is in usual gaps."""
PAUSED = 4
"""Fewer packets may be on their way to the queue, and do not wait in it."""
_NONE = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Rate:
    """The rate at which an output sends while packets wait, and two standard errors beside it."""

    bps: float
    low_bps: float
    high_bps: float

    @property
    def is_steady(self) -> bool:
        """Whether its error is small, so that the output has one rate and not several in turn."""
        return self.high_bps - self.bps <= UNSTEADY * self.bps


@dataclass(frozen=True, slots=True)
class Pause:
    """A time in which an output sent nothing, though `packets` had come in before it ended."""

    since_ns: int
    time_ns: int
    packets: int


@dataclass(frozen=True, slots=True)
class Busy:
    """What an output sent while `count` packets waited, of all `packets` that left.

    Attributes:
        bits, time_ns: bits of frames and the time that they took, by parts of the departures.
        runs: how many times it began to send without a pause.
        usual_gap_ns: how far apart packets leave: the median of all, or the mean of those that
            waited, if these are closer; 0 if there are no two.
        usual_bps: the median of the rates of single packets that waited; 0 if none did.
        pauses: when it stood still, which is no part of `time_ns`.
    """

    bits: I64
    time_ns: I64
    count: int
    runs: int
    packets: int
    usual_gap_ns: int
    usual_bps: float = 0.0
    pauses: tuple[Pause, ...] = ()

    def rate(self, unit_ns: int = 0) -> Rate | None:
        """The rate at which the output sends; None if too few packets waited, or too shortly.

        Stamps are multiples of `unit_ns`, so the time of each run can be wrong by as much. A
        capture that lacks packets makes the mean too low, but not the usual packet's rate.
        """
        time_ns = self.time_ns
        if self.count < LEAST_BUSY or not time_ns.sum():
            return None
        # Of the time for a bit, because a single pause makes a rate's parts differ by less than it
        # makes their sum wrong.
        parts = time_ns[self.bits > 0] / self.bits[self.bits > 0]
        bps = float(self.bits.sum() / time_ns.sum() * 1e9)
        error = 2 * float(np.std(parts)) / len(parts) ** 0.5 * bps * bps / 1e9
        of_stamps = unit_ns * self.runs / int(time_ns.sum())
        if of_stamps > UNSTEADY:
            return None
        error += bps * of_stamps
        usual = self.usual_bps if abs(self.usual_bps - bps) <= UNSTEADY * bps else bps
        return Rate(bps, min(bps - error, usual), max(bps + error, usual))


@dataclass(frozen=True, slots=True)
class Latency:
    """The least times of joined packets: for each input and output, or for each output.

    Attributes:
        least_ns: the least time from an input to an output; 0 if no packet went there.
        busy, rates: what an output sent while packets waited, and its rate; None if too few waited.
        delays_ns: the part of `least_ns` that is surely no wait in a queue; 0 if it is less than a
            packet's time at that output.
        is_known: whether the least times are known to within a packet's time.
    """

    least_ns: I64
    busy: tuple[Busy, ...]
    rates: tuple[Rate | None, ...]
    delays_ns: I64
    is_known: tuple[bool, ...]

    def delay_ns(self, joined: Joined) -> I64 | int:
        """For each arrival, the known part of the time that it took to its queue."""
        if not self.delays_ns.any():
            return 0
        # The last column is that of packets whose output is unknown.
        delays = np.pad(self.delays_ns, ((0, 0), (0, 1)))
        return np.asarray(delays[joined.arrivals.port, joined.egress], np.int64)


def busy(joined: Joined, egress: int, delay_ns: I64) -> Busy:
    """What an output sent while packets waited, by the least delays from inputs to outputs."""
    departures, arrivals = joined.departures, joined.arrivals
    rows = np.flatnonzero(departures.port == egress)
    stamps, came_as = departures.stamp_ns[rows], joined.came_as[rows]
    gaps = np.diff(stamps)
    # The packet was there before the one ahead of it left, so the output was busy in between.
    waited = np.zeros(rows.size, np.bool_)
    there_ns = np.full(rows.size, _NONE, np.int64)
    known = np.flatnonzero(came_as >= 0)
    came = came_as[known]
    there_ns[known] = arrivals.stamp_ns[came] + delay_ns[arrivals.port[came], egress]
    # A packet without a known arrival left without a pause if a later packet was there.
    first_ns = np.minimum.accumulate(there_ns[::-1])[::-1]
    there_ns[came_as < 0] = first_ns[came_as < 0]
    waited[1:] = there_ns[1:] <= stamps[:-1]
    pauses: tuple[Pause, ...] = ()
    if waited.any():
        longest_ns = max(PAUSE_NS, PAUSE_GAPS * int(np.median(gaps[waited[1:]])))
        pauses = _pauses(stamps, there_ns, first_ns, longest_ns)
        waited[1:] &= gaps <= longest_ns
    part = rows[waited] * RATE_PARTS // max(len(departures), 1)
    bits, time_ns = np.zeros(RATE_PARTS, np.int64), np.zeros(RATE_PARTS, np.int64)
    sent, times = _sent(departures.frame_bytes[rows], waited, gaps), gaps[waited[1:]]
    np.add.at(bits, part, 8 * sent)
    np.add.at(time_ns, part, times)
    usual_bps = float(np.median(8e9 * sent / times.clip(min=1))) if times.size else 0.0
    count, runs = int(waited.sum()), int((waited[1:] & ~waited[:-1]).sum())
    usual = int(np.median(gaps[:: 1 + gaps.size // GAPS_SAMPLED])) if gaps.size else 0
    if count >= LEAST_BUSY:
        usual = min(usual, int(time_ns.sum()) // count)
    return Busy(bits, time_ns, count, runs, rows.size, usual, usual_bps, pauses)


def _pauses(stamps: I64, there_ns: I64, first_ns: I64, longest_ns: int) -> tuple[Pause, ...]:
    """When nothing left for longer than `longest_ns` though packets waited."""
    since_ns = np.maximum(stamps[:-1], first_ns[1:])
    found = []
    for row in np.flatnonzero(stamps[1:] - longest_ns > since_ns).tolist():
        packets = int((there_ns[row + 1 :] < stamps[row + 1]).sum())
        if packets >= PAUSED:
            time_ns = int(stamps[row + 1] - since_ns[row])
            found.append(Pause(int(since_ns[row]), time_ns, packets))
    return tuple(found)


def _sent(frames: Array, waited: Bool, gaps: I64) -> Array:
    """The frames that gaps before packets that waited went by.

    A shaper holds a packet for its own length. A link is stamped where a packet begins, so the gap
    is that of the one before it. Where small packets pass others, the two are not alike.
    """
    times, own, before = gaps[waited[1:]], frames[waited], frames[:-1][waited[1:]]
    off_own, off_before = (
        np.abs(times - times.sum() / max(int(sent.sum()), 1) * sent).sum() for sent in (own, before)
    )
    return before if 2 * off_before < off_own else own


def _count_empty(joined: Joined, output: int, ns_per_byte: float, least: I64) -> Array:
    """For each input, how many packets took the least time when the output had run empty.

    Had they waited, the output would have sent until then. Half a packet's time is allowed.
    """
    departures, arrivals = joined.departures, joined.arrivals
    rows = np.flatnonzero(departures.port == output)
    stamps, came = departures.stamp_ns[rows], joined.came_as[rows][1:]
    sending_ns = ns_per_byte * departures.frame_bytes[rows][:-1]
    gaps_ns, left_ns = np.diff(stamps)[came >= 0], stamps[1:][came >= 0]
    sending_ns, came = sending_ns[came >= 0], came[came >= 0]
    port = arrivals.port[came]
    waits_ns = left_ns - arrivals.stamp_ns[came] - least[port, output]
    is_empty = (gaps_ns > 1.5 * sending_ns) & (2 * waits_ns <= sending_ns)
    return np.bincount(port[is_empty], minlength=len(joined.inputs))


def _shows_latency(joined: Joined) -> Bool:
    """Which arrivals show how long packets take: not those of a port that has few others."""
    if joined.flows[-1:] != (NO_FLOW,):
        return np.ones(len(joined.arrivals), np.bool_)
    ports, outputs = len(joined.inputs), len(joined.outputs) + 1
    way = joined.arrivals.port.astype(np.int64) * outputs + joined.egress % outputs
    own = joined.arrivals.flow < len(joined.flows) - 1
    both, of_own = (
        np.bincount(way[mine], minlength=ports * outputs).reshape(ports, outputs)
        for mine in (slice(None), own)
    )
    used = (of_own > 0) | (both > FEW_SHARE * both.sum(axis=0))
    used[[name == NO_PORT for name in joined.inputs]] = False
    return np.asarray(used.ravel()[way], np.bool_)


def latency(joined: Joined, unit_ns: int = 0) -> Latency:
    """Finds the least times of a join's packets, and the part of them that is no wait.

    Stamps are multiples of `unit_ns`, which makes rates less certain. A packet counts as waiting if
    it came in by the least time before the one ahead of it left. Where the least time is longer
    than the latency, fewer packets count, but all of them did wait.
    """
    arrivals, departures = joined.arrivals, joined.departures
    outputs = len(joined.outputs)
    least = np.full((len(joined.inputs), outputs), _NONE, np.int64)
    came = np.flatnonzero((joined.left_as >= 0) & _shows_latency(joined))
    left_rows = joined.left_as[came]
    ways = arrivals.port[came], departures.port[left_rows]
    np.minimum.at(least, ways, departures.stamp_ns[left_rows] - arrivals.stamp_ns[came])
    unused = least == _NONE
    least[unused] = 0
    sent = tuple(busy(joined, output, least) for output in range(outputs))
    rates = tuple(part.rate(unit_ns) for part in sent)
    empty = np.zeros_like(least)
    for output, rate in enumerate(rates):
        if rate is not None:
            empty[:, output] = _count_empty(joined, output, 8e9 / rate.bps, least)
    is_empty = (empty >= LEAST_EMPTY) | unused
    is_short = least <= np.array([part.usual_gap_ns for part in sent])
    delays = np.where(is_empty & ~is_short, least, 0)
    is_known = (is_empty | is_short).all(axis=0)
    return Latency(least, sent, rates, delays, tuple(is_known.tolist()))
