"""Steps of clocks: where bounds of two captures exclude each other, or sojourn times jump."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from outcast.analysis.compiled import I64, Array
from outcast.analysis.join.clock import MOST_STEPS, Clock, Sample, Step
from outcast.analysis.join.offsets import LEAST_PAIRS, STAMP_NS, Contradiction, solve
from outcast.analysis.join.pairs import Crossing, Pairs, crossings

STEP_NS = 5_000_000
"""A clock stepped if sojourn times change by more than this from one packet to the next, by more
than they vary, and stay changed."""
NEAR = 25
"""How many packets before and after a step are compared."""
LEAST_BOTH = 3
"""So many packets of each way have to be on one side of a step. Otherwise two clocks may have
stamped what came in and what left."""
_FAR = 1 << 60
"""No bound: farther than any clock."""


@dataclass(frozen=True, slots=True)
class Solved:
    """Clocks by the bounds that packets leave.

    Attributes:
        tolerance_ns: by how much the bounds had to be widened, or by how much captures contradict
            each other if that does not help.
        delay_ns: the sojourn time of each sampled pair.
    """

    clocks: list[Clock]
    tolerance_ns: int
    contradiction: Contradiction | None
    delay_ns: I64


def without_steps(sample: Sample, clocks: list[Clock]) -> Solved:
    """Finds the steps of clocks.

    Where packets went both ways between two captures, stretches of time that exclude each other
    show them, however the queue was. Elsewhere sojourn times that change at once and stay changed
    do. But a queue that builds up does the same, so such a step has to end or begin a
    contradiction.
    """
    return _without_jumps(sample, _without_breaks(sample, _Guess.of(sample, clocks))).solved


def _without_breaks(sample: Sample, guess: _Guess) -> _Guess:
    """Undoes steps that bounds of both ways show."""
    for _ in range(MOST_STEPS):
        delay = sample.delays_ns(guess.clocks)
        # Half of the greatest contradiction is allowed, so that a drift is taken for no step.
        slack_ns = _most_apart(delay, sample.pairs) // 2
        if guess.solved.tolerance_ns <= STAMP_NS or slack_ns <= STAMP_NS:
            break
        breaks = _breaks(delay, sample.pairs, slack_ns)
        if not 0 < len(breaks) <= 2 * MOST_STEPS:
            # A clock that jitters, or one of what came in and another one of what left.
            break
        most = max(breaks, key=lambda jump_break: abs(jump_break.by_ns))
        causes = [step for step in breaks if {step.index, step.other} == {most.index, most.other}]
        better = guess.stepped(sample, causes, breaks, slack_ns)
        if better.merit[0] >= len(breaks):
            break
        guess = better
    return guess


def _without_jumps(sample: Sample, guess: _Guess) -> _Guess:
    """Undoes steps that only sojourn times of one direction show."""
    dismissed: set[tuple[int, int]] = set()
    for _ in range(MOST_STEPS):
        delay = sample.delays_ns(guess.clocks)
        jumps = _jumps(delay, sample.pairs)
        if guess.solved.tolerance_ns <= STAMP_NS:
            jumps = [jump for jump in jumps if _parts_what_can_be(jump, delay, sample.pairs)]
        remaining = [jump for jump in jumps if (jump[1].index, jump[1].rows[0]) not in dismissed]
        if not remaining:
            break
        # The narrower the rows between which sojourn times changed, the better is it known.
        jump = min(remaining, key=lambda jump: jump[1].rows[1] - jump[1].rows[0])
        better = guess.stepped(sample, jump, [step for other in jumps for step in other])
        if better.merit < guess.merit:
            guess = better
        else:
            dismissed.add((jump[1].index, jump[1].rows[0]))
    return guess


@dataclass(frozen=True, slots=True)
class _Guess:
    """Clocks with steps that are known roughly, and what follows from them.

    `merit` is the less, the better: breaks between captures if `slack_ns` is allowed,
    contradictions, jumps of sojourn times, mean sojourn time.
    """

    clocks: list[Clock]
    solved: Solved
    merit: tuple[int, int, int, float]

    @classmethod
    def of(cls, sample: Sample, clocks: list[Clock], slack_ns: int = _FAR) -> _Guess:
        """Solves clocks."""
        solved = _solve(sample, clocks)
        delay = solved.delay_ns
        mean_ns = float(np.abs(delay).mean()) if delay.size else 0.0
        breaks = len(_breaks(sample.delays_ns(clocks), sample.pairs, slack_ns))
        jumps = len(_jumps(delay, sample.pairs))
        return cls(clocks, solved, (breaks, solved.tolerance_ns, jumps, mean_ns))

    def stepped(
        self,
        sample: Sample,
        causes: Sequence[_Break],
        breaks: Sequence[_Break],
        slack_ns: int = _FAR,
    ) -> _Guess:
        """The best of the guesses that each undo one of the causes; this one without any.

        It was the clock of the one capture or of the other. The step is there where it leaves fewer
        contradictions, fewer jumps and shorter sojourn times.
        """
        tries = []
        for cause in causes:
            step = _step(sample, cause, breaks)
            if step is not None:
                clocks = list(self.clocks)
                clocks[cause.index] = clocks[cause.index].shifted(step)
                tries.append(_Guess.of(sample, clocks, slack_ns))
        return min(tries, key=lambda other: other.merit, default=self)


@dataclass(frozen=True, slots=True)
class _Break:
    """A step of a capture's clock that its packets in common with another one show.

    Attributes:
        rows: its rows between which it did.
        by_ns: what has to be added from there on.
        least_ns: the same, if it is as near to nothing as the bounds allow.
    """

    index: int
    other: int
    rows: tuple[int, int]
    by_ns: int
    least_ns: int


_Jump = tuple[_Break, _Break]
"""Sojourn times that change between two packets: a step of the input's clock, or the output's."""


def _jumps(delay: I64, pairs: Pairs) -> list[_Jump]:
    """Where sojourn times change and stay changed, between captures of one direction."""
    jumps = []
    groups = pairs.groups()
    for (came, output), mine in groups.items():
        if mine.size < 2 * LEAST_PAIRS or len(groups.get((output, came), ())) >= LEAST_PAIRS:
            continue
        own = delay[mine]
        sizes = np.abs(np.diff(own))
        usual = int(np.percentile(sizes, 99))
        for place in np.flatnonzero(sizes > STEP_NS + 2 * usual).tolist():
            before, after = own[max(0, place + 1 - NEAR) : place + 1], own[place + 1 :][:NEAR]
            if abs(int(np.median(after)) - int(np.median(before))) > STEP_NS:
                came_rows, left_rows = (
                    (int(rows[mine[place]]), int(rows[mine[place + 1]]))
                    for rows in (pairs.came_row, pairs.left_row)
                )
                # The queue changes little from one packet to the next.
                by_ns = int(own[place + 1] - own[place])
                of_input = _Break(came, output, came_rows, by_ns, by_ns)
                jumps.append((of_input, _Break(output, came, left_rows, -by_ns, -by_ns)))
    return jumps


def _parts_what_can_be(jump: _Jump, delay: I64, pairs: Pairs) -> bool:
    """Whether packets can have left when they did on one side of a jump only."""
    came, of_output = jump
    mine = (pairs.came == came.index) & (pairs.left == of_output.index)
    before = delay[mine & (pairs.left_row <= of_output.rows[0])]
    after = delay[mine & (pairs.left_row >= of_output.rows[1])]
    return (int(before.min()) < -STAMP_NS) != (int(after.min()) < -STAMP_NS)


@dataclass(frozen=True, slots=True)
class _Both:
    """Packets that went both ways between two captures, in the order of the first's rows.

    Attributes:
        first, second: the captures. Each two are there twice, because a step is where the rows of
            the capture are whose clock it is of.
        least, most: bounds of the first's correction minus the second's. One of them is far.
    """

    first: int
    second: int
    rows: I64
    least: I64
    most: I64

    @classmethod
    def all_of(cls, delay: I64, pairs: Pairs) -> Iterator[_Both]:
        """Those of all captures."""
        groups = pairs.groups()
        for (first, second), there in groups.items():
            back = groups.get((second, first))
            if back is None:
                continue
            rows = np.concatenate([pairs.came_row[there], pairs.left_row[back]])
            most = np.concatenate([delay[there], np.full(back.size, _FAR)])
            least = np.concatenate([np.full(there.size, -_FAR), -delay[back]])
            order = np.argsort(rows, kind="stable")
            yield cls(first, second, rows[order], least[order], most[order])

    def is_bounded(self, side: slice) -> bool:
        """Whether packets of both ways bound the clocks there."""
        there = int((self.most[side] < _FAR).sum())
        return bool(LEAST_BOTH <= there <= side.stop - side.start - LEAST_BOTH)

    def closer(self, early: slice, late: slice) -> tuple[slice, slice]:
        """The two sides of a step with all packets between that cannot be on the other side."""
        between = slice(early.stop, late.start)
        cannot = []
        for side in (early, late):
            low = int(self.least[side].max()) - 2 * STAMP_NS
            high = int(self.most[side].min()) + 2 * STAMP_NS
            if low > high:
                return early, late
            outside = (self.least[between] > high) | (self.most[between] < low)
            cannot.append(early.stop + np.flatnonzero(outside))
        nearer = int(cannot[1].max(initial=early.stop - 1)), int(cannot[0].min(initial=late.start))
        sides = slice(early.start, nearer[0] + 1), slice(nearer[1], late.stop)
        return sides if nearer[0] < nearer[1] else (early, late)

    def rises_ns(self, early: slice, late: slice) -> tuple[int, int]:
        """By how much the correction rose between two sides: likely, and at the least.

        Of what the packets nearest to it show on the one way and on the other, the one counts that
        varies less, within the bounds that all packets leave.
        """
        low = int(self.least[late].max()) - int(self.most[early].min())
        high = int(self.most[late].min()) - int(self.least[early].max())
        rises = []
        for bounds in (self.most, self.least):
            sides = [part[np.abs(part) < _FAR] for part in (bounds[early], bounds[late])]
            if min(side.size for side in sides):
                ends = sides[0][-NEAR:], sides[1][:NEAR]
                rise = int(np.median(ends[1])) - int(np.median(ends[0]))
                rises.append((sum(int(np.ptp(end)) for end in ends), rise))
        rise = min(rises)[1] if rises else 0
        return min(max(rise, low), high), min(max(0, low), high)

    def apart(self, slack_ns: int) -> list[tuple[slice, slice]]:
        """The sides of steps: packets of the one exclude those of the other by more."""
        place, found = 0, []
        while (behind := _first_apart(self.least[place:], self.most[place:], slack_ns)) >= 0:
            behind += place
            back = slice(behind, place - 1 if place else None, -1)
            before = behind - _first_apart(self.least[back], self.most[back], slack_ns)
            found.append((slice(place, before + 1), behind))
            place = behind
            if len(found) > MOST_STEPS:
                break
        ends = [*(behind for _, behind in found[1:]), self.rows.size]
        return [
            (early, slice(behind, end)) for (early, behind), end in zip(found, ends, strict=False)
        ]


def _most_apart(delay: I64, pairs: Pairs) -> int:
    """The most by which bounds of two captures exclude each other; negative if none do."""
    return max(
        (int(both.least.max()) - int(both.most.min()) for both in _Both.all_of(delay, pairs)),
        default=-_FAR,
    )


def _breaks(delay: I64, pairs: Pairs, slack_ns: int) -> list[_Break]:
    """Between which packets clocks stepped: by the fewest steps so that bounds agree."""
    breaks = []
    for both in _Both.all_of(delay, pairs):
        for early, late in both.apart(slack_ns):
            if both.is_bounded(early) or both.is_bounded(late):
                early, late = both.closer(early, late)
                rows = int(both.rows[early.stop - 1]), int(both.rows[late.start])
                rises_ns = both.rises_ns(early, late)
                breaks.append(_Break(both.first, both.second, rows, *rises_ns))
    return breaks


def _first_apart(least: I64, most: I64, slack_ns: int) -> int:
    """The first place up to which bounds exclude each other by more; -1 if there is none."""
    apart = np.maximum.accumulate(least) - np.minimum.accumulate(most) > slack_ns
    place = int(apart.argmax())
    return place if apart[place] else -1


def _step(sample: Sample, cause: _Break, breaks: Sequence[_Break]) -> Step | None:
    """The step that explains a break; None if its rows are no packets.

    Breaks of the same clock, of about the same size at the same time, tell better where it is.
    """
    same = [
        other.rows
        for other in breaks
        if other.index == cause.index
        if abs(other.by_ns - cause.by_ns) <= min(STEP_NS, abs(cause.by_ns) // 2)
        if other.rows[0] < cause.rows[1] and cause.rows[0] < other.rows[1]
    ]
    first = max(rows[0] for rows in same)
    last = max(min(rows[1] for rows in same), first + 1)
    gaps = np.diff(sample.captures[cause.index].columns.stamp_ns[first : last + 1])
    if not gaps.size:
        return None
    # What has to be added is less than nothing if the clock leapt forward.
    row = first + 1 + int(gaps.argmax() if cause.by_ns < 0 else gaps.argmin())
    return Step(cause.by_ns, row, _places(gaps, cause.least_ns, first + 1, row))


def _places(gaps: I64, by_ns: int, first_row: int, row: int) -> tuple[int, int]:
    """The first and the last row at which a clock can have stepped.

    The time from one packet to the next is not negative, neither with nor without the step.
    `gaps` are those before `first_row` and the rows that follow; `row` is the likeliest.
    """
    can_be = np.flatnonzero(gaps + by_ns >= -STAMP_NS)
    if gaps[row - first_row] < -STAMP_NS or not can_be.size:
        return row, row
    return min(first_row + int(can_be[0]), row), max(first_row + int(can_be[-1]), row)


def _solve(sample: Sample, clocks: Sequence[Clock]) -> Solved:
    """Corrects offsets and drifts, of each piece for itself."""
    owners = [index for index, clock in enumerate(clocks) for _ in clock.pieces]
    solution = solve(len(owners), owners.index(sample.reference), _by_piece(sample, clocks, owners))
    contradiction = solution.contradiction
    if contradiction is not None:
        first, second = owners[contradiction.first], owners[contradiction.second]
        contradiction = replace(contradiction, first=first, second=second)
        delays_ns = sample.delays_ns(clocks)
        return Solved(list(clocks), contradiction.by_ns, contradiction, delays_ns)
    offsets = iter(solution.offsets)
    corrected = [
        Clock(tuple(piece.moved(next(offsets)) for piece in clock.pieces)) for clock in clocks
    ]
    return Solved(corrected, solution.tolerance_ns, None, sample.delays_ns(corrected))


def _by_piece(sample: Sample, clocks: Sequence[Clock], owners: Sequence[int]) -> list[Crossing]:
    """The sampled pairs by pieces of captures; `owners` has each piece's capture."""
    starts = [np.array([piece.first_row for piece in clock.pieces[1:]], int) for clock in clocks]
    numbers = np.cumsum([0, *(len(clock.pieces) for clock in clocks)])

    def pieces_of(which: Array, rows: Array) -> Array:
        result = numbers[which].astype(np.int32)
        for index, own in enumerate(starts):
            if own.size:
                mine = which == index
                result[mine] += np.searchsorted(own, rows[mine], side="right").astype(np.int32)
        return result

    pairs = sample.pairs
    stamps = list(sample.stamps(clocks))
    return crossings(
        replace(
            pairs,
            came=pieces_of(pairs.came, pairs.came_row),
            left=pieces_of(pairs.left, pairs.left_row),
        ),
        [stamps[index] for index in owners],
        [
            part
            for rows, own in zip(sample.left_rows, starts, strict=True)
            for part in np.split(rows, np.searchsorted(rows, own))
        ],
        lambda came, output: sample.slack_ns(owners[came], owners[output]),
    )
