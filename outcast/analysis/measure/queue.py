"""The output queue as the captures show it: what each packet found, and every change.

The switch holds what came in and has not left. `t_out` is when a packet leaves the queueing
discipline towards the wire, so a packet does not count while it is being sent.
A packet on its way from the input to the queue counts as queued.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Literal, NamedTuple

import numpy as np

from outcast.analysis import room
from outcast.analysis.compiled import I8, I32, I64, Array, Bool, Scalar, compiled
from outcast.analysis.join.join import Joined, Note, Stray, Verdict
from outcast.experiment.wire import Framing


class Event(IntEnum):
    """A change of a queue, or a packet that it refused."""

    ENQUEUE = 0
    DROP = 1
    DEQUEUE = 2


class Queue(NamedTuple):
    """Queue contents.

    Attributes:
        found_bytes, found_packets: for each arrival of the join, what its output's queue held
            just before it; -1 if the output is unknown.
        time_ns, event, packet, egress, bytes, packets: for each event, in the order of time: when
            it happened, its Event, the row of the arrival (-1 if the packet was there when the
            capture began), the output, and what its queue held afterwards.
    """

    found_bytes: I32
    found_packets: I32
    time_ns: I64
    event: I8
    packet: I32
    egress: I8
    bytes: I32
    packets: I32


class Cleared(NamedTuple):
    """Packets that a failing link threw out of its queue: rows of the arrivals, and when."""

    rows: I64
    at_ns: I64


NOTHING_CLEARED = Cleared(np.empty(0, np.int64), np.empty(0, np.int64))


class _Came(NamedTuple):
    """What came in: stamps, frames, outputs, Events or -1, and as which departures it left."""

    stamp: I64
    frame: I32
    egress: I8
    kind: I8
    left_as: I32


class _Left(NamedTuple):
    """What left: stamps, frames, outputs, the arrivals that it was, and what was there at first."""

    stamp: I64
    frame: I32
    port: I8
    came_as: I32
    initial: Bool


@compiled
def _walk(came: _Came, left: _Left, held_bytes: I64, held_packets: I64, found: Queue) -> int:
    """Replays arrivals and departures into `found`. Returns the number of events.

    A packet counts with its length at the output, because a VLAN tag may have come or gone.
    """
    in_stamp, in_frame, in_egress, in_kind, left_as = came
    out_stamp, out_frame, out_port, came_as, initial = left
    found_bytes, found_packets, time, event, packet, egress, after_bytes, after_packets = found
    events = 0
    arrival = 0
    departure = 0
    while arrival < in_stamp.size or departure < out_stamp.size:
        # At equal times the departure comes first, but never before its own arrival.
        leave = departure < out_stamp.size and (
            arrival >= in_stamp.size
            or (out_stamp[departure] <= in_stamp[arrival] and came_as[departure] < arrival)
        )
        if leave:
            port = out_port[departure]
            counted = came_as[departure] >= 0 or initial[departure]
            if counted:
                held_bytes[port] -= out_frame[departure]
                held_packets[port] -= 1
                time[events] = out_stamp[departure]
                event[events] = 2
                packet[events] = came_as[departure]
                egress[events] = port
                after_bytes[events] = held_bytes[port]
                after_packets[events] = held_packets[port]
                events += 1
            departure += 1
            continue
        port = in_egress[arrival]
        if port < 0:
            found_bytes[arrival] = -1
            found_packets[arrival] = -1
            arrival += 1
            continue
        found_bytes[arrival] = held_bytes[port]
        found_packets[arrival] = held_packets[port]
        kind = in_kind[arrival]
        if kind >= 0:
            if kind == 0:
                leaves = left_as[arrival]
                held_bytes[port] += out_frame[leaves] if leaves >= 0 else in_frame[arrival]
                held_packets[port] += 1
            time[events] = in_stamp[arrival]
            event[events] = kind
            packet[events] = arrival
            egress[events] = port
            after_bytes[events] = held_bytes[port]
            after_packets[events] = held_packets[port]
            events += 1
        arrival += 1
    return events


def _entered_ns(joined: Joined, delay_ns: int | I64) -> I64:
    """When each arrival entered the queue, and not after its departure."""
    stamps = joined.arrivals.stamp_ns
    if not np.any(delay_ns):
        return stamps
    entered: I64 = stamps + delay_ns
    return in_order(joined, entered) if isinstance(delay_ns, int) else entered


def in_order(joined: Joined, reached_ns: I64) -> I64:
    """These times of the arrivals, none after its packet's departure or a later arrival's time."""
    stamps, entered = joined.arrivals.stamp_ns, reached_ns.copy()
    left = joined.left_as >= 0
    left_ns = joined.departures.stamp_ns[joined.left_as[left]]
    entered[left] = np.maximum(stamps[left], np.minimum(entered[left], left_ns))
    return np.asarray(np.minimum.accumulate(entered[::-1])[::-1], np.int64)


def _replay_in_order(joined: Joined, entered_ns: I64) -> Queue:
    """`replay` where arrivals entered their queues in another order than they came in."""
    order = np.argsort(entered_ns, kind="stable").astype(np.int32)
    place = np.empty_like(order)
    place[order] = np.arange(order.size, dtype=np.int32)
    came_as = joined.came_as.copy()
    came_as[came_as >= 0] = place[came_as[came_as >= 0]]
    arrivals = replace(
        joined.arrivals,
        stamp_ns=entered_ns[order],
        frame_bytes=joined.arrivals.frame_bytes[order],
    )
    sides = {
        name: getattr(joined, name)[order] for name in ("egress", "verdict", "note", "left_as")
    }
    found = replay(replace(joined, arrivals=arrivals, came_as=came_as, **sides))
    found.packet[found.packet >= 0] = order[found.packet[found.packet >= 0]]
    return Queue(found.found_bytes[place], found.found_packets[place], *found[2:])


def replay(joined: Joined, delay_ns: int | I64 = 0, cleared: Cleared = NOTHING_CLEARED) -> Queue:
    """The queues of a join's outputs over time.

    `delay_ns` is the known time from a packet's arrival to its queueing: one for all, such as a
    delay that the experiment asks for, or one for each arrival, which it left no sooner than after.
    Packets in `cleared` were dropped: they entered, and their Event.DROP is when they were lost.
    """
    entered_ns = _entered_ns(joined, delay_ns)
    if (entered_ns[1:] < entered_ns[:-1]).any():
        return _replay_in_order(joined, entered_ns)
    arrivals, departures = joined.arrivals, joined.departures
    kind = np.full(len(arrivals), -1, np.int8)
    kind[joined.verdict == Verdict.FORWARDED] = Event.ENQUEUE
    kind[joined.verdict == Verdict.DROPPED] = Event.DROP
    kind[joined.note == Note.IN_FLIGHT] = Event.ENQUEUE
    kind[cleared.rows] = Event.ENQUEUE
    early = joined.stray == Stray.EARLY
    outputs = len(joined.outputs)
    held_bytes = np.bincount(departures.port[early], departures.frame_bytes[early], outputs).astype(
        np.int64
    )
    held_packets = np.bincount(departures.port[early], minlength=outputs).astype(np.int64)
    events = int((kind >= 0).sum() + ((joined.came_as >= 0) | early).sum()) + cleared.rows.size
    kinds = (np.int64, np.int8, np.int32, np.int8, np.int32, np.int32)
    arrays: list[Any] = [room.empty(len(arrivals), np.int32) for _ in range(2)]
    arrays += [room.empty(events, kind) for kind in kinds]
    found = Queue(*arrays)
    left = _Left(
        *(departures.stamp_ns, departures.frame_bytes, departures.port, joined.came_as, early)
    )
    left, left_as = _with_cleared(joined, left, cleared)
    count = _walk(
        _Came(entered_ns, arrivals.frame_bytes, joined.egress, kind, left_as),
        *(left, held_bytes, held_packets, found),
    )
    told: list[Any] = [part[:count] for part in found[2:]]
    found = Queue(*found[:2], *told)
    if cleared.rows.size:
        gone = (found.event == Event.DEQUEUE) & np.isin(found.packet, cleared.rows)
        found.event[gone] = Event.DROP
    return found


def _with_cleared(joined: Joined, left: _Left, cleared: Cleared) -> tuple[_Left, I32]:
    """What left, with packets that were thrown away; and as which of these each arrival left."""
    rows = cleared.rows
    if not rows.size:
        return left, joined.left_as
    arrivals = joined.arrivals
    more = _Left(
        *(cleared.at_ns, arrivals.frame_bytes[rows], joined.egress[rows], rows.astype(np.int32)),
        np.zeros(rows.size, np.bool_),
    )
    order = np.argsort(np.concatenate([left.stamp, more.stamp]), kind="stable")
    pairs: list[tuple[Any, Any]] = list(zip(left, more, strict=True))
    merged = _Left(*(np.concatenate(pair)[order] for pair in pairs))
    left_as = np.full(len(arrivals), -1, np.int32)
    came = np.flatnonzero(merged.came_as >= 0)
    left_as[merged.came_as[came]] = came
    return merged, left_as


@dataclass(frozen=True, slots=True)
class Capacity:
    """The level from which on a queue refuses packets.

    Attributes:
        at_least, below: bounds of the capacity: at_least <= capacity < below. `below` is None if
            no upper bound was seen.
        confidence: how well the level explains what was accepted and what was refused: the mean of
            the shares of both that it explains. 1 explains everything, 0.5 nothing.
    """

    unit: Literal["bytes", "packets"]
    at_least: int
    below: int | None
    confidence: float

    def holds(self, limit: int) -> bool:
        """Whether a configured limit is within the bounds."""
        return self.at_least <= limit and (self.below is None or limit < self.below)


def capacity(
    joined: Joined, queue: Queue, egress: int, lost: Bool | None = None
) -> Capacity | None:
    """Estimates a drop-tail queue's capacity from the content that packets found.

    Arrivals in `lost` are left out, because it was not the queue that dropped them.

    Returns None if nothing was dropped or nothing was forwarded, because then no level shows.
    """
    mine = (joined.egress == egress) & (queue.found_bytes >= 0)
    if lost is not None:
        mine &= ~lost
    taken = mine & (joined.verdict == Verdict.FORWARDED)
    refused = mine & (joined.verdict == Verdict.DROPPED)
    if not refused.any() or not taken.any():
        return None
    in_bytes = queue.found_bytes + joined.arrivals.frame_bytes
    in_packets = queue.found_packets + 1
    return max(
        _threshold("bytes", in_bytes[taken], in_bytes[refused]),
        _threshold("packets", in_packets[taken], in_packets[refused]),
        key=lambda estimate: estimate.confidence,
    )


def _threshold(unit: Literal["bytes", "packets"], taken: I32, refused: I32) -> Capacity:
    levels = np.unique(np.concatenate([taken, refused]))
    explained = np.searchsorted(np.sort(taken), levels, side="right") / taken.size
    explained += 1 - np.searchsorted(np.sort(refused), levels, side="right") / refused.size
    best = int(explained.argmax())
    below = int(levels[best + 1]) if best + 1 < levels.size else None
    return Capacity(unit, int(levels[best]), below, float(explained[best]) / 2)


MOST_LEVELS = 50_000
"""From so many arrivals of each kind a level is told. Fewer only make its bounds wider."""
MOST_WRONG = 0.05


def level_within(
    joined: Joined, queue: Queue, egress: int, delay_ns: int | I64, early_ns: int, late_ns: int
) -> Capacity | None:
    """Bounds of a drop-tail queue's capacity, from what packets can have found at most and least.

    A departure within `early_ns` before an arrival may have been behind it, and one within
    `late_ns` after it may have been before. `delay_ns` is as in `replay`. If no capacity explains
    all packets, the bounds are those of all that are against hardly more packets than the best one.

    Returns None if nothing was dropped or nothing was forwarded, because then no level shows.
    """
    mine = (joined.egress == egress) & (queue.found_bytes >= 0)
    taken, refused = (
        rows[:: 1 + rows.size // MOST_LEVELS]
        for verdict in (Verdict.FORWARDED, Verdict.DROPPED)
        for rows in [np.flatnonzero(mine & (joined.verdict == verdict))]
    )
    if not taken.size or not refused.size:
        return None
    departures, arrivals = joined.departures, joined.arrivals
    gone = departures.port == egress
    gone &= (joined.came_as >= 0) | (joined.stray == Stray.EARLY)
    entered = (queue.egress == egress) & (queue.event == Event.ENQUEUE)
    at_ns = _entered_ns(joined, delay_ns)
    # When packets came and left, and how many bytes. What was there at first counts from then on.
    early = departures.frame_bytes[gone & (joined.stray == Stray.EARLY)]
    there = early.size, int(early.sum())
    came = queue.time_ns[entered], _sums(arrivals.frame_bytes[queue.packet[entered]])
    left = departures.stamp_ns[gone], _sums(departures.frame_bytes[gone])
    estimates = []
    for is_bytes in (True, False):
        bounds = []
        for rows, sides in ((taken, (-early_ns, late_ns)), (refused, (early_ns, -early_ns))):
            own = arrivals.frame_bytes[rows].astype(np.int64) if is_bytes else 1
            at = at_ns[rows]
            held = _sum_until(*came, at + sides[0], is_bytes, "left" if rows is taken else "right")
            held -= _sum_until(*left, at + sides[1], is_bytes, "right" if rows is taken else "left")
            bounds.append(np.asarray(np.maximum(held + there[is_bytes], 0) + own, np.int64))
        estimates.append(_bracket("bytes" if is_bytes else "packets", *bounds))
    return max(estimates, key=lambda estimate: estimate.confidence)


def _sums(sizes: I32) -> I64:
    sums = np.zeros(sizes.size + 1, np.int64)
    np.cumsum(sizes, out=sums[1:])
    return sums


def _sum_until(
    times_ns: I64, sums: I64, at_ns: I64, is_bytes: bool, side: Literal["left", "right"]
) -> I64:
    """How many bytes or packets passed until each time; with those at that time, or without."""
    places = np.searchsorted(times_ns, at_ns, side)
    return sums[places] if is_bytes else places.astype(np.int64)


def _bracket(unit: Literal["bytes", "packets"], taken: I64, refused: I64) -> Capacity:
    """The levels that explain most packets, of the least that was taken and the most refused."""
    levels = np.unique(np.concatenate([taken, refused]))
    explained = np.searchsorted(np.sort(taken), levels, side="right") / taken.size
    explained += 1 - np.searchsorted(np.sort(refused), levels, side="right") / refused.size
    most = float(explained.max())
    # As many packets may be wrong on the one side as on the other.
    good = np.flatnonzero(explained >= most - min(2 - most, MOST_WRONG) - 1e-9)
    below = int(levels[good[-1] + 1]) if good[-1] + 1 < levels.size else None
    return Capacity(unit, int(levels[good[0]]), below, most / 2)


@dataclass(frozen=True, slots=True)
class Rate:
    """The rate at which an output sends while packets wait, in bits of frames a second.

    Attributes:
        low_bps, high_bps: twice its standard error to either side.
    """

    bps: float
    low_bps: float
    high_bps: float


RATE_PARTS = 20
"""The rate's error is estimated from so many parts of the packets."""
GAPS_SAMPLED = 100_000
LEAST_BUSY = 5 * RATE_PARTS
"""From fewer packets no rate is estimated."""


