"""The offsets and drifts of clocks, from bounds that packets set.

A packet leaves after it came in. So each packet that two captures saw bounds the offset of their
clocks from one side, and packets of the other direction bound it from the other side. All bounds
are a system of difference constraints; shortest paths give the tightest ones. Where the clocks
drift, the bounds are points in the plane of time and offset. A clock is a line between the upper
and the lower points (Moon, Skelly and Towsley, INFOCOM 1999; Zhang, Liu and Xia, INFOCOM 2002).

Where packets go only one way between two captures, one side has no bound, and the shortest sojourn
time is assumed to be zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from outcast.analysis.join.packets import Crossing
from outcast.analysis.machine_code import I64

F64 = npt.NDArray[np.float64]

POINTS = 256
"""The number of stretches of time. The tightest bound of each counts."""
STAMP_NS = 1_000
"""Stamps are whole microseconds in most captures, so a bound can be off by this."""
MOST_DRIFT = 1e-3
"""No machine's clock is faster or slower by more."""
LEAST_SPAN_NS = 50_000_000
"""Shorter captures show no drift."""


@dataclass(frozen=True, slots=True)
class Clock:
    """What to add to a capture's stamps: `offset_ns + drift * (stamp - origin_ns)`.

    Attributes:
        low_ns, high_ns: the bounds of the offset; None where it is missing.
        drift_low, drift_high: the bounds of the drift; None where it is missing.
    """

    offset_ns: int = 0
    drift: float = 0.0
    origin_ns: int = 0
    low_ns: int | None = None
    high_ns: int | None = None
    drift_low: float | None = None
    drift_high: float | None = None

    @property
    def is_right(self) -> bool:
        return not self.offset_ns and not self.drift

    @property
    def error_ns(self) -> int | None:
        """By how much the offset can be wrong; None if nothing bounds it."""
        if self.low_ns is None or self.high_ns is None:
            return None
        return max(self.high_ns - self.offset_ns, self.offset_ns - self.low_ns)

    @property
    def drift_error(self) -> float | None:
        """By how much the drift can be wrong; None if no packets of both directions bound it."""
        if self.drift_low is None or self.drift_high is None:
            return None
        return max(self.drift_high - self.drift, self.drift - self.drift_low)

    def correct(self, stamps: I64) -> I64:
        shifted: I64 = np.add(stamps, self.offset_ns) if self.offset_ns else stamps
        if self.drift:
            shifted = shifted + np.rint((stamps - self.origin_ns) * self.drift).astype(np.int64)
        return shifted


RIGHT = Clock()
"""A clock that is not corrected."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """The two captures that contradict each other most, where no clocks satisfy all bounds."""

    first: int
    second: int
    by_ns: int


def solve(captures: int, reference: int, found: Sequence[Crossing]) -> list[Clock] | Contradiction:
    """Clocks of all captures within the bounds, on the clock of `reference`.

    As many captures as possible keep their clocks.
    """
    drifts = _drifts(captures, reference, found)
    drifts = [replace(clock, origin_ns=_origin(index, found)) for index, clock in enumerate(drifts)]
    straight = [crossing.on(drifts) for crossing in found]
    bounds = _bounds(captures, straight)
    nearest = _shortest(bounds + STAMP_NS)
    if (np.diag(nearest) < 0).any():
        return _worst(bounds)
    clocks = []
    for index, shift in enumerate(_choose(nearest, reference, straight)):
        low, high = -nearest[reference, index], nearest[index, reference]
        clocks.append(
            replace(
                drifts[index],
                offset_ns=round(shift),
                low_ns=int(low) if np.isfinite(low) else None,
                high_ns=int(high) if np.isfinite(high) else None,
            )
        )
    return clocks


def _origin(index: int, found: Sequence[Crossing]) -> int:
    """The time at which a capture's offset is stated: its first packet in the sample."""
    came_ns = [crossing.came_ns for crossing in found if crossing.came == index]
    left_ns = [crossing.left_ns for crossing in found if crossing.left == index]
    return min((int(stamps.min()) for stamps in (*came_ns, *left_ns)), default=0)


# --- drift


def _drifts(captures: int, reference: int, found: Sequence[Crossing]) -> list[Clock]:
    """The drift of each capture's clock against the reference's; only the drift is filled in."""
    result = [RIGHT] * captures
    slopes = _slopes(captures, found)
    known = {reference}
    while True:
        # The nearest capture whose drift against a known one is bounded best.
        edges = [
            (high - low, first, other)
            for (first, other), (_, low, high) in slopes.items()
            if (first in known) != (other in known)
        ]
        if not edges:
            return result
        _, first, other = min(edges)
        best, low, high = slopes[first, other]
        anchor, new, sign = (other, first, 1.0) if other in known else (first, other, -1.0)
        base = result[anchor].drift
        bounds = sorted((base + sign * low, base + sign * high))
        drift = 0.0 if bounds[0] <= 0 <= bounds[1] else base + sign * best()
        result[new] = Clock(drift=drift, drift_low=bounds[0], drift_high=bounds[1])
        known.add(new)


_Slope = tuple[Callable[[], float], float, float]
"""A function that computes the best slope, which few clocks need, and the bounds of slopes."""


