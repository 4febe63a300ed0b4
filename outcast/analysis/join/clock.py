"""Clocks of captures that differ, drift or stepped, estimated from the packets themselves.

Clocks are corrected only if the stamps contradict what packets can do (`offsets`). Steps are found
and undone first. docs/join.md has the limits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from outcast.analysis.capture.pcap import PortCapture
from outcast.analysis.capture.records import MAX_STAMP_NS
from outcast.analysis.compiled import I64, Array, Bool
from outcast.analysis.join.offsets import LEAST_PAIRS, Contradiction, Offset, crossings, solve
from outcast.analysis.join.pairs import Pairs
from outcast.errors import InputError

STEP_BACK_NS = 1_000_000
"""Stamps that go back by more are a step of the clock; by less, packets were noted out of order."""
STEP_NS = 5_000_000
"""A clock stepped if sojourn times change by more than this from one packet to the next, by more
than they vary, and stay changed."""
NEAR = 25
"""How many packets before and after a step are compared."""


@dataclass(frozen=True, slots=True)
class Clock:
    """How to convert a capture's stamps to the common clock.

    Attributes:
        pieces: pairs of (first row, nanoseconds to add from there on). The first row is 0.
        drift: what to add for each nanosecond since `origin_ns`, after the pieces.
        origin_ns: a stamp at which the drift adds nothing.
    """

    pieces: tuple[tuple[int, int], ...] = ((0, 0),)
    drift: float = 0.0
    origin_ns: int = 0

    def correct(self, stamps: I64) -> I64:
        """Returns the corrected stamps. `stamps` has all rows of the capture."""
        if self.pieces == ((0, 0),) and not self.drift:
            return stamps
        corrected = stamps.copy()
        for first, last, shift in self._spans(stamps.size):
            corrected[first:last] += shift
        if self.drift:
            corrected += np.rint((corrected - self.origin_ns) * self.drift).astype(np.int64)
        return corrected

    def span(self, first_ns: int, last_ns: int) -> tuple[int, int]:
        """The corrected earliest and latest stamps of a capture."""
        ends = np.array([first_ns + self.pieces[0][1], last_ns + self.pieces[-1][1]], np.int64)
        first, last = Clock(drift=self.drift, origin_ns=self.origin_ns).correct(ends).tolist()
        return first, last

    def _spans(self, size: int) -> Iterator[tuple[int, int, int]]:
        ends = [first for first, _ in self.pieces[1:]] + [size]
        for (first, shift), last in zip(self.pieces, ends, strict=True):
            yield first, last, shift

    def shifted(self, shift_ns: int, first_row: int = 0) -> Clock:
        """Returns a clock that adds `shift_ns` more from a row on."""
        before = dict(self.pieces)
        at_row = max(row for row in before if row <= first_row)
        pieces = {row: add + (shift_ns if row >= first_row else 0) for row, add in before.items()}
        pieces[first_row] = before[at_row] + shift_ns
        return replace(self, pieces=tuple(sorted(pieces.items())))


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of captures.

    Attributes:
        clocks: for each capture, how to convert its stamps.
        offsets: for each capture, what was found; empty if the captures contradict each other.
        reference: the capture on whose clock all are.
        notes: a line on each correction.
        contradiction: what cannot be satisfied by any clocks, if there is such.
        delays: for each two captures, the corrected sojourn times of the sampled packets that
            came in at the first and left by the second.
    """

    clocks: list[Clock]
    offsets: list[Offset]
    reference: int
    notes: list[str]
    contradiction: Contradiction | None = None
    delays: tuple[tuple[int, int, I64], ...] = ()

    @property
    def stepped(self) -> bool:
        """Whether a clock stepped. By how much it did is known less well than an offset."""
        return any(len(clock.pieces) > 1 for clock in self.clocks)


