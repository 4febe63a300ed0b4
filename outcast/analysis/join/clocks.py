"""The clocks of captures: one offset and one drift for each, estimated from the packets themselves.

Clocks are corrected only if the stamps contradict what packets can do (`offsets`). Where no single
offset and drift fits, the join is refused. docs/join.md has the limits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from outcast.analysis.capture.grid import grid_ns
from outcast.analysis.capture.pcap import PortCapture
from outcast.analysis.compiled import I64, Array, Bool
from outcast.analysis.join.offsets import (
    LEAST_PAIRS,
    RIGHT,
    STAMP_NS,
    Clock,
    Contradiction,
    by_order,
    solve,
)
from outcast.analysis.join.pairs import Crossing, Pairs, crossings
from outcast.errors import UntrustedError

TWO_CLOCKS_NS = 100_000
"""If packets of all ways leave by more before they came in, directions have clocks of their own."""
LEAP_NS = 20_000
"""If waits change at once and for good by more, both ways, a clock may have stepped."""
MOST_LATE = 0.01
"""If more than this share of packets stays for longer than any can, the clocks disagree."""
STEP_BACK_NS = 1_000_000
"""Stamps that go back by more are a step of the clock; by less, packets were noted out of order."""
MOST_STEPS = 16
"""Stamps that go back more often are of two clocks, or of a file that is not in order."""

CUT = (
    "no single offset and drift fits, so a clock may have stepped; cut the files there: "
    "`editcap -A START -B STOP FILE NEW`"
)
"""What is said where a clock stepped."""
BY_DIRECTION = (
    "one what came in and one what left, as `-j adapter_unsynced` can do; capture with `-j host`"
)
"""What is said where two clocks stamped a capture."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of captures.

    Attributes:
        notes: a line on each correction.
        delays: for each two captures, the corrected sojourn times of the sampled packets that
            came in at the first and left by the second.
        remarks: a line on each file that was read as if sorted, and on what is left wrong.
        error_ns: by how much corrected stamps can be wrong; 0 if nothing was corrected, None if
            nothing bounds it.
        shown_error_ns: the same without a drift that packets neither show nor exclude.
        contradiction: what cannot be satisfied by any clocks, if there is such.
        doubts: a line on each clock that may be wrong, but need not be.
        leaps: a line on each two captures between which a clock may have stepped.
        slack_ns: by how much sooner than it came a packet may seem to leave on right clocks,
            because stamps have different units.
    """

    clocks: list[Clock]
    notes: list[str]
    delays: tuple[tuple[int, int, I64], ...]
    remarks: tuple[str, ...]
    error_ns: int | None = 0
    shown_error_ns: int | None = 0
    contradiction: Contradiction | None = None
    doubts: tuple[str, ...] = ()
    leaps: tuple[str, ...] = ()
    slack_ns: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """What clocks are estimated from.

    Attributes:
        pairs: the sampled packets that two captures saw.
        left_rows: for each capture, the rows of all packets that left by it.
        reference: the capture on whose clock all shall be.
        units_ns: the unit of each capture's stamps.
    """

    captures: Sequence[PortCapture]
    pairs: Pairs
    left_rows: Sequence[Array]
    reference: int
    units_ns: Sequence[int]

    @property
    def as_stamped(self) -> list[Clock]:
        """Clocks that correct nothing."""
        return [RIGHT] * len(self.captures)

    def slack_ns(self, came: int, output: int) -> int:
        """By how much sooner a packet may seem to leave because stamps have different units."""
        units = self.units_ns[came], self.units_ns[output]
        return 0 if units[0] == units[1] else max(units)

    def delays_ns(self, clocks: Sequence[Clock]) -> I64:
        """The sojourn time of each pair."""
        pairs = self.pairs
        delay = np.zeros(len(pairs), np.int64)
        for index, (capture, clock) in enumerate(zip(self.captures, clocks, strict=True)):
            stamps = clock.correct(capture.columns.stamp_ns)
            came, departed = pairs.came == index, pairs.left == index
            delay[came] -= stamps[pairs.came_row[came]]
            delay[departed] += stamps[pairs.left_row[departed]]
        if len(set(self.units_ns)) > 1:
            for ends, mine in pairs.groups().items():
                delay[mine] += self.slack_ns(*ends)
        return delay

    def delays_by_captures(self, clocks: Sequence[Clock]) -> tuple[tuple[int, int, I64], ...]:
        """The sojourn times by the captures where packets came in and left."""
        delay = self.delays_ns(clocks)
        return tuple((*ends, delay[mine]) for ends, mine in self.pairs.groups().items())

    def crossings(self) -> list[Crossing]:
        """The sampled pairs by captures, with stamps as they are."""
        stamps = [capture.columns.stamp_ns for capture in self.captures]
        return crossings(self.pairs, stamps, self.left_rows, self.slack_ns)


def estimate(
    captures: Sequence[PortCapture],
    pairs: Pairs,
    left_flows: Sequence[Bool | None],
    outputs: Collection[int],
    max_sojourn_ns: int,
) -> Clocks:
    """Finds the clocks of captures, on that of the output by which most packets left.

    Nothing is corrected unless the stamps contradict one clock; see `_agree`. `left_flows` tells
    for each capture and each of its flows whether it left there; None if nothing did. Raises
    UntrustedError where stamps of a capture go back, or its directions have clocks of their own.
    """
    left_rows: list[Array] = [
        np.empty(0, np.int64) if flows is None else np.flatnonzero(flows[capture.columns.flow])
        for capture, flows in zip(captures, left_flows, strict=True)
    ]
    for capture, rows in zip(captures, left_rows, strict=True):
        require_no_step_back(capture, rows)
    reference = max(sorted(outputs), key=lambda index: left_rows[index].size)
    sample = Sample(captures, pairs, left_rows, reference, _units_ns(captures))
    return _as_they_are(sample) if _agree(sample, max_sojourn_ns) else _corrected(sample)


def _as_they_are(sample: Sample) -> Clocks:
    """The clocks of captures whose stamps nothing contradicts."""
    clocks, units = sample.as_stamped, sample.units_ns
    unsorted = [
        f"{capture.path}: not in order of time, as after `mergecap -a`; read as if sorted, "
        "because its stamps agree with the other captures'. `reordercap FILE NEW` sorts it"
        for capture in sample.captures
        if _has_pieces_in_wrong_order(capture)
    ]
    return Clocks(
        clocks,
        [],
        sample.delays_by_captures(clocks),
        (*_units_remark(sample), *unsorted),
        doubts=tuple(_doubts(sample)),
        leaps=tuple(_leaps(sample, clocks)),
        slack_ns=max(units) if len(set(units)) > 1 else 0,
    )


def _corrected(sample: Sample) -> Clocks:
    """Corrects clocks. Raises UntrustedError where those of one capture's directions differ."""
    for capture in sample.captures:
        if _has_pieces_in_wrong_order(capture):
            raise _not_in_order(capture, "is")
    solved = solve(len(sample.captures), sample.reference, sample.crossings())
    if isinstance(solved, Contradiction):
        _require_one_clock_of_directions(sample)
        clocks = sample.as_stamped
        return Clocks(
            clocks, [], sample.delays_by_captures(clocks), (), None, None, contradiction=solved
        )
    error_ns = _error_ns(sample, solved, with_all=True)
    most = (
        "nothing bounds how wrong times in the switch still are"
        if error_ns is None
        else f"times in the switch are still wrong by {error_ns / 1e6:.3f} ms at most"
    )
    ports = [capture.port for capture in sample.captures]
    notes = [
        _clock_note(port, ports[sample.reference], clock)
        for port, clock in zip(ports, solved, strict=True)
        if not clock.is_right
    ]
    return Clocks(
        solved,
        notes,
        sample.delays_by_captures(solved),
        (f"clocks were corrected; {most}",),
        error_ns,
        _error_ns(sample, solved, with_all=False),
        leaps=tuple(_leaps(sample, solved)),
    )


