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
no    a quotient from 1 / margin on; of times up to    none: worse is possible without it
worse margin
===== ================================================ ==========================================

The rule looks at the 95 % interval over the runs:

* *reproduced*: the whole interval is accepted.
* *same direction, other size*: the whole interval lies on the reported side of `none`, but nothing
  of it is accepted. The control below has a say in it too.
* *contradicted*: nothing of the interval is accepted, and it does not lie on the reported side.
* *inconclusive*: otherwise, because the interval holds both.

`none` is what is expected. What is measured without the effect is the *control*: another point of
the recipe. A claim that compares two points has it in itself. The control changes the verdict:

* *says nothing*: the claim is accepted, and so is its control. So it holds without the effect too.
  Where the bound is `none` itself, as in "more than its share", the claim says that there is more
  than no effect. It stands if its distance from `none` is shown to be over twice the control's.
* *agrees, control not run*: the claim is accepted, and no five runs show it without the effect.
* *inconclusive*: what would be reproduced does not differ surely from its control.
* *same direction, other size*, or *contradicted*: of a size that nothing of the interval has, the
  control decides whether the direction is there. It does so alone for a size whose `none` is an
  expectation. Else the interval has to lie on the reported side of `none` too.

Ratios of two points, and those of a point and its control, are compared by ranks: a few runs in
which one side has the whole link would move a mean of logarithms anywhere. Where the seeds of a
ratio at one point have two modes, the mean is no summary. Then the
seeds that the claim accepts are counted: it is reproduced if the exact interval of their share lies
above one half, of another size or contradicted if it lies below.

A claim that accepts its `none` is refused when its recipe is read (outcast/uses/papers/recipe.py).
Fewer than five runs give no verdict.

`p` is the chance of an interval that is as conclusive although the value lies on an edge of what is
accepted; of two edges, on the likelier one. `together` corrects it within a row.

A recipe has the verdict of its first claim, the main one; but *same direction, other size* if the
main claim is reproduced, or agrees, and another one does neither.

outcast/analysis/statistics.py makes the intervals. For ratios the logarithm is averaged, because
they are positive and skewed. For other measures, the quotient of two points is the quotient of
their means. Two measures of one point are compared run by run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from outcast.analysis import Interval, statistics
from outcast.analysis.statistics import UNLIMITED, Estimate, Kind, Limits
from outcast.uses.papers.claims import LEAST_RUNS, Claim, OrderClaim, SizeClaim, control_of

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
    low, high = statistics.probability(count, of)
    return f"{count} of {of} seeds meet it, a share of {count / of:.3g} [{low:.3g}, {high:.3g}]"


class Verdict(StrEnum):
    """The verdicts on what could be judged; the module's docstring has the rule."""

    REPRODUCED = "reproduced"
    UNCONTROLLED = "agrees, control not run"
    OTHER_SIZE = "same direction, other size"
    INCONCLUSIVE = "inconclusive"
    VACUOUS = "says nothing"
    CONTRADICTED = "contradicted"


