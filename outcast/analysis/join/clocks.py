"""Clocks of captures that differ, drift or stepped, estimated from the packets themselves.

Clocks are corrected only if the stamps contradict what packets can do (`offsets`). Steps are found
first (`steps`). docs/join.md has the limits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from outcast.analysis.capture.pcap import PortCapture
from outcast.analysis.compiled import I64, Array, Bool
from outcast.analysis.join.clock import (
    BY_DIRECTION,
    Clock,
    Piece,
    Sample,
    goes_back,
    pieces_in_wrong_order,
    require_few_steps_back,
    units_ns,
    without_steps_back,
)
from outcast.analysis.join.offsets import (
    LEAST_PAIRS,
    NO_OFFSET,
    STAMP_NS,
    Contradiction,
    Offset,
    by_order,
)
from outcast.analysis.join.pairs import Pairs
from outcast.analysis.join.steps import Solved, without_steps
from outcast.errors import UntrustedError

TWO_CLOCKS_NS = 100_000
"""If packets of all ways leave by more before they came in, directions have clocks of their own."""
LEAP_NS = 20_000
"""If waits change at once and for good by more, a clock may have stepped."""
MOST_LATE = 0.01
"""If more than this share of packets stays for longer than any can, the clocks disagree."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of captures.

    Attributes:
        offsets: for each capture, what was found of its first piece; empty if the captures
            contradict each other.
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
    notes: list[str]
    delays: tuple[tuple[int, int, I64], ...]
    leaps: tuple[str, ...]
    remarks: tuple[str, ...]
    error_ns: int | None = 0
    shown_error_ns: int | None = 0
    contradiction: Contradiction | None = None
    doubts: tuple[str, ...] = ()
    slack_ns: int = 0


def estimate(
    captures: Sequence[PortCapture],
    pairs: Pairs,
    left_flows: Sequence[Bool | None],
    outputs: Collection[int],
    max_sojourn_ns: int,
) -> Clocks:
    """Finds the clocks of captures, on that of the output by which most packets left.

    Nothing is corrected unless the stamps contradict one clock; see `_agree`. `left_flows` tells
    for each capture and each of its flows whether it left there; None if nothing did.
    """
    left_rows: list[Array] = [
        np.empty(0, np.int64) if flows is None else np.flatnonzero(flows[capture.columns.flow])
        for capture, flows in zip(captures, left_flows, strict=True)
    ]
    reference = max(sorted(outputs), key=lambda index: left_rows[index].size)
    sample = Sample(captures, pairs, left_rows, reference, units_ns(captures))
    return _as_they_are(sample) if _agree(sample, max_sojourn_ns) else _corrected(sample)


def _as_they_are(sample: Sample) -> Clocks:
    """The clocks of captures whose stamps nothing contradicts."""
    kept, units = sample.as_stamped, sample.units_ns
    unsorted = [
        f"{capture.path}: not in order of time, as after `mergecap -a`; read as if sorted, "
        "because its stamps agree with the other captures'. `reordercap FILE NEW` sorts it"
        for capture in sample.captures
        if capture.steps_back and pieces_in_wrong_order(capture)
    ]
    return Clocks(
        kept,
        [NO_OFFSET] * len(kept),
        [],
        sample.delays_by_captures(kept),
        tuple(_leaps(sample, kept)),
        (*_units_remark(sample), *unsorted),
        doubts=tuple(_doubts(sample)),
        slack_ns=max(units) if len(set(units)) > 1 else 0,
    )


def _corrected(sample: Sample) -> Clocks:
    """Corrects clocks. Raises UntrustedError where those of one capture's directions differ."""
    for capture, rows in zip(sample.captures, sample.left_rows, strict=True):
        require_few_steps_back(capture, rows)
    solved = without_steps(sample, [without_steps_back(capture) for capture in sample.captures])
    if solved.tolerance_ns > STAMP_NS:
        _require_one_clock_of_directions(sample)
    error_ns = _error_ns(sample, solved, with_all=True)
    most = (
        "nothing bounds how wrong times in the switch still are"
        if error_ns is None
        else f"times in the switch are still wrong by {error_ns / 1e6:.3f} ms at most"
    )
    clocks = solved.clocks
    return Clocks(
        clocks,
        [] if solved.contradiction else [clock.pieces[0].found for clock in clocks],
        _notes(sample, solved),
        sample.delays_by_captures(clocks),
        tuple(_leaps(sample, clocks)),
        (f"clocks were corrected; {most}",),
        error_ns,
        _error_ns(sample, solved, with_all=False),
        solved.contradiction,
    )


