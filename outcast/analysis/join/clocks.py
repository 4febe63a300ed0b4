"""The clocks of captures: one offset and one drift for each, estimated from packets.

A packet leaves after it came in. So each packet that two captures saw bounds the offset of their
clocks from one side, and packets of the other direction bound it from the other side. All bounds
are a system of difference constraints; shortest paths give the tightest ones. Where the clocks
drift, the bounds are points in the plane of time and offset. A clock is a line between the upper
and the lower points (Moon, Skelly and Towsley, INFOCOM 1999; Zhang, Liu and Xia, INFOCOM 2002).

Where packets go only one way between two captures, one side has no bound, and the shortest sojourn
time is assumed to be zero. docs/join.md has the limits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from outcast.analysis.capture.pcap import PortCapture, grid_ns
from outcast.analysis.join.packets import Crossing
from outcast.analysis.machine_code import I64, Array, Bool
from outcast.errors import UntrustedError

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


def solve(
    captures: int, reference: int, found: Sequence[Crossing]
) -> list[Clock] | tuple[int, int]:
    """Clocks of all captures within the bounds, on the clock of `reference`.

    As many captures as possible keep their clocks. Where no clocks satisfy all bounds, the two
    captures that contradict each other most.
    """
    drifts = _drifts(captures, reference, found)
    drifts = [replace(clock, origin_ns=_origin(index, found)) for index, clock in enumerate(drifts)]
    straight = [crossing.on(drifts) for crossing in found]
    bounds = _bounds(captures, straight)
    nearest = _shortest(bounds + STAMP_NS)
    if (np.diag(nearest) < 0).any():
        first, second = divmod(int((bounds + bounds.T).argmin()), captures)
        return first, second
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
    slopes = _slopes(found)
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
        drift = 0.0 if bounds[0] <= 0 <= bounds[1] else base + sign * best
        result[new] = Clock(drift=drift, drift_low=bounds[0], drift_high=bounds[1])
        known.add(new)


def _slopes(found: Sequence[Crossing]) -> dict[tuple[int, int], tuple[float, float, float]]:
    """The drift of the first correction minus the second, of captures with packets both ways.

    It is the best slope, with its bounds.
    """
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


def _slope(
    above_at: F64, above: F64, below_at: F64, below: F64
) -> tuple[float, float, float] | None:
    """The best and the extreme slopes of lines below all of `above` and over all of `below`.

    None without any. The best line is nearest to the points of that side whose points are nearest
    to a line.
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

    return float(min(np.linspace(low, high, 201).tolist(), key=away)), low, high


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


MOST_LATE = 0.01
"""The clocks disagree if a larger share of packets stays for longer than possible."""
STEP_BACK_NS = 1_000_000
"""Stamps that go back by more are a step of the clock; by less, packets were noted out of order."""
MOST_STEPS = 16
"""A file whose stamps go back more often is not in order."""

