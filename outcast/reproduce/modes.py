"""Verdicts where seeds fall into two groups: a mean is no summary of two modes, so seeds count."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from outcast.whatif.futures import interval

APART = 4.0
"""Two groups are apart if no value lies within this factor between them."""
LEAST_OF_A_GROUP = 2


def two_modes(values: Sequence[float]) -> int | None:
    """How many ratios are in the upper of two groups; None if there are no two.

    The widest gap parts them: a factor of `APART`, wider than each group, with enough in both.
    """
    logs = sorted(math.log(value) for value in values if value > 0)
    if len(logs) < 2 * LEAST_OF_A_GROUP:
        return None
    gaps = [after - before for before, after in itertools.pairwise(logs)]
    at = gaps.index(max(gaps))
    lower, upper = logs[: at + 1], logs[at + 1 :]
    widest = max(lower[-1] - lower[0], upper[-1] - upper[0])
    is_apart = gaps[at] >= max(math.log(APART), widest)
    return len(upper) if is_apart and min(len(lower), len(upper)) >= LEAST_OF_A_GROUP else None


def p_of_half(count: int, of: int) -> float:
    """The two-sided p of a share of one half; below 0.05 where the exact interval leaves it out."""
    tail = sum(math.comb(of, few) for few in range(min(count, of - count) + 1)) / 2.0**of
    return min(1.0, 2 * tail)


def text(count: int, of: int) -> str:
    """A share of the seeds in words, with its exact interval."""
    low, high = interval(count, of)
    return f"{count} of {of} seeds meet it, a share of {count / of:.3g} [{low:.3g}, {high:.3g}]"
