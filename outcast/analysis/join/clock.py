"""A capture's clock: how its stamps are converted, and what clocks are estimated from.

Clocks are corrected only if the stamps contradict what packets can do (`clocks`). What lies between
two steps of a clock is a capture of its own, whose clock is estimated like any other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from outcast.analysis.capture.formats import MAX_STAMP_NS
from outcast.analysis.capture.grid import grid_ns
from outcast.analysis.capture.pcap import PortCapture
from outcast.analysis.compiled import I64, Array
from outcast.analysis.join.offsets import NO_OFFSET, STAMP_NS, Offset, straightened
from outcast.analysis.join.pairs import Crossing, Pairs, crossings
from outcast.errors import InputError, UntrustedError

STEP_BACK_NS = 1_000_000
"""Stamps that go back by more are a step of the clock; by less, packets were noted out of order."""
MOST_STEPS = 16
"""So many places are looked at where a clock could have stepped."""

BY_DIRECTION = (
    "one what came in and one what left, as `-j adapter_unsynced` can do; capture with `-j host`, "
    "or convert both directions to one clock"
)
"""What is said where two clocks stamped a capture."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a capture between two steps of its clock, and how to convert its stamps.

    Attributes:
        rows: the first and the last row at which the piece can begin by what the packets tell.
        shift_ns: what to add.
        drift: what to add for each nanosecond since `origin_ns`, after the shift.
        origin_ns: a shifted stamp at which the drift adds nothing.
        found: what packets told of the offset; a part of the shift.
    """

    first_row: int = 0
    rows: tuple[int, int] = (0, 0)
    shift_ns: int = 0
    drift: float = 0.0
    origin_ns: int = 0
    found: Offset = NO_OFFSET

    def correct(self, stamps: I64) -> I64:
        """Returns the corrected stamps of the piece."""
        return straightened(np.add(stamps, self.shift_ns), self.drift, self.origin_ns)

    def moved(self, offset: Offset) -> Piece:
        """The piece with an offset that was found of its stamps as they are corrected so far."""
        return replace(
            self,
            shift_ns=self.shift_ns + offset.offset_ns,
            drift=offset.drift,
            origin_ns=offset.origin_ns + offset.offset_ns if offset.drift else 0,
            found=offset,
        )


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a clock.

    Attributes:
        by_ns: what to add to the stamps from there on.
        rows: the first and the last row that `row` can be.
    """

    by_ns: int
    row: int
    rows: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Clock:
    """How to convert a capture's stamps to the common clock: its pieces, of which one is first."""

    pieces: tuple[Piece, ...] = (Piece(),)

    def spans(self, stamps: I64) -> Iterator[tuple[Piece, I64]]:
        """The pieces with their stamps. `stamps` has all rows of the capture."""
        ends = [piece.first_row for piece in self.pieces[1:]] + [stamps.size]
        for piece, end in zip(self.pieces, ends, strict=True):
            yield piece, stamps[piece.first_row : end]

    def correct(self, stamps: I64) -> I64:
        """Returns the corrected stamps. `stamps` has all rows of the capture."""
        if not any(piece.shift_ns or piece.drift for piece in self.pieces):
            return stamps
        return np.concatenate([piece.correct(own) for piece, own in self.spans(stamps)])

    def span(self, first_ns: int, last_ns: int) -> tuple[int, int]:
        """The corrected earliest and latest stamps of a capture."""
        first = self.pieces[0].correct(np.array([first_ns], np.int64))
        last = self.pieces[-1].correct(np.array([last_ns], np.int64))
        return int(first[0]), int(last[0])

    def shifted(self, step: Step) -> Clock:
        """Returns a clock that adds more from a step on."""
        place = bisect_right([piece.first_row for piece in self.pieces], step.row)
        before, later = list(self.pieces[:place]), list(self.pieces[place:])
        if before[-1].first_row == step.row:
            later.insert(0, before.pop())
        else:
            later.insert(0, replace(before[-1], first_row=step.row, rows=step.rows))
        later = [replace(piece, shift_ns=piece.shift_ns + step.by_ns) for piece in later]
        return Clock((*before, *later))


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
        return [Clock()] * len(self.captures)

    def slack_ns(self, came: int, output: int) -> int:
        """By how much sooner a packet may seem to leave because stamps have different units."""
        units = self.units_ns[came], self.units_ns[output]
        return 0 if units[0] == units[1] else max(units)

    def stamps(self, clocks: Sequence[Clock]) -> Iterator[I64]:
        """The corrected stamps of each capture."""
        for capture, clock in zip(self.captures, clocks, strict=True):
            yield clock.correct(capture.columns.stamp_ns)

    def delays_ns(self, clocks: Sequence[Clock]) -> I64:
        """The sojourn time of each pair."""
        pairs = self.pairs
        delay = np.zeros(len(pairs), np.int64)
        for index, stamps in enumerate(self.stamps(clocks)):
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
        stamps = list(self.stamps(self.as_stamped))
        return crossings(self.pairs, stamps, self.left_rows, self.slack_ns)


