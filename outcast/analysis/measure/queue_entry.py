"""When packets reached their queue, which lies behind the link's delay.

netem delays a packet by what was in force when it came in, and none overtakes another: each waits
at least for the one before it (net/sched/sch_netem.c, netem_enqueue; a change gives it the rate
that keeps packets in order). A link that fails empties both (dev_deactivate, netem_reset).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from outcast.analysis.compiled import I64, Array, Bool
from outcast.analysis.join.join import Joined, Verdict
from outcast.analysis.measure.queue import NOTHING_CLEARED, Cleared, Queue, in_order, replay
from outcast.experiment.queues import WITH_CLASSES
from outcast.records.flows import QueueRecord
from outcast.records.interventions import PacketFate


def replay_behind(
    joined: Joined,
    record: QueueRecord,
    delays_ns: Sequence[tuple[int, int]] = (),
    down_ns: Sequence[tuple[int, int]] = (),
    limits: Sequence[tuple[int, int]] = (),
    held: Sequence[PacketFate] = (),
) -> tuple[Queue, I64]:
    """Replays the queue of a run's output.

    Args:
        joined: the join of the output's captures.
        record: the queue as it was set up.
        delays_ns: from when another delay was in force, and which; ascending.
        down_ns: when the link was down, from and until; ascending.
        limits: from when another limit was in force, and which, in the record's unit; ascending.
        held: packets that an intervention held before the queue, with epoch times. They are looked
            at only where no delay changes and no link fails.

    Returns:
        The queue; and for each arrival when it reached the queue. For one that a failing link threw
        away it is when that happened.
    """
    stamps = joined.arrivals.stamp_ns
    reached: I64 = stamps + record.delay_ns
    if not delays_ns and not down_ns:
        for fate in held:
            assert fate.queued_ns is not None
            is_it = (stamps == fate.t_in_ns) & (joined.arrivals.ip_id == fate.ip_id)
            reached[is_it & (joined.arrivals.seq == fate.seq)] = fate.queued_ns
        return replay(joined, reached - stamps if held else record.delay_ns), reached
    for since_ns, delay_ns in delays_ns:
        later = stamps >= since_ns
        reached[later] = stamps[later] + delay_ns
    # After a failure no packet is ahead that others would wait for.
    for part in np.split(reached, np.searchsorted(stamps, [since for since, _ in down_ns])):
        np.maximum.accumulate(part, out=part)
    dropped: Bool = joined.verdict == Verdict.DROPPED
    never = np.zeros_like(dropped)
    for since_ns, until_ns in down_ns:
        while_down = dropped & (stamps >= since_ns) & (stamps <= until_ns)
        on_the_way = dropped & ~never & (stamps < since_ns) & (reached > since_ns)
        reached[while_down], reached[on_the_way] = stamps[while_down], since_ns
        never |= while_down | on_the_way
    entered_ns = in_order(joined, reached)
    queue = replay(joined, entered_ns - stamps)
    if not down_ns:
        return queue, reached
    cleared = NOTHING_CLEARED
    for since_ns, _ in down_ns:
        lost = dropped & ~never & (entered_ns <= since_ns) & _behind(joined, record, since_ns)
        limit = [limit for at_ns, limit in limits if at_ns <= since_ns][-1:]
        rows = _taken(joined, queue, record, limit, np.flatnonzero(lost))
        reached[rows] = since_ns
        never[rows] = True
        at_ns = np.full(rows.size, since_ns, np.int64)
        cleared = Cleared(np.append(cleared.rows, rows), np.append(cleared.at_ns, at_ns))
    return replay(joined, entered_ns - stamps, cleared), reached


def _behind(joined: Joined, record: QueueRecord, until_ns: int) -> Bool:
    """Which arrivals are behind the last that left in time; of a flow if these are served apart."""
    rows = np.flatnonzero(joined.left_as >= 0)
    rows = rows[joined.departures.stamp_ns[joined.left_as[rows]] <= until_ns]
    arrivals = joined.arrivals
    if record.kind in ("fq", *WITH_CLASSES) or record.drops == "later":
        last = np.full(len(joined.flows), -1)
        np.maximum.at(last, arrivals.flow[rows], rows)
        return np.asarray(np.arange(len(arrivals)) > last[arrivals.flow], np.bool_)
    return np.asarray(np.arange(len(arrivals)) > rows.max(initial=-1), np.bool_)


def _taken(
    joined: Joined, queue: Queue, record: QueueRecord, limit: Sequence[int], lost: Array
) -> Array:
    """The lost rows for which the queue had room. `limit` is that in force, if not the record's."""
    most_bytes, most_packets = record.limit_bytes, record.limit_packets
    if limit:
        most_bytes, most_packets = (
            None if most is None else limit[0] for most in (most_bytes, most_packets)
        )
    held_bytes = 0
    rows: list[int] = []
    for row in lost.tolist():
        frame = int(joined.arrivals.frame_bytes[row])
        full = most_packets is not None and queue.found_packets[row] + len(rows) >= most_packets
        if most_bytes is not None:
            full |= queue.found_bytes[row] + held_bytes + frame > most_bytes
        if not full:
            rows.append(row)
            held_bytes += frame
    return np.array(rows, np.int64)
