"""The verdict on a claim and on a recipe, by a stated rule, from measured values alone.

A claim of a size is *reproduced* where the effect is there (the whole 95 % interval lies on the
reported side of the value that means none) and of the reported size (the measured value is from
reported / within to reported * within, however far its interval reaches: noise is no agreement);
*same direction, other size* where it is there only; else *not seen*. A claim of an order or of a
bound is *reproduced* where the interval of the difference, or of the measure, lies wholly on the
claimed side, and else *not seen*.

A recipe is *not seen* where its first claim, the main one, is; *reproduced* where all its claims
are; else *same direction, other size*.

Intervals are bootstrapped over seeds (outcast/analysis/statistics.py, which says how far those of a
few runs are too narrow); a single run has none, and gives no verdict. Of ratios the logarithm is
averaged, since they are positive and skewed; of other measures a quotient of two points is that of
their means. Two measures of one point are compared run by run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from outcast.analysis import statistics
from outcast.analysis.statistics import Interval, Kind
from outcast.reproduce.recipe import BoundClaim, Claim, OrderClaim, SizeClaim


class Verdict(StrEnum):
    """See the module."""

    REPRODUCED = "reproduced"
    OTHER_SIZE = "same direction, other size"
    NOT_SEEN = "not seen"


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim with what was measured.

    Attributes:
        measured: of an order, the difference (of a ratio's logarithm: the quotient).
        verdict: None where fewer than two runs gave a value.
    """

    claim: Claim
    measured: Interval
    verdict: Verdict | None


def estimate(values: Sequence[float], *, logarithmic: bool) -> Interval:
    """The mean (geometric if `logarithmic`) of the values that are numbers, and its interval."""
    return statistics.central(_known(values), _kind(logarithmic))


def difference(greater: Sequence[float], lesser: Sequence[float], *, logarithmic: bool) -> Interval:
    """How much more the first is than the second: the quotient if `logarithmic`."""
    return statistics.difference(_known(greater), _known(lesser), _kind(logarithmic))


def paired(greater: Sequence[float], lesser: Sequence[float], *, logarithmic: bool) -> Interval:
    """`difference` of two measures of the same runs, whose values go together run by run."""
    pairs = [
        (one, other)
        for one, other in zip(greater, lesser, strict=True)
        if math.isfinite(one) and math.isfinite(other)
    ]
    apart = [one / other if logarithmic else one - other for one, other in pairs]
    return estimate(apart, logarithmic=logarithmic)


def _known(values: Sequence[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def _kind(logarithmic: bool) -> Kind:
    return "geometric" if logarithmic else "mean"


def judge(
    claim: Claim,
    values: Mapping[str, Sequence[float]],
    lesser_values: Mapping[str, Sequence[float]],
    *,
    logarithmic: bool,
) -> Judged:
    """The verdict on one claim.

    Args:
        claim: what the source says.
        values: for each point's label the measure of every seed.
        lesser_values: the same of an order's second measure.
        logarithmic: whether the measure is a ratio.
    """
    match claim:
        case OrderClaim():
            apart = paired if claim.greater == claim.lesser else difference
            found = apart(
                values[claim.greater], lesser_values[claim.lesser], logarithmic=logarithmic
            )
            seen = found.low is not None and found.low > (1.0 if logarithmic else 0.0)
        case SizeClaim():
            found = _measured(claim, values, logarithmic)
            return Judged(claim, found, _size_verdict(claim, found) if found.n > 1 else None)
        case BoundClaim():
            found = _measured(claim, values, logarithmic)
            seen = (
                found.low is not None
                and found.high is not None
                and (
                    found.low >= claim.at_least
                    if claim.at_least is not None
                    else found.high <= (claim.at_most or 0.0)
                )
            )
    if found.n < 2:
        return Judged(claim, found, None)
    return Judged(claim, found, Verdict.REPRODUCED if seen else Verdict.NOT_SEEN)


def _measured(
    claim: SizeClaim | BoundClaim, values: Mapping[str, Sequence[float]], logarithmic: bool
) -> Interval:
    if claim.over is None:
        return estimate(values[claim.at], logarithmic=logarithmic)
    if logarithmic:
        return difference(values[claim.at], values[claim.over], logarithmic=True)
    return statistics.quotient(_known(values[claim.at]), _known(values[claim.over]))


def _size_verdict(claim: SizeClaim, found: Interval) -> Verdict:
    if found.low is None or found.high is None:
        return Verdict.NOT_SEEN
    rises = claim.reported > claim.none
    if not (found.low > claim.none if rises else found.high < claim.none):
        return Verdict.NOT_SEEN
    nearest, furthest = sorted((claim.reported / claim.within, claim.reported * claim.within))
    equal = found.value is not None and nearest <= found.value <= furthest
    return Verdict.REPRODUCED if equal else Verdict.OTHER_SIZE


def overall(judged: Sequence[Judged]) -> Verdict | None:
    """The verdict on a recipe; None where a claim has none."""
    verdicts = [each.verdict for each in judged]
    if not verdicts or None in verdicts:
        return None
    if verdicts[0] is Verdict.NOT_SEEN:
        return Verdict.NOT_SEEN
    if all(verdict is Verdict.REPRODUCED for verdict in verdicts):
        return Verdict.REPRODUCED
    return Verdict.OTHER_SIZE
