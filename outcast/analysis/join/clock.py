"""Clocks of captures that differ, drift or stepped, estimated from the packets themselves.

Clocks are corrected only if the stamps contradict what packets can do (`offsets`). Steps are found
first. What lies between two steps is then a capture of its own, whose clock is estimated like any
other. docs/join.md has the limits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from outcast.analysis.capture.formats import MAX_STAMP_NS
from outcast.analysis.capture.grid import grid_ns
from outcast.analysis.capture.pcap import PortCapture
from outcast.analysis.compiled import I64, Array, Bool
from outcast.analysis.join.offsets import (
    LEAST_PAIRS,
    STAMP_NS,
    Contradiction,
    Offset,
    by_order,
    crossings,
    solve,
)
from outcast.analysis.join.pairs import Pairs
from outcast.errors import InputError, UntrustedError

STEP_BACK_NS = 1_000_000
"""Stamps that go back by more are a step of the clock; by less, packets were noted out of order."""
STEP_NS = 5_000_000
"""A clock stepped if sojourn times change by more than this from one packet to the next, by more
than they vary, and stay changed."""
NEAR = 25
"""How many packets before and after a step are compared."""
LEAST_BOTH = 3
"""So many packets of each way have to be on one side of a step. Otherwise two clocks may have
stamped what came in and what left."""
LEAP_NS = 20_000
"""If waits change at once and for good by more, a clock may have stepped."""
_FAR = 1 << 60
"""No bound: farther than any clock."""
TWO_CLOCKS_NS = 100_000
"""If packets of all ways leave by more before they came in, directions have clocks of their own."""
MOST_LATE = 0.01
"""If more than this share of packets stays for longer than any can, the clocks disagree."""
MOST_STEPS = 16
"""So many places are looked at where a clock could have stepped."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a capture between two steps of its clock, and how to convert its stamps.

    Attributes:
        rows: the first and the last row at which the piece can begin by what the packets tell.
        shift_ns: what to add.
        drift: what to add for each nanosecond since `origin_ns`, after the shift.
        origin_ns: a shifted stamp at which the drift adds nothing.
    """

    first_row: int = 0
    rows: tuple[int, int] = (0, 0)
    shift_ns: int = 0
    drift: float = 0.0
    origin_ns: int = 0

    def correct(self, stamps: I64) -> I64:
        """Returns the corrected stamps of the piece."""
        shifted: I64 = np.add(stamps, self.shift_ns)
        if self.drift:
            shifted += np.rint((shifted - self.origin_ns) * self.drift).astype(np.int64)
        return shifted


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

    def correct(self, stamps: I64) -> I64:
        """Returns the corrected stamps. `stamps` has all rows of the capture."""
        if self.pieces == (Piece(),):
            return stamps
        ends = [piece.first_row for piece in self.pieces[1:]] + [stamps.size]
        return np.concatenate(
            [
                piece.correct(stamps[piece.first_row : end])
                for piece, end in zip(self.pieces, ends, strict=True)
            ]
        )

    def span(self, first_ns: int, last_ns: int) -> tuple[int, int]:
        """The corrected earliest and latest stamps of a capture."""
        first = self.pieces[0].correct(np.array([first_ns], np.int64))
        last = self.pieces[-1].correct(np.array([last_ns], np.int64))
        return int(first[0]), int(last[0])

    def shifted(self, step: Step) -> Clock:
        """Returns a clock that adds more from a step on."""
        shift_ns, first_row = step.by_ns, step.row
        rows = [piece.first_row for piece in self.pieces]
        place = bisect_right(rows, first_row) - 1
        pieces = [
            replace(piece, shift_ns=piece.shift_ns + (shift_ns if row >= first_row else 0))
            for piece, row in zip(self.pieces, rows, strict=True)
        ]
        if rows[place] < first_row:
            split = pieces[place]
            new = replace(
                split, first_row=first_row, rows=step.rows, shift_ns=split.shift_ns + shift_ns
            )
            pieces.insert(place + 1, new)
        return Clock(tuple(pieces))


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of captures.

    Attributes:
        offsets: for each capture, what was found of its first piece; empty if the captures
            contradict each other.
        reference: the capture on whose clock all are.
        notes: a line on each correction.
        error_ns: by how much corrected stamps can be wrong, or contradict each other; 0 if nothing
            was corrected, None if nothing bounds it.
        shown_error_ns: the same without a drift that packets neither show nor exclude.
        contradiction: what cannot be satisfied by any clocks, if there is such.
        delays: for each two captures, the corrected sojourn times of the sampled packets that
            came in at the first and left by the second.
        doubts: a line on each clock that may be wrong, but need not be.
        leaps: a line on each two captures between which a clock may have stepped unseen.
        remarks: a line on each file that was read as if sorted, and on what is left wrong.
        slack_ns: by how much sooner than it came a packet may seem to leave on right clocks,
            because stamps have different units.
    """

    clocks: list[Clock]
    offsets: list[Offset]
    reference: int
    notes: list[str]
    error_ns: int | None = 0
    shown_error_ns: int | None = 0
    contradiction: Contradiction | None = None
    delays: tuple[tuple[int, int, I64], ...] = ()
    doubts: tuple[str, ...] = ()
    leaps: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    slack_ns: int = 0

    @property
    def stepped(self) -> bool:
        """Whether a clock stepped."""
        return any(len(clock.pieces) > 1 for clock in self.clocks)


