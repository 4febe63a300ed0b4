"""The unit of a capture's stamps, where its clock ticks more coarsely than its file could say."""

from __future__ import annotations

import numpy as np

from outcast.analysis.compiled import I64, Array

_SAMPLED = 10_000
_MOST_GAPS = 2_000
_FEW = 16
"""Fewer stamps tell no unit."""
_MUCH = 8
"""A unit is coarser than the file's own by more than this. Otherwise rounding looks like one."""


def grid_ns(stamps: I64) -> int:
    """The largest unit that divides all gaps between stamps, as far as the file's rounding shows.

    Ticks need not be whole microseconds: 1/256 s, rounded to these, is 3906250. Where no stamps
    are equal, and gaps are of few lengths or mostly the unit itself, packets were sent at regular
    times, so that is no unit.
    """
    values = np.unique(np.concatenate([stamps[:_SAMPLED], stamps[:: 1 + stamps.size // _SAMPLED]]))
    if values.size < _FEW:
        return 1
    own = int(np.gcd.reduce(values[1:] - values[0]))
    near = np.unique(stamps[:_SAMPLED])
    gaps = np.unique(np.diff(near))[:_MOST_GAPS].astype(np.float64)
    decimal = 10 ** int(np.log10(own))
    while own % decimal:
        decimal //= 10
    # A gap between two rounded stamps is off by one unit of the file at most.
    unit = _common(gaps, 1.5 * decimal) if gaps.size else float(own)
    unit = unit if unit > _MUCH * own else float(own)
    steps = np.diff(stamps[:_SAMPLED])
    regular = bool((steps != 0).all()) and (
        gaps.size < _FEW or float(np.median(np.abs(steps))) <= 1.01 * unit
    )
    return decimal if regular else round(unit)


def _common(gaps: Array, spare: float) -> float:
    """The largest number of which all gaps, in order of size, are multiples but for `spare`."""
    unit = float(gaps[0])
    products = squares = 0.0
    for gap in gaps.tolist():
        times = round(gap / unit)
        rest = abs(gap - times * unit)
        if rest > spare:
            while rest > spare:
                unit, rest = rest, abs(unit - round(unit / rest) * rest)
            if unit <= _MUCH * spare:
                return unit
            products = squares = 0.0
            times = round(gap / unit)
        # The more gaps are counted, the better is the unit known.
        products, squares = products + gap * times, squares + times * times
        unit = products / squares
    return unit