CUT = (
    "no single offset and drift fits, so the clock may have stepped: cut the file there, "
    "`editcap -A START -B STOP FILE NEW`"
)


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of captures.

    Attributes:
        notes: a line on each correction.
        remarks: a line on the errors that remain, and on units that differ.
        error_ns: the largest error of corrected stamps; 0 without corrections, None without a
            bound.
        shown_error_ns: the same without a drift that packets neither show nor exclude.
        contradiction: two captures whose packets no clocks satisfy, if there are any.
        slack_ns: how long before its arrival a packet may seem to leave although the clocks are
            right, because stamps have different units.
    """

    clocks: list[Clock]
    notes: list[str]
    remarks: tuple[str, ...]
    error_ns: int | None = 0
    shown_error_ns: int | None = 0
    contradiction: tuple[int, int] | None = None
    slack_ns: int = 0


def estimate(
    captures: Sequence[PortCapture],
    found: Sequence[Crossing],
    left_flows: Sequence[Bool | None],
    outputs: Collection[int],
    max_sojourn_ns: int,
) -> Clocks:
    """Finds the clocks of captures, relative to the output by which most packets left.

    Clocks are corrected only if a packet left before it came in, or many left too late. A queue can
    delay packets by any time and in any order, so waits that grow or differ show nothing.

    `left_flows` says for each flow of a capture whether it left there; None: no flow did. Raises
    UntrustedError where stamps of a capture go back.
    """
    left_rows: list[Array] = [
        np.empty(0, np.int64) if flows is None else np.flatnonzero(flows[capture.columns.flow])
        for capture, flows in zip(captures, left_flows, strict=True)
    ]
    for capture, rows in zip(captures, left_rows, strict=True):
        require_no_step_back(capture, rows)
    reference = max(sorted(outputs), key=lambda index: left_rows[index].size)
    units = _units_ns(captures)
    ends = [(units[crossing.came], units[crossing.left]) for crossing in found]
    found = [
        replace(crossing, slack_ns=0 if here == there else max(here, there))
        for crossing, (here, there) in zip(found, ends, strict=True)
    ]
    as_stamped = [RIGHT] * len(captures)
    if all(
        int(crossing.delay_ns.min()) >= -STAMP_NS
        and float((crossing.delay_ns > max_sojourn_ns).mean()) <= MOST_LATE
        for crossing in found
    ):
        slack_ns = max(units) if len(set(units)) > 1 else 0
        remarks = tuple(_units_remark(captures, units))
        return Clocks(as_stamped, [], remarks, slack_ns=slack_ns)
    solved = solve(len(captures), reference, found)
    if isinstance(solved, tuple):
        return Clocks(as_stamped, [], (), None, None, contradiction=solved)
    error_ns = _error_ns(captures, solved, with_all=True)
    most = "unknown" if error_ns is None else f"{error_ns / 1e6:.3f} ms at most"
    return Clocks(
        solved,
        [
            _clock_note(capture.port, captures[reference].port, clock)
            for capture, clock in zip(captures, solved, strict=True)
            if not clock.is_right
        ],
        (f"clocks were corrected; the error of times in the switch that is left is {most}",),
        error_ns,
        _error_ns(captures, solved, with_all=False),
    )


def _error_ns(
    captures: Sequence[PortCapture], clocks: Sequence[Clock], *, with_all: bool
) -> int | None:
    """The largest error of corrected stamps; None without a bound.

    `with_all` counts a drift that packets neither show nor exclude, and clocks that were left as
    they are.
    """
    drifts = any(clock.drift for clock in clocks)
    with_all = with_all and not all(clock.is_right for clock in clocks)
    most = 0
    for capture, clock in zip(captures, clocks, strict=True):
        if clock.is_right and not with_all:
            continue
        error_ns = clock.error_ns
        is_unbounded = with_all and drifts and clock.drift_error is None
        if error_ns is None or (is_unbounded and not clock.low_ns == clock.high_ns == 0):
            return None
        if clock.drift_error is not None and (with_all or clock.drift):
            error_ns += round(clock.drift_error * int(np.ptp(capture.columns.stamp_ns)))
        most = max(most, error_ns)
    # A sojourn time is the difference of two stamps, one of which is the reference's.
    return most + STAMP_NS if most else 0


# --- stamps that go back


def steps_back(capture: PortCapture) -> int:
    """How often stamps go back by a step of the clock."""
    if not capture.steps_back:
        return 0
    return int((np.diff(capture.columns.stamp_ns) < -STEP_BACK_NS).sum())


def require_no_step_back(capture: PortCapture, left_rows: Array) -> None:
    """Raises UntrustedError if stamps go back, unless a few packets were noted late.

    A busy kernel hands packets to the capture some time after it stamped them. Then the packets of
    one direction stay in order, or are soon as late as before. After a step back of the clock,
    stamps need the time of the step to reach their old values.
    """
    steps = steps_back(capture)
    if steps > MOST_STEPS:
        raise UntrustedError(
            f"{capture.path}: its time stamps go back {steps:,} times by more than 1 ms, so it is "
            "not in order of time, or two clocks stamped it; sort it, `reordercap FILE NEW`, or "
            "capture with `-j host`"
        )
    stamps = capture.columns.stamp_ns
    for side in (stamps[left_rows], np.delete(stamps, left_rows)) if steps else ():
        for row in np.flatnonzero(np.diff(side) < -STEP_BACK_NS).tolist():
            latest_ns, behind = side[: row + 1].max(), side[row + 1 :]
            by_ns = int(latest_ns - behind[0])
            passed = np.flatnonzero(behind >= latest_ns)
            behind = behind[: passed[0]] if passed.size else behind
            if 2 * int(np.ptp(behind)) >= by_ns:
                raise UntrustedError(
                    f"{capture.path}: its time stamps go back by {by_ns / 1e6:.3f} ms "
                    f"{(latest_ns - stamps[0]) / 1e9:.6f} s after the first; {CUT}. A file that is "
                    "not in order of time is sorted by `reordercap FILE NEW`"
                )


# --- remarks


def _units_ns(captures: Sequence[PortCapture]) -> list[int]:
    """The unit of each capture's stamps. Stamps that fit the coarsest unit of all have it."""
    units = [max(grid_ns(capture.columns.stamp_ns), STAMP_NS) for capture in captures]
    coarsest = max(units)
    return [
        unit
        if unit == coarsest or np.any(np.diff(capture.columns.stamp_ns) % coarsest)
        else coarsest
        for capture, unit in zip(captures, units, strict=True)
    ]


def _units_remark(captures: Sequence[PortCapture], units_ns: Sequence[int]) -> Iterator[str]:
    """A line if stamps have different units, so that waits may seem to be below 0.

    A file counts as coarse only if packets have equal stamps: others may show regular sending.
    """
    coarse = [
        capture.port
        for capture, unit in zip(captures, units_ns, strict=True)
        if unit > min(units_ns) and not np.diff(capture.columns.stamp_ns).all()
    ]
    if coarse:
        yield (
            f"{', '.join(coarse)}: stamps are multiples of up to {max(units_ns) / 1e6:.7g} ms, and "
            "others are finer, so waits are wrong by up to as much"
        )


def _clock_note(port: str, reference: str, clock: Clock) -> str:
    way = "ahead of" if clock.offset_ns < 0 else "behind"
    text = f"{port}: its clock is {abs(clock.offset_ns) / 1e6:.3f} ms {way} {reference}'s"
    if clock.error_ns is not None:
        text += f", within {clock.error_ns / 1e6:.3f} ms"
    if clock.drift:
        pace = "slow" if clock.drift > 0 else "fast"
        text += f", and runs {abs(clock.drift) * 1e6:.1f} ppm {pace}"
        if clock.drift_error is not None:
            text += f", within {clock.drift_error * 1e6:.1f} ppm"
    return f"{text}; corrected"