@dataclass(frozen=True, slots=True)
class _Setting:
    """What clocks are estimated from; see `estimate`."""

    captures: Sequence[PortCapture]
    pairs: Pairs
    left_rows: Sequence[Array]
    reference: int
    units_ns: Sequence[int]

    def slack_ns(self, came: int, left: int) -> int:
        """By how much sooner a packet may seem to leave because stamps have different units."""
        units = self.units_ns[came], self.units_ns[left]
        return 0 if units[0] == units[1] else max(units)


@dataclass(frozen=True, slots=True)
class _Solved:
    """Clocks by the bounds that packets leave.

    Attributes:
        offsets: for each capture and each of its pieces, what was found; empty if contradicted.
        tolerance_ns: by how much the bounds had to be widened, or by how much captures contradict
            each other if that does not help.
    """

    clocks: list[Clock]
    offsets: list[list[Offset]]
    tolerance_ns: int
    contradiction: Contradiction | None
    delay_ns: I64


def estimate(
    captures: Sequence[PortCapture],
    pairs: Pairs,
    left_flows: Sequence[Bool | None],
    outputs: Collection[int],
    max_sojourn_ns: int,
) -> Clocks:
    """Finds the clocks of captures, on that of the output by which most packets left.

    Nothing is corrected unless the stamps contradict one clock; see `_agree`.

    Args:
        captures: the captures.
        pairs: the sampled packets that two of them saw, of both directions if they have both.
        left_flows: for each capture and each of its flows, whether it left there; None if nothing
            did.
        outputs: the captures of which one gives the common clock.
        max_sojourn_ns: no packet stays in the switch for longer.
    """
    left_rows: list[Array] = [
        np.empty(0, np.int64) if flows is None else np.flatnonzero(flows[capture.columns.flow])
        for capture, flows in zip(captures, left_flows, strict=True)
    ]
    reference = max(sorted(outputs), key=lambda index: left_rows[index].size)
    units = _units_ns(captures)
    setting = _Setting(captures, pairs, left_rows, reference, units)
    if _agree(setting, max_sojourn_ns):
        kept = [Clock()] * len(captures)
        return Clocks(
            kept,
            [Offset()] * len(captures),
            reference,
            [],
            delays=_by_captures(setting, kept),
            doubts=tuple(_doubts(setting)),
            leaps=tuple(_leaps(setting, kept)),
            slack_ns=max(units) if len(set(units)) > 1 else 0,
            remarks=_units_remark(setting)
            + tuple(
                f"{capture.path}: not in order of time, as after `mergecap -a`; read as if sorted, "
                "because its stamps agree with the other captures'. `reordercap FILE NEW` sorts it"
                for capture in captures
                if capture.steps_back and _pieces_in_wrong_order(capture)
            ),
        )
    for capture, rows in zip(captures, left_rows, strict=True):
        _require_few_steps_back(capture, rows)
    solved = _without_steps(setting, [without_steps_back(capture) for capture in captures])
    if solved.tolerance_ns > STAMP_NS:
        _require_one_clock_of_directions(setting)
    error_ns = _error_ns(setting, solved, with_all=True)
    most = (
        "nothing bounds how wrong times in the switch still are"
        if error_ns is None
        else f"times in the switch are still wrong by {error_ns / 1e6:.3f} ms at most"
    )
    return Clocks(
        solved.clocks,
        [offsets[0] for offsets in solved.offsets],
        reference,
        _notes(setting, solved),
        error_ns,
        _error_ns(setting, solved, with_all=False),
        solved.contradiction,
        _by_captures(setting, solved.clocks),
        leaps=tuple(_leaps(setting, solved.clocks)),
        remarks=(f"clocks were corrected; {most}",),
    )


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


def _units_remark(setting: _Setting) -> tuple[str, ...]:
    """A line if stamps have different units, so that waits may seem to be less than nothing.

    Only a file with packets of one stamp counts as coarse: others may show regular sending.
    """
    least, most = min(setting.units_ns), max(setting.units_ns)
    if least == most:
        return ()
    coarse = [
        capture.port
        for capture, unit in zip(setting.captures, setting.units_ns, strict=True)
        if unit > least and not np.diff(capture.columns.stamp_ns).all()
    ]
    if not coarse:
        return ()
    return (
        f"{', '.join(coarse)}: stamps are multiples of up to {most / 1e6:.7g} ms, and others are "
        "finer. So waits can be wrong by as much, and can seem to be less than nothing",
    )


