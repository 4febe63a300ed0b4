"""Drops that no full queue explains: they have no relation to what the queue held.

A queue drops what finds it full. A policer, a filter (ACL), a firewall or a bad cable drops
whatever the queue holds, and an AQM drops before it is full. Captures that lack packets look alike,
but nobody sends that data again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from outcast.analysis.compiled import I32, Array, Bool
from outcast.analysis.join.join import Joined, Verdict
from outcast.analysis.measure.by_length import has_room
from outcast.analysis.measure.latency import Busy
from outcast.analysis.measure.queue import Queue
from outcast.analysis.measure.queue_levels import capacity
from outcast.analysis.measure.repairs import Repairs

LEAST_SHARE = 0.5
"""So large a share of an output's drops has to have found its queue empty."""
LEAST = 8
LEAST_EVEN = 100
"""From fewer drops nothing is said of how evenly they are spread over the queue's contents."""
SAMPLED = 10_000
UNEVEN = 0.2
"""Senders react to drops, so these may differ by this share too. A full queue drops four times as
many of those that find most."""
SIGMAS = 3.0
"""The most standard deviations by which an even spread differs from what is expected."""


NO_QUEUE = "a policer, a filter, a bad cable, an AQM or a queue that drops at its head"
"""What drops packets whatever they found in the queue."""
LEAST_LEVEL = 0.95
"""A level that explains this share of drops and passes is that of a queue that is often full."""


class Relation(Enum):
    """What an output's drops have to do with what they found in its queue."""

    FULL = "full"
    """They found it fuller than others did, or they are too few."""
    EMPTY = "empty"
    """Most found it empty."""
    NONE = "none"
    """They found as much as all others."""
    UNKNOWN = "unknown"
    """Nothing shows what they found."""


@dataclass(frozen=True, slots=True)
class RandomLoss:
    """Drops unrelated to an output's queue; `is_idle` if most found it empty, so no rate shows."""

    sentence: str
    is_idle: bool


def random_losses(
    joined: Joined, repaired: Repairs, queue: Queue, related: Sequence[Relation], explained: Bool
) -> dict[int, RandomLoss]:
    """For each output whose drops have no relation to its queue, the evidence.

    Drops that are `explained` do not count, here and in `relations`.
    """
    told = {}
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
        seen = f"the {count:,} {which} that were dropped found the queue no fuller than all others"
        seen += " did"
        unknown = "No limit is"
        if is_idle:
            seen = f"{at_empty:,} of the {count:,} {which} that were dropped found an empty queue"
            unknown = "No rate and no limit are"
        told[output] = RandomLoss(
            f"{name}: {seen}, and the data of {again:,} of them were sent again. So no full queue "
            f"dropped what came, but {NO_QUEUE} ({', '.join(inputs)}). "
            f"{unknown} estimated",
            is_idle,
        )
    return told


def explained_drops(
    joined: Joined, queue: Queue, busy: Sequence[Busy], longer: Sequence[Array]
) -> Bool:
    """The arrivals that were lost for their length, or while their output stood still.

    An output that stands still has a full queue, too. What would have found room is lost for the
    pause alone.
    """
    explained = np.zeros(len(joined.arrivals), np.bool_)
    for rows in longer:
        explained[rows] = True
    pauses = [(output, pause) for output, sent in enumerate(busy) for pause in sent.pauses]
    if pauses:
        lost = (joined.verdict == Verdict.DROPPED) & has_room(joined, queue)
        for output, pause in pauses:
            since_ns = joined.arrivals.stamp_ns - pause.since_ns
            here = lost & (joined.egress == output)
            explained |= here & (since_ns >= 0) & (since_ns < pause.time_ns)
    return explained


def relations(joined: Joined, queue: Queue, explained: Bool) -> list[Relation]:
    """For each output, what its drops have to do with its queue."""
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

    The contents that packets found are cut into quarters. Each has a binomial number of the drops
    if they are by chance.
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