def _agree(sample: Sample, max_sojourn_ns: int) -> bool:
    """Whether one clock can have stamped all: no packet leaves too early, and few too late.

    Nothing else counts as a contradiction. A queue can make packets wait for any time and in any
    order, so waits that grow or differ say nothing about clocks.
    """
    delays = [delay for _, _, delay in sample.delays_by_captures(sample.as_stamped)]
    return all(
        int(delay.min()) >= -STAMP_NS and float((delay > max_sojourn_ns).mean()) <= MOST_LATE
        for delay in delays
    )


def _require_one_clock_of_directions(sample: Sample) -> None:
    """Raises UntrustedError where packets of all ways leave before they came in.

    A clock of a capture moves its two directions to opposite sides.
    """
    least = {
        (came, output): int(delay.min())
        for came, output, delay in sample.delays_by_captures(sample.as_stamped)
        if delay.size >= LEAST_PAIRS
    }
    both = [(came, output) for came, output in least if (output, came) in least]
    if both and max(least.values()) < -TWO_CLOCKS_NS:
        first, second = (sample.captures[place] for place in both[0])
        raise UntrustedError(
            f"{first.path} and {second.path}: packets leave up to {-min(least.values()) / 1e6:.3f} "
            f"ms before they came in, whichever way they go; two clocks stamped the captures, "
            f"{BY_DIRECTION}"
        )