def steps_back(capture: PortCapture) -> int:
    """How often stamps go back by so much that a clock was set."""
    if not capture.steps_back:
        return 0
    return int((np.diff(capture.columns.stamp_ns) < -STEP_BACK_NS).sum())


def without_steps_back(capture: PortCapture) -> Clock:
    """Where stamps step back, assumes that time went on by the median gap."""
    clock = Clock()
    if not capture.steps_back:
        return clock
    gaps = np.diff(capture.columns.stamp_ns)
    usual = int(np.median(gaps))
    for row in np.flatnonzero(gaps < -STEP_BACK_NS).tolist():
        clock = clock.shifted(Step(usual - int(gaps[row]), row + 1, (row + 1, row + 1)))
        if clock.pieces[-1].shift_ns > MAX_STAMP_NS:
            raise InputError(f"{capture.path}: its time stamps go back and forth by centuries")
    return clock


def goes_back(capture: PortCapture) -> bool:
    """Whether stamps go back, and not because a few packets were noted late.

    A busy kernel stamps packets, and hands them to the capture when others have been noted. Then
    stamps are soon as late as before. After a clock stepped back, they take as long as it stepped.
    """
    if not capture.steps_back or pieces_in_wrong_order(capture):
        return False
    stamps = capture.columns.stamp_ns
    rows = np.flatnonzero(np.diff(stamps) < -STEP_BACK_NS)
    if rows.size > MOST_STEPS:
        return True
    for row in rows.tolist():
        latest_ns = stamps[: row + 1].max()
        passed = np.flatnonzero(stamps[row + 1 :] >= latest_ns)
        behind = stamps[row + 1 :][: passed[0] if passed.size else None]
        if 2 * int(np.ptp(behind)) >= latest_ns - stamps[row + 1]:
            return True
    return False


def pieces_in_wrong_order(capture: PortCapture) -> bool:
    """Whether stamps go back only between pieces of the file that follow one another in time.

    A clock that is set back while packets go on gives times that are there twice.
    """
    stamps = capture.columns.stamp_ns
    begins = np.concatenate([[0], np.flatnonzero(np.diff(stamps) < 0) + 1])
    first = np.minimum.reduceat(stamps, begins)
    last = np.maximum.reduceat(stamps, begins)
    order = np.argsort(first, kind="stable")
    return bool((last[order][:-1] <= first[order][1:]).all())


def require_few_steps_back(capture: PortCapture, left_rows: Array) -> None:
    """Raises UntrustedError where stamps go back too often for a clock that was set."""
    stamps = capture.columns.stamp_ns
    steps = steps_back(capture)
    if steps <= MOST_STEPS:
        return
    sides = stamps[left_rows], np.delete(stamps, left_rows)
    apart = max(int((np.diff(side) < -STEP_BACK_NS).sum()) for side in sides)
    text = f"{capture.path}: its time stamps go back {steps:,} times by more than 1 ms"
    if apart <= MOST_STEPS:
        raise UntrustedError(
            f"{text}, but those of one direction hardly do. So two clocks stamped it, "
            f"{BY_DIRECTION}"
        )
    raise UntrustedError(
        f"{text}, so it is not in order of time, as after `mergecap -a`; sort it: "
        "`reordercap FILE NEW`"
    )


def units_ns(captures: Sequence[PortCapture]) -> list[int]:
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
