"""How evenly flows share a link: Jain's index and the outcast ratio."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

HELD_SHARE = 0.9
"""Of all goodput. Where a link was held its flow had more than 0.99 of it, else under 0.3."""


def jain_index(shares: Sequence[float]) -> float | None:
    """Jain's fairness index (DEC-TR-301): 1 where all are equal, 1/n where one has all.

    None where there is no share at all to divide.
    """
    square = sum(shares) ** 2
    squares = sum(share * share for share in shares)
    return square / (len(shares) * squares) if squares else None


def outcast_ratio(mean_by_hops: Mapping[int, float]) -> float | None:
    """The mean of the class with the most hops over that of the class with the fewest.

    None where there is one class only, or where the class with the fewest hops got nothing.
    """
    if len(mean_by_hops) < 2:
        return None
    nearest = mean_by_hops[min(mean_by_hops)]
    return mean_by_hops[max(mean_by_hops)] / nearest if nearest else None


def holder(goodput_bps: Mapping[int, float]) -> int | None:
    """Of three flows or more the one that had more than HELD_SHARE of all goodput, if any.

    With two, one that has nearly all is what an unfair queue does; with more, it is one flow's
    packets coming in at each departure, just before all others' (Floyd and Jacobson, "On Traffic
    Phase Effects in Packet-Switched Gateways", 1992).
    """
    if len(goodput_bps) < 3:
        return None
    flow = max(goodput_bps, key=lambda each: goodput_bps[each])
    return flow if goodput_bps[flow] > HELD_SHARE * sum(goodput_bps.values()) else None