def estimate(
    captures: Sequence[PortCapture], pairs: Pairs, left_flows: Sequence[Bool | None]
) -> Clocks:
    """Finds the clocks of captures, on that of the one by which most packets left.

    `left_flows` says of each capture and each of its flows whether it left there.
    """
    notes: list[str] = []
    clocks = [_without_steps_back(capture, notes) for capture in captures]
    for index in np.unique(pairs.left).tolist():
        delay = _delays(captures, clocks, pairs)
        clocks[index] = _without_shared_jumps(
            captures[index], clocks[index], delay, pairs, index, notes
        )
    for index in np.unique(pairs.came).tolist():
        delay = _delays(captures, clocks, pairs)
        clocks[index] = _without_jumps(captures[index], clocks[index], delay, pairs, index, notes)
    left_rows: list[Array] = [
        np.empty(0, np.int64) if flows is None else np.flatnonzero(flows[capture.columns.flow])
        for capture, flows in zip(captures, left_flows, strict=True)
    ]
    reference = max(range(len(captures)), key=lambda index: left_rows[index].size)
    stamps = [
        clock.correct(capture.columns.stamp_ns)
        for capture, clock in zip(captures, clocks, strict=True)
    ]
    found = crossings(pairs, stamps, left_rows)
    offsets, contradiction = solve(len(captures), reference, found)
    for index, offset in enumerate(offsets):
        if offset.offset_ns or offset.drift:
            clocks[index] = replace(
                clocks[index].shifted(offset.offset_ns),
                drift=offset.drift,
                origin_ns=offset.origin_ns + offset.offset_ns,
            )
            notes.append(_note(captures[index].port, captures[reference].port, offset))
    delay = _delays(captures, clocks, pairs)
    delays = tuple((came, left, delay[mine]) for came, left, mine in pairs.groups())
    return Clocks(clocks, offsets, reference, notes, contradiction, delays)


def _note(port: str, reference: str, offset: Offset) -> str:
    way = "ahead of" if offset.offset_ns < 0 else "behind"
    text = f"{port}: its clock is {abs(offset.offset_ns) / 1e6:.3f} ms {way} {reference}'s"
    if offset.low_ns is not None and offset.high_ns is not None:
        most = max(offset.high_ns - offset.offset_ns, offset.offset_ns - offset.low_ns)
        text += f", within {most / 1e6:.3f} ms"
    if offset.drift:
        pace = "slow" if offset.drift > 0 else "fast"
        text += f", and runs {abs(offset.drift) * 1e6:.1f} ppm {pace}"
        if offset.drift_low is not None and offset.drift_high is not None:
            most_off = max(offset.drift_high - offset.drift, offset.drift - offset.drift_low)
            text += f", within {most_off * 1e6:.1f} ppm"
    return f"{text}; corrected"


def _without_steps_back(capture: PortCapture, notes: list[str]) -> Clock:
    """Where stamps step back, assumes that time went on by the median gap."""
    stamps = capture.columns.stamp_ns
    clock = Clock()
    if not capture.steps_back:
        return clock
    gaps = np.diff(stamps)
    usual = int(np.median(gaps))
    for row in np.flatnonzero(gaps < -STEP_BACK_NS).tolist():
        clock = clock.shifted(usual - int(gaps[row]), row + 1)
        if clock.pieces[-1][1] > MAX_STAMP_NS:
            raise InputError(f"{capture.path}: its time stamps go back and forth by centuries")
        notes.append(
            f"{capture.port}: its clock stepped back by about {-int(gaps[row]) / 1e6:.3f} ms at "
            f"packet {row + 2}; corrected"
        )
    return clock


def _delays(captures: Sequence[PortCapture], clocks: Sequence[Clock], pairs: Pairs) -> I64:
    """The sojourn time of each pair."""
    delay = np.zeros(len(pairs), np.int64)
    for index, (capture, clock) in enumerate(zip(captures, clocks, strict=True)):
        stamps = clock.correct(capture.columns.stamp_ns)
        for which, rows, sign in (
            (pairs.came, pairs.came_row, -1),
            (pairs.left, pairs.left_row, 1),
        ):
            mine = which == index
            delay[mine] += sign * stamps[rows[mine]]
    return delay