def _agree(setting: _Setting, max_sojourn_ns: int) -> bool:
    """Whether one clock can have stamped all: no packet leaves too early, and few too late.

    Nothing else counts as a contradiction. A queue can make packets wait for any time and in any
    order, so waits that grow or differ say nothing about clocks.
    """
    captures = setting.captures
    if any(_goes_back(capture) for capture in captures):
        return False
    delay = _delays(setting, [Clock()] * len(captures))
    if not delay.size:
        return True
    late = max(
        float((delay[mine] > max_sojourn_ns).mean()) for _, _, mine in setting.pairs.groups()
    )
    return int(delay.min()) >= -STAMP_NS and late <= MOST_LATE


def steps_back(capture: PortCapture) -> int:
    """How often stamps go back by so much that a clock was set."""
    if not capture.steps_back:
        return 0
    return int((np.diff(capture.columns.stamp_ns) < -STEP_BACK_NS).sum())


def _goes_back(capture: PortCapture) -> bool:
    """Whether stamps go back, and not because a few packets were noted late.

    A busy kernel stamps packets, and hands them to the capture when others have been noted. Then
    stamps are soon as late as before. After a clock stepped back, they take as long as it stepped.
    """
    if not capture.steps_back or _pieces_in_wrong_order(capture):
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


def _pieces_in_wrong_order(capture: PortCapture) -> bool:
    """Whether stamps go back only between pieces of the file that follow one another in time.

    A clock that is set back while packets go on gives times that are there twice.
    """
    stamps = capture.columns.stamp_ns
    begins = np.concatenate([[0], np.flatnonzero(np.diff(stamps) < 0) + 1])
    first = np.minimum.reduceat(stamps, begins)
    last = np.maximum.reduceat(stamps, begins)
    order = np.argsort(first, kind="stable")
    return bool((last[order][:-1] <= first[order][1:]).all())


def _doubts(setting: _Setting) -> Iterator[str]:
    """A line on each clock that the order of departures would move, though nothing needs it.

    It is the clock that differs from most others that packets of the same output tell of, and the
    one that is behind if there are as many, because its packets seem to wait for longer.
    """
    captures = setting.captures
    stamps = [capture.columns.stamp_ns for capture in captures]
    found = crossings(setting.pairs, stamps, setting.left_rows, setting.slack_ns)
    behind: dict[int, list[float]] = defaultdict(list)
    for first, second, (low, high) in by_order(found):
        if low > STAMP_NS or high < -STAMP_NS:
            behind[first].append(low if low > 0 else high)
            behind[second].append(-behind[first][-1])
    while behind:
        index = max(behind, key=lambda index: (len(behind[index]), sum(behind[index])))
        by_ns = float(np.median(behind.pop(index)))
        yield (
            f"{captures[index].port}: the order of departures would fit a first-in, first-out "
            f"queue better if its clock were {abs(by_ns) / 1e6:.3f} ms "
            f"{'ahead' if by_ns < 0 else 'behind'}; not corrected, because a queue with priorities "
            "or classes does the same. Packets of the other direction would tell"
        )
        behind = {other: shifts[1:] for other, shifts in behind.items() if shifts[1:]}


def _leaps(setting: _Setting, clocks: Sequence[Clock]) -> Iterator[str]:
    """A line on each two captures between which waits change at once and for good.

    A clock that steps while a queue stands does it, and so does a queue that stands from then on.
    Waits of the other direction have to change by as much to the other side.
    """
    delay, pairs = _delays(setting, clocks), setting.pairs
    for came, left, mine in pairs.groups():
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
        back = np.flatnonzero((pairs.came == left) & (pairs.left == came))
        by_came = back[np.argsort(pairs.came_row[back], kind="stable")]
        change_ns = -by_ns if is_later else by_ns
        if not any(
            _changes(delay[rows], int(np.searchsorted(place_of[rows], first)), change_ns)
            for rows, place_of, first in (
                (back, pairs.left_row, pairs.came_row[mine[place]]),
                (by_came, pairs.came_row, pairs.left_row[mine[place]]),
            )
        ):
            continue
        names = [setting.captures[index].port for index in (came, left)]
        yield (
            f"{names[0]} to {names[1]}: from IP packet {int(pairs.left_row[mine[place]]) + 1} of "
            f"{names[1]} on, all wait for {by_ns / 1e6:.3f} ms {'longer' if is_later else 'less'} "
            "at least, and those of the other direction the other way: a clock stepped, or queues "
            "changed. Nothing tells them apart, so it is not corrected, no rate and limit are "
            f"estimated, and waits between {names[0]} and {names[1]} may be wrong by as much"
        )