_DECIDED_BY_CONTROL = (Verdict.REPRODUCED, Verdict.OTHER_SIZE)

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
    """

    claim: Claim
    measured: Interval
    verdict: Verdict | None
    p: float | None
    note: str = ""


def central(values: Sequence[float], *, logarithmic: bool, limits: Limits = UNLIMITED) -> Interval:
    """The mean of the finite values, with its interval; the geometric mean if `logarithmic`."""
    return statistics.central(_known(values), _kind(logarithmic), limits)


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
    seeds: Mapping[str, Sequence[float]] | None = None,
    lesser_seeds: Mapping[str, Sequence[float]] | None = None,
) -> Judged:
    """The verdict on one claim.

    `values` has the measure of every seed by point label; `lesser_values` the second measure of
    an order. `seeds` and `lesser_seeds` have each run's own value, where these are made to average
    as the source's.
    """
    is_order = isinstance(claim, OrderClaim)
    is_paired = isinstance(claim, OrderClaim) and claim.greater == claim.lesser
    own = values if seeds is None else seeds
    own_lesser = lesser_values if lesser_seeds is None else lesser_seeds

    def of_runs(label: str) -> list[float]:
        """The measure of each run; of two at one point, their difference or quotient."""
        if not is_paired:
            return _known(values.get(label, ()))
        every = zip(values.get(label, ()), lesser_values.get(label, ()), strict=True)
        pairs = [(a, b) for a, b in every if math.isfinite(a) and math.isfinite(b)]
        return [a / b if logarithmic else a - b for a, b in pairs]

    here, kind = of_runs(claim.at), _kind(logarithmic)
    each = here if is_paired else _known(own.get(claim.at, ()))
    is_at_one_point = is_paired or len(claim.points) == 1
    if is_at_one_point:
        estimate = statistics.estimate(here, kind, UNLIMITED if is_paired else limits)
    else:
        there = _known((lesser_values if is_order else values)[claim.points[1][0]])
        estimate = (
            statistics.estimate_difference(here, there, kind)
            if logarithmic or is_order
            else statistics.estimate_quotient(here, there)
        )
    measured = estimate.interval
    if measured.n < LEAST_RUNS:
        return Judged(claim, measured, None, None)
    if logarithmic and is_order and not is_paired:
        return _by_ranks(claim, measured, each, _known(own_lesser[claim.points[1][0]]))
    judged = (
        _by_seeds(claim, measured, each)
        if logarithmic and is_at_one_point and two_modes(each) is not None
        else Judged(
            claim,
            measured,
            decide(claim, measured, logarithmic=logarithmic),
            _p(claim, estimate, logarithmic),
        )
    )
    label = control_of(claim)
    is_expectation = isinstance(claim, SizeClaim) and not (logarithmic and claim.none == 1)
    is_other_size = is_expectation and judged.verdict is Verdict.CONTRADICTED
    if label is None or (judged.verdict not in _DECIDED_BY_CONTROL and not is_other_size):
        return judged
    control = statistics.estimate(of_runs(label), kind, limits).interval
    own_control = of_runs(label) if is_paired else _known(own.get(label, ()))
    sides = (each, own_control) if logarithmic else (here, of_runs(label))
    found = _against_control(judged, *sides, control, logarithmic)
    return replace(found, note="; ".join(filter(None, (judged.note, found.note))))


def _by_ranks(
    claim: Claim, measured: Interval, ours: Sequence[float], theirs: Sequence[float]
) -> Judged:
    """The verdict on an order of two points' ratios."""
    above, p = _ranks(ours, theirs)
    verdict = Verdict.REPRODUCED if above > 0.5 else Verdict.CONTRADICTED
    if p > 1 - statistics.LEVEL:
        verdict = Verdict.INCONCLUSIVE
    return Judged(claim, measured, verdict, p, f"greater in {100 * above:.0f} % of pairs of runs")


def _by_seeds(claim: Claim, measured: Interval, here: Sequence[float]) -> Judged:
    """The verdict on a claim of a ratio at one point whose seeds have two modes."""
    none, of = claim.without_effect(True), len(here)
    least, greatest = claim.accepted(True)
    directed = [value for value in here if (value > none if claim.rises() else value < none)]
    accepted = sum(least <= value <= greatest for value in directed)
    p, p_directed = p_of_half(accepted, of), p_of_half(len(directed), of)
    verdict = Verdict.REPRODUCED if 2 * accepted > of else Verdict.CONTRADICTED
    if p > 1 - statistics.LEVEL:
        verdict = Verdict.INCONCLUSIVE
    elif verdict is Verdict.CONTRADICTED and 2 * len(directed) > of:
        is_told = none not in (least, greatest) and p_directed <= 1 - statistics.LEVEL
        verdict, p = (Verdict.OTHER_SIZE, max(p, p_directed)) if is_told else (verdict, p)
    return Judged(claim, measured, verdict, p, f"two modes: {text(accepted, of)}")


