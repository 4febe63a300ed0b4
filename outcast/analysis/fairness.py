"""How evenly flows share a link: Jain's index and the outcast ratio."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


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
