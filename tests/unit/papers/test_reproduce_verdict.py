"""The rule by hand-made seeds, its error rates by simulation, and families of claims."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from outcast.analysis import Measure
from outcast.uses.papers import families, result
from outcast.uses.papers.claims import BoundClaim, Claim, NoWorseClaim, OrderClaim, SizeClaim
from outcast.uses.papers.recipe import Mode, Point, Recipe, load_all
from outcast.uses.papers.verdict import RATE, Judged, Verdict, judge, median, sign_test, two_modes

YES, SIZE, OPEN, NO = (
    Verdict.REPRODUCED,
    Verdict.OTHER_SIZE,
    Verdict.INCONCLUSIVE,
    Verdict.CONTRADICTED,
)
RATIO, INDEX = Measure(kind="outcast_ratio"), Measure(kind="jain_index")
WORDS: dict[str, Any] = {"text": "t", "family": "size"}


def size(reported: float = 7, none: float = 1, **more: Any) -> SizeClaim:
    more = {"measure": RATIO, "at": "A", **more}
    return SizeClaim(**WORDS, reported=reported, none=none, **more)


def bound(none: float = 1, measure: Measure = RATIO, **which: float) -> BoundClaim:
    return BoundClaim(**WORDS, measure=measure, at="A", none=none, **which)


def order(measure: Measure = RATIO) -> OrderClaim:
    return OrderClaim(**WORDS, measure=measure, greater="A", lesser="B")


def no_worse(kind: Any = "no_worse", **more: Any) -> NoWorseClaim:
    return NoWorseClaim(**WORDS, kind=kind, measure=INDEX, at="A", over="B", margin=1.5, **more)


def judged(claim: Claim, values: Sequence[float], control: Sequence[float] | None = None) -> Judged:
    """The verdict on these seeds; the control is half of what has no effect if left out."""
    if control is None:
        weak = 0.5 if claim.rises else 2.0
        control = [(claim.none or 1.0) * weak + number / 1e6 for number in range(len(values))]
    return judge(claim, dict(enumerate(values)), dict(enumerate(control)))


def split(first: float, count: int, second: float, of: int = 10) -> list[float]:
    """As many seeds near the first value, and the others near the second."""
    rows = [first] * count + [second] * (of - count)
    return [value * (1 + number / 1e4) for number, value in enumerate(rows)]


# --- one claim


@pytest.mark.parametrize(
    ("claim", "values", "expected"),
    [
        (size(), split(7, 10, 1), YES),
        (size(), split(7, 9, 1), YES),
        (size(), split(7, 8, 1), OPEN),
        # Both edges count: two seeds beyond each leave 7 within, and the interval not.
        (size(), [*split(7, 6, 3, 8), 20, 21], OPEN),
        (size(), split(3, 10, 1), SIZE),
        (size(), split(20, 10, 1), SIZE),
        (size(), split(3, 8, 0.5), NO),
        (size(), split(0.2, 10, 1), NO),
        (size(reported=1 / 7), split(1 / 7, 10, 1), YES),
        (size(reported=1 / 7), split(0.5, 10, 1), SIZE),
        (bound(at_least=1), split(2, 9, 0.1), YES),
        (bound(at_least=1), split(2, 8, 0.1), OPEN),
        (bound(at_least=1), split(0.5, 9, 9), NO),
        (bound(at_most=1), split(0.5, 9, 9), YES),
        (bound(at_most=0.2), split(0.1, 9, 9), YES),
        (bound(at_most=0.2), split(0.5, 9, 0.1), SIZE),
        (bound(at_most=0.2), split(1.5, 9, 0.1), NO),
        # Equal to no effect is on no side; a bound that is another value can be reached.
        (bound(at_least=1), [1.0] * 10, OPEN),
        (bound(none=0.5, measure=INDEX, at_most=0), [0.0] * 10, YES),
        (order(), split(1.2, 9, 0.1), YES),
        (order(), split(0.8, 9, 1.1), NO),
        (order(INDEX), [*split(0.2, 9, -3)], YES),
        (order(INDEX), [0.0] * 9 + [0.1], OPEN),
        (no_worse(), split(0.9, 9, 0.1), YES),
        (no_worse(), split(0.5, 9, 0.9), NO),
        (no_worse(), split(9, 10, 1), YES),
        (no_worse(less_is_better=True), split(0.1, 10, 1), YES),
        (no_worse(less_is_better=True), split(2, 10, 1), NO),
        (no_worse("equal"), split(1.1, 10, 1), YES),
        (no_worse("equal"), split(2, 10, 1), NO),
        (no_worse("equal"), split(0.4, 10, 1), NO),
    ],
)
def test_seeds_are_counted(claim, values, expected):
    found = judged(claim, values)
    assert found.verdict is expected
    assert (found.p <= RATE) is (expected is not OPEN)


def test_five_seeds_give_no_verdict_and_six_can():
    for count, verdict in ((5, None), (6, YES)):
        found = judged(bound(at_least=1), [2.0] * count)
        assert (found.verdict, found.measured.n) == (verdict, count)
    assert sign_test(5, 5) == (True, 0.0625)
    assert judge(order(), {}).measured.value is None


def test_p_is_that_of_the_test_that_decides_last():
    # Nine of ten are above the lower edge of 7, and all below the upper one.
    assert judged(size(), split(7, 9, 1)).p == pytest.approx(22 / 1024)
    assert judged(size(), split(7, 10, 1)).p == pytest.approx(2 / 1024)
    # All are below the edge, and eight of nine above no effect.
    other = judged(size(), [*split(3, 9, 0, 9), 0.5], [0.1] * 10)
    assert (other.verdict, other.p) == (SIZE, pytest.approx(22 / 1024))


def test_a_loss_is_judged_by_what_is_lost():
    """T8b: 0.990 of the goodput is not 0.936 of it, though a factor of 1.06 is between them."""
    claim = size(0.064, none=0, over="B", loss=True, measure=INDEX)
    assert claim.value(0.936, 1) == pytest.approx(0.064)
    assert judged(claim, [claim.value(x, 1) for x in split(0.936, 10, 1)]).verdict is YES
    assert judged(claim, [claim.value(x, 1) for x in split(0.99, 10, 1)]).verdict is SIZE


# --- the control


ONE = [0.95, 0.96, 0.97, 0.98, 0.99, 1.0, 1.01, 1.02, 1.03, 1.04]


@pytest.mark.parametrize(
    ("claim", "values", "control", "expected"),
    [
        (bound(at_least=1), split(2, 10, 1), ONE, YES),
        (bound(at_least=1), split(2, 10, 1), ONE[:5], Verdict.UNCONTROLLED),
        (size(), split(3, 10, 1), ONE[:5], SIZE),
        # More than no effect, and not more than the control in most seeds.
        (bound(at_least=1), split(2, 10, 1), split(3, 4, 0.5), OPEN),
        (size(), split(7, 10, 1), split(9, 4, 0.5), OPEN),
        (size(), split(3, 10, 1), split(4, 4, 0.5), NO),
        # The control has the effect too, or more than half of it.
        (bound(none=0.2, at_least=0.9), split(0.95, 10, 1), split(0.94, 10, 1), Verdict.VACUOUS),
        (bound(none=0.5, at_least=1), split(9.7, 10, 1), split(1.1, 10, 1), Verdict.VACUOUS),
        (size(), split(3, 10, 1), split(7, 10, 1), NO),
        (bound(at_least=1), split(2, 10, 1), split(1.3, 10, 1), YES),
        (bound(at_least=1), split(2, 10, 1), split(1.5, 10, 1), Verdict.VACUOUS),
        (bound(at_most=1), split(0.2, 10, 1), split(0.5, 10, 1), YES),
        (bound(at_most=1), split(0.3, 10, 1), split(0.5, 10, 1), Verdict.VACUOUS),
        (bound(0, INDEX, at_least=0), split(3, 10, 1), split(1, 10, 1), YES),
        (bound(0, INDEX, at_least=0), split(1.9, 10, 1), split(1, 10, 1), Verdict.VACUOUS),
    ],
)
def test_a_control_is_compared_seed_by_seed(claim, values, control, expected):
    assert judged(claim, values, control).verdict is expected


def test_a_control_that_is_nearer_makes_p_greater():
    near = judged(bound(at_least=1), split(2, 10, 1), [*ONE[:9], 3])
    assert (near.verdict, near.p) == (YES, pytest.approx(22 / 1024))
    # What lies on the wrong side of its control has no small p, however sure that is.
    wrong = judged(size(), split(7, 10, 1), split(9, 10, 1))
    assert (wrong.verdict, wrong.p) == (Verdict.VACUOUS, pytest.approx(2 / 1024))
    beside = judged(size(), split(7, 10, 1), split(20, 10, 1))
    assert (beside.verdict, beside.p, beside.note) == (OPEN, 1.0, "its control has 20")


# --- the median and two modes


@given(st.lists(st.floats(-1e6, 1e6), min_size=6, max_size=25, unique=True), st.floats(-1e6, 1e6))
def test_the_interval_leaves_out_just_what_the_test_refuses(values, edge):
    found = median(values)
    assert found.low <= found.value <= found.high
    if edge in values:
        return
    _, p = sign_test(sum(value > edge for value in values), len(values))
    assert (p <= RATE) is not (found.low < edge < found.high)


def test_few_values_have_a_median_and_no_interval():
    assert median([]) == result.judge(order(), {}).measured
    five = median([3, math.nan, 1, 2, 5, 4])
    assert (five.n, five.value, five.low, five.high) == (5, 3, None, None)
    assert median([1, 2, 3, 4, math.inf, math.inf]).high == math.inf


@pytest.mark.parametrize(
    ("values", "upper"),
    [
        ([1.2, 0.8, 1.0, 1.5, 0.9, 1.1, 1.3, 300, 250, 400], 3),
        # The gap is less than a factor of 4, though wider than both groups.
        ([1.0, 1.1, 1.2, 4.0, 4.1, 4.2], None),
        ([1.0, 1.1, 1.2, 5.0, 5.1, 5.2], 3),
        # One outlier is no mode, a wide spread has none, and 0 is no ratio.
        ([1.2, 0.8, 1.0, 1.5, 300], None),
        ([1.0, 5.0, 25.0, 125.0, 625.0], None),
        ([0, 1.1, 1.2, 5.0, 5.1, 5.2], None),
    ],
)
def test_two_modes_have_their_shares(values, upper):
    text = two_modes(values)
    assert text.startswith(f"two modes: {upper} of {len(values)} seeds from") is bool(upper)
    assert bool(text) is bool(upper)


def test_a_claim_with_two_modes_says_so():
    assert judged(bound(at_least=1), split(3, 7, 400)).note == (
        "two modes: 3 of 10 seeds from 400 on, a share of 0.3 [0.067, 0.65], the others up to 3"
    )


# --- error rates


def rate(claim: Claim, draws: np.ndarray, verdict: Verdict, controls: np.ndarray) -> float:
    pairs = zip(draws.tolist(), controls.tolist(), strict=True)
    return float(np.mean([judged(claim, *pair).verdict is verdict for pair in pairs]))


@pytest.mark.parametrize("seeds", [6, 10, 20])
@pytest.mark.parametrize("spread", [0.1, 3.0])
def test_seeds_without_a_direction_are_rarely_reproduced(seeds, spread):
    """At most 2.5 % of each side, at the edge, however skewed the seeds are."""
    draw = np.random.default_rng(1)
    none, control = np.exp(draw.normal(0, spread, (2, 1000, seeds)))
    for claim in (bound(at_least=1), bound(at_most=1)):
        assert rate(claim, none, YES, control * (0.1 if claim.rises else 10)) <= 0.03
        assert rate(claim, none, NO, control) <= 0.03
        # As much as its control is no effect, however far from the bound both are.
        assert rate(claim, none * 50, YES, control * 50) <= 0.03
    assert rate(order(), none / control, YES, control) <= 0.03
    # A median at the edge of the size is reproduced as rarely; in its middle it can be.
    assert rate(size(), none * 7 * 1.5, YES, control) <= 0.03
    if spread < 1:
        assert rate(size(), none * 7, YES, control) > 0.5


def test_a_page_without_any_effect_has_one_wrong_family_in_twenty_at_most():
    draw = np.random.default_rng(2)
    wrong = 0
    for _ in range(400):
        of_family = [sign_test(int(k), 10)[1] for k in draw.binomial(10, 0.5, 25)]
        wrong += min(families.holm(of_family)) <= RATE
    assert wrong / 400 <= 0.08
    # The least p of ten seeds is conclusive among 25 families, and not among 26.
    assert 25 * 2 * binom.pmf(0, 10, 0.5) < RATE < 26 * 2 * binom.pmf(0, 10, 0.5)


# --- families


def record(verdict: Verdict | None, p: float | None = 0.002, **more: Any) -> result.ClaimRecord:
    words = {"text": "t", "rule": "r", "family": "size", "apart": "", "note": "", **more}
    return result.ClaimRecord(**words, median=1, low=1, high=1, p=p, verdict=verdict)


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([YES, YES], YES),
        ([YES, Verdict.UNCONTROLLED], Verdict.UNCONTROLLED),
        ([YES, SIZE, Verdict.UNCONTROLLED], SIZE),
        ([NO, NO], NO),
        ([YES, NO], Verdict.MIXED),
        ([SIZE, NO, OPEN], Verdict.MIXED),
        ([NO, OPEN], OPEN),
        ([YES, OPEN], OPEN),
        ([YES, Verdict.VACUOUS], OPEN),
        ([YES, None], None),
    ],
)
def test_a_family_is_what_all_its_claims_are(verdicts, expected):
    ps = [0.001 * (number + 1) for number in range(len(verdicts))]
    records = [record(*pair) for pair in zip(verdicts, ps, strict=True)]
    verdict, p = families.together(records)
    assert verdict is expected
    assert p == (ps[-1] if expected in (YES, NO, SIZE, Verdict.UNCONTROLLED) else None)


def made(name: str, *records: result.ClaimRecord, profile: str | None = None) -> Any:
    return result.Result.model_construct(id=name, claims=list(records), profile=profile)


def test_families_of_a_page_are_corrected_and_claims_apart_do_not_count():
    results = [
        made("A", record(YES, 0.02), record(NO, 0.001, apart="the same runs")),
        made("B", record(YES, 0.01, family="red"), record(None, None, family="sfq")),
        made("C", record(OPEN, 0.5, family="pacing"), record(YES, 0.001, family="f1")),
    ]
    found = {one.name: one for one in families.judge(results, "sources")}
    assert list(found) == ["size", "red", "sfq", "pacing"]
    # Three have a p: that of `pacing` is 1, and `f1` is on another page.
    assert (found["red"].verdict, found["red"].p) == (YES, pytest.approx(0.03))
    assert (found["size"].verdict, found["size"].p) == (YES, pytest.approx(0.04))
    assert (found["sfq"].verdict, found["pacing"].p) == (None, None)
    assert (found["size"].tally, found["size"].figures) == ("1 reproduced", "A")
    more = [*results, made("D", record(OPEN, 0.5, family="many"))]
    again = {one.name: one for one in families.judge(more, "sources")}
    assert (again["size"].verdict, again["size"].p) == (OPEN, pytest.approx(0.06))
    assert families.holm([0.03, 0.02, 0.04]) == pytest.approx([0.06, 0.06, 0.06])


def test_a_figure_without_noise_of_its_own_counts_by_its_first_profile():
    results = [made("A", record(YES)), made("A", record(NO), profile="jitter")]
    results += [made("B", record(NO, family="f6"), profile=name) for name in ("exact", "jitter")]
    found = families.over_noise(results)
    assert {noise: one.verdict for noise, one in found["size"].items()} == {"": YES, "jitter": NO}
    assert {*found["f6"]} == {"", "exact", "jitter"}


def test_every_claim_has_a_family_and_every_page_few_enough():
    pages = families.load()
    known = {name for page in pages.values() for name in page}
    named = {claim.family for each in load_all().values() for claim in each.claims}
    assert named == known
    assert max(map(len, pages.values())) <= 25
    text = Path(families.__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(text) == pages


# --- a recipe and its runs


def point_of(label: str, values: dict[str, list[Any]], **more: Any) -> result.PointRecord:
    seeds = list(range(1, len(next(iter(values.values()))) + 1))
    rest = {"config": "c", "set": {}, "seeds": seeds, **more}
    return result.PointRecord(label=label, values=values, **rest)


def recipe_with(*claims: Claim, labels: str = "AB", **settings: Any) -> Any:
    points = tuple(Point(label=label, config="c", set=settings) for label in labels)
    mode = Mode(repetitions=6)
    return Recipe.model_construct(points=points, claims=claims, without={}, quick=mode, full=mode)


def test_two_points_are_compared_seed_by_seed():
    name = result.describe(RATIO)
    points = [
        point_of("A", {name: [2.0, 3.0, 4.0, 5.0, 6.0, 7.0, None]}),
        point_of("B", {name: [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]}, seeds=[6, 5, 4, 3, 2, 1]),
    ]
    (found,) = result.evaluate(recipe_with(order()), points, "full")
    # Seed 1 has 2 and 6, and seed 6 has 7 and 1.
    assert (found.low, found.high) == (pytest.approx(1 / 3), 7.0)
    assert found.verdict is OPEN
    (index,) = result.evaluate(recipe_with(order(INDEX)), points, "full")
    assert (index.verdict, index.median) == (None, None)


def test_two_zeros_are_equal_and_nothing_else_over_zero_is():
    claim = no_worse(less_is_better=True)
    assert (order().value(3, 2), order(INDEX).value(3, 2)) == (1.5, 1)
    assert [claim.value(*pair) for pair in ((0, 0), (3, 0), (0, 3))] == [1.0, math.inf, 0.0]


def test_runs_with_other_settings_have_no_verdict():
    points = [point_of(label, {result.describe(RATIO): [7.0] * 6}) for label in "AB"]
    claim = size(control="B")
    (found,) = result.evaluate(recipe_with(claim), points, "full")
    assert found.verdict is Verdict.VACUOUS
    (older,) = result.evaluate(recipe_with(claim, duration="9s"), points, "full")
    assert (older.verdict, older.note) == (None, result.OTHER_SETTINGS)


@pytest.mark.parametrize(
    ("claim", "text"),
    [
        (size(), "outcast ratio at A: reported 7, no effect would be 1, within a factor of 1.5"),
        (size(0.1, 0, over="B", loss=True), "1 minus outcast ratio at A over B: reported 0.1"),
        (bound(at_most=1), "outcast ratio at A less than 1, which would be no effect"),
        (bound(none=0.5, at_least=1), "outcast ratio at A at least 1; no effect would be 0.5"),
        (order(), "outcast ratio at A above at B (quotient)"),
        (no_worse(), "jain index at A over B at least 0.667, the margin"),
        (no_worse("equal"), "jain index at A over B equal within a factor of 1.5"),
    ],
)
def test_a_rule_in_words(claim, text):
    assert result.rule(claim).startswith(text)
