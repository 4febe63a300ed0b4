"""Drops that no full queue explains, and how many there are where captures lack packets.

Captures that lack much are refused (`join/doubts.py`). Where one lacks less, what left without
having come in, and what seems dropped without a reason, show how much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from outcast.analysis.join.directions import Directions
from outcast.analysis.join.join import Joined, Note, Stray, Verdict
from outcast.analysis.join.places import ELSEWHERE
from outcast.analysis.machine_code import I64, Bool
from outcast.analysis.measure.latency import Busy
from outcast.analysis.measure.queue import Queue
from outcast.analysis.measure.segments import Repairs


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
            again = "and were not sent again (UDP never is)"
            whys = {
                f"{ingress}'s capture lacks {lacks_of_input[row]:,} packets or more": lacks,
                f"{name}'s capture lacks {lacks_of_output:,} or more": lacks_of_output,
                f"{found_empty:,} found an empty queue {again}": found_empty,
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