@dataclass(frozen=True, slots=True)
class Busy:
    """What an output sent while packets waited.

    Attributes:
        bits, time_ns: bits of frames and the time that they took, by parts of the departures.
        packets: how many left at all.
        runs: how many times it began to send without a pause.
        usual_gap_ns: how far apart packets leave: the median of all, or the mean of those that
            waited, if these are closer; 0 if there are no two.
    """

    bits: I64
    time_ns: I64
    count: int
    runs: int
    packets: int
    usual_gap_ns: int

    def rate(self, unit_ns: int = 0) -> Rate | None:
        """The rate at which the output sends; None if too few packets waited to tell.

        Stamps are multiples of `unit_ns`, so the time of each run can be wrong by as much.
        """
        time_ns = self.time_ns
        if self.count < LEAST_BUSY or not time_ns.sum():
            return None
        parts = self.bits[time_ns > 0] / time_ns[time_ns > 0] * 1e9
        bps = float(self.bits.sum() / time_ns.sum() * 1e9)
        error = 2 * float(np.std(parts)) / len(parts) ** 0.5
        error += bps * min(unit_ns * self.runs / int(time_ns.sum()), 1.0)
        return Rate(bps, bps - error, bps + error)


@compiled
def _busy(
    out_port: I8,
    out_stamp: I64,
    out_frame: I32,
    came_as: I32,
    in_stamp: I64,
    in_port: I8,
    delay: I64,
    egress: int,
    bits: I64,
    time: I64,
) -> tuple[int, int]:
    """Sums bits and time of packets that waited, by parts of the departures.

    Returns how many they are, and how many runs of such packets.
    """
    before: Scalar = -1
    count = runs = 0
    waited = False
    for departure in range(out_port.size):
        if out_port[departure] != egress:
            continue
        arrival = came_as[departure]
        # The packet was there before the one ahead of it left, so the output was busy in between.
        if (
            before >= 0
            and arrival >= 0
            and in_stamp[arrival] + delay[in_port[arrival], egress] <= before
        ):
            part = departure * bits.size // out_port.size
            bits[part] += 8 * out_frame[departure]
            time[part] += out_stamp[departure] - before
            count += 1
            runs += not waited
            waited = True
        else:
            waited = False
        before = out_stamp[departure]
    return count, runs


