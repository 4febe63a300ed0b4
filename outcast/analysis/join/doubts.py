"""Whether a join can be believed.

The counts of a join always agree. Packets without an explanation show that captures are missing,
cut or of another time, or that no correction makes the clocks agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from outcast.analysis.capture.headers import TCP
from outcast.analysis.capture.pcap import PortCapture
from outcast.analysis.join.clocks import CUT
from outcast.analysis.join.directions import CAME, LEFT, UNKNOWN, Directions
from outcast.analysis.join.join import Joined, Note, Stray, Verdict
from outcast.analysis.join.places import ELSEWHERE
from outcast.errors import UntrustedError

MOST_SHARE = 0.01
"""If more than this share of packets is unexplained, the join is refused."""
FEW = 64
"""The packets that may have been queued when a capture began or ended."""


class Reason(StrEnum):
    CLOCKS = "clocks"
    DIRECTION = "direction"
    UNEXPLAINED = "unexplained"
    UNDECIDED = "undecided"


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
    """A row of a refused join's table; `unseen` packets left and were never seen to come in."""

    port: str
    came: int
    left: int
    unseen: int
    first_ns: int
    last_ns: int


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


def port_counts(joined: Joined, captures: Sequence[PortCapture]) -> Iterator[PortCounts]:
    sources, directions = joined.sources, joined.sources.directions
    assert directions is not None
    is_unseen = (joined.stray == Stray.UNEXPLAINED) | (joined.stray == Stray.EARLY)
    for port in dict.fromkeys(sources.ports):
        files = [index for index, name in enumerate(sources.ports) if name == port]
        output = joined.outputs.index(port) if port in joined.outputs else -1
        yield PortCounts(
            port,
            sum(directions.packets(index, CAME) for index in files),
            sum(directions.packets(index, LEFT) for index in files),
            int((is_unseen & (joined.departures.port == output)).sum()),
            min(captures[index].first_ns or 0 for index in files),
            max(captures[index].last_ns or 0 for index in files),
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
    left = joined.counts.left
    clocks, waits_ns = joined.sources.clocks, joined.sources.impossible_ns
    if clocks is not None and clocks.contradiction is not None:
        ports = " and ".join(captures[index].port for index in clocks.contradiction)
        yield Reason.CLOCKS, f"{ports}: packets would leave before they came in"
    if _is_much(int((waits_ns > 0).sum()), left):
        yield Reason.CLOCKS, late_text(joined, max_sojourn_ns)
    if 2 * (backwards := int((waits_ns < 0).sum())) > left:
        yield (
            Reason.DIRECTION,
            f"{backwards:,} of the {left:,} packets that left by {' and '.join(joined.outputs)} "
            f"did so before they came in at {' and '.join(joined.inputs)}: inputs and outputs are "
            "exchanged, or clocks differ",
        )
    yield from ((Reason.DIRECTION, text) for text in joined.sources.differing)
    for index, capture in enumerate(captures):
        if _is_much(directions.packets(index, UNKNOWN), int(directions.counts[index].sum())):
            yield Reason.DIRECTION, directions.why_unknown(index, capture)
    yield from _never_came_in(joined, directions)
    yield from _departures_missing(joined, captures, directions)
    yield from _fate_unknown(joined)
    yield from _all_dropped(joined, captures, directions)


def _is_much(count: int, total: int, least: int = 1) -> bool:
    return count > max(MOST_SHARE * total, least)


def late_text(joined: Joined, max_sojourn_ns: int) -> str:
    """How many packets stayed for longer than possible; empty if none did."""
    waits_ns = joined.sources.impossible_ns
    if not (late := int((waits_ns > 0).sum())):
        return ""
    return (
        f"{late:,} packets left up to {int(waits_ns.max()) / 1e9:.3f} s after they came in, which "
        f"is longer than --max-sojourn {max_sojourn_ns / 1e9:g}s"
    )


def _never_came_in(joined: Joined, directions: Directions) -> Iterator[Refusal]:
    flows, stray = joined.departures.flow, joined.stray
    places = np.array([directions.place(flow.src) for flow in joined.flows], np.int64)[flows]
    for output, name in enumerate(joined.outputs):
        here = joined.departures.port == output
        total = int(here.sum())
        lost = here & (stray == Stray.UNEXPLAINED)
        early = here & (stray == Stray.EARLY)
        if int(early.sum()) > FEW:
            lost = lost | early
        # A port with little traffic can lack much of it.
        for place in (None, *np.unique(places[lost]).tolist()):
            mine = here if place is None else here & (places == place)
            if _is_much(count := int((lost & mine).sum()), int(mine.sum())):
                senders = Counter(joined.flows[row].src for row in flows[lost & mine].tolist())
                hosts = ", ".join(host for host, _ in senders.most_common(3))
                yield (
                    Reason.UNEXPLAINED,
                    f"{count:,} of the {total:,} packets that left by {name} were never seen to "
                    f"come in; they are from {hosts}",
                )
        if _is_much(twice := int((here & (stray == Stray.DUPLICATE)).sum()), total):
            yield Reason.UNEXPLAINED, f"{name}: {twice:,} of its {total:,} packets left twice"


def _fate_unknown(joined: Joined) -> Iterator[Refusal]:
    for output, name in enumerate(joined.outputs):
        here = joined.egress == output
        total = int(here.sum())
        for note, when in ((Note.IN_FLIGHT, "ends before"), (Note.BEFORE_OUTPUT, "begins after")):
            if _is_much(count := int((here & (joined.note == note)).sum()), total, FEW):
                yield (
                    Reason.UNDECIDED,
                    f"{name}: the fate of {count:,} of the {total:,} packets for it is unknown: "
                    f"its capture {when} the inputs', or packets are equal",
                )


def _departures_missing(
    joined: Joined, captures: Sequence[PortCapture], directions: Directions
) -> Iterator[Refusal]:
    """Most arrivals go to ports of which only arrivals were captured."""
    total, towards = 0, Counter[int]()
    for index, capture in enumerate(captures):
        came, counts = joined.sources.came[index], directions.counts[index]
        total += 0 if came is None else int(counts[came].sum())
        for row in np.flatnonzero(joined.sources.away(index)).tolist():
            place = directions.place(capture.flows[row].dst)
            if place != ELSEWHERE and joined.sources.left[place] is not None:
                towards[place] += int(counts[row])
    if (away := towards.total()) > total:
        port = captures[towards.most_common(1)[0][0]].port
        counted = f"{away:,} of the {total + away:,} packets that came in go there"
        yield Reason.UNDECIDED, f"{port}: {counted}, but its capture has none that left"


def _all_dropped(
    joined: Joined, captures: Sequence[PortCapture], directions: Directions
) -> Iterator[Refusal]:
    seen = {
        flow
        for capture, counts in zip(captures, directions.counts, strict=True)
        for flow, packets in zip(capture.flows, counts.tolist(), strict=True)
        if packets > FEW // 4
    }
    is_answered = [flow.protocol == TCP and flow.reversed in seen for flow in joined.flows]
    data = np.array(is_answered, np.bool_)[joined.arrivals.flow]
    for port, name in enumerate(joined.inputs):
        mine = joined.arrivals.port == port
        dropped = int((joined.verdict[mine & data] == Verdict.DROPPED).sum())
        forwarded = int((joined.verdict[mine] == Verdict.FORWARDED).sum())
        if dropped > FEW and forwarded <= MOST_SHARE * dropped:
            counted = f"{name}: all {dropped:,} packets that came in would be dropped"
            yield Reason.UNDECIDED, f"{counted}, but packets that acknowledge them go on"
