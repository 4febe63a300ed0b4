"""The result of a join, and whether it can be believed.

The counts of a join always agree. Packets without an explanation show that captures are missing,
cut or of another time: departures that no capture saw arrive, arrivals of unknown fate, packets
that one capture alone has, and clocks that no correction makes agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from outcast.analysis.capture.headers import TCP, FlowKey
from outcast.analysis.capture.pcap import PortCapture
from outcast.analysis.compiled import Array, Bool
from outcast.analysis.join.clocks import CUT
from outcast.analysis.join.directions import CAME, LEFT, UNKNOWN, Directions
from outcast.analysis.join.join import CLOCK_TOLERANCE_NS, Joined, Note, Stray, Verdict
from outcast.analysis.join.places import ELSEWHERE
from outcast.errors import UntrustedError
from outcast.records.captures import ClockEstimate, QueueEstimate

if TYPE_CHECKING:
    from outcast.analysis.measure.blackout import Chains
    from outcast.analysis.measure.queue import Queue

MOST_SHARE = 0.01
"""If more than this share of packets is unexplained, the join is refused."""
FEW = 64
"""The packets that may have been queued when a capture began or ended."""
COPIED_WITHIN_NS = 100_000
"""Equal segments that come in within this time are one that was recorded twice. A sender that
repeats data waits for a round trip, and gives the packet another IP id."""


@dataclass(frozen=True, slots=True)
class DropRange:
    """The drops at an output from an input whose captures lack packets.

    Attributes:
        counted: captured packets that seem dropped.
        least: those that the captures prove.
        most: with those that the input's capture probably lacks.
        sentence: the numbers, and the evidence of missing packets.
    """

    ingress: str
    egress: str
    counted: int
    least: int
    most: int
    sentence: str


@dataclass(frozen=True, eq=False, repr=False)
class Found:
    """The result of a join; `outcast.Join` documents the parts."""

    joined: Joined
    queue: Queue
    chains: Chains
    remarks: tuple[str, ...]
    clocks: tuple[ClockEstimate, ...]
    estimates: tuple[QueueEstimate, ...]


class Reason(StrEnum):
    CLOCKS = "clocks"
    """No single offset and drift of each clock makes the captures agree."""
    DIRECTION = "direction"
    """The direction of packets is unknown, or their flows are ambiguous."""
    UNEXPLAINED = "unexplained"
    """Packets left that no capture saw come in, or that are there twice."""
    UNDECIDED = "undecided"
    """The fate of packets that came in is unknown."""


CURES = {
    Reason.CLOCKS: f"give a longer --max-sojourn if packets can wait for so long; else {CUT}",
    Reason.DIRECTION: "say which it is with --in and --out, or give the capture that is missing",
    Reason.UNEXPLAINED: "a capture is missing, cut or filtered, lost packets or has them twice "
    "(`editcap -w 0.001 FILE NEW`), or frames were merged (`ethtool -K DEVICE tso off gso off gro "
    "off`)",
    Reason.UNDECIDED: "capture each output for longer, or cut all files to the same time: `editcap "
    "-A START -B STOP FILE NEW`",
}

Refusal = tuple[Reason, str]
"""The reason, and the numbers in words."""


@dataclass(frozen=True, slots=True)
class PortCounts:
    """A row of a refused join's table.

    Attributes:
        unseen: packets that left there and were never seen to come in.
        first_ns, last_ns: the earliest and the latest stamp.
        apart_share: the share of the packets that takes no part.
    """

    port: str
    came: int
    left: int
    unseen: int
    first_ns: int
    last_ns: int
    apart_share: float


class RefusedJoin(UntrustedError):
    """Captures were joined, but the join cannot be believed.

    Attributes:
        reason: one of four.
        ports: the numbers of each port.
        remarks: a line on each capture that is cut off.
    """

    def __init__(
        self, refusal: Refusal, ports: Sequence[PortCounts], remarks: Sequence[str]
    ) -> None:
        self.reason, counted = refusal
        self.ports, self.remarks = tuple(ports), tuple(remarks)
        super().__init__(f"{counted}; {CURES[self.reason]}")

    @property
    def table(self) -> list[str]:
        """The numbers of each port as lines of text; stamps in seconds since the first."""
        first_ns = min(port.first_ns for port in self.ports)
        rows: list[tuple[str, ...]] = []
        rows += [("port", "came in", "left", "never came in", "first (s)", "last (s)", "no part")]
        for port in self.ports:
            counts = (f"{count:,}" for count in (port.came, port.left, port.unseen))
            times = (f"{(ns - first_ns) / 1e9:.3f}" for ns in (port.first_ns, port.last_ns))
            rows.append((port.port, *counts, *times, f"{port.apart_share:.1%}"))
        width = max(len(row[0]) for row in rows)
        return [f"{row[0]:{width}}" + "".join(f"{cell:>15}" for cell in row[1:]) for row in rows]


def port_counts(joined: Joined, captures: Sequence[PortCapture]) -> Iterator[PortCounts]:
    sources, directions = joined.sources, joined.sources.directions
    assert directions is not None
    is_unseen = (joined.stray == Stray.UNEXPLAINED) | (joined.stray == Stray.EARLY)
    for port in dict.fromkeys(sources.ports):
        files = [index for index, name in enumerate(sources.ports) if name == port]
        total = apart = 0
        for index in files:
            counts, sides = directions.counts[index], (sources.came[index], sources.left[index])
            rest = np.logical_and.reduce([~side for side in sides if side is not None])
            total, apart = total + int(counts.sum()), apart + int((counts * rest).sum())
        at_output = joined.outputs.index(port) if port in joined.outputs else -1
        yield PortCounts(
            port,
            sum(directions.packets(index, CAME) for index in files),
            sum(directions.packets(index, LEFT) for index in files),
            int((is_unseen & (joined.departures.port == at_output)).sum()),
            min(captures[index].first_ns or 0 for index in files),
            max(captures[index].last_ns or 0 for index in files),
            apart / max(total, 1),
        )


def doubts(
    joined: Joined, captures: Sequence[PortCapture], max_sojourn_ns: int
) -> Iterator[Refusal]:
    """The reasons to refuse a join, the most fundamental first.

    `captures` are in the order of `joined.sources`. A join of captures that were known to have one
    direction is not refused.
    """
    directions = joined.sources.directions
    if directions is None:
        return
    yield from _times(joined, captures, max_sojourn_ns)
    yield from _recorded_twice(joined)
    yield from _waits_too_long(joined, captures, max_sojourn_ns)
    yield from ((Reason.DIRECTION, text) for text in joined.sources.differing)
    for index, capture in enumerate(captures):
        total = int(directions.counts[index].sum())
        if directions.packets(index, UNKNOWN) > max(MOST_SHARE * total, 1):
            yield Reason.DIRECTION, directions.why_unknown(index, capture)
    yield from _never_came_in(joined, directions)
    yield from _departures_missing(joined, captures, directions)
    yield from _fate_unknown(joined)
    yield from _all_dropped(joined, captures, directions)


def late_text(joined: Joined, max_sojourn_ns: int) -> str:
    late_ns = joined.sources.late_ns
    return (
        f"{late_ns.size:,} packets left up to {int(late_ns.max()) / 1e9:.3f} s after they came in, "
        f"which is longer than --max-sojourn {max_sojourn_ns / 1e9:g}s"
    )


def _times(
    joined: Joined, captures: Sequence[PortCapture], max_sojourn_ns: int
) -> Iterator[Refusal]:
    sources, left = joined.sources, joined.counts.left
    clocks = sources.clocks
    if clocks is not None and clocks.contradiction is not None:
        found = clocks.contradiction
        ports = " and ".join(captures[index].port for index in (found.first, found.second))
        before_ms = found.by_ns / 1e6
        yield Reason.CLOCKS, f"{ports}: packets would leave {before_ms:.3f} ms before they came in"
    if sources.late_ns.size > max(MOST_SHARE * left, 1):
        yield Reason.CLOCKS, late_text(joined, max_sojourn_ns)
    if 2 * sources.backwards > left:
        outputs, inputs = (" and ".join(names) for names in (joined.outputs, joined.inputs))
        counted = f"{sources.backwards:,} of the {left:,} packets that left by {outputs} did so"
        exchanged = "inputs and outputs are exchanged, or clocks differ"
        yield Reason.DIRECTION, f"{counted} before they came in at {inputs}: {exchanged}"


def _recorded_twice(joined: Joined) -> Iterator[Refusal]:
    """Segments that came in twice within COPIED_WITHIN_NS. Each copy may have a match."""
    arrivals = joined.arrivals
    flows = len(joined.flows)
    low, high = np.full(flows, np.iinfo(np.int64).max), np.zeros(flows, np.int64)
    np.minimum.at(low, arrivals.flow, arrivals.ip_id)
    np.maximum.at(high, arrivals.flow, arrivals.ip_id)
    # Datagrams count if their host numbers them.
    is_numbered = (arrivals.flags > 0) | (high > low)[arrivals.flow] & (arrivals.ip_id > 0)
    of_data = np.flatnonzero((arrivals.payload_bytes > 0) & is_numbered)
    fields = [
        getattr(arrivals, name)[of_data].astype(np.int64)
        for name in ("port", "flow", "seq", "ip_id", "payload_bytes", "tsecr", "stamp_ns")
    ]
    order = np.lexsort(fields[::-1])
    steps = [np.diff(field[order]) for field in fields]
    same = np.logical_and.reduce([step == 0 for step in steps[:-1]])
    copies = int((same & (steps[-1] <= COPIED_WITHIN_NS)).sum())
    if copies > max(MOST_SHARE * of_data.size, 1):
        counted = f"{2 * copies:,} of {of_data.size:,} packets that came in are recorded twice"
        yield Reason.UNEXPLAINED, counted


def _waits_too_long(
    joined: Joined, captures: Sequence[PortCapture], max_sojourn_ns: int
) -> Iterator[Refusal]:
    clocks = joined.sources.clocks
    for crossing in clocks.crossings if clocks else ():
        delay = crossing.delay_ns
        wrong = (delay > max_sojourn_ns) | (delay < -CLOCK_TOLERANCE_NS)
        if int(wrong.sum()) > MOST_SHARE * delay.size:
            stay_s, most_s = float(np.median(delay)) / 1e9, max_sojourn_ns / 1e9
            yield (
                Reason.CLOCKS,
                f"{captures[crossing.came].port} to {captures[crossing.left].port}: packets would "
                f"stay in the switch for {stay_s:.3f} s, but --max-sojourn is {most_s:g} s",
            )


def _never_came_in(joined: Joined, directions: Directions) -> Iterator[Refusal]:
    departures = joined.departures
    places = np.array([directions.place(flow.src) for flow in joined.flows], np.int64)
    place_of = places[departures.flow]
    for output, name in enumerate(joined.outputs):
        here = departures.port == output
        total = int(here.sum())
        early = here & (joined.stray == Stray.EARLY)
        twice = here & (joined.stray == Stray.DUPLICATE)
        lost = here & (joined.stray == Stray.UNEXPLAINED)
        if int(early.sum()) > FEW:
            lost = lost | early
        if int(lost.sum()) > max(MOST_SHARE * total, 1):
            yield _unseen(name, lost, total, joined)
        elif int(twice.sum()) > max(MOST_SHARE * total, 1):
            counted = f"{name}: {int(twice.sum()):,} of its {total:,} packets left twice"
            yield Reason.UNEXPLAINED, counted
        else:
            # A port with little traffic can lack much of it.
            for place in np.unique(place_of[lost]).tolist():
                from_there = lost & (place_of == place)
                all_of_it = int((here & (place_of == place)).sum())
                if int(from_there.sum()) > max(MOST_SHARE * all_of_it, 1):
                    yield _unseen(name, from_there, total, joined)


def _unseen(name: str, lost: Bool, total: int, joined: Joined) -> Refusal:
    senders = Counter(joined.flows[row].src for row in joined.departures.flow[lost].tolist())
    hosts = ", ".join(host for host, _ in senders.most_common(3))
    more = f" and {len(senders) - 3} more" if len(senders) > 3 else ""
    return (
        Reason.UNEXPLAINED,
        f"{int(lost.sum()):,} of the {total:,} packets that left by {name} were never seen to come "
        f"in; they are from {hosts}{more}",
    )


def _departures_missing(
    joined: Joined, captures: Sequence[PortCapture], directions: Directions
) -> Iterator[Refusal]:
    """Most arrivals go to ports of which only arrivals were captured."""
    judged = 0
    towards: Counter[int] = Counter()
    for index, capture in enumerate(captures):
        came = joined.sources.came[index]
        if came is None:
            continue
        judged += int(directions.frame_bytes[index][came].sum())
        for row in np.flatnonzero((directions.ways[index] == CAME) & ~came).tolist():
            place = directions.place(capture.flows[row].dst)
            if place != ELSEWHERE and joined.sources.left[place] is not None:
                towards[place] += int(directions.frame_bytes[index][row])
    if towards.total() > judged:
        port = captures[towards.most_common(1)[0][0]].port
        counted = f"{towards.total():,} of the {towards.total() + judged:,} bytes that came in"
        yield Reason.UNDECIDED, f"{port}: {counted} go there, but its capture has none that left"


def _fate_unknown(joined: Joined) -> Iterator[Refusal]:
    for output, name in enumerate(joined.outputs):
        here = joined.egress == output
        for note, when in ((Note.IN_FLIGHT, "ends before"), (Note.BEFORE_OUTPUT, "begins after")):
            count, total = int((here & (joined.note == note)).sum()), int(here.sum())
            if count > max(FEW, MOST_SHARE * total):
                counted = (
                    f"{name}: the fate of {count:,} of the {total:,} packets for it is unknown"
                )
                why = f"its capture {when} the inputs', or packets are equal"
                yield Reason.UNDECIDED, f"{counted}: {why}"


def _all_dropped(
    joined: Joined, captures: Sequence[PortCapture], directions: Directions
) -> Iterator[Refusal]:
    arrivals = joined.arrivals
    answered = _answered(joined, captures, directions)
    for port, name in enumerate(joined.inputs):
        mine = arrivals.port == port
        data = mine & answered[arrivals.flow]
        dropped = int((joined.verdict[data] == Verdict.DROPPED).sum())
        forwarded = int((joined.verdict[mine] == Verdict.FORWARDED).sum())
        if dropped > FEW and forwarded <= MOST_SHARE * dropped:
            counted = f"{name}: all {dropped:,} packets that came in would be dropped"
            yield Reason.UNDECIDED, f"{counted}, but packets that acknowledge them go on"


def _answered(joined: Joined, captures: Sequence[PortCapture], directions: Directions) -> Array:
    """For each flow, whether it is TCP and has more than a few packets of the other direction."""
    count: Counter[FlowKey] = Counter()
    for capture, packets in zip(captures, directions.counts, strict=True):
        for flow, number in zip(capture.flows, packets.tolist(), strict=True):
            count[flow] = max(count[flow], number)
    return np.array(
        [flow.protocol == TCP and count[flow.reversed] > FEW // 4 for flow in joined.flows],
        np.bool_,
    )


def left_out(joined: Joined, captures: Sequence[PortCapture]) -> Iterator[str]:
    """A line on each capture whose packets take no part."""
    directions = joined.sources.directions
    if directions is None:
        return
    for index, capture in enumerate(captures):
        came, left = joined.sources.came[index], joined.sources.left[index]
        if left is not None and directions.packets(index, LEFT) and not left.any():
            yield (
                f"{capture.port}: what left there is not judged, because it came in where only "
                "what left was captured"
            )
        away = np.bool_(False) if came is None else (directions.ways[index] == CAME) & ~came
        if count := int((directions.counts[index] * away).sum()):
            yield (
                f"{capture.port}: {count:,} packets that came in there take no part, because no "
                "capture shows packets leave for their destinations"
            )
