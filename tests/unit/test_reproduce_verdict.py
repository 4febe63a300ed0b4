from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcast.reproduce.recipe import BoundClaim, Measure, OrderClaim, SizeClaim
from outcast.reproduce.verdict import Verdict, difference, estimate, judge, overall

RATIO = Measure(kind="outcast_ratio")


def size(reported: float = 7, none: float = 1, over: str | None = None) -> SizeClaim:
    return SizeClaim(text="7 times", measure=RATIO, at="A", over=over, reported=reported, none=none)


def verdict_of(claim, values, logarithmic=True):
    return judge(claim, values, values, logarithmic=logarithmic).verdict


def test_a_size_as_reported_is_reproduced():
    assert verdict_of(size(), {"A": [6.0, 7.5, 8.0, 6.5]}) is Verdict.REPRODUCED


def test_a_size_in_the_same_direction_only():
    assert verdict_of(size(), {"A": [2.0, 2.2, 1.9, 2.1]}) is Verdict.OTHER_SIZE
    assert verdict_of(size(), {"A": [40.0, 44.0, 39.0]}) is Verdict.OTHER_SIZE


def test_a_wide_interval_that_reaches_the_reported_size_is_no_agreement():
    values = {"A": [1.5, 1.6, 1.4, 8.0]}
    found = estimate(values["A"], logarithmic=True)
    assert found.high is not None
    assert found.high > 7 / 1.5
    assert verdict_of(size(), values) is Verdict.OTHER_SIZE


def test_a_size_whose_interval_holds_no_effect_is_not_seen():
    assert verdict_of(size(), {"A": [0.9, 1.1, 1.3, 0.8]}) is Verdict.NOT_SEEN


def test_the_opposite_is_not_seen():
    assert verdict_of(size(), {"A": [0.2, 0.3, 0.25]}) is Verdict.NOT_SEEN


def test_a_reported_value_below_none():
    claim = size(reported=0.85, none=1)
    assert verdict_of(claim, {"A": [0.8, 0.84, 0.86]}) is Verdict.REPRODUCED
    assert verdict_of(claim, {"A": [1.0, 1.1, 1.2]}) is Verdict.NOT_SEEN


def test_a_single_run_supports_nothing():
    assert verdict_of(size(), {"A": [7.0]}) is None
    assert verdict_of(size(), {"A": [7.0, math.nan]}) is None
    order = OrderClaim(text="more", measure=RATIO, greater="A", lesser="B")
    assert verdict_of(order, {"A": [7.0], "B": [1.0, 1.0]}) is None


def test_no_run_gives_no_verdict():
    assert verdict_of(size(), {"A": []}) is None
    assert verdict_of(size(), {"A": [math.nan]}) is None


def test_an_order_needs_the_whole_interval_of_the_difference():
    order = OrderClaim(text="more", measure=RATIO, greater="A", lesser="B")
    assert verdict_of(order, {"A": [5.0, 6.0, 7.0], "B": [1.0, 1.1, 0.9]}) is Verdict.REPRODUCED
    assert verdict_of(order, {"A": [1.0, 3.0, 0.5], "B": [1.0, 1.1, 0.9]}) is Verdict.NOT_SEEN


def test_two_measures_of_the_same_runs_are_compared_run_by_run():
    order = OrderClaim(text="more", measure=RATIO, greater="A", lesser="A", lesser_measure=RATIO)
    more, less = [1.1, 5.1, 9.1, 30.1], [1.0, 5.0, 9.0, 30.0]
    got = judge(order, {"A": more}, {"A": less}, logarithmic=False)
    assert got.verdict is Verdict.REPRODUCED
    assert got.measured.low == pytest.approx(0.1)
    # Each lacks what the other has, so they differ by 6 and -4.
    got = judge(order, {"A": [8.0, 3.0]}, {"A": [2.0, 7.0]}, logarithmic=False)
    assert (got.measured.value, got.measured.low) == (1, -4)
    got = judge(order, {"A": [8.0, math.nan, 2.0]}, {"A": [2.0, 7.0, 1.0]}, logarithmic=True)
    assert got.measured.n == 2
    assert got.measured.value == pytest.approx(8**0.5)