def _without_shared_jumps(
    capture: PortCapture,
    clock: Clock,
    delay: I64,
    pairs: Pairs,
    index: int,
    notes: list[str],
) -> Clock:
    """Finds steps of an output's clock: sojourn times from several inputs change at once.

    A step of an input's clock changes only those from there.
    """
    here = np.flatnonzero(pairs.left == index)
    jumps = [
        jump
        for came in np.unique(pairs.came[here]).tolist()
        for jump in _jumps(here[pairs.came[here] == came], delay, pairs)
    ]
    # The narrower the rows between which sojourn times changed, the better is the change known.
    jumps.sort(key=lambda jump: jump.last - jump.first)
    while jumps:
        best = jumps.pop(0)
        same = [
            jump
            for jump in jumps
            if jump.came != best.came
            and abs(jump.exact - best.exact) <= STEP_NS
            and jump.first < best.last
            and best.first < jump.last
        ]
        if not same:
            continue
        jumps = [jump for jump in jumps if jump not in same]
        first = max(jump.first for jump in [best, *same])
        last = max(min(jump.last for jump in [best, *same]), first + 1)
        gaps = np.diff(capture.columns.stamp_ns[first : last + 1])
        row = first + 1 + int(gaps.argmax() if best.exact > 0 else gaps.argmin())
        clock = clock.shifted(-best.exact, row)
        notes.append(
            f"{capture.port}: its clock stepped by about {best.exact / 1e6:.3f} ms at packet "
            f"{row + 1}; corrected"
        )
    return clock


@dataclass(frozen=True, slots=True)
class _Jump:
    """Sojourn times from an input that change by `exact` ns between two rows of the output."""

    came: int
    first: int
    last: int
    exact: int


def _jumps(mine: Array, delay: I64, pairs: Pairs) -> Iterator[_Jump]:
    """Where sojourn times of these pairs, of one input and one output, change and stay changed."""
    if mine.size < 2 * LEAST_PAIRS:
        return
    own = delay[mine]
    sizes = np.abs(np.diff(own))
    usual = int(np.percentile(sizes, 99))
    for place in np.flatnonzero(sizes > STEP_NS + 2 * usual).tolist():
        before, after = own[max(0, place + 1 - NEAR) : place + 1], own[place + 1 :][:NEAR]
        if abs(int(np.median(after)) - int(np.median(before))) <= STEP_NS:
            continue
        first, last = int(pairs.left_row[mine[place]]), int(pairs.left_row[mine[place + 1]])
        yield _Jump(int(pairs.came[mine[0]]), first, last, int(own[place + 1] - own[place]))


def _without_jumps(
    capture: PortCapture,
    clock: Clock,
    delay: I64,
    pairs: Pairs,
    index: int,
    notes: list[str],
) -> Clock:
    """Finds steps of a clock: sojourn times that change at once and stay changed."""
    mine = np.flatnonzero(pairs.came == index)
    if mine.size < 2 * LEAST_PAIRS:
        return clock
    own = delay[mine]
    jumps = np.abs(np.diff(own))
    usual = int(np.percentile(jumps, 99))
    for place in np.flatnonzero(jumps > STEP_NS + 2 * usual).tolist():
        before, after = own[max(0, place + 1 - NEAR) : place + 1], own[place + 1 :][:NEAR]
        change = int(np.median(after)) - int(np.median(before))
        if abs(change) <= STEP_NS or pairs.left[mine[place]] != pairs.left[mine[place + 1]]:
            continue
        # The queue changes little from one packet to the next, so this change is the step.
        exact = int(own[place + 1] - own[place])
        first, last = int(pairs.came_row[mine[place]]), int(pairs.came_row[mine[place + 1]])
        if last <= first:
            continue
        gaps = np.diff(capture.columns.stamp_ns[first : last + 1])
        # If sojourn times fall, the clock leapt forward.
        row = first + 1 + int(gaps.argmax() if change < 0 else gaps.argmin())
        clock = clock.shifted(exact, row)
        own = own - np.where(pairs.came_row[mine] >= row, exact, 0)
        notes.append(
            f"{capture.port}: its clock stepped by about {-exact / 1e6:.3f} ms at packet "
            f"{row + 1}; corrected"
        )
    return clock