def _error_ns(sample: Sample, clocks: Sequence[Clock], *, with_all: bool) -> int | None:
    """By how much corrected stamps can be wrong; None if nothing bounds it.

    `with_all` counts what nothing showed and packets do not exclude, as clocks are known to differ:
    a drift, and clocks that were left as they are.
    """
    drifts = any(clock.drift for clock in clocks)
    with_all = with_all and not all(clock.is_right for clock in clocks)
    most = 0
    for capture, clock in zip(sample.captures, clocks, strict=True):
        if clock.is_right and not with_all:
            continue
        error_ns = clock.error_ns
        is_unbounded = with_all and drifts and clock.drift_error is None
        if error_ns is None or (is_unbounded and not clock.low_ns == clock.high_ns == 0):
            return None
        if clock.drift_error is not None and (with_all or clock.drift):
            error_ns += round(clock.drift_error * int(np.ptp(capture.columns.stamp_ns)))
        most = max(most, error_ns)
    # A sojourn time is the difference of two stamps, of which the one is the reference's.
    return most + STAMP_NS if most else 0


# --- stamps that go back


def steps_back(capture: PortCapture) -> int:
    """How often stamps go back by so much that a clock was set."""
    if not capture.steps_back:
        return 0
    return int((np.diff(capture.columns.stamp_ns) < -STEP_BACK_NS).sum())


def require_no_step_back(capture: PortCapture, left_rows: Array) -> None:
    """Raises UntrustedError where stamps go back, and not because a few packets were noted late.

    A busy kernel stamps packets, and hands them to the capture when others have been noted. Then
    stamps are soon as late as before, or those of one direction were held and stay in their order.
    After a clock stepped back, stamps take as long as it stepped, in each direction.
    """
    if not steps_back(capture) or _has_pieces_in_wrong_order(capture):
        return
    stamps = capture.columns.stamp_ns
    rows = np.flatnonzero(np.diff(stamps) < -STEP_BACK_NS)
    if rows.size > MOST_STEPS:
        sides = stamps[left_rows], np.delete(stamps, left_rows)
        if max(int((np.diff(side) < -STEP_BACK_NS).sum()) for side in sides) <= MOST_STEPS:
            raise UntrustedError(
                f"{capture.path}: its time stamps go back {rows.size:,} times by more than 1 ms, "
                f"but hardly those of one direction; two clocks stamped it, {BY_DIRECTION}"
            )
        raise _not_in_order(capture, f"goes back {rows.size:,} times by more than 1 ms, so it is")
    is_left = np.zeros(stamps.size, bool)
    is_left[left_rows] = True
    for row in rows.tolist():
        latest_ns = stamps[: row + 1].max()
        by_ns = int(latest_ns - stamps[row + 1])
        passed = np.flatnonzero(stamps[row + 1 :] >= latest_ns)
        end = row + 1 + int(passed[0]) if passed.size else stamps.size
        behind = stamps[row + 1 : end]
        if 2 * int(np.ptp(behind)) >= by_ns and any(
            behind[way[row + 1 : end]].min(initial=latest_ns)
            < stamps[: row + 1][way[: row + 1]].max(initial=0) - STEP_BACK_NS
            for way in (is_left, ~is_left)
        ):
            raise UntrustedError(
                f"{capture.path}: its time stamps go back by {by_ns / 1e6:.3f} ms at IP packet "
                f"{row + 2}; {CUT}"
            )


def _not_in_order(capture: PortCapture, how: str) -> UntrustedError:
    return UntrustedError(
        f"{capture.path}: {how} not in order of time, as after `mergecap -a`; sort it: "
        "`reordercap FILE NEW`"
    )


def _has_pieces_in_wrong_order(capture: PortCapture) -> bool:
    """Whether stamps go back only between pieces of the file that follow one another in time.

    A clock that is set back while packets go on gives times that are there twice.
    """
    if not capture.steps_back:
        return False
    stamps = capture.columns.stamp_ns
    begins = np.concatenate([[0], np.flatnonzero(np.diff(stamps) < 0) + 1])
    first = np.minimum.reduceat(stamps, begins)
    last = np.maximum.reduceat(stamps, begins)
    order = np.argsort(first, kind="stable")
    return bool((last[order][:-1] <= first[order][1:]).all())


# --- what is said of them


def _units_ns(captures: Sequence[PortCapture]) -> list[int]:
    """The unit of each capture's stamps.

    Few stamps tell none. If they fit the coarsest unit of the others, it is theirs too.
    """
    units = [max(grid_ns(capture.columns.stamp_ns), STAMP_NS) for capture in captures]
    coarsest = max(units)
    return [
        unit
        if unit == coarsest or np.any(np.diff(capture.columns.stamp_ns) % coarsest)
        else coarsest
        for capture, unit in zip(captures, units, strict=True)
    ]


