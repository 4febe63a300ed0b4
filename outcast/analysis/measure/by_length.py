"""Flows whose long packets are all lost while shorter ones pass, as in a path MTU black hole."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from outcast.analysis.capture.headers import TCP
from outcast.analysis.compiled import Array, Bool
from outcast.analysis.join.join import Joined, Verdict
from outcast.analysis.measure.queue import Queue
from outcast.plan.addresses import with_port

LEAST = 8
"""From fewer packets that passed, or that were lost, nothing is said."""
LEAST_DIFFERENT = 3
"""The fewest different segments or lengths that are lost, because one may be lost for its content.
It is also how often one passed after a loss; otherwise the path was down for a while."""
MOST_SHORT = 0.1
"""If more of the short ones are lost too, length alone does not decide."""


def lost_by_length(joined: Joined, queue: Queue) -> Iterator[tuple[str, Array]]:
    """A line on each output and limit of length that flows show, and the arrivals it explains."""
    arrivals = joined.arrivals
    room = has_room(joined, queue)
    dropped = joined.verdict == Verdict.DROPPED
    known = (arrivals.payload_bytes > 0) & (joined.verdict != Verdict.UNKNOWN)
    lost = np.bincount(arrivals.flow[known & dropped & room], minlength=len(joined.flows))
    rows = np.flatnonzero(known & (lost >= LEAST)[arrivals.flow])
    rows = rows[np.argsort(arrivals.flow[rows], kind="stable")]
    found: list[tuple[int, int, int, Array]] = []
    for mine in np.split(rows, np.flatnonzero(np.diff(arrivals.flow[rows])) + 1):
        if mine.size and (limits := _limits(joined, mine, room)) is not None:
            found.append(limits)
    for output, name in enumerate(joined.outputs):
        rest = sorted((one for one in found if one[0] == output), key=lambda one: -one[3].size)
        while rest:
            passed, least = rest[0][1:3]
            alike = []
            for one in rest:
                if max(passed, one[1]) < min(least, one[2]):
                    passed, least = max(passed, one[1]), min(least, one[2])
                    alike.append(one)
            rest = [one for one in rest if not any(one is other for other in alike)]
            longer = np.concatenate([one[3] for one in alike])
            flow = joined.flows[arrivals.flow[longer[0]]]
            ends = f"{with_port(flow.src, flow.sport)} to {with_port(flow.dst, flow.dport)}"
            more = f" and {len(alike) - 1:,} more flows" if alike[1:] else ""
            yield (
                f"{name}: of {ends}{more} frames of up to {passed:,} bytes passed, and all "
                f"{longer.size:,} of {least:,} bytes or more were lost. It is a limit of length on "
                "the way, or a filter by length (a path MTU black hole looks so; so does a policer "
                "or a small buffer that only short frames pass)",
                longer,
            )


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


def _limits(joined: Joined, rows: Array, room: Bool) -> tuple[int, int, int, Array] | None:
    """A flow's output, its longest frame that passed, the shortest of the longer ones, their rows.

    None if length does not decide what of the flow is lost. `rows` are its data, in order.
    """
    arrivals = joined.arrivals
    length, went = arrivals.frame_bytes[rows], joined.left_as[rows] >= 0
    output = int(joined.egress[rows[0]])
    if output < 0 or (joined.egress[rows] != output).any() or int(went.sum()) < LEAST:
        return None
    passed = int(length[went].max())
    is_long = length > passed
    lost = is_long & room[rows]
    # A segment that is sent again has its old number; other protocols have those of IP alone.
    is_tcp = joined.flows[arrivals.flow[rows[0]]].protocol == TCP
    numbers = (arrivals.seq if is_tcp else arrivals.ip_id)[rows[lost]]
    segments = {*zip(length[lost].tolist(), numbers.tolist(), strict=True)}
    order = went[went | lost].astype(np.int8)
    if (
        int(lost.sum()) < LEAST
        or len(segments) < LEAST_DIFFERENT
        or int((np.diff(order) > 0).sum()) < LEAST_DIFFERENT
        or int((~went & ~is_long).sum()) > MOST_SHORT * int((~is_long).sum())
    ):
        return None
    return output, passed, int(length[is_long].min()), rows[is_long]
