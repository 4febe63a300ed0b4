"""The verdict on a claim and on a recipe, by a fixed rule, from measured values alone.

A claim of a size asks two questions. Is the effect there: does the whole 95 % interval lie on the
reported side of the value without an effect? Has it the reported size: does the measured value lie
between reported / within and reported * within? The width of the interval does not count for the
second question, because noise is no agreement. The claim is *reproduced* if both hold, *same
direction, other size* if only the first holds, and otherwise *not seen*.

A claim of an order or of a bound is *reproduced* if the interval of the difference, or of the
measure, lies wholly on the claimed side. Otherwise it is *not seen*.

A recipe is *not seen* if its first claim, the main one, is not seen. It is *reproduced* if all its
claims are reproduced. Otherwise it is *same direction, other size*.

Intervals are bootstrapped over seeds. With few runs they are too narrow;
outcast/analysis/statistics.py says how much. A single run has no interval and gives no verdict.
For ratios the logarithm is averaged, because they are positive and skewed. For other measures, the
quotient of two points is the quotient of their means. Two measures of one point are compared run by
run.
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
    """The three verdicts; the module's docstring has the rule."""

    REPRODUCED = "reproduced"
    OTHER_SIZE = "same direction, other size"
    NOT_SEEN = "not seen"


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim with its measured value.

    Attributes:
        measured: the measure; for an order the difference of two measures, or the quotient if they
            are ratios.
        verdict: None if fewer than two runs gave a value.
    """

    claim: Claim
    measured: Interval
    verdict: Verdict | None


def estimate(values: Sequence[float], *, logarithmic: bool) -> Interval:
    """The mean of the finite values, with its interval; the geometric mean if `logarithmic`."""
    return statistics.central(_known(values), _kind(logarithmic))


def difference(greater: Sequence[float], lesser: Sequence[float], *, logarithmic: bool) -> Interval:
    """The difference of the first mean from the second; the quotient if `logarithmic`."""
    return statistics.difference(_known(greater), _known(lesser), _kind(logarithmic))


def paired(greater: Sequence[float], lesser: Sequence[float], *, logarithmic: bool) -> Interval:
    """The mean difference (or quotient) of two measures of the same runs, taken run by run."""
    pairs = [
        (first, second)
        for first, second in zip(greater, lesser, strict=True)
        if math.isfinite(first) and math.isfinite(second)
    ]
    differences = [first / second if logarithmic else first - second for first, second in pairs]
    return estimate(differences, logarithmic=logarithmic)


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
        values: by point label, the measure of every seed.
        lesser_values: the same for the second measure of an order.
        logarithmic: whether the measure is a ratio.
    """
    match claim:
        case OrderClaim():
            compare = paired if claim.greater == claim.lesser else difference
            measured = compare(
                values[claim.greater], lesser_values[claim.lesser], logarithmic=logarithmic
            )
            seen = measured.low is not None and measured.low > (1.0 if logarithmic else 0.0)
        case SizeClaim():
            measured = _measured(claim, values, logarithmic)
            verdict = _size_verdict(claim, measured) if measured.n > 1 else None
            return Judged(claim, measured, verdict)
        case BoundClaim():
            measured = _measured(claim, values, logarithmic)
            seen = (
                measured.low is not None
                and measured.high is not None
                and (
                    measured.low >= claim.at_least
                    if claim.at_least is not None
                    else measured.high <= (claim.at_most or 0.0)
                )
            )
    if measured.n < 2:
        return Judged(claim, measured, None)
    return Judged(claim, measured, Verdict.REPRODUCED if seen else Verdict.NOT_SEEN)


def _measured(
    claim: SizeClaim | BoundClaim, values: Mapping[str, Sequence[float]], logarithmic: bool
) -> Interval:
    if claim.over is None:
        return estimate(values[claim.at], logarithmic=logarithmic)
    if logarithmic:
        return difference(values[claim.at], values[claim.over], logarithmic=True)
    return statistics.quotient(_known(values[claim.at]), _known(values[claim.over]))


def _size_verdict(claim: SizeClaim, measured: Interval) -> Verdict:
    if measured.low is None or measured.high is None:
        return Verdict.NOT_SEEN
    rises = claim.reported > claim.none
    if not (measured.low > claim.none if rises else measured.high < claim.none):
        return Verdict.NOT_SEEN
    least, greatest = sorted((claim.reported / claim.within, claim.reported * claim.within))
    is_equal = measured.value is not None and least <= measured.value <= greatest
    return Verdict.REPRODUCED if is_equal else Verdict.OTHER_SIZE


def overall(judged: Sequence[Judged]) -> Verdict | None:
    """The verdict on a recipe; None if a claim has none."""
    verdicts = [claim.verdict for claim in judged]
    if not verdicts or None in verdicts:
        return None
    if verdicts[0] is Verdict.NOT_SEEN:
        return Verdict.NOT_SEEN
    if all(verdict is Verdict.REPRODUCED for verdict in verdicts):
        return Verdict.REPRODUCED
    return Verdict.OTHER_SIZE
