"""Whether a join of anyone's captures can be believed; if not, a reason with its numbers.

A join always balances its books. What shows that captures are missing, cut or of another time is
what stays unexplained: departures that no capture saw arrive, arrivals whose fate nothing shows,
packets that one capture alone has, and clocks that no correction makes agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from outcast.analysis.capture.headers import TCP, FlowKey
from outcast.analysis.capture.pcap import PortCapture
from outcast.analysis.compiled import Array, Bool
from outcast.analysis.join.clocks import CUT
from outcast.analysis.join.directions import CAME, LEFT, UNTOLD, Directions
from outcast.analysis.join.findings import PortCounts, Reason, Refusal
from outcast.analysis.join.join import CLOCK_TOLERANCE_NS, Joined, Note, Stray, Verdict
from outcast.analysis.join.places import ELSEWHERE

MOST_SHARE = 0.01
"""If more than this share of packets is unexplained, the join is refused."""
FEW = 64
"""The packets that may have been queued when a capture began or ended."""
COPIED_WITHIN_NS = 100_000
"""Equal segments that come in within so short a time are one that was recorded twice. A sender that
repeats data waits for a round trip, and gives the packet another IP id."""


def doubts(joined: Joined, captures: Sequence[PortCapture], max_sojourn_ns: int) -> list[Refusal]:
    """Why a join cannot be believed, the most fundamental reason first; empty if it can.

    `captures` are those of the join, each once, in the order of `joined.sources`. Nothing is
    doubted where each capture was known to have one direction.
    """
    directions = joined.sources.directions
    if directions is None:
        return []
    first = [*_clocks_stepped(joined, captures), *_late_or_exchanged(joined, max_sojourn_ns)]
    return first or [
        *_recorded_twice(joined),
        *_waits_too_long(joined, captures, max_sojourn_ns),
        *(Refusal(Reason.DIRECTION, text) for text in joined.sources.differing),
        *_directions_unknown(directions, captures),
        *_never_came_in(joined, directions),
        *_departures_missing(joined, captures, directions),
        *_fate_unknown(joined),
        *_all_dropped(joined, captures, directions),
    ]


def port_counts(joined: Joined, captures: Sequence[PortCapture]) -> tuple[PortCounts, ...]:
    """For each port: what came in, what left, and what of it is not explained."""
    sources, directions = joined.sources, joined.sources.directions
    assert directions is not None
    counts = []
    is_unseen = (joined.stray == Stray.UNEXPLAINED) | (joined.stray == Stray.EARLY)
    for port in dict.fromkeys(sources.ports):
        files = [index for index, name in enumerate(sources.ports) if name == port]
        total = sum(int(directions.counts[index].sum()) for index in files)
        apart = 0
        for index in files:
            takes_part = np.zeros(directions.counts[index].size, np.bool_)
            for side in (sources.came[index], sources.left[index]):
                takes_part |= False if side is None else side
            apart += int(directions.counts[index][~takes_part].sum())
        at_output = joined.outputs.index(port) if port in joined.outputs else -1
        counts.append(
            PortCounts(
                port,
                sum(directions.packets(index, CAME) for index in files),
                sum(directions.packets(index, LEFT) for index in files),
                int((is_unseen & (joined.departures.port == at_output)).sum()),
                min(captures[index].first_ns or 0 for index in files),
                max(captures[index].last_ns or 0 for index in files),
                apart / max(total, 1),
            )
        )
    return tuple(counts)


def late_text(joined: Joined, max_sojourn_ns: int) -> str:
    """How many packets left later than `--max-sojourn` allows, and by how much."""
    late_ns = joined.sources.late_ns
    return (
        f"{late_ns.size:,} packets left up to {int(late_ns.max()) / 1e9:.3f} s after they came in, "
        f"which is longer than --max-sojourn {max_sojourn_ns / 1e9:g}s"
    )


def _clocks_stepped(joined: Joined, captures: Sequence[PortCapture]) -> Iterator[Refusal]:
    """Two captures whose clocks no single offset and drift makes agree."""
    clocks = joined.sources.clocks
    if clocks is not None and clocks.contradiction is not None:
        found = clocks.contradiction
        ports = " and ".join(captures[index].port for index in (found.first, found.second))
        yield Refusal(
            Reason.CLOCKS,
            f"{ports}: packets would leave {found.by_ns / 1e6:.3f} ms before they came in; {CUT}",
        )


def _late_or_exchanged(joined: Joined, max_sojourn_ns: int) -> Iterator[Refusal]:
    """Packets that left too late, or before they came in."""
    sources, left = joined.sources, joined.counts.left
    if sources.late_ns.size > max(MOST_SHARE * left, 1):
        most_s = int(sources.late_ns.max() / 1e9 * 1.5) + 1
        yield Refusal(
            Reason.CLOCKS,
            f"{late_text(joined, max_sojourn_ns)}; give --max-sojourn {most_s}s if packets can "
            "wait for so long, else the clock of one of the captures is wrong",
        )
    if 2 * sources.backwards > left:
        outputs, inputs = (" and ".join(names) for names in (joined.outputs, joined.inputs))
        yield Refusal(
            Reason.DIRECTION,
            f"{sources.backwards:,} of the {left:,} packets that left by {outputs} left before "
            f"they came in at {inputs}; inputs and outputs are exchanged, or clocks differ",
        )


def _recorded_twice(joined: Joined) -> Iterator[Refusal]:
    """Segments that came in twice at once: no sender repeats all it sends within so short a time.

    If an output's capture has them twice too, both copies find their counterpart.
    """
    arrivals = joined.arrivals
    flows = len(joined.flows)
    low, high = np.full(flows, np.iinfo(np.int64).max), np.zeros(flows, np.int64)
    np.minimum.at(low, arrivals.flow, arrivals.ip_id)
    np.maximum.at(high, arrivals.flow, arrivals.ip_id)
    # Where a host numbers its datagrams, they show it as well as segments do.
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
        yield Refusal(
            Reason.UNEXPLAINED,
            f"{2 * copies:,} of {of_data.size:,} packets that came in are recorded twice, as by a "
            "mirror of both directions; remove the copies: `editcap -w 0.001 FILE NEW`",
        )


def _waits_too_long(
    joined: Joined, captures: Sequence[PortCapture], max_sojourn_ns: int
) -> Iterator[Refusal]:
    """Two captures between which packets would stay for longer than any can."""
    clocks = joined.sources.clocks
    for came, output, delay in clocks.delays if clocks else ():
        wrong = (delay > max_sojourn_ns) | (delay < -CLOCK_TOLERANCE_NS)
        if int(wrong.sum()) > MOST_SHARE * delay.size:
            yield Refusal(
                Reason.CLOCKS,
                f"{captures[came].port} to {captures[output].port}: packets would stay in the "
                f"switch for {float(np.median(delay)) / 1e9:.3f} s, but --max-sojourn is "
                f"{max_sojourn_ns / 1e9:g} s; a clock is wrong",
            )


def _directions_unknown(
    directions: Directions, captures: Sequence[PortCapture]
) -> Iterator[Refusal]:
    for index, capture in enumerate(captures):
        total = int(directions.counts[index].sum())
        if directions.packets(index, UNTOLD) > max(MOST_SHARE * total, 1):
            yield Refusal(Reason.DIRECTION, directions.why_untold(index, capture))


def _never_came_in(joined: Joined, directions: Directions) -> Iterator[Refusal]:
    """Packets that left without having come in."""
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
            yield Refusal(
                Reason.UNEXPLAINED,
                f"{name}: {int(twice.sum()):,} of its {total:,} packets left twice, as where a "
                "file mirrors several ports; mirror one port into each file",
            )
        else:
            # A port with little traffic can lack much of it.
            for place in np.unique(place_of[lost]).tolist():
                from_there = lost & (place_of == place)
                all_of_it = int((here & (place_of == place)).sum())
                if int(from_there.sum()) > max(MOST_SHARE * all_of_it, 1):
                    yield _unseen(name, from_there, total, joined)


def _unseen(name: str, lost: Bool, total: int, joined: Joined) -> Refusal:
    """The refusal for an output with departures that no capture saw arrive."""
    senders = Counter(joined.flows[row].src for row in joined.departures.flow[lost].tolist())
    hosts = ", ".join(host for host, _ in senders.most_common(3))
    more = f" and {len(senders) - 3} more" if len(senders) > 3 else ""
    return Refusal(
        Reason.UNEXPLAINED,
        f"{int(lost.sum()):,} of the {total:,} packets that left by {name} were never seen to come "
        f"in; they are from {hosts}{more}; a capture of where they came in is missing, cut, "
        "filtered or lost packets, or frames were merged or cut between (`ethtool -K DEVICE tso "
        "off gso off gro off`)",
    )


def _departures_missing(
    joined: Joined, captures: Sequence[PortCapture], directions: Directions
) -> Iterator[Refusal]:
    """Most of what came in goes to ports of which only what came in was captured."""
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
        yield Refusal(
            Reason.UNDECIDED,
            f"{port}: {towards.total():,} of the {towards.total() + judged:,} bytes that came in "
            "go there, but its capture has nothing that left",
        )


def _fate_unknown(joined: Joined) -> Iterator[Refusal]:
    """Packets that came in and whose fate no capture shows."""
    for output, name in enumerate(joined.outputs):
        here = joined.egress == output
        for note, when in ((Note.IN_FLIGHT, "ends before"), (Note.BEFORE_OUTPUT, "begins after")):
            count, total = int((here & (joined.note == note)).sum()), int(here.sum())
            if count > max(FEW, MOST_SHARE * total):
                yield Refusal(
                    Reason.UNDECIDED,
                    f"{name}: the fate of {count:,} of the {total:,} packets for it is unknown: "
                    f"its capture {when} the inputs', or does not go on for long enough after "
                    "them, or packets are equal; capture for longer, or cut all files to the same "
                    "time: `editcap -A START -B STOP FILE NEW`",
                )


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
            yield Refusal(
                Reason.UNDECIDED,
                f"{name}: all {dropped:,} packets that came in would be dropped, but packets that "
                "acknowledge them go on; the output's capture lacks them",
            )


def _answered(joined: Joined, captures: Sequence[PortCapture], directions: Directions) -> Array:
    """For each flow, whether more than a few packets of the other direction were seen."""
    count: Counter[FlowKey] = Counter()
    for capture, packets in zip(captures, directions.counts, strict=True):
        for flow, number in zip(capture.flows, packets.tolist(), strict=True):
            count[flow] = max(count[flow], number)
    return np.array(
        [flow.protocol == TCP and count[flow.reversed] > FEW // 4 for flow in joined.flows],
        np.bool_,
    )


def left_out(joined: Joined, captures: Sequence[PortCapture]) -> Iterator[str]:
    """What takes no part in a join that can be believed, a line each."""
    directions = joined.sources.directions
    if directions is None:
        return
    for index, capture in enumerate(captures):
        left_flows = joined.sources.left[index]
        if left_flows is not None and directions.packets(index, LEFT) and not left_flows.any():
            yield (
                f"{capture.port}: what left there is not judged, because it came in where only "
                "what left was captured"
            )
        came = joined.sources.came[index]
        if came is None:
            continue
        away = (directions.ways[index] == CAME) & ~came
        count = int(directions.counts[index][away].sum())
        if count:
            yield (
                f"{capture.port}: {count:,} packets that came in there take no part, because no "
                "capture shows packets leave for their destinations"
            )
