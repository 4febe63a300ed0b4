"""Intervals of few runs hold the truth as often as docs/steady-state.md says; tests fit them."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from benchmarks import coverage
from outcast.analysis import statistics
from outcast.analysis.statistics import Interval, Kind

SAMPLES = 1500
TRUTHS = {truth.name: truth for truth in coverage.TRUTHS}
LEAST = {
    "normal: mean": 0.94,
    "lognormal, sigma 0.5: mean": 0.90,
    "lognormal, sigma 0.5: geometric mean": 0.94,
    "lognormal, sigma 1: geometric mean": 0.94,
    "skewed as outcast ratios: geometric mean": 0.89,
    "Jain's index near 1, beta(40, 2): mean": 0.90,
    "a share near 0, beta(1, 9): mean": 0.88,
    "counts, Poisson of 4: mean": 0.93,
}


@pytest.mark.parametrize("name", LEAST)
@pytest.mark.parametrize("size", coverage.SIZES)
def test_an_interval_holds_the_truth_as_often_as_stated(name, size):
    truth = TRUTHS[name]
    samples = truth.draw(np.random.default_rng(7), (SAMPLES, size))
    assert coverage.held(coverage.ours(samples, truth), truth.value) >= LEAST[name]


def test_comparisons_of_two_samples_hold_the_truth():
    for size in coverage.SIZES:
        for shares in coverage.two_samples(size, SAMPLES).values():
            assert shares["ours"] >= 0.93


def test_a_mean_and_a_difference_are_students_and_welchs():
    ours, theirs = [3.0, 4.5, 5.0, 9.0], [1.0, 1.5, 0.5]
    of_two = statistics.estimate_difference(ours, theirs)
    for estimate, tried, reference in (
        (statistics.estimate(ours), 4.0, stats.ttest_1samp(ours, 4.0)),
        (of_two, 0.0, stats.ttest_ind(ours, theirs, equal_var=False)),
    ):
        assert estimate.p_value(tried) == pytest.approx(reference.pvalue)
        bounds = reference.confidence_interval(0.95)
        assert (estimate.interval.low, estimate.interval.high) == pytest.approx(tuple(bounds))


positive = st.lists(st.floats(0.1, 1e3), min_size=2, max_size=8)


@settings(deadline=None)  # The machine may be busy.
@given(positive, positive, st.sampled_from(["mean", "geometric", "quotient"]))
def test_p_is_a_twentieth_at_the_bounds(ours, theirs, kind):
    if kind == "quotient":
        estimate = statistics.estimate_quotient(ours, theirs)
    else:
        as_kind: Kind = "geometric" if kind == "geometric" else "mean"
        estimate = statistics.estimate_difference(ours, theirs, as_kind)
    interval = estimate.interval
    assert interval.value is not None
    if interval.low is None or interval.high is None or interval.high - interval.low < 1e-6:
        return
    assert interval.low <= interval.value <= interval.high
    assert estimate.p_value(interval.value) == pytest.approx(1)
    for bound in (interval.low, interval.high):
        if bound > 1e-6 or kind == "mean":
            assert estimate.p_value(bound) == pytest.approx(0.05, rel=1e-3)


def test_a_quotient_by_what_may_be_nothing_has_no_bounds():
    some = statistics.estimate_quotient([1.0, 1.0], [0.0, 8.0])
    assert some.interval == Interval(2, 0.25, None, None)
    assert some.p_value(1.0) == 1.0
    none = statistics.estimate_quotient([1.0, 1.0], [0.0, 0.0])
    assert none.interval == Interval(2, None, None, None)


def test_an_interval_stays_within_the_measures_limits():
    near = statistics.central([0.99, 0.9, 0.999], limits=(0, 1))
    assert near.high == 1
    assert near.low < 0.9
    assert statistics.estimate_quotient([0.0, 2.0, 1.0], [8.0, 9.0, 7.0]).interval.low == 0


def test_equal_runs_have_an_interval_without_width_and_a_certain_test():
    estimate = statistics.estimate([0.1] * 5)
    assert estimate.interval == Interval(5, 0.1, 0.1, 0.1)
    assert (estimate.p_value(0.1), estimate.p_value(0.2)) == (1.0, 0.0)
    found = statistics.central([1e-3, 1e300], "geometric")
    assert (found.low, found.high) == (None, None)
    assert math.isfinite(found.value)