def _changes(delay: I64, place: int, by_ns: int) -> bool:
    """Whether sojourn times change by so much at a place, as far as they vary there anyway."""
    before, behind = delay[max(0, place - LEAST_PAIRS) : place], delay[place:][:LEAST_PAIRS]
    if min(before.size, behind.size) < LEAST_PAIRS:
        return False
    varies_ns = max(int(np.ptp(before)), int(np.ptp(behind)), abs(by_ns) // 2)
    return abs(int(np.median(behind)) - int(np.median(before)) - by_ns) <= varies_ns


def _by_captures(setting: _Setting, clocks: Sequence[Clock]) -> tuple[tuple[int, int, I64], ...]:
    """The sojourn times by the captures where packets came in and left."""
    delay = _delays(setting, clocks)
    return tuple((came, left, delay[mine]) for came, left, mine in setting.pairs.groups())


def _require_few_steps_back(capture: PortCapture, left_rows: Array) -> None:
    """Raises UntrustedError where stamps go back too often for a clock that was set."""
    stamps = capture.columns.stamp_ns
    steps = steps_back(capture)
    if steps <= MOST_STEPS:
        return
    left = stamps[left_rows]
    came = np.delete(stamps, left_rows)
    apart = max(int((np.diff(side) < -STEP_BACK_NS).sum()) for side in (came, left))
    text = f"{capture.path}: its time stamps go back {steps:,} times by more than 1 ms"
    if apart <= MOST_STEPS:
        raise UntrustedError(
            f"{text}, but those of one direction hardly do. So two clocks stamped it, one what "
            "came in and one what left, as `-j adapter_unsynced` can do; capture with `-j host`, "
            "or convert both directions to one clock"
        )
    raise UntrustedError(
        f"{text}, so it is not in order of time, as after `mergecap -a`; sort it: "
        "`reordercap FILE NEW`"
    )


def _require_one_clock_of_directions(setting: _Setting) -> None:
    """Raises UntrustedError where packets of all ways leave before they came in.

    A clock of a capture moves its two directions to opposite sides.
    """
    delay = _delays(setting, [Clock()] * len(setting.captures))
    least = {
        (came, left): int(delay[mine].min())
        for came, left, mine in setting.pairs.groups()
        if mine.size >= LEAST_PAIRS
    }
    both = [(came, left) for came, left in least if (left, came) in least]
    if both and max(least.values()) < -TWO_CLOCKS_NS:
        first, second = (setting.captures[place] for place in both[0])
        raise UntrustedError(
            f"{first.path} and {second.path}: packets leave up to {-min(least.values()) / 1e6:.3f} "
            "ms before they came in, whichever way they go. So two clocks stamped the captures, "
            "one what came in and one what left, as `-j adapter_unsynced` can do; capture with "
            "`-j host`, or convert both directions to one clock"
        )


def without_steps_back(capture: PortCapture) -> Clock:
    """Where stamps step back, assumes that time went on by the median gap."""
    stamps = capture.columns.stamp_ns
    clock = Clock()
    if not capture.steps_back:
        return clock
    gaps = np.diff(stamps)
    usual = int(np.median(gaps))
    for row in np.flatnonzero(gaps < -STEP_BACK_NS).tolist():
        clock = clock.shifted(Step(usual - int(gaps[row]), row + 1, (row + 1, row + 1)))
        if clock.pieces[-1].shift_ns > MAX_STAMP_NS:
            raise InputError(f"{capture.path}: its time stamps go back and forth by centuries")
    return clock


def _without_steps(setting: _Setting, clocks: list[Clock]) -> _Solved:
    """Finds the steps of clocks.

    Where packets went both ways between two captures, stretches of time that exclude each other
    show them, however the queue was. Elsewhere sojourn times that change at once and stay changed
    do. But a queue that builds up does the same, so such a step has to end or begin a
    contradiction.
    """
    guess = _Guess.of(setting, clocks)
    for _ in range(MOST_STEPS):
        delay = _delays(setting, guess.clocks)
        # Half of the greatest contradiction is allowed, so that a drift is taken for no step.
        slack_ns = _most_apart(delay, setting.pairs) // 2
        if guess.solved.tolerance_ns <= STAMP_NS or slack_ns <= STAMP_NS:
            break
        breaks = _breaks(delay, setting.pairs, slack_ns)
        if not 0 < len(breaks) <= 2 * MOST_STEPS:
            # A clock that jitters, or one of what came in and another one of what left.
            break
        most = max(breaks, key=lambda jump_break: abs(jump_break.by_ns))
        causes = [
            jump_break
            for jump_break in breaks
            if {jump_break.index, jump_break.other} == {most.index, most.other}
        ]
        better = _stepped(setting, guess, causes, breaks, slack_ns)
        if better.merit[0] >= len(breaks):
            break
        guess = better
    dismissed: set[tuple[int, int]] = set()
    for _ in range(MOST_STEPS):
        delay = _delays(setting, guess.clocks)
        jumps = _jumps(delay, setting.pairs)
        if guess.solved.tolerance_ns <= STAMP_NS:
            jumps = [jump for jump in jumps if _parts_what_can_be(jump, delay, setting.pairs)]
        remaining = [jump for jump in jumps if (jump.left, jump.left_rows[0]) not in dismissed]
        if not remaining:
            break
        # The narrower the rows between which sojourn times changed, the better is it known.
        jump = min(remaining, key=lambda jump: jump.left_rows[1] - jump.left_rows[0])
        breaks = [jump_break for other in jumps for jump_break in other.breaks]
        better = _stepped(setting, guess, jump.breaks, breaks)
        if better.merit < guess.merit:
            guess = better
        else:
            dismissed.add((jump.left, jump.left_rows[0]))
    return guess.solved


@dataclass(frozen=True, slots=True)
class _Guess:
    """Clocks with steps that are known roughly, and what follows from them.

    `merit` is the less, the better: breaks between captures if `slack_ns` is allowed,
    contradictions, jumps of sojourn times, mean sojourn time.
    """

    clocks: list[Clock]
    solved: _Solved
    merit: tuple[int, int, int, float]

    @classmethod
    def of(cls, setting: _Setting, clocks: list[Clock], slack_ns: int = _FAR) -> _Guess:
        """Solves clocks."""
        solved = _solve(setting, clocks)
        delay = solved.delay_ns
        mean_ns = float(np.abs(delay).mean()) if delay.size else 0.0
        breaks = len(_breaks(_delays(setting, clocks), setting.pairs, slack_ns))
        jumps = len(_jumps(delay, setting.pairs))
        return cls(clocks, solved, (breaks, solved.tolerance_ns, jumps, mean_ns))


def _stepped(
    setting: _Setting,
    guess: _Guess,
    causes: Sequence[_Break],
    breaks: Sequence[_Break],
    slack_ns: int = _FAR,
) -> _Guess:
    """The best of the guesses that each undo one of the causes; the guess itself without any.

    It was the clock of the one capture or of the other. The step is there where it leaves fewer
    contradictions, fewer jumps and shorter sojourn times.
    """
    tries = []
    for jump_break in causes:
        step = _step(setting, jump_break, breaks)
        if step is not None:
            clocks = list(guess.clocks)
            clocks[jump_break.index] = clocks[jump_break.index].shifted(step)
            tries.append(_Guess.of(setting, clocks, slack_ns))
    return min(tries, key=lambda other: other.merit, default=guess)


@dataclass(frozen=True, slots=True)
class _Jump:
    """Sojourn times from an input to an output that change by `exact_ns` between two packets.

    `came_rows` and `left_rows` are the rows of the two packets at the input and at the output.
    """

    came: int
    left: int
    came_rows: tuple[int, int]
    left_rows: tuple[int, int]
    exact_ns: int

    @property
    def breaks(self) -> tuple[_Break, _Break]:
        """The steps of the one clock or the other that explain it."""
        return (
            _Break(self.came, self.left, self.came_rows, self.exact_ns, self.exact_ns),
            _Break(self.left, self.came, self.left_rows, -self.exact_ns, -self.exact_ns),
        )


def _jumps(delay: I64, pairs: Pairs) -> list[_Jump]:
    """Where sojourn times change and stay changed, between captures of one direction."""
    jumps = []
    sizes_of = {(came, left): mine.size for came, left, mine in pairs.groups()}
    for came, left, mine in pairs.groups():
        if mine.size < 2 * LEAST_PAIRS or sizes_of.get((left, came), 0) >= LEAST_PAIRS:
            continue
        own = delay[mine]
        sizes = np.abs(np.diff(own))
        usual = int(np.percentile(sizes, 99))
        for place in np.flatnonzero(sizes > STEP_NS + 2 * usual).tolist():
            before, after = own[max(0, place + 1 - NEAR) : place + 1], own[place + 1 :][:NEAR]
            if abs(int(np.median(after)) - int(np.median(before))) > STEP_NS:
                first, last = mine[place], mine[place + 1]
                jumps.append(
                    _Jump(
                        came,
                        left,
                        (int(pairs.came_row[first]), int(pairs.came_row[last])),
                        (int(pairs.left_row[first]), int(pairs.left_row[last])),
                        # The queue changes little from one packet to the next.
                        int(own[place + 1] - own[place]),
                    )
                )
    return jumps


def _parts_what_can_be(jump: _Jump, delay: I64, pairs: Pairs) -> bool:
    """Whether packets can have left when they did on one side of a jump only."""
    mine = (pairs.came == jump.came) & (pairs.left == jump.left)
    before = delay[mine & (pairs.left_row <= jump.left_rows[0])]
    after = delay[mine & (pairs.left_row >= jump.left_rows[1])]
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
        groups = {(came, left): mine for came, left, mine in pairs.groups()}
        for (first, second), there in groups.items():
            back = groups.get((second, first))
            if back is None:
                continue
            rows = np.concatenate([pairs.came_row[there], pairs.left_row[back]])
            most = np.concatenate([delay[there], np.full(back.size, _FAR)])
            least = np.concatenate([np.full(there.size, -_FAR), -delay[back]])
            order = np.argsort(rows, kind="stable")
            yield cls(first, second, rows[order], least[order], most[order])

    def is_bounded(self, start: int, end: int) -> bool:
        """Whether packets of both ways bound the clocks there."""
        there = int((self.most[start:end] < _FAR).sum())
        return LEAST_BOTH <= there <= end - start - LEAST_BOTH

    def closer(self, place: int, before: int, behind: int, last: int) -> tuple[int, int]:
        """The two packets between which it rose: nearer, if others cannot be on either side."""
        between = slice(before + 1, behind)
        cannot = []
        for side in (slice(place, before + 1), slice(behind, last)):
            low = int(self.least[side].max()) - 2 * STAMP_NS
            high = int(self.most[side].min()) + 2 * STAMP_NS
            if low > high:
                return before, behind
            outside = (self.least[between] > high) | (self.most[between] < low)
            cannot.append(before + 1 + np.flatnonzero(outside))
        nearer = int(cannot[1].max(initial=before)), int(cannot[0].min(initial=behind))
        return nearer if nearer[0] < nearer[1] else (before, behind)

    def rises_ns(self, place: int, before: int, behind: int, last: int) -> tuple[int, int]:
        """By how much the correction rose between two packets, from `place` and up to `last`.

        The first is the likeliest, and the second the one that is nearest to nothing.

        Of what the packets nearest to it show on the one way and on the other, the one counts that
        varies less, within the bounds that all packets leave.
        """
        early, late = slice(place, before + 1), slice(behind, last)
        low = int(self.least[late].max()) - int(self.most[early].min())
        high = int(self.most[late].min()) - int(self.least[early].max())
        shown = []
        for bounds in (self.most, self.least):
            sides = [part[np.abs(part) < _FAR] for part in (bounds[early], bounds[late])]
            if min(side.size for side in sides):
                ends = sides[0][-NEAR:], sides[1][:NEAR]
                rise = int(np.median(ends[1])) - int(np.median(ends[0]))
                shown.append((sum(int(np.ptp(end)) for end in ends), rise))
        rise = min(shown)[1] if shown else 0
        return min(max(rise, low), high), min(max(0, low), high)


def _most_apart(delay: I64, pairs: Pairs) -> int:
    """The most by which bounds of two captures exclude each other; negative if none do."""
    return max(
        (int(both.least.max()) - int(both.most.min()) for both in _Both.all_of(delay, pairs)),
        default=-_FAR,
    )


@dataclass(frozen=True, slots=True)
class _Break:
    """A step of a capture's clock that the bounds between it and another one show.

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


def _breaks(delay: I64, pairs: Pairs, slack_ns: int) -> list[_Break]:
    """Between which packets clocks stepped: the fewest steps by which bounds agree to `slack_ns`.

    The one packet is the last that cannot be together with those after the step, and the other one
    the first that cannot be together with those before.
    """
    breaks = []
    for both in _Both.all_of(delay, pairs):
        place, found = 0, []
        while (behind := _first_apart(both.least[place:], both.most[place:], slack_ns)) >= 0:
            behind += place
            back = slice(behind, place - 1 if place else None, -1)
            before = behind - _first_apart(both.least[back], both.most[back], slack_ns)
            found.append((place, before, behind))
            place = behind
            if len(found) > MOST_STEPS:
                break
        for (start, before, behind), last in zip(
            found, [*(behind for _, _, behind in found[1:]), both.rows.size], strict=False
        ):
            if not both.is_bounded(start, before + 1) and not both.is_bounded(behind, last):
                continue
            before, behind = both.closer(start, before, behind, last)
            rows = int(both.rows[before]), int(both.rows[behind])
            rises_ns = both.rises_ns(start, before, behind, last)
            breaks.append(_Break(both.first, both.second, rows, *rises_ns))
    return breaks


def _first_apart(least: I64, most: I64, slack_ns: int) -> int:
    """The first place up to which bounds exclude each other by more; -1 if there is none."""
    apart = np.maximum.accumulate(least) - np.minimum.accumulate(most) > slack_ns
    place = int(apart.argmax())
    return place if apart[place] else -1


def _step(setting: _Setting, jump_break: _Break, breaks: Sequence[_Break]) -> Step | None:
    """The step that explains a break; None if its rows are no packets.

    Breaks of the same clock, of about the same size at the same time, tell better where it is.
    """
    same = [
        other.rows
        for other in breaks
        if other.index == jump_break.index
        if abs(other.by_ns - jump_break.by_ns) <= min(STEP_NS, abs(jump_break.by_ns) // 2)
        if other.rows[0] < jump_break.rows[1] and jump_break.rows[0] < other.rows[1]
    ]
    first = max(rows[0] for rows in same)
    last = max(min(rows[1] for rows in same), first + 1)
    gaps = np.diff(setting.captures[jump_break.index].columns.stamp_ns[first : last + 1])
    if not gaps.size:
        return None
    # What has to be added is less than nothing if the clock leapt forward.
    row = first + 1 + int(gaps.argmax() if jump_break.by_ns < 0 else gaps.argmin())
    return Step(jump_break.by_ns, row, _places(gaps, jump_break.least_ns, first + 1, row))


def _places(gaps: I64, by_ns: int, first_row: int, row: int) -> tuple[int, int]:
    """The first and the last row at which a clock can have stepped.

    The time from one packet to the next is not negative, neither with nor without the step.
    `gaps` are those before `first_row` and the rows that follow; `row` is the likeliest.
    """
    if gaps[row - first_row] < -STAMP_NS:
        return row, row
    can_be = np.flatnonzero(gaps + by_ns >= -STAMP_NS)
    if not can_be.size:
        return row, row
    return min(first_row + int(can_be[0]), row), max(first_row + int(can_be[-1]), row)


def _solve(setting: _Setting, clocks: Sequence[Clock]) -> _Solved:
    """Corrects offsets and drifts, of each piece for itself."""
    captures, pairs = setting.captures, setting.pairs
    stamps = [
        clock.correct(capture.columns.stamp_ns)
        for capture, clock in zip(captures, clocks, strict=True)
    ]
    nodes = [
        (index, place) for index, clock in enumerate(clocks) for place in range(len(clock.pieces))
    ]
    numbers = np.cumsum([0, *(len(clock.pieces) for clock in clocks)])
    starts = [
        np.array([piece.first_row for piece in clock.pieces[1:]], np.int64) for clock in clocks
    ]

    def node_of(which: Array, rows: Array) -> Array:
        result = numbers[which].astype(np.int32)
        for index, own in enumerate(starts):
            if own.size:
                mine = which == index
                result[mine] += np.searchsorted(own, rows[mine], side="right").astype(np.int32)
        return result

    by_node = replace(
        pairs,
        came=node_of(pairs.came, pairs.came_row),
        left=node_of(pairs.left, pairs.left_row),
    )
    left_rows = [
        part
        for rows, own in zip(setting.left_rows, starts, strict=True)
        for part in np.split(rows, np.searchsorted(rows, own))
    ]
    reference = nodes.index((setting.reference, 0))
    found = crossings(
        by_node,
        [stamps[index] for index, _ in nodes],
        left_rows,
        lambda came, left: setting.slack_ns(nodes[came][0], nodes[left][0]),
    )
    solution = solve(len(nodes), reference, found)
    contradiction = solution.contradiction
    if contradiction is not None:
        first, second = nodes[contradiction.first][0], nodes[contradiction.second][0]
        contradiction = replace(contradiction, first=first, second=second)
        return _Solved(
            list(clocks), [], contradiction.by_ns, contradiction, _delays(setting, clocks)
        )
    offsets: list[list[Offset]] = [[] for _ in captures]
    for (index, _), offset in zip(nodes, solution.offsets, strict=True):
        offsets[index].append(offset)
    corrected = [
        Clock(
            tuple(
                replace(
                    piece,
                    shift_ns=piece.shift_ns + offset.offset_ns,
                    drift=offset.drift,
                    origin_ns=offset.origin_ns + offset.offset_ns if offset.drift else 0,
                )
                for piece, offset in zip(clock.pieces, own, strict=True)
            )
        )
        for clock, own in zip(clocks, offsets, strict=True)
    ]
    return _Solved(corrected, offsets, solution.tolerance_ns, None, _delays(setting, corrected))


def _delays(setting: _Setting, clocks: Sequence[Clock]) -> I64:
    """The sojourn time of each pair."""
    pairs = setting.pairs
    delay = np.zeros(len(pairs), np.int64)
    for index, (capture, clock) in enumerate(zip(setting.captures, clocks, strict=True)):
        stamps = clock.correct(capture.columns.stamp_ns)
        for which, rows, sign in (
            (pairs.came, pairs.came_row, -1),
            (pairs.left, pairs.left_row, 1),
        ):
            mine = which == index
            delay[mine] += sign * stamps[rows[mine]]
    if len(set(setting.units_ns)) > 1:
        for came, left, mine in pairs.groups():
            delay[mine] += setting.slack_ns(came, left)
    return delay


# --- what is said of them


def _half_width_ns(offset: Offset) -> int | None:
    """By how much the offset can be wrong; None if nothing bounds it."""
    if offset.low_ns is None or offset.high_ns is None:
        return None
    return max(offset.high_ns - offset.offset_ns, offset.offset_ns - offset.low_ns)


def _by_drift_ns(offset: Offset, span_ns: int) -> int:
    """By how much stamps can be wrong because of a drift, also of one that was taken for none.

    0 if no packets of both directions bound the drift: then none is assumed.
    """
    if offset.drift_low is None or offset.drift_high is None:
        return 0
    most = max(offset.drift_high - offset.drift, offset.drift - offset.drift_low)
    return round(most * span_ns)


def _can_begin_elsewhere(
    setting: _Setting, solved: _Solved, index: int, first_row: int, by_ns: int
) -> bool:
    """Whether packets leave it open before which of them a clock stepped.

    It does if those next to it could have left with the stamps of the other side of the step.
    """
    pairs = setting.pairs
    came, left = pairs.came == index, pairs.left == index
    rows = np.concatenate([pairs.came_row[came], pairs.left_row[left]])
    later_ns = np.where(rows >= first_row, by_ns, -by_ns)
    later_ns[int(came.sum()) :] *= -1
    other_ns = np.concatenate([solved.delay_ns[came], solved.delay_ns[left]]) + later_ns
    before, behind = rows[rows < first_row], rows[rows >= first_row]
    if not before.size or not behind.size or before.max() < first_row - 1:
        return True
    next_to_it = (rows == before.max()) | (rows == behind.min())
    return bool((other_ns[next_to_it] >= -STAMP_NS).any())


def _error_ns(setting: _Setting, solved: _Solved, *, with_all: bool) -> int | None:
    """By how much corrected stamps can be wrong or contradict each other.

    `with_all` counts what nothing showed and packets do not exclude, as clocks are known to differ:
    a drift, also where clocks were widened, and clocks that were left as they are.
    """
    captures = setting.captures
    if solved.contradiction is not None:
        return None
    widened = solved.tolerance_ns > STAMP_NS
    drifts = any(offset.drift for offsets in solved.offsets for offset in offsets)
    steps = [len(clock.pieces) > 1 for clock in solved.clocks]
    changed = widened or drifts or any(steps)
    changed |= any(offset.offset_ns for offsets in solved.offsets for offset in offsets)
    if with_all and widened:
        return None
    error = solved.tolerance_ns if widened else 0
    for index, (capture, clock, offsets) in enumerate(
        zip(captures, solved.clocks, solved.offsets, strict=True)
    ):
        ends = [piece.first_row for piece in clock.pieces[1:]] + [capture.columns.stamp_ns.size]
        for piece, end, offset in zip(clock.pieces, ends, offsets, strict=True):
            if steps[index] or offset.offset_ns or offset.drift or (with_all and changed):
                half = _half_width_ns(offset)
                span_ns = int(np.ptp(capture.columns.stamp_ns[piece.first_row : end]))
                is_reference = offset.low_ns == offset.high_ns == 0
                if half is None or (
                    with_all and drifts and offset.drift_low is None and not is_reference
                ):
                    return None
                unseen_ns = _by_drift_ns(offset, span_ns) if with_all or offset.drift else 0
                error = max(error, half + unseen_ns)
        for before, piece in pairwise(clock.pieces):
            by_ns = piece.shift_ns - before.shift_ns
            # Where it stepped is not known, because it can have been in other gaps.
            if piece.rows[0] < piece.rows[1] or (
                with_all and _can_begin_elsewhere(setting, solved, index, piece.first_row, by_ns)
            ):
                error = max(error, abs(by_ns))
    # A sojourn time is the difference of two stamps, of which the one is the reference's.
    return error + STAMP_NS if error else error


def _notes(setting: _Setting, solved: _Solved) -> list[str]:
    """A line on each correction: steps first."""
    captures = setting.captures
    notes = []
    for index, (capture, clock) in enumerate(zip(captures, solved.clocks, strict=True)):
        for place in range(1, len(clock.pieces)):
            before, piece = clock.pieces[place - 1], clock.pieces[place]
            by_ns = before.shift_ns - piece.shift_ns
            text = f"{capture.port}: its clock stepped {'back ' if by_ns < 0 else ''}by about "
            text += f"{abs(by_ns) / 1e6:.3f} ms at IP packet {piece.first_row + 1}"
            if piece.rows[1] > piece.rows[0]:
                # It can have been in other gaps.
                text += f" or at another of {piece.rows[0] + 1} to {piece.rows[1] + 1}"
            halves = (
                [_half_width_ns(offset) for offset in solved.offsets[index][place - 1 : place + 1]]
                if solved.offsets
                else []
            )
            known = [half for half in halves if half is not None]
            if len(known) == 2:
                text += f", within {sum(known) / 1e6:.3f} ms"
            notes.append(f"{text}; corrected")
    for capture, offsets in zip(captures, solved.offsets, strict=False):
        if offsets[0].offset_ns or offsets[0].drift:
            notes.append(_note(capture.port, captures[setting.reference].port, offsets[0]))
    if solved.contradiction is None and solved.tolerance_ns > STAMP_NS:
        notes.append(
            f"the captures' clocks contradict each other by up to {solved.tolerance_ns / 1e6:g} "
            "ms, so a clock jitters, drifts or stepped; times in the switch can be wrong by more"
        )
    return notes


def _note(port: str, reference: str, offset: Offset) -> str:
    way = "ahead of" if offset.offset_ns < 0 else "behind"
    text = f"{port}: its clock is {abs(offset.offset_ns) / 1e6:.3f} ms {way} {reference}'s"
    half = _half_width_ns(offset)
    if half is not None:
        text += f", within {half / 1e6:.3f} ms"
    if offset.drift:
        pace = "slow" if offset.drift > 0 else "fast"
        text += f", and runs {abs(offset.drift) * 1e6:.1f} ppm {pace}"
        if offset.drift_low is not None and offset.drift_high is not None:
            most_off = max(offset.drift_high - offset.drift, offset.drift - offset.drift_low)
            text += f", within {most_off * 1e6:.1f} ppm"
    return f"{text}; corrected"
