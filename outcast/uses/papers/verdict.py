"""The rule: a verdict on a claim, from the values of all its seeds.

A claim has one value for each seed: a measure, or what two measures of the seed give (a quotient;
of an order of other measures than ratios the difference). It accepts the values from a least to a
greatest one, and has a value without the effect, `none`. Every seed counts, whatever it shows.

* The number is the median over seeds. Its 95 % interval is exact, by order statistics.
* An *edge*, the least or the greatest accepted value, is tested by the exact two-sided sign test:
  how many seeds lie on the accepted side of it. So p is at most 0.05 just where the interval leaves
  the edge out. An edge that is `none` itself is not accepted, as in "more than its share".
* *Reproduced*: most seeds lie on the accepted side of each edge, each with a p of at most 0.05. So
  a size is reproduced if the median's interval lies within the recipe's factor.
* *Same direction, other size*: the test leaves the median beyond an edge, and most seeds are on the
  reported side of `none`, which is no edge, with a p of at most 0.05.
* *Contradicted*: the median is beyond an edge, and the direction is not shown.
* *Inconclusive*: otherwise. *No verdict*: fewer than six seeds, because five cannot decide.

p is the greatest of the tests that a verdict rests on.

A claim about one point has a *control*, a point without the effect, and is compared with it seed by
seed, by the same test. What is not beyond its control is *inconclusive* instead of reproduced, and
*contradicted* instead of another size. If the control is accepted too, the claim *says nothing*;
but where `none` is an edge it stands if most seeds are over twice as far from `none` as the control
is. Without six seeds of the control a claim only *agrees, control not run*.

Where the seeds of a ratio have two modes, the page shows the share of the seeds in each, with
Clopper's and Pearson's exact interval, and no median. The test is the same.

families.py takes the claims of a family together, and corrects p for all families of a page.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from outcast.analysis import Interval, probability
from outcast.uses.papers.claims import LEAST_RUNS, Claim, control_of

RATE = 0.05
"""A p up to this is conclusive."""
APART = 4.0
"""Two groups are apart if no value lies within this factor between them."""


class Verdict(StrEnum):
    """The verdicts on what could be judged; the module's docstring has the rule."""

    REPRODUCED = "reproduced"
    UNCONTROLLED = "agrees, control not run"
    OTHER_SIZE = "same direction, other size"
    MIXED = "mixed"
    INCONCLUSIVE = "inconclusive"
    VACUOUS = "says nothing"
    CONTRADICTED = "contradicted"


def verdict_text(verdict: Verdict | None) -> str:
    return "no verdict" if verdict is None else str(verdict)


def number(value: float) -> str:
    """The value with three digits; from a million on in the form `313 M`."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:.3g} M"
    # Python writes 1,690 as 1.69e+03.
    digits = f"{value:.3g}"
    return f"{float(digits):,.0f}" if "e+" in digits else digits


@dataclass(frozen=True, slots=True)
class Judged:
    """The median of a claim's value, the verdict on it, and its p; None with too few seeds."""

    measured: Interval
    verdict: Verdict | None = None
    p: float | None = None
    note: str = ""


