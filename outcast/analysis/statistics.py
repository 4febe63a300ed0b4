"""Means over repetitions, and their confidence intervals.

Repetitions are few, so the method has to cover with few. Intervals of means are Student's t; those
of geometric means are Student's t of the logarithms. Two samples are compared by Welch's method
(Biometrika 34, 1947), which does not assume equal variances.
`benchmarks/coverage.py` compares these with two bootstraps by simulation with known truth, and
docs/steady-state.md has its table. Percentile bootstrap intervals stay for medians, to which
Student's t does not apply.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["mean", "geometric", "median"]
Floats = NDArray[np.float64]
Limits = tuple[float, float]
"""The least and the greatest value that a measure can have."""

RESAMPLES = 10_000
LEVEL = 0.95
UNLIMITED: Limits = (-math.inf, math.inf)
_SEED = 1
"""Fixed, so that the same runs give the same interval."""


@dataclass(frozen=True)
class Interval:
    """The mean, geometric mean or median of several runs, with its 95 % confidence interval.

    The value is None without runs; bounds are None for fewer than two runs.
    """

    n: int
    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class _Mean:
    """A sample's mean, the variance of that mean, and the sample's size."""

    value: float
    variance: float
    n: int

    @classmethod
    def of(cls, sample: Floats) -> _Mean:
        # The variance of equal values is 0, and no rounding may hide that.
        if not np.ptp(sample):
            return cls(float(sample[0]), 0.0, int(sample.size))
        variance = float(sample.var(ddof=1)) / sample.size if sample.size > 1 else 0.0
        return cls(float(sample.mean()), variance, int(sample.size))


def central(values: Sequence[float], kind: Kind = "mean", limits: Limits = UNLIMITED) -> Interval:
    """The central value of a sample. Its interval does not go beyond the limits.

    Raises ValueError if a geometric mean is requested and not all values are above zero.
    """
    sample = _transformed(values, kind)
    if not sample.size:
        return _nothing(0, None)
    if kind == "median":
        median = float(np.median(sample))
        return _by_bootstrap(sample.size, median, lambda: _resampled_medians(sample, _SEED))
    mean = _Mean.of(sample)
    if mean.n < 2:
        return _nothing(mean.n, _back(mean.value, kind))
    return _by_student(mean, mean.n, mean.n - 1, kind, limits)


def difference(ours: Sequence[float], theirs: Sequence[float], kind: Kind = "mean") -> Interval:
    """`ours` minus `theirs`; for geometric means, `ours` over `theirs`.

    The two samples are independent. `n` is that of the smaller sample.
    """
    minuend, subtrahend = _transformed(ours, kind), _transformed(theirs, kind)
    n = int(min(minuend.size, subtrahend.size))
    if n == 0:
        return _nothing(0, None)
    if kind == "median":
        return _by_bootstrap(
            n,
            float(np.median(minuend) - np.median(subtrahend)),
            lambda: _resampled_medians(minuend, _SEED) - _resampled_medians(subtrahend, _SEED + 1),
        )
    first, second = _Mean.of(minuend), _Mean.of(subtrahend)
    apart = _Mean(first.value - second.value, first.variance + second.variance, n)
    if n < 2:
        return _nothing(n, _back(apart.value, kind))
    return _by_student(apart, n, _welch(first, second), kind, UNLIMITED)


def probability(happened: int, trials: int) -> tuple[float, float]:
    """The exact interval of a probability at LEVEL.

    Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the
    binomial", Biometrika 26 (1934).
    """
    from scipy import special

    tail, failed = (1 - LEVEL) / 2, trials - happened
    low = special.betaincinv(happened, failed + 1, tail) if happened else 0.0
    high = special.betaincinv(happened + 1, failed, 1 - tail) if failed else 1.0
    return float(low), float(high)


def _nothing(n: int, value: float | None) -> Interval:
    return Interval(n, value, None, None)


def _by_student(mean: _Mean, n: int, freedom: float, kind: Kind, limits: Limits) -> Interval:
    value = _back(mean.value, kind)
    reach = _t_quantile(freedom) * math.sqrt(mean.variance)
    low = max(_back(mean.value - reach, kind), limits[0])
    high = min(_back(mean.value + reach, kind), limits[1])
    if math.isinf(high):
        return _nothing(n, value)
    return Interval(n, value, low, high)


def _welch(first: _Mean, second: _Mean) -> float:
    """Welch's degrees of freedom of a difference; samples have at least 2 values."""
    parts = [(first.variance, first.n), (second.variance, second.n)]
    whole = sum(variance for variance, _ in parts)
    if not whole:
        return float(min(first.n, second.n) - 1)
    # Shares of the whole, because squares of tiny variances would vanish.
    return float(1 / sum((variance / whole) ** 2 / (n - 1) for variance, n in parts))


def _t_quantile(freedom: float) -> float:
    # Imported here, because most users of this module only need the class Interval.
    from scipy import special

    return float(special.stdtrit(freedom, 1 - (1 - LEVEL) / 2))


def _transformed(values: Sequence[float], kind: Kind) -> Floats:
    sample = np.asarray(values, np.float64)
    if kind != "geometric":
        return sample
    if (sample <= 0).any():
        raise ValueError("a geometric mean needs values above zero")
    return np.log(sample)


def _back(value: float, kind: Kind) -> float:
    """The inverse of `_transformed`; infinite where it overflows, as of two runs far apart."""
    try:
        return math.exp(value) if kind == "geometric" else value
    except OverflowError:
        return math.inf


def _by_bootstrap(n: int, value: float, resampled: Callable[[], Floats]) -> Interval:
    """The percentile interval (Efron and Tibshirani, 1993, chapter 13)."""
    if n < 2:
        return _nothing(n, value)
    outside = (1 - LEVEL) / 2
    low, high = np.quantile(resampled(), [outside, 1 - outside]).tolist()
    return Interval(n, value, low, high)


def _resampled_medians(sample: Floats, seed: int) -> Floats:
    """The median of every resample. It is computed in parts to save memory."""
    draw = np.random.default_rng(seed)
    at_once = max(1, 10**6 // sample.size)
    counts = (min(at_once, RESAMPLES - begin) for begin in range(0, RESAMPLES, at_once))
    sizes = ((count, sample.size) for count in counts)
    return np.concatenate([np.median(sample[draw.integers(sample.size, size=s)], 1) for s in sizes])
