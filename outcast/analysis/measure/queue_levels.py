"""The limit of a drop-tail queue: the level from which on packets find it full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from outcast.analysis.join.join import Joined, Stray, Verdict
from outcast.analysis.join.service import unseen_at_once
from outcast.analysis.machine_code import I32, I64, Array, Bool
from outcast.analysis.measure.queue import (
    NOTHING_CLEARED,
    Cleared,
    Event,
    Queue,
    entry_times_ns,
    in_order,
    replay,
)
from outcast.experiment.queues import WITH_CLASSES
from outcast.records.flows import QueueRecord
from outcast.records.interventions import PacketFate

LEAST_CONFIDENCE = 0.6
"""Below it drops have no level, because something else than a full queue drops packets."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """The level from which on a queue refuses packets: at_least <= level < below.

    `below` is None if no upper bound was seen. `confidence` is the mean of the shares of what was
    accepted and of what was refused that the level explains: 1 is all, 0.5 nothing.
    """

    unit: Literal["bytes", "packets"]
    at_least: int
    below: int | None
    confidence: float

    def holds(self, limit: int, packet: int) -> bool | None:
        """Whether a configured limit is within the bounds, or less than a packet beyond them.

        A capture sees packets a moment before or after the queue does, so the content that an
        arrival found is one packet off now and then. `limit` and the size of the largest `packet`
        are in the estimate's unit. None if the level explains next to nothing.
        """
        if self.confidence < LEAST_CONFIDENCE:
            return None
        is_above = limit > self.at_least - packet
        return is_above and (self.below is None or limit < self.below + packet)

    def raised(self, joined: Joined, output: int) -> Capacity:
        """The same with a higher upper bound where packets can have waited unseen."""
        if self.below is None or (joined.whole and joined.whole.untold_share[output]):
            return replace(self, below=None)
        unseen = unseen_at_once(joined.all_left, output, in_bytes=self.unit == "bytes")
        return replace(self, below=self.below + unseen)


def capacity(
    joined: Joined, queue: Queue, egress: int, lost: Bool | None = None
) -> Capacity | None:
    """Estimates a drop-tail queue's capacity from the content that packets found.

    Arrivals in `lost` are left out, because it was not the queue that dropped them. None if nothing
    was dropped or nothing was forwarded.
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


def _explained(taken: I32 | I64, refused: I32 | I64) -> tuple[Array, Array]:
    """Each level, and the sum of the shares of what was taken and refused that it explains."""
    levels = np.unique(np.concatenate([taken, refused]))
    explained = np.searchsorted(np.sort(taken), levels, side="right") / taken.size
    explained += 1 - np.searchsorted(np.sort(refused), levels, side="right") / refused.size
    return levels, explained


def _threshold(unit: Literal["bytes", "packets"], taken: I32, refused: I32) -> Capacity:
    levels, explained = _explained(taken, refused)
    best = int(explained.argmax())
    below = int(levels[best + 1]) if best + 1 < levels.size else None
    return Capacity(unit, int(levels[best]), below, float(explained[best]) / 2)


MOST_LEVELS = 50_000
"""The most arrivals of each kind from which a level is estimated. Fewer only widen its bounds."""
MOST_WRONG = 0.05


