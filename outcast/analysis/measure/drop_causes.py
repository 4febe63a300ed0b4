"""Drops that no full queue explains, and how many there are where captures lack packets.

A queue drops what finds it full. A policer, a filter (ACL), a firewall or a bad cable drops
whatever the queue holds, and an AQM drops before it is full. Captures that lack packets look alike,
but nobody sends that data again.

Captures that lack much are refused (`join/doubts.py`). Where one lacks less, what left without
having come in, and what seems dropped without a reason, show how much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from outcast.analysis.join.directions import Directions
from outcast.analysis.join.join import Joined, Note, Stray, Verdict
from outcast.analysis.join.places import ELSEWHERE
from outcast.analysis.machine_code import I32, I64, Bool
from outcast.analysis.measure.latency import Busy
from outcast.analysis.measure.queue import Queue
from outcast.analysis.measure.queue_levels import capacity
from outcast.analysis.measure.segments import Repairs

LEAST = 8
"""The fewest drops that show a cause."""


def has_room(joined: Joined, queue: Queue, spare: int = 0) -> Bool:
    """Whether each arrival found its output's queue empty, or took it no higher than others did.

    With `spare` there was space for that many more packets, each as long as the longest.
    """
    level = queue.found_bytes.astype(np.int64) + joined.arrivals.frame_bytes
    longest = int(joined.arrivals.frame_bytes.max(initial=0))
    went = joined.left_as >= 0
    highest = np.zeros((2, len(joined.outputs) + 1), np.int64)
    for most, content in zip(highest, (level, queue.found_packets), strict=True):
        np.maximum.at(most, joined.egress[went], content[went])
    is_lower = (level + spare * longest <= highest[0][joined.egress]) & (
        queue.found_packets + spare <= highest[1][joined.egress]
    )
    return np.asarray((queue.found_packets == 0) | (is_lower & (queue.found_packets > 0)), np.bool_)


LEAST_SHARE = 0.5
"""This share of an output's drops has to have found its queue empty."""
LEAST_EVEN = 100
"""The fewest drops whose spread over the queue's contents is judged."""
SAMPLED = 10_000
UNEVEN = 0.2
"""Senders react to drops, so these may differ by this share too. A full queue drops four times as
many of the packets that find most."""
SIGMAS = 3.0
"""The most standard deviations by which an even spread differs from what is expected."""


NO_QUEUE = "a policer, a filter, a bad cable, an AQM or a queue that drops at its head"
"""What drops packets whatever they found in the queue."""
LEAST_LEVEL = 0.95
"""A level that explains this share of drops and passes is that of a queue that is often full."""


class Relation(Enum):
    FULL = "full"
    """They found it fuller than others did, or they are too few."""
    EMPTY = "empty"
    """Most found it empty."""
    NONE = "none"
    """They found as much as all others."""
    UNKNOWN = "unknown"
    """Nothing shows what they found."""


def random_losses(
    joined: Joined, repaired: Repairs, queue: Queue, related: Sequence[Relation], explained: Bool
) -> dict[int, str]:
    """For each output whose drops have no relation to its queue, a line with the evidence.

    Drops that are `explained` do not count, here and in `relations`.
    """
    lines = {}
    for output, name in enumerate(joined.outputs):
        mine, empty = _dropped_at(joined, queue, output, explained)
        count, at_empty = int(mine.sum()), int(empty.sum())
        which = "other packets" if (explained & (joined.egress == output)).any() else "packets"
        is_idle = related[output] is Relation.EMPTY
        if related[output] in (Relation.FULL, Relation.UNKNOWN) or at_empty < LEAST * is_idle:
            continue
        # Nobody sends an acknowledgement again, so only data can prove that packets were lost.
        of_data = (empty if is_idle else mine) & (joined.arrivals.payload_bytes > 0)
        again = int((of_data & repaired.is_proven).sum())
        if again < max(LEAST, LEAST_SHARE * int(of_data.sum())):
            continue
        of_inputs = (
            np.bincount(joined.arrivals.port[rows], minlength=len(joined.inputs)).tolist()
            for rows in (mine, joined.egress == output)
        )
        inputs = [
            f"{ingress} {lost:,} of {came:,}"
            for ingress, lost, came in zip(joined.inputs, *of_inputs, strict=True)
            if lost
        ]
        seen = f"the {count:,} {which} that were dropped found the queue as full as others did"
        if is_idle:
            seen = f"{at_empty:,} of the {count:,} {which} that were dropped found an empty queue"
        lines[output] = (
            f"{name}: {seen}, and the data of {again:,} of them were sent again. So no full queue "
            f"dropped what came, but {NO_QUEUE} ({', '.join(inputs)}). No limit is estimated"
        )
    return lines


