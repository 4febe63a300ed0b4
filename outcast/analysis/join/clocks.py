"""The clocks of captures: one offset and one drift for each, estimated from the packets themselves.

Clocks are corrected only if the stamps contradict what packets can do (`offsets`). Where no single
offset and drift fits, the join is refused. docs/join.md has the limits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from outcast.analysis.capture.pcap import PortCapture, grid_ns
from outcast.analysis.compiled import I64, Array, Bool
from outcast.analysis.join.offsets import (
    RIGHT,
    STAMP_NS,
    Clock,
    Contradiction,
    solve,
)
from outcast.analysis.join.packets import Crossing, Pairs, crossings
from outcast.errors import UntrustedError

MOST_LATE = 0.01
"""If more than this share of packets stays for longer than any can, the clocks disagree."""
STEP_BACK_NS = 1_000_000
"""Stamps that go back by more are a step of the clock; by less, packets were noted out of order."""
MOST_STEPS = 16
"""Stamps that go back more often are of a file that is not in order."""

CUT = (
    "no single offset and drift fits, so the clock may have stepped: cut the file there, "
    "`editcap -A START -B STOP FILE NEW`"
)
"""What is said of clocks that no offset and drift makes agree."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of captures.

    Attributes:
        notes: a line on each correction.
        delays: for each two captures, the corrected sojourn times of the sampled packets that
            came in at the first and left by the second.
        remarks: a line on what is left wrong, and on units that differ.
        error_ns: by how much corrected stamps can be wrong; 0 if nothing was corrected, None if
            nothing bounds it.
        shown_error_ns: the same without a drift that packets neither show nor exclude.
        contradiction: what cannot be satisfied by any clocks, if there is such.
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
    slack_ns: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """What clocks are estimated from.

    Attributes:
        pairs: the sampled packets that two captures saw.
        reference: the capture on whose clock all shall be.
        units_ns: the unit of each capture's stamps.
    """

    captures: Sequence[PortCapture]
    pairs: Pairs
    reference: int
    units_ns: Sequence[int]

    def slack_ns(self, came: int, output: int) -> int:
        """By how much sooner a packet may seem to leave because stamps have different units."""
        units = self.units_ns[came], self.units_ns[output]
        return 0 if units[0] == units[1] else max(units)

    def delays_by_captures(self, clocks: Sequence[Clock]) -> tuple[tuple[int, int, I64], ...]:
        """The sojourn times by the captures where packets came in and left."""
        return tuple(
            (
                one.came,
                one.left,
                clocks[one.left].correct(one.left_ns)
                - clocks[one.came].correct(one.came_ns)
                + one.slack_ns,
            )
            for one in self.crossings()
        )

    def crossings(self) -> list[Crossing]:
        """The sampled pairs by captures, with stamps as they are."""
        stamps = [capture.columns.stamp_ns for capture in self.captures]
        return crossings(self.pairs, stamps, self.slack_ns)


def estimate(
    captures: Sequence[PortCapture],
    pairs: Pairs,
    left_flows: Sequence[Bool | None],
    outputs: Collection[int],
    max_sojourn_ns: int,
) -> Clocks:
    """Finds the clocks of captures, on that of the output by which most packets left.

    Nothing is corrected unless the stamps contradict one clock: a packet leaves too early, or many
    too late. Nothing else counts as a contradiction. A queue can make packets wait for any time and
    in any order, so waits that grow or differ say nothing about clocks.

    `left_flows` tells for each capture and each of its flows whether it left there; None if nothing
    did. Raises UntrustedError where stamps of a capture go back.
    """
    left_rows: list[Array] = [
        np.empty(0, np.int64) if flows is None else np.flatnonzero(flows[capture.columns.flow])
        for capture, flows in zip(captures, left_flows, strict=True)
    ]
    for capture, rows in zip(captures, left_rows, strict=True):
        require_no_step_back(capture, rows)
    reference = max(sorted(outputs), key=lambda index: left_rows[index].size)
    sample = Sample(captures, pairs, reference, _units_ns(captures))
    as_stamped = [RIGHT] * len(captures)
    delays = sample.delays_by_captures(as_stamped)
    if all(
        int(delay.min()) >= -STAMP_NS and float((delay > max_sojourn_ns).mean()) <= MOST_LATE
        for _, _, delay in delays
    ):
        units = sample.units_ns
        slack_ns = max(units) if len(set(units)) > 1 else 0
        return Clocks(as_stamped, [], delays, tuple(_units_remark(sample)), slack_ns=slack_ns)
    solved = solve(len(captures), reference, sample.crossings())
    if isinstance(solved, Contradiction):
        return Clocks(as_stamped, [], delays, (), None, None, contradiction=solved)
    return _corrected(sample, solved)


def _corrected(sample: Sample, solved: list[Clock]) -> Clocks:
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
    those of one direction stay in their order, or are soon as late as before. After a clock stepped
    back, stamps take as long as it stepped.
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


# --- what is said of them


def _units_ns(captures: Sequence[PortCapture]) -> list[int]:
    """The unit of each capture's stamps.

    Few stamps show none. If they fit the coarsest unit of the others, it is theirs too.
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