def _units_remark(sample: Sample) -> Iterator[str]:
    """A line if stamps have different units, so that waits may seem to be less than nothing.

    Only a file with packets of one stamp counts as coarse: others may show regular sending.
    """
    coarse = [
        capture.port
        for capture, unit in zip(sample.captures, sample.units_ns, strict=True)
        if unit > min(sample.units_ns) and not np.diff(capture.columns.stamp_ns).all()
    ]
    if coarse:
        yield (
            f"{', '.join(coarse)}: stamps are multiples of up to {max(sample.units_ns) / 1e6:.7g} "
            "ms, and others are finer. So waits can be wrong by as much, and can seem to be less "
            "than nothing"
        )


def _doubts(sample: Sample) -> Iterator[str]:
    """A line on each clock that the order of departures would move, though nothing needs it.

    It is the clock that differs from most others that packets of the same output tell of, and the
    one that is behind if there are as many, because its packets seem to wait for longer.
    """
    behind: dict[int, list[float]] = defaultdict(list)
    for first, second, (low, high) in by_order(sample.crossings()):
        if low > STAMP_NS or high < -STAMP_NS:
            behind[first].append(low if low > 0 else high)
            behind[second].append(-behind[first][-1])
    while behind:
        index = max(behind, key=lambda index: (len(behind[index]), sum(behind[index])))
        by_ns = float(np.median(behind.pop(index)))
        yield (
            f"{sample.captures[index].port}: the order of departures would fit a first-in, "
            f"first-out queue better if its clock were {abs(by_ns) / 1e6:.3f} ms "
            f"{'ahead' if by_ns < 0 else 'behind'}; not corrected, because a queue with priorities "
            "or classes does the same. Packets of the other direction would tell"
        )
        behind = {other: shifts[1:] for other, shifts in behind.items() if shifts[1:]}


def _leaps(sample: Sample, clocks: Sequence[Clock]) -> Iterator[str]:
    """A line on each two captures between which waits change at once and for good.

    A clock that steps while a queue stands does it, and so does a queue that stands from then on.
    Waits of the other direction have to change by as much to the other side.
    """
    delay, pairs = sample.delays_ns(clocks), sample.pairs
    for (came, output), mine in pairs.groups().items():
        if mine.size < 2 * LEAST_PAIRS:
            continue
        own = delay[mine]
        # By how much all packets on the one side waited for longer than the next on the other one.
        near = sliding_window_view(own, LEAST_PAIRS)
        later = np.minimum.accumulate(own[::-1])[::-1][LEAST_PAIRS:] - near[:-1].max(axis=1)
        before = np.minimum.accumulate(own)[:-LEAST_PAIRS] - near[1:].max(axis=1)
        by_ns = max(int(later.max()), int(before.max()))
        if by_ns <= LEAP_NS:
            continue
        is_later = int(later.max()) == by_ns
        place = int(later.argmax()) + LEAST_PAIRS if is_later else int(before.argmax()) + 1
        came_row, left_row = pairs.came_row[mine[place]], pairs.left_row[mine[place]]
        back = np.flatnonzero((pairs.came == output) & (pairs.left == came))
        by_came = back[np.argsort(pairs.came_row[back], kind="stable")]
        change_ns = -by_ns if is_later else by_ns
        if any(
            _changes(delay[rows], int(np.searchsorted(place_of[rows], first)), change_ns)
            for rows, place_of, first in (
                (back, pairs.left_row, came_row),
                (by_came, pairs.came_row, left_row),
            )
        ):
            ports = " to ".join(sample.captures[index].port for index in (came, output))
            yield (
                f"{ports}: waits change at once and for good by {by_ns / 1e6:.3f} ms, those back "
                "the other way: queues changed or a clock stepped, and then waits are wrong by as "
                "much. No rate and limit are estimated; cut the files there if a clock was set"
            )


def _changes(delay: I64, place: int, by_ns: int) -> bool:
    """Whether sojourn times change by this at a place, give or take what they vary there anyway."""
    before, behind = delay[max(0, place - LEAST_PAIRS) : place], delay[place:][:LEAST_PAIRS]
    if min(before.size, behind.size) < LEAST_PAIRS:
        return False
    varies_ns = max(int(np.ptp(before)), int(np.ptp(behind)), abs(by_ns) // 2)
    return abs(int(np.median(behind)) - int(np.median(before)) - by_ns) <= varies_ns


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