def explained_drops(joined: Joined, queue: Queue, busy: Sequence[Busy]) -> Bool:
    """The arrivals that were lost while their output stood still, though its queue had space."""
    explained = np.zeros(len(joined.arrivals), np.bool_)
    pauses = [(output, pause) for output, sent in enumerate(busy) for pause in sent.pauses]
    if pauses:
        lost = (joined.verdict == Verdict.DROPPED) & has_room(joined, queue)
        for output, pause in pauses:
            since_ns = joined.arrivals.stamp_ns - pause.since_ns
            here = lost & (joined.egress == output)
            explained |= here & (since_ns >= 0) & (since_ns < pause.time_ns)
    return explained


def relations(joined: Joined, queue: Queue, explained: Bool) -> list[Relation]:
    return [_relation(joined, queue, output, explained) for output in range(len(joined.outputs))]


def _relation(joined: Joined, queue: Queue, output: int, explained: Bool) -> Relation:
    mine, empty = _dropped_at(joined, queue, output, explained)
    count = int(mine.sum())
    if not joined.shows_content(output):
        return Relation.UNKNOWN
    if count and int(empty.sum()) >= LEAST_SHARE * count:
        return Relation.EMPTY
    if count >= LEAST_EVEN and _is_even(
        queue.found_bytes[joined.egress == output], queue.found_bytes[mine]
    ):
        level = capacity(joined, queue, output, explained)
        if level is None or level.confidence < LEAST_LEVEL:
            return Relation.NONE
    return Relation.FULL


