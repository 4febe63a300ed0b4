"""Drops that no full queue explains: packets that were lost although they found it empty.

A queue drops what finds it full. A policer, a filter (ACL), a firewall or a bad cable drops
whatever the queue holds. Captures that lack packets look alike, but nobody sends that data again.
"""

from __future__ import annotations

from outcast.analysis.compiled import Bool
from outcast.analysis.join.join import Joined, Verdict
from outcast.analysis.measure.queue import Queue
from outcast.analysis.measure.repairs import Repairs

LEAST_SHARE = 0.5
"""So large a share of an output's drops has to have found its queue empty."""
LEAST = 8


def random_losses(joined: Joined, repaired: Repairs, queue: Queue) -> dict[int, str]:
    """For each output whose drops have no relation to its queue, a sentence with the evidence."""
    told = {}
    for output, name in enumerate(joined.outputs):
        mine, empty = _dropped_at(joined, queue, output)
        count, at_empty = int(mine.sum()), int(empty.sum())
        again = int((empty & repaired.is_proven).sum())
        if at_empty < max(LEAST, LEAST_SHARE * count) or again < LEAST_SHARE * at_empty:
            continue
        inputs = [
            f"{ingress} {int((mine & (joined.arrivals.port == row)).sum()):,} of "
            f"{int(((joined.egress == output) & (joined.arrivals.port == row)).sum()):,}"
            for row, ingress in enumerate(joined.inputs)
            if bool((mine & (joined.arrivals.port == row)).any())
        ]
        told[output] = (
            f"{name}: {at_empty:,} of the {count:,} packets that were dropped found an empty "
            f"queue, and the data of {again:,} of them were sent again. So no full queue dropped "
            f"them, but a policer, a filter or a bad cable, at random ({', '.join(inputs)}). No "
            "rate and no limit are estimated"
        )
    return told


def has_limit(joined: Joined, queue: Queue, output: int) -> bool:
    """Whether an output's drops can tell its limit: most of them did not find it empty."""
    mine, empty = _dropped_at(joined, queue, output)
    return not mine.any() or int(empty.sum()) < LEAST_SHARE * int(mine.sum())


def _dropped_at(joined: Joined, queue: Queue, output: int) -> tuple[Bool, Bool]:
    """The arrivals that an output dropped, and those of them that found its queue empty."""
    mine: Bool = (joined.verdict == Verdict.DROPPED) & (joined.egress == output)
    return mine, mine & (queue.found_packets == 0)
