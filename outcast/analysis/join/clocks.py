"""The clocks of captures: one offset and one drift for each, estimated from packets.

Clocks are corrected only if the stamps contradict one clock (`offsets`). If no single offset and
drift fits, the join is refused. docs/join.md has the limits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from outcast.analysis.capture.pcap import PortCapture, grid_ns
from outcast.analysis.join.offsets import (
    RIGHT,
    STAMP_NS,
    Clock,
    Contradiction,
    solve,
)
from outcast.analysis.join.packets import Crossing
from outcast.analysis.machine_code import Array, Bool
from outcast.errors import UntrustedError

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
        crossings: the sampled packets of each two captures, with corrected stamps.
        remarks: a line on the errors that remain, and on units that differ.
        error_ns: the largest error of corrected stamps; 0 without corrections, None without a
            bound.
        shown_error_ns: the same without a drift that packets neither show nor exclude.
        contradiction: the bounds that no clocks satisfy, if there are any.
        slack_ns: how long before its arrival a packet may seem to leave although the clocks are
            right, because stamps have different units.
    """

    clocks: list[Clock]
    notes: list[str]
    crossings: list[Crossing]
    remarks: tuple[str, ...]
    error_ns: int | None = 0
    shown_error_ns: int | None = 0
    contradiction: Contradiction | None = None
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
        return Clocks(as_stamped, [], found, remarks, slack_ns=slack_ns)
    solved = solve(len(captures), reference, found)
    if isinstance(solved, Contradiction):
        return Clocks(as_stamped, [], found, (), None, None, contradiction=solved)
    error_ns = _error_ns(captures, solved, with_all=True)
    most = (
        "nothing bounds how wrong times in the switch still are"
        if error_ns is None
        else f"times in the switch are still wrong by {error_ns / 1e6:.3f} ms at most"
    )
    return Clocks(
        solved,
        [
            _clock_note(capture.port, captures[reference].port, clock)
            for capture, clock in zip(captures, solved, strict=True)
            if not clock.is_right
        ],
        [crossing.on(solved) for crossing in found],
        (f"clocks were corrected; {most}",),
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
            f"{', '.join(coarse)}: stamps are multiples of up to {max(units_ns) / 1e6:.7g} "
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
