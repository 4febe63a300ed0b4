"""How evenly flows share a link: Jain's fairness index and the outcast ratio."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

HELD_SHARE = 0.9
"""A flow with more of all goodput held the link. Measured: over 0.99 when held, else under 0.3."""


def jain_index(shares: Sequence[float]) -> float | None:
    """Jain's fairness index (DEC-TR-301): 1 if all shares are equal, 1/n if one has everything.

    Returns None if all shares are zero.
    """
    square = sum(shares) ** 2
    squares = sum(share * share for share in shares)
    return square / (len(shares) * squares) if squares else None


def outcast_ratio(mean_by_hops: Mapping[int, float]) -> float | None:
    """The mean of the class with the most hops over that of the class with the fewest.

    Returns None if there is only one class, or if the class with the fewest hops got nothing.
    """
    if len(mean_by_hops) < 2:
        return None
    nearest = mean_by_hops[min(mean_by_hops)]
    return mean_by_hops[max(mean_by_hops)] / nearest if nearest else None


def holder(goodput_bps: Mapping[int, float]) -> int | None:
    """The flow that had more than HELD_SHARE of all goodput, if there are three flows or more.

    If one of two flows has nearly everything, the queue may simply be unfair. If one of more flows
    has, its packets come in at each departure just before all others' (Floyd and Jacobson, "On
    Traffic Phase Effects in Packet-Switched Gateways", 1992).
    """
    if len(goodput_bps) < 3:
        return None
    flow = max(goodput_bps, key=lambda number: goodput_bps[number])
    return flow if goodput_bps[flow] > HELD_SHARE * sum(goodput_bps.values()) else None
