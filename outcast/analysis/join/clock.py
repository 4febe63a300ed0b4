"""Clocks of captures that differ by a constant or stepped, estimated from the packets themselves.

Two facts are known about the true times. A packet leaves after it came in. And one queue sends in
the order in which it was filled, so of two packets of different ports the first to leave came in
first. Clocks are corrected only if the stamps contradict these facts. docs/join.md has the limits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from outcast.analysis.capture.pcap import PortCapture
from outcast.analysis.capture.records import MAX_STAMP_NS
from outcast.analysis.compiled import I64, Array
from outcast.analysis.join.pairs import Pairs
from outcast.errors import InputError

STEP_BACK_NS = 1_000_000
"""Stamps that go back by more are a step of the clock; by less, packets were noted out of order."""
STEP_NS = 5_000_000
"""A clock stepped if sojourn times change by more than this from one packet to the next, by more
than they vary, and stay changed."""
NEAR = 25
"""How many packets before and after a step are compared."""
LEAST_PAIRS = 8
LEAST_SHARE = 0.1
"""The least share of packets that must have left against the order of their stamps."""


@dataclass(frozen=True, slots=True)
class Clock:
    """How to convert a capture's stamps to the common clock.

    Attributes:
        pieces: pairs of (first row, nanoseconds to add from there on). The first row is 0.
    """

    pieces: tuple[tuple[int, int], ...] = ((0, 0),)

    def correct(self, stamps: I64) -> I64:
        """Returns the corrected stamps. `stamps` has all rows of the capture."""
        if self.pieces == ((0, 0),):
            return stamps
        corrected = stamps.copy()
        for first, last, shift in self._spans(stamps.size):
            corrected[first:last] += shift
        return corrected

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
        return Clock(tuple(sorted(pieces.items())))


def estimate(
    inputs: Sequence[PortCapture], outputs: Sequence[PortCapture], pairs: Pairs
) -> tuple[list[Clock], list[Clock], list[str]]:
    """Returns the clocks of inputs and outputs, and notes on each correction, a line each.

    It assumes that the outputs share one clock.
    """
    notes: list[str] = []
    in_clocks = [_without_steps_back(capture, notes) for capture in inputs]
    out_clocks = [_without_steps_back(capture, notes) for capture in outputs]
    for index, capture in enumerate(inputs):
        in_clocks[index] = _without_jumps(
            capture,
            in_clocks[index],
            _delays(inputs, outputs, in_clocks, out_clocks, pairs),
            pairs,
            index,
            notes,
        )
    delay = _delays(inputs, outputs, in_clocks, out_clocks, pairs)
    shifts = _offsets(inputs, in_clocks, pairs, delay)
    for index, shift in enumerate(shifts):
        if shift:
            in_clocks[index] = in_clocks[index].shifted(shift)
            notes.append(
                f"{inputs[index].port}: its clock is {abs(shift) / 1e6:.3f} ms "
                f"{'ahead of' if shift < 0 else 'behind'} the output's; corrected"
            )
    return in_clocks, out_clocks, notes


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


def _delays(
    inputs: Sequence[PortCapture],
    outputs: Sequence[PortCapture],
    in_clocks: Sequence[Clock],
    out_clocks: Sequence[Clock],
    pairs: Pairs,
) -> I64:
    """The sojourn time of each pair."""
    delay = np.zeros(len(pairs), np.int64)
    for captures, clocks, which, rows, sign in (
        (inputs, in_clocks, pairs.input, pairs.in_row, -1),
        (outputs, out_clocks, pairs.output, pairs.out_row, 1),
    ):
        for index, (capture, clock) in enumerate(zip(captures, clocks, strict=True)):
            mine = which == index
            delay[mine] += sign * clock.correct(capture.columns.stamp_ns)[rows[mine]]
    return delay


def _without_jumps(
    capture: PortCapture,
    clock: Clock,
    delay: I64,
    pairs: Pairs,
    index: int,
    notes: list[str],
) -> Clock:
    """Finds steps of a clock: sojourn times that change at once and stay changed."""
    mine = np.flatnonzero(pairs.input == index)
    if mine.size < 2 * LEAST_PAIRS:
        return clock
    own = delay[mine]
    jumps = np.abs(np.diff(own))
    usual = int(np.percentile(jumps, 99))
    for place in np.flatnonzero(jumps > STEP_NS + 2 * usual).tolist():
        before, after = own[max(0, place + 1 - NEAR) : place + 1], own[place + 1 :][:NEAR]
        change = int(np.median(after)) - int(np.median(before))
        if abs(change) <= STEP_NS or pairs.output[mine[place]] != pairs.output[mine[place + 1]]:
            continue
        # The queue changes little from one packet to the next, so this change is the step.
        exact = int(own[place + 1] - own[place])
        first, last = int(pairs.in_row[mine[place]]), int(pairs.in_row[mine[place + 1]])
        if last <= first:
            continue
        gaps = np.diff(capture.columns.stamp_ns[first : last + 1])
        # If sojourn times fall, the clock leapt forward.
        row = first + 1 + int(gaps.argmax() if change < 0 else gaps.argmin())
        clock = clock.shifted(exact, row)
        own = own - np.where(pairs.in_row[mine] >= row, exact, 0)
        notes.append(
            f"{capture.port}: its clock stepped by about {-exact / 1e6:.3f} ms at packet "
            f"{row + 1}; corrected"
        )
    return clock


def _offsets(
    inputs: Sequence[PortCapture], clocks: Sequence[Clock], pairs: Pairs, delay: I64
) -> list[int]:
    """What to add to each input's stamps; 0 if nothing contradicts them."""
    least = {
        index: int(delay[pairs.input == index].min())
        for index in range(len(inputs))
        if (pairs.input == index).any()
    }
    none = [0] * len(inputs)
    if not least:
        return none
    stamps = np.zeros(len(pairs), np.int64)
    for index, (capture, clock) in enumerate(zip(inputs, clocks, strict=True)):
        mine = pairs.input == index
        stamps[mine] = clock.correct(capture.columns.stamp_ns)[pairs.in_row[mine]]
    reference = max(least, key=lambda index: int((pairs.input == index).sum()))
    relative = {
        index: _between(stamps, pairs, reference, index, least[reference], least[index])
        for index in least
    }
    if min(least.values()) >= 0 and not any(relative.values()):
        return none
    # As many ports as possible are left as they are, provided that all packets leave after they
    # came. If that is impossible, the shortest sojourn time is taken to be zero.
    choices = []
    for anchor in least:
        shifts = {index: relative[index] - relative[anchor] for index in least}
        shortest = min(least[index] - shifts[index] for index in least)
        if shortest >= 0:
            choices.append((sum(map(bool, shifts.values())), shortest, shifts))
    if choices:
        _, _, shifts = min(choices, key=lambda choice: choice[:2])
    else:
        shortest = min(least[index] - relative[index] for index in least)
        shifts = {index: relative[index] + shortest for index in least}
    return [shifts.get(index, 0) for index in range(len(inputs))]