def _slopes(captures: int, found: Sequence[Crossing]) -> dict[tuple[int, int], _Slope]:
    """The drift of the first correction minus the second, of captures with packets both ways."""
    by_ends = {(crossing.came, crossing.left): crossing for crossing in found}
    result = {}
    for (first, second), there in by_ends.items():
        back = by_ends.get((second, first))
        if first > second or back is None:
            continue
        # The stamps of the first are the axis of time for both directions.
        above = _tightest(there.came_ns, there.delay_ns)
        below = _tightest(back.left_ns, back.delay_ns)
        if max(np.ptp(above[0]), np.ptp(below[0])) < LEAST_SPAN_NS:
            continue
        slope = _slope(above[0], above[1] + STAMP_NS, below[0], -below[1] - STAMP_NS)
        if slope is not None:
            result[first, second] = slope
    return result


def _tightest(time: I64, bound: I64) -> tuple[F64, F64]:
    """The time and value of the least bound of each stretch of time."""
    windows = min(POINTS, max(1, time.size // 4))
    order = np.argsort(time, kind="stable")
    starts = np.linspace(0, order.size, windows + 1).astype(np.int64)
    stretches = [order[first:last] for first, last in pairwise(starts.tolist()) if last > first]
    rows = [int(mine[bound[mine].argmin()]) for mine in stretches]
    return time[rows].astype(np.float64), bound[rows].astype(np.float64)


def _slope(above_at: F64, above: F64, below_at: F64, below: F64) -> _Slope | None:
    """The slopes of lines that pass below all of `above` and over all of `below`; None without any.

    The best line is nearest to the points of that side whose points are nearest to a line.
    """
    origin = min(above_at.min(), below_at.min())
    above_at, below_at = above_at - origin, below_at - origin
    apart = above_at[:, None] - below_at[None, :]
    rise = above[:, None] - below[None, :]
    if (rise[apart == 0] < 0).any():
        return None
    later, earlier = apart > 0, apart < 0
    high = float((rise[later] / apart[later]).min()) if later.any() else MOST_DRIFT
    low = float((rise[earlier] / apart[earlier]).max()) if earlier.any() else -MOST_DRIFT
    low, high = max(low, -MOST_DRIFT), min(high, MOST_DRIFT)
    if low > high:
        return None

    def away(slope: float) -> float:
        over, under = above - slope * above_at, below - slope * below_at
        return min(float(np.median(over) - over.min()), float(under.max() - np.median(under)))

    def best() -> float:
        return float(min(np.linspace(low, high, 201).tolist(), key=away))

    return best, low, high


# --- offsets


def _bounds(captures: int, found: Sequence[Crossing]) -> F64:
    """bounds[i, j] is the most by which the correction of i can exceed that of j."""
    bounds = np.full((captures, captures), np.inf)
    np.fill_diagonal(bounds, 0)
    for crossing in found:
        least = float(crossing.delay_ns.min())
        bounds[crossing.came, crossing.left] = min(bounds[crossing.came, crossing.left], least)
    return bounds


def _shortest(bounds: F64) -> F64:
    """The tightest bounds that follow (Floyd and Warshall). Negative on the diagonal: none."""
    nearest = bounds.copy()
    np.fill_diagonal(nearest, np.minimum(np.diag(nearest), 0))
    for middle in range(len(nearest)):
        np.minimum(nearest, nearest[:, middle, None] + nearest[None, middle, :], out=nearest)
    return nearest


def _worst(bounds: F64) -> Contradiction:
    """The two captures whose packets contradict each other most."""
    both = bounds + bounds.T
    first, second = divmod(int(both.argmin()), len(both))
    by_ns = -int(both[first, second])
    if by_ns <= 0:
        by_ns = -int(np.diag(_shortest(bounds)).min())
    return Contradiction(first, second, by_ns)


def _tightened(nearest: F64, first: int, second: int, most: float) -> F64 | None:
    """The bounds if `first` exceeds `second` by at most `most`; None if that is impossible."""
    if most >= nearest[first, second]:
        return nearest
    if most + nearest[second, first] < 0:
        return None
    through = nearest[:, first, None] + most + nearest[None, second, :]
    return np.minimum(nearest, through)


def _fixed(nearest: F64, index: int, reference: int, value: float) -> F64 | None:
    """The bounds if the correction of `index` is `value` above that of the reference."""
    above = _tightened(nearest, index, reference, value)
    return None if above is None else _tightened(above, reference, index, -value)


def _choose(nearest: F64, reference: int, found: Sequence[Crossing]) -> list[float]:
    """A correction for each capture within the bounds.

    A capture keeps its clock if possible. Otherwise it gets the middle between the bounds, or the
    one bound that it has, so that the shortest sojourn time is zero.
    """
    shifts = [0.0] * len(nearest)
    open_ = [index for index in range(len(nearest)) if index != reference]
    ways = {(crossing.came, crossing.left) for crossing in found}
    width = nearest[:, reference] + nearest[reference, :]
    # The capture nearest to a bound keeps its clock first: there packets seem to pass the switch in
    # no time, as they do with right clocks.
    margin = np.minimum(np.abs(nearest[:, reference]), np.abs(nearest[reference, :]))
    for index in sorted(open_, key=lambda index: float(margin[index])):
        kept = _fixed(nearest, index, reference, 0.0)
        if kept is not None:
            nearest = kept
            open_.remove(index)
    for index in sorted(open_, key=lambda index: float(width[index])):
        low, high = -nearest[reference, index], nearest[index, reference]
        into, out_of = (index, reference) in ways, (reference, index) in ways
        if not np.isfinite(low) or (into and not out_of):
            value = high
        elif not np.isfinite(high) or (out_of and not into):
            value = low
        else:
            value = (low + high) / 2
        if not np.isfinite(value):
            continue
        shifts[index] = float(value)
        closer = _fixed(nearest, index, reference, float(value))
        nearest = nearest if closer is None else closer
    return shifts
