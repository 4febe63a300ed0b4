"""Intervals of few runs hold the truth as often as docs/steady-state.md says; tests fit them."""

import math

import numpy as np
import pytest
from scipy import stats

from benchmarks import coverage
from outcast.analysis import statistics
from outcast.analysis.statistics import Interval

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
    for interval, reference in (
        (statistics.central(ours), stats.ttest_1samp(ours, 4.0)),
        (statistics.difference(ours, theirs), stats.ttest_ind(ours, theirs, equal_var=False)),
    ):
        bounds = reference.confidence_interval(0.95)
        assert (interval.low, interval.high) == pytest.approx(tuple(bounds))


def test_an_interval_stays_within_the_measures_limits():
    near = statistics.central([0.99, 0.9, 0.999], limits=(0, 1))
    assert near.high == 1
    assert near.low < 0.9


def test_equal_runs_have_an_interval_without_width():
    assert statistics.central([0.1] * 5) == Interval(5, 0.1, 0.1, 0.1)
    found = statistics.central([1e-3, 1e300], "geometric")
    assert (found.low, found.high) == (None, None)
    assert math.isfinite(found.value)