def _between(
    stamps: I64,
    pairs: Pairs,
    reference: int,
    port: int,
    least_reference: int,
    least_port: int,
) -> int:
    """What to add to `port`'s stamps to fit those of `reference`; 0 if their order says nothing.

    Each two packets that left one after the other bound the shift by the difference of their
    stamps: from below if the reference's packet left first, otherwise from above.
    """
    if reference == port:
        return 0
    first, second = pairs.input[:-1], pairs.input[1:]
    together = pairs.block[:-1] == pairs.block[1:]
    rising = together & (first == reference) & (second == port)
    falling = together & (first == port) & (second == reference)
    at_least = stamps[:-1][rising] - stamps[1:][rising]
    at_most = stamps[1:][falling] - stamps[:-1][falling]
    total = at_least.size + at_most.size
    if min(at_least.size, at_most.size) < LEAST_PAIRS:
        apart = least_port - least_reference
        return apart if min(least_reference, least_port) < 0 else 0
    against = _against(at_least, at_most, np.zeros(1, np.int64))[0]
    if against <= LEAST_SHARE * total:
        return 0
    bounds = np.unique(np.concatenate([at_least, at_most]))
    counts = _against(at_least, at_most, bounds)
    best = np.flatnonzero(counts == counts.min())
    if counts.min() > against / 3:
        return 0
    return int((bounds[best[0]] + bounds[best[-1]]) // 2)


def _against(at_least: I64, at_most: I64, shift: I64) -> Array:
    """For each shift, how many packets left against their order."""
    low, high = np.sort(at_least), np.sort(at_most)
    return (low.size - np.searchsorted(low, shift, side="right")) + np.searchsorted(
        high, shift, side="left"
    )