def test_bounds():
    at_least = BoundClaim(text="fair", measure=RATIO, at="A", at_least=0.9)
    assert verdict_of(at_least, {"A": [0.95, 0.97, 0.99]}, False) is Verdict.REPRODUCED
    assert verdict_of(at_least, {"A": [0.85, 0.97, 0.99]}, False) is Verdict.NOT_SEEN
    at_most = BoundClaim(text="starved", measure=RATIO, at="A", at_most=0.2)
    assert verdict_of(at_most, {"A": [0.1, 0.15]}, False) is Verdict.REPRODUCED


def test_a_bound_of_zero_is_one():
    never = BoundClaim(text="never", measure=RATIO, at="A", at_most=0)
    assert verdict_of(never, {"A": [0.0, 0.0]}, False) is Verdict.REPRODUCED
    assert verdict_of(never, {"A": [0.1, 0.0]}, False) is Verdict.NOT_SEEN


def test_a_quotient_of_two_points():
    claim = size(reported=0.5, none=1, over="B")
    values = {"A": [5.0, 5.2, 4.8], "B": [10.0, 10.4, 9.6]}
    judged = judge(claim, values, values, logarithmic=False)
    assert judged.verdict is Verdict.REPRODUCED
    assert judged.measured.value == pytest.approx(0.5, rel=0.01)


def test_a_quotient_of_counts_is_that_of_their_means():
    claim = size(reported=0.25, none=1, over="B")
    values = {"A": [0.0, 2.0, 1.0, 1.0], "B": [4.0, 5.0, 3.0, 4.0]}
    judged = judge(claim, values, values, logarithmic=False)
    assert judged.measured.value == pytest.approx(0.25)
    assert judged.verdict is Verdict.REPRODUCED
    assert judge(claim, values, values, logarithmic=False) == judged


def test_a_quotient_to_nothing_is_not_seen():
    claim = size(reported=0.25, none=1, over="B")
    for values in ({"A": [0.0, 0.0], "B": [0.0, 0.0]}, {"A": [1.0, 1.0], "B": [0.0, 8.0]}):
        judged = judge(claim, values, values, logarithmic=False)
        assert judged.measured.low is None
        assert judged.verdict is Verdict.NOT_SEEN


def test_a_quotient_of_ratios_is_that_of_their_geometric_means():
    claim = size(reported=0.5, none=1, over="B")
    values = {"A": [1.0, 4.0], "B": [2.0, 8.0]}
    judged = judge(claim, values, values, logarithmic=True)
    assert judged.measured.value == pytest.approx(0.5)


def test_the_main_claim_decides_what_is_not_seen():
    seen = judge(size(), {"A": [7.0, 7.1]}, {}, logarithmic=True)
    unseen = judge(size(), {"A": [1.0, 0.9, 1.1]}, {}, logarithmic=True)
    unknown = judge(size(), {"A": []}, {}, logarithmic=True)
    assert overall([seen, seen]) is Verdict.REPRODUCED
    assert overall([seen, unseen]) is Verdict.OTHER_SIZE
    assert overall([unseen, seen]) is Verdict.NOT_SEEN
    assert overall([seen, unknown]) is None


@given(st.lists(st.floats(0.1, 100), min_size=2, max_size=20), st.booleans())
def test_an_interval_holds_its_mean(values, logarithmic):
    found = estimate(values, logarithmic=logarithmic)
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.value * (1 + 1e-9)
    assert found.value <= found.high * (1 + 1e-9)


@given(st.lists(st.floats(0.1, 100), min_size=2, max_size=10))
def test_a_point_differs_from_itself_by_nothing(values):
    found = difference(values, values, logarithmic=False)
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low <= 0 <= found.high