def _against_control(
    judged: Judged,
    here: Sequence[float],
    there: Sequence[float],
    control: Interval,
    logarithmic: bool,
) -> Judged:
    """The verdict on a claim with a conclusive interval, by its difference from its control."""
    claim, verdict = judged.claim, judged.verdict
    if control.n < LEAST_RUNS:
        lowered = Verdict.UNCONTROLLED if verdict is Verdict.REPRODUCED else verdict
        return replace(judged, verdict=lowered, note="")
    none = claim.without_effect(logarithmic)
    is_split = logarithmic and two_modes(there) is not None
    of_control = (
        _by_seeds(claim, control, there).verdict
        if is_split
        else decide(claim, control, logarithmic=logarithmic)
    )
    if verdict is of_control is Verdict.REPRODUCED:
        twice = [c * c / none if logarithmic else 2 * c - none for c in there]
        p = _p_beyond(claim, here, twice, logarithmic)
        note = f"its control has {control.value:.3g}"
        if none not in claim.accepted(logarithmic) or p > 1 - statistics.LEVEL:
            return replace(judged, verdict=Verdict.VACUOUS, note=note)
        return replace(judged, p=max(judged.p or 0.0, p), note=note)
    p = _p_beyond(claim, here, there, logarithmic)
    is_beyond = p <= 1 - statistics.LEVEL
    note = "" if is_beyond else f"not told to be beyond its control, {control.value:.3g}"
    if verdict is Verdict.REPRODUCED:
        shown = verdict if is_beyond else Verdict.INCONCLUSIVE
        return replace(judged, verdict=shown, p=max(judged.p or 0.0, p), note=note)
    if is_beyond:
        return replace(judged, verdict=Verdict.OTHER_SIZE, p=max(judged.p or 0.0, p), note=note)
    return replace(judged, verdict=Verdict.CONTRADICTED, note=note)


def _p_beyond(
    claim: Claim, here: Sequence[float], there: Sequence[float], logarithmic: bool
) -> float:
    """The p of a difference in the claim's direction, of ratios by ranks; 1 in the other one."""
    if logarithmic:
        above, p = _ranks(here, there)
        return p if (above > 0.5) == claim.rises() else 1.0
    apart = statistics.estimate_difference(here, there)
    value = apart.interval.value or 0.0
    return apart.p_value(0.0) if (value > 0 if claim.rises() else value < 0) else 1.0


def _ranks(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """In which share of all pairs of runs ours is the greater one, and the p of one half.

    The greater p of two tests: that of Mann and Whitney holds where both have one shape, and that
    of Brunner and Munzel (Biometrical Journal 42, 2000) where they have not.
    """
    from scipy.stats import brunnermunzel, mannwhitneyu

    values = {*ours, *theirs}
    has_ties = len(values) < len(ours) + len(theirs)
    ranks = mannwhitneyu(ours, theirs, method="asymptotic" if has_ties else "exact")
    above, p = float(ranks.statistic) / len(ours) / len(theirs), float(ranks.pvalue)
    if len(values) == 1:
        return above, 1.0
    # The other test has no variance where all pairs agree.
    return above, p if above in (0, 1) else max(p, float(brunnermunzel(ours, theirs).pvalue))


def decide(claim: Claim, measured: Interval, *, logarithmic: bool) -> Verdict:
    """The verdict that follows from a claim's measured interval."""
    low, high, value = measured.low, measured.high, measured.value
    if low is None or high is None or value is None:
        return Verdict.INCONCLUSIVE
    none = claim.without_effect(logarithmic)
    least, greatest = claim.accepted(logarithmic)
    is_directed = low > none if claim.rises() else high < none
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


def _p(claim: Claim, estimate: Estimate, logarithmic: bool) -> float:
    """The least level at which the interval would hold no edge of what is accepted."""
    measured = estimate.interval
    if measured.value is None or measured.low is None:
        return 1.0
    if measured.low == measured.high:
        is_open = decide(claim, measured, logarithmic=logarithmic) is Verdict.INCONCLUSIVE
        return 1.0 if is_open else 0.0
    accepted = claim.accepted(logarithmic)
    edges = [estimate.p_value(edge) for edge in accepted if math.isfinite(edge)]
    return max(edges)


def overall(verdicts: Sequence[Verdict | None]) -> Verdict | None:
    """The verdict on a recipe from those on its claims; None if a claim that decides has none."""
    main = verdicts[0] if verdicts else None
    agreeing = {Verdict.REPRODUCED, Verdict.UNCONTROLLED}
    if main not in agreeing:
        return main
    if None in verdicts:
        return None
    if set(verdicts) == {main}:
        return main
    return Verdict.UNCONTROLLED if set(verdicts) <= agreeing else Verdict.OTHER_SIZE