def _is_even(found: I32, dropped: I32) -> bool:
    """Whether drops are as frequent among packets that found little as among those that found much.

    The contents that packets found are cut into quarters. By chance each quarter has a binomial
    number of the drops.
    """
    edges = np.quantile(found[:: 1 + found.size // SAMPLED], (0.25, 0.5, 0.75))
    shares = np.bincount(np.searchsorted(edges, found), minlength=4) / found.size
    drops = np.bincount(np.searchsorted(edges, dropped), minlength=4)
    expected = dropped.size * shares
    most = np.maximum(SIGMAS * (expected * (1 - shares)) ** 0.5, UNEVEN * expected)
    # Bursts that begin at an empty queue lose their first packets more often, so only many drops
    # of those that found much show a full queue.
    return bool((drops - expected <= most)[2:].all())


def _dropped_at(joined: Joined, queue: Queue, output: int, explained: Bool) -> tuple[Bool, Bool]:
    """The arrivals that an output dropped, and those of them that found its queue empty."""
    mine: Bool = (joined.verdict == Verdict.DROPPED) & (joined.egress == output) & ~explained
    return mine, mine & (queue.found_packets == 0)


@dataclass(frozen=True, slots=True)
class DropRange:
    """The drops at an output from an input whose captures lack packets.

    Attributes:
        counted: captured packets that seem dropped.
        least: those that the captures prove.
        most: with those that the input's capture probably lacks.
        sentence: the numbers, and the evidence of missing packets.
    """

    ingress: str
    egress: str
    counted: int
    least: int
    most: int
    sentence: str


def drop_ranges(
    joined: Joined, repaired: Repairs, queue: Queue, explained: Bool
) -> list[DropRange]:
    """The drops of each input and output whose captures lack packets; empty if none does.

    - Packets that left without having come in are missing in their input's capture. It probably
      lacks an equal share of the dropped packets, within three standard deviations.
    - Packets that were never sent again, or that came in before the output's capture began, are
      missing in that capture. Then only drops whose data were sent again count as proven. Drops
      that are `explained` need no such proof.
    """
    if joined.sources.directions is None:
        return []
    arrivals, departures = joined.arrivals, joined.departures
    dropped = joined.verdict == Verdict.DROPPED
    number = {name: index for index, name in enumerate(joined.inputs)}
    came_by = _came_by(joined, joined.sources.directions, number)
    lacking = (joined.stray == Stray.UNEXPLAINED) | _after_others(joined, came_by)
    lacks_of_input = [int((lacking & (came_by == row)).sum()) for row in range(len(number))]
    ranges = []
    for output, name in enumerate(joined.outputs):
        here = joined.egress == output
        # What was sent again was lost, so the output's capture does not lack it.
        # Where nothing shows what the queue held, it may have been empty.
        empty = dropped & here & ~repaired.is_proven & ~explained
        if joined.shows_content(output):
            empty &= queue.found_packets == 0
        lacks_of_output = max(
            int((repaired.is_alone & here).sum()),
            int((here & (joined.note == Note.BEFORE_OUTPUT)).sum()),
            lacks_of_input[number[name]] if name in number else 0,
        )
        for row, ingress in enumerate(joined.inputs):
            mine: Bool = here & (arrivals.port == row)
            least = most = counted = int((dropped & mine).sum())
            found_empty = int((empty & mine).sum())
            if lacks_of_output or found_empty:
                least = int(((repaired.is_proven | explained) & dropped & mine).sum())
            lacks = int((lacking & (came_by == row) & (departures.port == output)).sum())
            if lacks and counted:
                through = int((mine & (joined.verdict == Verdict.FORWARDED)).sum())
                share = counted * lacks / max(through, 1)
                most += int(share + 3 * (share + 1) ** 0.5)
            if least == most:
                continue
            whys = {
                f"{ingress}'s capture lacks {lacks_of_input[row]:,} packets or more": lacks,
                f"{name}'s capture lacks {lacks_of_output:,} or more": lacks_of_output,
                f"{found_empty:,} found an empty queue and were not sent again": found_empty,
            }
            text = (
                f"{ingress}: {counted:,} packets to {name} seem dropped, truly between {least:,} "
                f"and {most:,}: {'; '.join(why for why, count in whys.items() if count)}"
            )
            ranges.append(DropRange(ingress, name, counted, least, most, text))
    return ranges


def _came_by(joined: Joined, directions: Directions, number: Mapping[str, int]) -> I64:
    """For each departure the input that its flow comes by, or ELSEWHERE."""
    inputs = np.array([*(number.get(port, ELSEWHERE) for port in joined.sources.ports), ELSEWHERE])
    places = np.array([directions.place(flow.src) for flow in joined.flows])
    came_by: I64 = inputs[places][joined.departures.flow]
    return came_by


def _after_others(joined: Joined, came_by: I64) -> Bool:
    """Departures before anything was seen to come in, from inputs whose capture begins late.

    What was queued when all captures began left within the longest sojourn time.
    """
    early: Bool = joined.stray == Stray.EARLY
    went = np.flatnonzero(joined.left_as >= 0)
    if not early.any() or not went.size:
        return np.zeros_like(early)
    came_ns, left_ns = joined.arrivals.stamp_ns, joined.departures.stamp_ns
    longest_ns = (left_ns[joined.left_as[went]] - came_ns[went]).max()
    late: Bool = early & (left_ns > came_ns[0] + longest_ns) & (came_by >= 0)
    return late
