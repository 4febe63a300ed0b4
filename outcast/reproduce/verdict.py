"""The verdict on a claim and on a recipe, by a fixed rule, from measured values alone.

A claim accepts some values of its measure, and has one value that the measure would have without
the effect:

===== ================================================ ==========================================
claim accepts                                          without the effect
===== ================================================ ==========================================
size  from reported / within to reported * within      `none`
bound from at_least on, or up to at_most               `none`, which is not accepted, or the bound
order a difference above 0; of ratios a quotient above 0, or 1
      1
===== ================================================ ==========================================

The rule looks at the 95 % interval over the runs:

* *reproduced*: the whole interval is accepted.
* *same direction, other size*: the whole interval lies on the reported side of `none`, but nothing
  of it is accepted.
* *contradicted*: nothing of the interval is accepted, and it does not lie on the reported side.
* *inconclusive*: otherwise, because the interval holds both.

A claim that holds without the effect says nothing. Such a *vacuous* claim is refused when its
recipe is read (outcast/reproduce/recipe.py). Fewer than five runs give no verdict.

`p` is the chance of an interval that is as conclusive although the value lies on an edge of what is
accepted; of two edges, on the likelier one. outcast/reproduce/together.py corrects it within a row.

A recipe has the verdict of its first claim, the main one; but *same direction, other size* if the
main claim is reproduced and another one is not.

outcast/analysis/statistics.py makes the intervals. For ratios the logarithm is averaged, because
they are positive and skewed. For other measures, the quotient of two points is the quotient of
their means. Two measures of one point are compared run by run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from outcast.analysis import statistics
from outcast.analysis.statistics import UNLIMITED, Estimate, Interval, Kind, Limits
from outcast.reproduce.recipe import LEAST_RUNS, BoundClaim, Claim, OrderClaim, SizeClaim


class Verdict(StrEnum):
    """The verdicts on what could be judged; the module's docstring has the rule."""

    REPRODUCED = "reproduced"
    OTHER_SIZE = "same direction, other size"
    INCONCLUSIVE = "inconclusive"
    CONTRADICTED = "contradicted"


NO_VERDICT = "no verdict"
"""In the place of a verdict where a claim has fewer than five runs."""


def verdict_text(verdict: Verdict | None) -> str:
    """The verdict in words, which are the same wherever one is shown."""
    return NO_VERDICT if verdict is None else str(verdict)


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim with its measured value.

    Attributes:
        measured: the measure; for an order the difference of two measures, or the quotient if they
            are ratios.
        verdict: None if fewer than five runs gave a value.
        p: see the module's docstring; None without a verdict.
        note: what stands against a verdict, or limits it.
    """

    claim: Claim
    measured: Interval
    verdict: Verdict | None
    p: float | None
    note: str = ""


def central(values: Sequence[float], *, logarithmic: bool, limits: Limits = UNLIMITED) -> Interval:
    """The mean of the finite values, with its interval; the geometric mean if `logarithmic`."""
    return statistics.central(_known(values), _kind(logarithmic), limits)


def _paired(greater: Sequence[float], lesser: Sequence[float], *, logarithmic: bool) -> Estimate:
    """The mean difference (or quotient) of two measures of the same runs, taken run by run."""
    pairs = [
        (first, second)
        for first, second in zip(greater, lesser, strict=True)
        if math.isfinite(first) and math.isfinite(second)
    ]
    differences = [first / second if logarithmic else first - second for first, second in pairs]
    return statistics.estimate(differences, _kind(logarithmic))


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
    limits: Limits = UNLIMITED,
) -> Judged:
    """The verdict on one claim.

    Args:
        claim: what the source says.
        values: by point label, the measure of every seed.
        lesser_values: the same for the second measure of an order.
        logarithmic: whether the measure is a ratio.
        limits: the least and the greatest value that the measure can have.
    """
    if isinstance(claim, OrderClaim):
        greater, lesser = values[claim.greater], lesser_values[claim.lesser]
        if claim.greater == claim.lesser:
            estimate = _paired(greater, lesser, logarithmic=logarithmic)
        else:
            estimate = statistics.estimate_difference(
                _known(greater), _known(lesser), _kind(logarithmic)
            )
    else:
        estimate = _measured(claim, values, logarithmic, limits)
    measured = estimate.interval
    if measured.n < LEAST_RUNS:
        return Judged(claim, measured, None, None)
    verdict = decide(claim, measured, logarithmic=logarithmic)
    return Judged(claim, measured, verdict, _p(claim, estimate, logarithmic))


def _measured(
    claim: SizeClaim | BoundClaim,
    values: Mapping[str, Sequence[float]],
    logarithmic: bool,
    limits: Limits,
) -> Estimate:
    here = _known(values[claim.at])
    if claim.over is None:
        return statistics.estimate(here, _kind(logarithmic), limits)
    there = _known(values[claim.over])
    if logarithmic:
        return statistics.estimate_difference(here, there, "geometric")
    return statistics.estimate_quotient(here, there)


def decide(claim: Claim, measured: Interval, *, logarithmic: bool) -> Verdict:
    """The verdict that follows from a claim's measured interval."""
    low, high, value = measured.low, measured.high, measured.value
    if low is None or high is None or value is None:
        return Verdict.INCONCLUSIVE
    none = _none(claim, logarithmic)
    least, greatest = _accepted(claim, none)
    is_above = _rises(claim, none)
    is_directed = low > none if is_above else high < none
    is_strict = none in (least, greatest)
    is_reproduced = least <= low and high <= greatest and (is_directed or not is_strict)
    is_outside = high < least or low > greatest
    if is_reproduced:
        return Verdict.REPRODUCED
    if is_outside and is_directed:
        return Verdict.OTHER_SIZE
    if is_outside:
        return Verdict.CONTRADICTED
    return Verdict.INCONCLUSIVE


def _none(claim: Claim, logarithmic: bool) -> float:
    if isinstance(claim, OrderClaim):
        return 1.0 if logarithmic else 0.0
    return claim.none


def _accepted(claim: Claim, none: float) -> tuple[float, float]:
    match claim:
        case SizeClaim():
            return claim.accepted
        case BoundClaim() if claim.at_most is not None:
            return -math.inf, claim.bound
        case BoundClaim():
            return claim.bound, math.inf
        case OrderClaim():
            return none, math.inf


def _rises(claim: Claim, none: float) -> bool:
    """Whether the claimed effect makes the measure greater than it is without."""
    match claim:
        case SizeClaim():
            return claim.reported > none
        case BoundClaim():
            return claim.at_least is not None
        case OrderClaim():
            return True


def _p(claim: Claim, estimate: Estimate, logarithmic: bool) -> float:
    """The least level at which the interval would hold no edge of what is accepted."""
    measured, none = estimate.interval, _none(claim, logarithmic)
    if measured.value is None or measured.low is None:
        return 1.0
    least, greatest = _accepted(claim, none)
    if measured.low == measured.high:
        is_open = decide(claim, measured, logarithmic=logarithmic) is Verdict.INCONCLUSIVE
        return 1.0 if is_open else 0.0
    edges = [estimate.p_value(edge) for edge in (least, greatest) if math.isfinite(edge)]
    return max(edges)


def overall(verdicts: Sequence[Verdict | None]) -> Verdict | None:
    """The verdict on a recipe from those on its claims; None if a claim that decides has none."""
    main = verdicts[0] if verdicts else None
    if main is not Verdict.REPRODUCED:
        return main
    if None in verdicts:
        return None
    return main if set(verdicts) == {main} else Verdict.OTHER_SIZE