def busy(joined: Joined, egress: int, delay_ns: I64) -> Busy:
    """What an output sent while packets waited.

    `delay_ns` has for each input and output how long packets take at least.
    """
    departures, arrivals = joined.departures, joined.arrivals
    bits, time_ns = np.zeros(RATE_PARTS, np.int64), np.zeros(RATE_PARTS, np.int64)
    count, runs = _busy(
        departures.port,
        departures.stamp_ns,
        departures.frame_bytes,
        joined.came_as,
        arrivals.stamp_ns,
        arrivals.port,
        delay_ns,
        egress,
        bits,
        time_ns,
    )
    stamps = departures.stamp_ns[departures.port == egress]
    gaps = np.diff(stamps)
    usual = int(np.median(gaps[:: 1 + gaps.size // GAPS_SAMPLED])) if gaps.size else 0
    if count >= LEAST_BUSY:
        usual = min(usual, int(time_ns.sum()) // count)
    return Busy(bits, time_ns, count, runs, stamps.size, usual)


def switch_latency_ns(joined: Joined, queue: Queue, egress: int) -> int:
    """The median sojourn time of packets that find the queue empty; 0 if there is none."""
    empty = (queue.found_packets == 0) & (joined.egress == egress) & (joined.left_as >= 0)
    if not empty.any():
        return 0
    sojourn_ns = joined.departures.stamp_ns[joined.left_as[empty]] - joined.arrivals.stamp_ns[empty]
    return int(np.median(sojourn_ns))


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution in a few numbers."""

    mean: float
    p50: float
    p90: float
    p99: float
    max: float


def length_spread(queue: Queue, egress: int, start_ns: int, end_ns: int) -> Spread | None:
    """The distribution over time of the queue's length in bytes; None without any event."""
    mine = queue.egress == egress
    time, held = queue.time_ns[mine], queue.bytes[mine]
    if not time.size:
        return None
    edges = np.concatenate([[start_ns], np.clip(time, start_ns, end_ns), [end_ns]])
    first = held[0] if queue.event[mine][0] == Event.DEQUEUE else 0
    return spread(np.concatenate([[first], held]), np.diff(edges).clip(min=0))


def sojourn_spread(joined: Joined, egress: int, counts: Bool | None = None) -> Spread | None:
    """The distribution of sojourn times in nanoseconds; None if no packet left.

    `counts` are the arrivals that count; all without it.
    """
    mine = (joined.egress == egress) & (joined.left_as >= 0)
    if counts is not None:
        mine &= counts
    if not mine.any():
        return None
    return spread_of(
        joined.departures.stamp_ns[joined.left_as[mine]] - joined.arrivals.stamp_ns[mine]
    )


def on_wire(frame_bytes: I32 | I64, framing: Framing) -> I64:
    """The bytes' time that each frame takes on a link, from its length as a queue counts it."""
    frames = np.asarray(frame_bytes, np.int64)
    return np.asarray(np.maximum(frames + framing.added_bytes, framing.least_bytes), np.int64)


def first_bits_ns(departed_ns: I64, took_ns: I64) -> I64:
    """When the first bit of each frame went on the link, which carries one frame at a time.

    A shaper lets a frame go when its bucket has the tokens. A small frame needs few, so it comes
    while the larger one before it is still on the link, and waits there.
    """
    before_ns = np.cumsum(took_ns) - took_ns
    return np.asarray(np.maximum.accumulate(departed_ns - before_ns) + before_ns, np.int64)


def queueing_ns(joined: Joined, sent_ns: I64, rows: Array, reached_ns: I64) -> I64:
    """How long packets waited: from the queue to their first bit on the link.

    `sent_ns` is of each departure, `reached_ns` of each arrival. Packets that did not leave
    have no value.
    """
    left = rows[joined.left_as[rows] >= 0]
    first_ns = sent_ns[joined.left_as[left]]
    waited: I64 = np.maximum(first_ns - reached_ns[left], 0)
    return waited


def spread_of(values: Array) -> Spread | None:
    """The distribution of values; None without any."""
    return spread(values, np.ones(values.size, np.int64)) if values.size else None


def spread(values: Array, weights: Array) -> Spread:
    """The distribution of values with whole-numbered weights."""
    order = np.argsort(values, kind="stable")
    values, reached = values[order], np.cumsum(weights[order])
    total = int(reached[-1])
    if not total:
        return Spread(0.0, 0.0, 0.0, 0.0, 0.0)
    p50, p90, p99 = (
        float(values[np.searchsorted(reached, share * total)]) for share in (0.5, 0.9, 0.99)
    )
    mean = float(np.dot(values, weights[order])) / total
    return Spread(mean, p50, p90, p99, float(values[weights[order] > 0][-1]))
