"""The output queue as the captures show it: what each packet found, and every change.

The switch holds what came in and has not left. `t_out` is when a packet leaves the qdisc towards
the wire, so a packet does not count while it is being sent. A packet on its way from the input to
the queue counts as queued.
"""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from outcast.analysis.join.join import Joined, Note, Stray, Verdict
from outcast.analysis.machine_code import I8, I32, I64, Array, Bool, compiled
from outcast.analysis.measure.spreads import Spread, spread_of, weighted_spread
from outcast.experiment.links import Framing


class Event(IntEnum):
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


class _Leaving(NamedTuple):
    """What left: stamps, frames, outputs, the arrivals that it was, and what was there at first."""

    stamp: I64
    frame: I32
    port: I8
    came_as: I32
    initial: Bool


@compiled
def _walk(came: _Came, leaving: _Leaving, held_bytes: I64, held_packets: I64, found: Queue) -> int:
    """Replays arrivals and departures into `found`. Returns the number of events.

    A packet counts with its length at the output, because a VLAN tag may have come or gone.
    """
    in_stamp, in_frame, in_egress, in_kind, left_as = came
    out_stamp, out_frame, out_port, came_as, initial = leaving
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


def entry_times_ns(joined: Joined, delay_ns: int | I64) -> I64:
    """When each arrival entered the queue, and not after its departure."""
    stamps = joined.arrivals.stamp_ns
    if not np.any(delay_ns):
        return stamps
    entered: I64 = stamps + delay_ns
    return in_order(joined, entered) if isinstance(delay_ns, int) else entered


def in_order(joined: Joined, reached_ns: I64) -> I64:
    """These times of the arrivals, none after its packet's departure or a later arrival's time."""
    stamps, entered = joined.arrivals.stamp_ns, reached_ns.copy()
    forwarded = joined.left_as >= 0
    left_ns = joined.departures.stamp_ns[joined.left_as[forwarded]]
    entered[forwarded] = np.maximum(stamps[forwarded], np.minimum(entered[forwarded], left_ns))
    return np.asarray(np.minimum.accumulate(entered[::-1])[::-1], np.int64)


def _replay_in_order(joined: Joined, entered_ns: I64) -> Queue:
    """`replay` where arrivals entered their queues in another order than they came in."""
    order = np.argsort(entered_ns, kind="stable").astype(np.int32)
    place = np.empty_like(order)
    place[order] = np.arange(order.size, dtype=np.int32)
    came_as = joined.came_as.copy()
    came_as[came_as >= 0] = place[came_as[came_as >= 0]]
    arrivals = replace(
        joined.arrivals, stamp_ns=entered_ns[order], frame_bytes=joined.arrivals.frame_bytes[order]
    )
    sides = {
        name: getattr(joined, name)[order] for name in ("egress", "verdict", "note", "left_as")
    }
    found = replay(replace(joined, arrivals=arrivals, came_as=came_as, **sides))
    found.packet[found.packet >= 0] = order[found.packet[found.packet >= 0]]
    return Queue(found.found_bytes[place], found.found_packets[place], *found[2:])


def replay(joined: Joined, delay_ns: int | I64 = 0, cleared: Cleared = NOTHING_CLEARED) -> Queue:
    """The queues of a join's outputs over time.

    `delay_ns` is the known time from a packet's arrival to its queueing, for all or for each
    arrival. Packets in `cleared` entered and were dropped later, at the time of their Event.DROP.
    """
    entered_ns = entry_times_ns(joined, delay_ns)
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
    contents: list[Any] = [np.empty(len(arrivals), np.int32) for _ in range(2)]
    found = Queue(*contents, *(np.empty(events, kind) for kind in kinds))
    leaving, left_as = _leaving(joined, early, cleared)
    count = _walk(
        _Came(entered_ns, arrivals.frame_bytes, joined.egress, kind, left_as),
        leaving,
        held_bytes,
        held_packets,
        found,
    )
    events_found: list[Any] = [part[:count] for part in found[2:]]
    found = Queue(*found[:2], *events_found)
    if cleared.rows.size:
        gone = (found.event == Event.DEQUEUE) & np.isin(found.packet, cleared.rows)
        found.event[gone] = Event.DROP
    return found