def median(values: Sequence[float]) -> Interval:
    """The median of the values that are known, with its exact 95 % interval from six values on."""
    known = sorted(value for value in values if not math.isnan(value))
    n = len(known)
    if not n:
        return Interval(0, None, None, None)
    # An infinite quotient on either side of the middle has no mean.
    low, high = known[(n - 1) // 2], known[n // 2]
    middle = low if low == high else (low + high) / 2
    outside = _beyond_interval(n)
    bounds = (known[outside - 1], known[n - outside]) if outside else (None, None)
    return Interval(n, middle, *bounds)


@functools.cache
def _beyond_interval(n: int) -> int:
    """How many of the least, and of the greatest values are in no interval, with its end."""
    from scipy.stats import binom

    return int(binom.ppf(RATE / 2, n, 0.5))


@functools.cache
def sign_test(these: int, of: int) -> tuple[bool, float]:
    """Whether most seeds are among these, and the exact two-sided p of one half."""
    from scipy.stats import binomtest

    return 2 * these > of, float(binomtest(these, of).pvalue) if of else 1.0


def two_modes(values: Sequence[float]) -> str:
    """Which share of ratios is in the upper of two groups, in words; empty if there are no two.

    The widest gap parts them: a factor of `APART`, wider than each group, with two in both.
    """
    known = sorted(value for value in values if 0 < value < math.inf)
    if len(known) < max(4, len(values)):
        return ""
    logs = [math.log(value) for value in known]
    gaps = [after - before for before, after in itertools.pairwise(logs)]
    at = gaps.index(max(gaps)) + 1
    widest = max(logs[at - 1] - logs[0], logs[-1] - logs[at])
    above = len(known) - at
    if max(gaps) < max(math.log(APART), widest) or min(at, above) < 2:
        return ""
    low, high = probability(above, len(known))
    return (
        f"two modes: {above} of {len(known)} seeds from {number(known[at])} on, a share of "
        f"{number(above / len(known))} [{low:.2g}, {high:.2g}], the others up to "
        f"{number(known[at - 1])}"
    )


def judge(
    claim: Claim, seeds: Mapping[int, float], control: Mapping[int, float] | None = None
) -> Judged:
    """The verdict on a claim, from its value at each seed, and that of its control."""
    values = list(seeds.values())
    note = two_modes(values) if claim.is_ratio else ""
    judged = Judged(median(values), note=note)
    if len(values) < LEAST_RUNS:
        return judged
    verdict, p = _by_edges(claim, values)
    judged = replace(judged, verdict=verdict, p=p)
    if control_of(claim) is None or verdict not in (Verdict.REPRODUCED, Verdict.OTHER_SIZE):
        return judged
    return _against_control(claim, judged, seeds, control or {})


def _by_edges(claim: Claim, values: Sequence[float]) -> tuple[Verdict, float]:
    """The verdict by the values alone, and its p."""
    none, (least, greatest) = claim.none, claim.accepted
    tests = [
        _beyond(values, edge, rises, none)
        for edge, rises in ((least, True), (greatest, False))
        if math.isfinite(edge)
    ]
    outside = [p for most, p in tests if not most and p <= RATE]
    if not outside:
        p = max(p for _, p in tests)
        return (Verdict.INCONCLUSIVE if p > RATE else Verdict.REPRODUCED), p
    if none is not None:
        most, p = _beyond(values, none, claim.rises, none)
        if most and p <= RATE:
            return Verdict.OTHER_SIZE, max(p, *outside)
    return Verdict.CONTRADICTED, min(outside)


def _beyond(
    values: Sequence[float], edge: float, rises: bool, none: float | None
) -> tuple[bool, float]:
    """The sign test of seeds above an edge, or below it; those on it take no side if it is none."""
    beyond = sum(value > edge if rises else value < edge for value in values)
    level = sum(value == edge for value in values)
    if edge == none:
        return sign_test(beyond, len(values) - level)
    return sign_test(beyond + level, len(values))


def _against_control(
    claim: Claim, judged: Judged, seeds: Mapping[int, float], control: Mapping[int, float]
) -> Judged:
    """The verdict on a claim that has its direction, by its difference from its control."""
    none, is_reproduced = claim.none, judged.verdict is Verdict.REPRODUCED
    common = [seed for seed in seeds if seed in control]
    if len(common) < LEAST_RUNS:
        lowered = Verdict.UNCONTROLLED if is_reproduced else judged.verdict
        return replace(judged, verdict=lowered)
    without = list(control.values())
    is_same = is_reproduced and _by_edges(claim, without)[0] is Verdict.REPRODUCED
    note = f"its control has {number(median(without).value or 0.0)}"
    told = replace(judged, note="; ".join(filter(None, (judged.note, note))))
    if is_same and none not in claim.accepted:
        return replace(told, verdict=Verdict.VACUOUS)

    def reference(value: float) -> float:
        """The control's value, or that of twice its effect where both have one."""
        if none is None or not is_same:
            return value
        return value * value / none if claim.is_ratio else 2 * value - none

    apart = [seeds[seed] - reference(control[seed]) for seed in common]
    most, p = _beyond(apart, 0.0, claim.rises, 0.0)
    if most and p <= RATE:
        return replace(told if is_same else judged, p=max(judged.p or 0.0, p))
    if is_same:
        return replace(told, verdict=Verdict.VACUOUS)
    if is_reproduced:
        return replace(told, verdict=Verdict.INCONCLUSIVE, p=p if most else 1.0)
    return replace(told, verdict=Verdict.CONTRADICTED)
