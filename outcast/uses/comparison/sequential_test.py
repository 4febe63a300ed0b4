"""When a comparison is settled: a group-sequential rule on the differences of pairs.

A pair is two runs with one seed. After a fifth of the pairs, two fifths and so on, the mean
difference gets an interval. All the intervals of a comparison hold the true difference together in
95 of 100 comparisons. So a comparison may stop at the first of them that answers the question.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Verdict = Literal["no worse", "worse", "not settled"]

LOOKS = 5
LEAST_PAIRS = 4
"""The fewest pairs that are looked at: the deviation of fewer says too little."""
_SHAPE, _CRITICAL, _CRITICAL_ONCE = 0.25, 2.135, 1.960
"""The bound at the share f of all pairs is _CRITICAL * f ** (_SHAPE - 1/2): 5 % in five looks (Wang
and Tsiatis 1987, "Approximately optimal one-parameter boundaries for group sequential trials").
The last number is the bound of a single look."""
_POWER_Z = 0.842
"""The normal quantile of 80 %: with the pairs that `Difference.pairs_for_half` gives, a comparison
finds a difference half as large in 80 of 100."""


def looks(pairs: int) -> list[int]:
    """The numbers of pairs after which a comparison of at most `pairs` is looked at."""
    planned = {math.ceil(pairs * look / LOOKS) for look in range(1, LOOKS + 1)}
    return sorted(count for count in planned if count >= LEAST_PAIRS)


@dataclass(frozen=True)
class Difference:
    """The difference of one quantity over the pairs so far, B less A.

    Attributes:
        low, high: the interval of the mean difference; None where too few pairs have all the same.
        above, below: the pairs in which B has more, and less.
        variance_ratio: the variance of the differences over the sum of both variances. Below 1
            pairs help; a small change that spreads over the whole run leaves about 1.
        pairs_for_half: the pairs that a difference half as large needs; None without a difference.
        margin: how much less than A (or more, where less is better) B may have, in the quantity's
            unit.
    """

    name: str
    pairs: int
    mean_a: float
    mean_b: float
    mean: float
    low: float | None
    high: float | None
    above: int
    below: int
    variance_ratio: float | None
    pairs_for_half: int | None
    margin: float
    verdict: Verdict


def difference(
    name: str,
    a: Sequence[float],
    b: Sequence[float],
    pairs: int,
    *,
    margin_share: float = 0.0,
    less_is_better: bool = False,
    copies: bool = False,
) -> Difference:
    """The difference over the pairs so far, of at most `pairs`.

    `margin_share` is a share of A's mean. B is worse where the whole interval lies beyond the
    margin, and no worse where it lies on this side. `copies` says that a seed changes nothing at
    all, so that all pairs are one. Otherwise pairs that all have the same difference are judged by
    the sign test.
    """
    of_a, of_b = np.asarray(a, float), np.asarray(b, float)
    differences = of_b - of_a
    count, mean = differences.size, float(differences.mean())
    deviation = float(differences.std(ddof=1)) if count > 1 else 0.0
    margin = margin_share * abs(float(of_a.mean()))
    low = high = needed = ratio = None
    verdict: Verdict = "not settled"
    p, quantile = _critical(count, pairs)
    if deviation > 0 or (not copies and mean and 0.5 ** (count - 1) <= p):
        half = quantile * deviation / math.sqrt(count)
        low, high = mean - half, mean + half
        worst, best = (-high, -low) if less_is_better else (low, high)
        if worst > -margin or (margin and worst == -margin):
            verdict = "no worse"
        elif best < -margin:
            verdict = "worse"
        both = float(of_a.var(ddof=1) + of_b.var(ddof=1))
        ratio = deviation**2 / both if both else None
        if mean:
            by_normal = ((_CRITICAL + _POWER_Z) * deviation / (mean / 2)) ** 2
            # Student's t is wider by some two pairs (Guenther 1981).
            needed = max(LEAST_PAIRS, math.ceil(by_normal + _CRITICAL**2 / 2))
    return Difference(
        name,
        count,
        *(float(of_a.mean()), float(of_b.mean()), mean, low, high),
        int((differences > 0).sum()),
        int((differences < 0).sum()),
        *(ratio, needed, margin, verdict),
    )


def _critical(count: int, pairs: int) -> tuple[float, float]:
    """The bound of a look: as a two-sided p, and in standard errors by Student's t."""
    from scipy import stats

    once = len(looks(pairs)) <= 1
    bound = _CRITICAL_ONCE if once else _CRITICAL * (count / pairs) ** (_SHAPE - 0.5)
    tail = float(stats.norm.sf(bound))
    return 2 * tail, float(stats.t.isf(tail, count - 1))