def of_own(joined: Joined, queue: Queue) -> Queue:
    """The queue of `joined.all_left`, with the rows of `joined`.

    Other packets have no row. Where nothing shows when they came in, there is no content.
    """
    if joined.whole is None:
        return queue
    own = joined.whole.own
    # The last is for events of no packet that takes part.
    place = np.full(queue.found_bytes.size + 1, -1, np.int32)
    place[own] = np.arange(own.size)
    # The last is for packets whose output is unknown.
    is_known = np.array([joined.shows_content(n) for n in range(len(joined.outputs))] + [False])
    found_known, known = is_known[joined.egress], is_known[queue.egress]
    packet = queue.packet[known]
    return Queue(
        np.where(found_known, queue.found_bytes[own], -1).astype(np.int32),
        np.where(found_known, queue.found_packets[own], -1).astype(np.int32),
        queue.time_ns[known],
        queue.event[known],
        place[packet],
        queue.egress[known],
        queue.bytes[known],
        queue.packets[known],
    )


def _leaving(joined: Joined, early: Bool, cleared: Cleared) -> tuple[_Leaving, I32]:
    """What left, also by a failing link; and as which of these departures each arrival left."""
    arrivals, departures, rows = joined.arrivals, joined.departures, cleared.rows
    leaving = _Leaving(
        departures.stamp_ns, departures.frame_bytes, departures.port, joined.came_as, early
    )
    if not rows.size:
        return leaving, joined.left_as
    frames, outputs = arrivals.frame_bytes[rows], joined.egress[rows]
    more = (cleared.at_ns, frames, outputs, rows.astype(np.int32), np.zeros(rows.size, np.bool_))
    order = np.argsort(np.concatenate([leaving.stamp, cleared.at_ns]), kind="stable")
    pairs: list[tuple[Any, Any]] = list(zip(leaving, more, strict=True))
    merged = _Leaving(*(np.concatenate(pair)[order] for pair in pairs))
    left_as = np.full(len(arrivals), -1, np.int32)
    came = np.flatnonzero(merged.came_as >= 0)
    left_as[merged.came_as[came]] = came
    return merged, left_as


def switch_latency_ns(joined: Joined, queue: Queue, egress: int) -> int:
    """The median sojourn time of packets that find the queue empty; 0 if none does."""
    empty = (queue.found_packets == 0) & (joined.egress == egress) & (joined.left_as >= 0)
    if not empty.any():
        return 0
    sojourn_ns = joined.departures.stamp_ns[joined.left_as[empty]] - joined.arrivals.stamp_ns[empty]
    return int(np.median(sojourn_ns))


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
    forwarded = rows[joined.left_as[rows] >= 0]
    first_ns = sent_ns[joined.left_as[forwarded]]
    waited: I64 = np.maximum(first_ns - reached_ns[forwarded], 0)
    return waited


def length_spread(queue: Queue, egress: int, start_ns: int, end_ns: int) -> Spread | None:
    """The distribution over time of the queue's length in bytes; None without any event."""
    mine = queue.egress == egress
    time, held = queue.time_ns[mine], queue.bytes[mine]
    if not time.size:
        return None
    edges = np.concatenate([[start_ns], np.clip(time, start_ns, end_ns), [end_ns]])
    first = held[0] if queue.event[mine][0] == Event.DEQUEUE else 0
    return weighted_spread(np.concatenate([[first], held]), np.diff(edges).clip(min=0))


def sojourn_spread(joined: Joined, egress: int, counts: Bool | None = None) -> Spread | None:
    """The distribution of sojourn times in ns, of arrivals in `counts`; None if no packet left."""
    mine = (joined.egress == egress) & (joined.left_as >= 0)
    if counts is not None:
        mine &= counts
    if not mine.any():
        return None
    return spread_of(
        joined.departures.stamp_ns[joined.left_as[mine]] - joined.arrivals.stamp_ns[mine]
    )