def level_within(
    joined: Joined,
    queue: Queue,
    egress: int,
    delay_ns: int | I64,
    early_ns: int,
    late_ns: int,
    explained: Bool | None = None,
) -> Capacity | None:
    """Bounds of a drop-tail queue's capacity, from what packets can have found at most and least.

    A departure within `early_ns` before an arrival may have been behind it, and one within
    `late_ns` after it may have been before. `delay_ns` is as in `replay`. If no capacity explains
    all packets, the bounds are those of all that are against hardly more packets than the best one.
    Arrivals that are `explained` were dropped for another reason. None as of `capacity`.
    """
    mine = (joined.egress == egress) & (queue.found_bytes >= 0)
    if explained is not None:
        mine &= ~explained
    taken, refused = (
        rows[:: 1 + rows.size // MOST_LEVELS]
        for verdict in (Verdict.FORWARDED, Verdict.DROPPED)
        for rows in [np.flatnonzero(mine & (joined.verdict == verdict))]
    )
    if not taken.size or not refused.size:
        return None
    departures = joined.departures
    gone = departures.port == egress
    gone &= (joined.came_as >= 0) | (joined.stray == Stray.EARLY)
    entered = (queue.egress == egress) & (queue.event == Event.ENQUEUE)
    at_ns = entry_times_ns(joined, delay_ns)
    lengths = _lengths(joined)
    # When packets came and left, and how many bytes. What was there at first counts from then on.
    early = departures.frame_bytes[gone & (joined.stray == Stray.EARLY)]
    there = early.size, int(early.sum())
    came = queue.time_ns[entered], np.cumsum(np.append(0, lengths[queue.packet[entered]]))
    sent = departures.stamp_ns[gone], np.cumsum(np.append(0, departures.frame_bytes[gone]))
    estimates = []
    for is_bytes in (True, False):
        bounds = []
        for rows, sides in ((taken, (-early_ns, late_ns)), (refused, (early_ns, -early_ns))):
            own = lengths[rows].astype(np.int64) if is_bytes else 1
            at = at_ns[rows]
            held = _sum_until(*came, at + sides[0], is_bytes, "left" if rows is taken else "right")
            held -= _sum_until(*sent, at + sides[1], is_bytes, "right" if rows is taken else "left")
            bounds.append(np.asarray(np.maximum(held + there[is_bytes], 0) + own, np.int64))
        estimates.append(_bracket("bytes" if is_bytes else "packets", *bounds))
    return max(estimates, key=lambda estimate: estimate.confidence)


def _lengths(joined: Joined) -> I32:
    """For each arrival its frame's length at the output, as tags and tunnels may come and go.

    For a drop it is the length of the arrival, plus the usual difference of its flow.
    """
    arrivals, forwarded = joined.arrivals, joined.left_as >= 0
    sent = joined.departures.frame_bytes[joined.left_as[forwarded]]
    more = sent - arrivals.frame_bytes[forwarded]
    if not more.any():
        return arrivals.frame_bytes
    flows = len(joined.flows)
    packets = np.bincount(arrivals.flow[forwarded], minlength=flows).clip(min=1)
    usual = np.rint(np.bincount(arrivals.flow[forwarded], more, flows) / packets).astype(np.int32)
    lengths: I32 = arrivals.frame_bytes + usual[arrivals.flow]
    lengths[forwarded] = sent
    return lengths


def _sum_until(
    times_ns: I64, sums: I64, at_ns: I64, is_bytes: bool, side: Literal["left", "right"]
) -> I64:
    places = np.searchsorted(times_ns, at_ns, side)
    return sums[places] if is_bytes else places.astype(np.int64)


def _bracket(unit: Literal["bytes", "packets"], taken: I64, refused: I64) -> Capacity:
    """The levels that explain most packets, of the least that was taken and the most refused."""
    levels, explained = _explained(taken, refused)
    most = float(explained.max())
    # As many packets may be wrong on the one side as on the other.
    good = np.flatnonzero(explained >= most - min(2 - most, MOST_WRONG) - 1e-9)
    below = int(levels[good[-1] + 1]) if good[-1] + 1 < levels.size else None
    return Capacity(unit, int(levels[good[0]]), below, most / 2)


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
        joined: the join of its captures.
        record: the queue as it was set up.
        delays_ns: from when another delay was in force, and which; ascending.
        down_ns: when the link was down, from and until; ascending.
        limits: from when another limit was in force, and which, in the record's unit; ascending.
        held: packets that an intervention held before the queue, with epoch times. They count only
            where no delay changes and no link fails.

    Returns:
        The queue; and when each arrival reached it, or was thrown away by a failing link.
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