def _agree(sample: Sample, max_sojourn_ns: int) -> bool:
    """Whether one clock can have stamped all: no packet leaves too early, and few too late.

    Nothing else counts as a contradiction. A queue can make packets wait for any time and in any
    order, so waits that grow or differ say nothing about clocks.
    """
    if any(goes_back(capture) for capture in sample.captures):
        return False
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
            "ms before they came in, whichever way they go. So two clocks stamped the captures, "
            f"{BY_DIRECTION}"
        )


def _error_ns(sample: Sample, solved: Solved, *, with_all: bool) -> int | None:
    """By how much corrected stamps can be wrong or contradict each other.

    `with_all` counts what nothing showed and packets do not exclude, as clocks are known to differ:
    a drift, also where clocks were widened, and clocks that were left as they are.
    """
    widened = solved.tolerance_ns > STAMP_NS
    if solved.contradiction is not None or (with_all and widened):
        return None
    found = [piece.found for clock in solved.clocks for piece in clock.pieces]
    drifts = any(offset.drift for offset in found)
    stepped = len(found) > len(solved.clocks)
    changed = widened or drifts or stepped or any(offset.offset_ns for offset in found)
    errors: list[int | None] = [solved.tolerance_ns if widened else 0]
    for index, (capture, clock) in enumerate(zip(sample.captures, solved.clocks, strict=True)):
        is_moved = len(clock.pieces) > 1 or (with_all and changed)
        for piece, stamps in clock.spans(capture.columns.stamp_ns):
            offset = piece.found
            if is_moved or offset.offset_ns or offset.drift:
                is_unbounded = with_all and drifts and offset.drift_error is None
                if is_unbounded and not offset.low_ns == offset.high_ns == 0:
                    return None
                errors.append(_piece_error_ns(offset, stamps, with_all=with_all))
        for before, piece in pairwise(clock.pieces):
            # Where it stepped is not known, because it can have been in other gaps.
            if piece.rows[0] < piece.rows[1] or (
                with_all and _can_begin_elsewhere(sample, solved, index, before, piece)
            ):
                errors.append(abs(piece.shift_ns - before.shift_ns))
    known = [error for error in errors if error is not None]
    if len(known) < len(errors):
        return None
    # A sojourn time is the difference of two stamps, of which the one is the reference's.
    return max(known) + STAMP_NS if max(known) else 0


def _piece_error_ns(offset: Offset, stamps: I64, *, with_all: bool) -> int | None:
    """By how much stamps of a piece can be wrong; None if nothing bounds it.

    `with_all` also counts a drift that was taken for none. If no packets of both directions bound
    the drift, none is assumed.
    """
    half_ns = offset.error_ns
    if half_ns is None or offset.drift_error is None or not (with_all or offset.drift):
        return half_ns
    return half_ns + round(offset.drift_error * int(np.ptp(stamps)))


def _can_begin_elsewhere(
    sample: Sample, solved: Solved, index: int, before: Piece, piece: Piece
) -> bool:
    """Whether packets leave it open before which of them a clock stepped.

    It does if those next to it could have left with the stamps of the other side of the step.
    """
    by_ns, first_row = piece.shift_ns - before.shift_ns, piece.first_row
    came, departed = sample.pairs.came == index, sample.pairs.left == index
    rows = np.concatenate([sample.pairs.came_row[came], sample.pairs.left_row[departed]])
    later_ns = np.where(rows >= first_row, by_ns, -by_ns)
    later_ns[int(came.sum()) :] *= -1
    other_ns = np.concatenate([solved.delay_ns[came], solved.delay_ns[departed]]) + later_ns
    early, late = rows[rows < first_row], rows[rows >= first_row]
    if not early.size or not late.size or early.max() < first_row - 1:
        return True
    next_to_it = (rows == early.max()) | (rows == late.min())
    return bool((other_ns[next_to_it] >= -STAMP_NS).any())


# --- what is said of them


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
        if not any(
            _changes(delay[rows], int(np.searchsorted(place_of[rows], first)), change_ns)
            for rows, place_of, first in (
                (back, pairs.left_row, came_row),
                (by_came, pairs.came_row, left_row),
            )
        ):
            continue
        names = [sample.captures[index].port for index in (came, output)]
        yield (
            f"{names[0]} to {names[1]}: from IP packet {int(left_row) + 1} of {names[1]} on, all "
            f"wait for {by_ns / 1e6:.3f} ms {'longer' if is_later else 'less'} at least, and those "
            "of the other direction the other way: a clock stepped, or queues changed. Nothing "
            "tells them apart, so it is not corrected, no rate and limit are estimated, and waits "
            f"between {names[0]} and {names[1]} may be wrong by as much"
        )


def _changes(delay: I64, place: int, by_ns: int) -> bool:
    """Whether sojourn times change by so much at a place, as far as they vary there anyway."""
    before, behind = delay[max(0, place - LEAST_PAIRS) : place], delay[place:][:LEAST_PAIRS]
    if min(before.size, behind.size) < LEAST_PAIRS:
        return False
    varies_ns = max(int(np.ptp(before)), int(np.ptp(behind)), abs(by_ns) // 2)
    return abs(int(np.median(behind)) - int(np.median(before)) - by_ns) <= varies_ns


def _notes(sample: Sample, solved: Solved) -> list[str]:
    """A line on each correction: steps first."""
    ports = [capture.port for capture in sample.captures]
    clocks = list(zip(ports, solved.clocks, strict=True))
    lines = [
        _step_note(port, before, piece)
        for port, clock in clocks
        for before, piece in pairwise(clock.pieces)
    ]
    for port, clock in clocks:
        offset = clock.pieces[0].found
        if offset.offset_ns or offset.drift:
            lines.append(_offset_note(port, ports[sample.reference], offset))
    if solved.contradiction is None and solved.tolerance_ns > STAMP_NS:
        lines.append(
            f"the captures' clocks contradict each other by up to {solved.tolerance_ns / 1e6:g} "
            "ms, so a clock jitters, drifts or stepped; times in the switch can be wrong by more"
        )
    return lines


def _step_note(port: str, before: Piece, piece: Piece) -> str:
    by_ns = before.shift_ns - piece.shift_ns
    text = f"{port}: its clock stepped {'back ' if by_ns < 0 else ''}by about "
    text += f"{abs(by_ns) / 1e6:.3f} ms at IP packet {piece.first_row + 1}"
    if piece.rows[1] > piece.rows[0]:
        # It can have been in other gaps.
        text += f" or at another of {piece.rows[0] + 1} to {piece.rows[1] + 1}"
    errors = before.found.error_ns, piece.found.error_ns
    if errors[0] is not None and errors[1] is not None:
        text += f", within {(errors[0] + errors[1]) / 1e6:.3f} ms"
    return f"{text}; corrected"


def _offset_note(port: str, reference: str, offset: Offset) -> str:
    way = "ahead of" if offset.offset_ns < 0 else "behind"
    text = f"{port}: its clock is {abs(offset.offset_ns) / 1e6:.3f} ms {way} {reference}'s"
    if offset.error_ns is not None:
        text += f", within {offset.error_ns / 1e6:.3f} ms"
    if offset.drift:
        pace = "slow" if offset.drift > 0 else "fast"
        text += f", and runs {abs(offset.drift) * 1e6:.1f} ppm {pace}"
        if offset.drift_error is not None:
            text += f", within {offset.drift_error * 1e6:.1f} ppm"
    return f"{text}; corrected"
