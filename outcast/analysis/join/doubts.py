"""Whether a join of anyone's captures can be believed, and if not, what is probably missing.

A join always balances its books. What shows that captures are missing, cut or of another time is
what stays unexplained: departures that no capture saw arrive, arrivals while the output was not
captured, packets that one capture alone has, and clocks that no correction makes agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from outcast.analysis.capture.headers import TCP, FlowKey
from outcast.analysis.capture.pcap import PortCapture
from outcast.analysis.compiled import Array, Bool
from outcast.analysis.join.clocks import CUT
from outcast.analysis.join.directions import (
    CAME,
    LEFT,
    UNTOLD,
    Directions,
    host_text,
)
from outcast.analysis.join.findings import Reason, Refusal
from outcast.analysis.join.join import CLOCK_TOLERANCE_NS, Joined, Note, Stray, Verdict
from outcast.analysis.join.places import ELSEWHERE

MOST_SHARE = 0.01
"""If more than this share of packets is unexplained, the join is refused."""
FEW = 64
"""So many packets may have been queued when a capture began or ended."""
SAMPLES, SAMPLED = 16, 4_096
"""So many stretches of so many packets are searched for packets that were recorded twice."""
COPIED_WITHIN_NS = 100_000
"""Equal segments that come in within so short a time are one that was recorded twice. A sender that
repeats data waits for a round trip, and gives the packet another IP id."""
LARGEST_FRAME = 9_216
"""No wire carries larger frames; larger ones were merged or not yet cut by the network card."""


def doubts(joined: Joined, captures: Sequence[PortCapture], max_sojourn_ns: int) -> list[Refusal]:
    """Why a join cannot be believed, the most fundamental reason first; empty if it can.

    `captures` are those of the join, each once, in the order of `joined.sources`. Nothing is
    doubted where each capture was known to have one direction.
    """
    told = joined.sources.directions
    if told is None:
        return []
    if stepped := [*_stepped(joined, captures)]:
        return stepped
    if joined.sources.late_ns.size > max(MOST_SHARE * joined.counts.left, 1):
        allow = f"give --max-sojourn {int(joined.sources.late_ns.max() / 1e9 * 1.5) + 1}s"
        text = f"{late_text(joined, max_sojourn_ns)}. If packets can wait for so long, {allow}"
        # A queue with priorities or classes holds some packets up alone, as a wrong clock seems to.
        wrong = "If they cannot, the clock of one of the captures is wrong"
        return [Refusal(Reason.UNDECIDED, f"{text}. {wrong}")]
    if 2 * joined.sources.backwards > joined.counts.left:
        sides = (" and ".join(names) for names in (joined.outputs, joined.inputs))
        text = "{} of the {} packets that left by {} left before they came in at {}".format(
            f"{joined.sources.backwards:,}", f"{joined.counts.left:,}", *sides
        )
        why = "Probably inputs and outputs are exchanged, or their clocks differ"
        return [Refusal(Reason.DIRECTION, f"{text}. {why}")]
    return [
        *_merged_frames(joined),
        *_one_way(joined, captures, told),
        *_recorded_twice(joined),
        *_clocks(joined, captures, max_sojourn_ns),
        *(Refusal(Reason.REWRITTEN, text) for text in joined.sources.differing),
        *_directions(told, captures),
        *_unexplained(joined, captures, told),
        *_not_captured(joined, captures, told),
        *_undecided(joined, captures),
        *_all_dropped(joined, captures, told),
    ]


def late_text(joined: Joined, max_sojourn_ns: int) -> str:
    """How many packets left later than `--max-sojourn` allows, and by how much."""
    late_ns = joined.sources.late_ns
    return (
        f"{late_ns.size:,} packets left up to {int(late_ns.max()) / 1e9:.3f} s after they came in, "
        f"which is longer than --max-sojourn {max_sojourn_ns / 1e9:g}s"
    )


def _merged_frames(joined: Joined) -> Iterator[Refusal]:
    largest = int(joined.arrivals.frame_bytes.max(initial=0))
    counts = joined.counts
    strange = counts.unexplained + counts.early
    if largest <= LARGEST_FRAME or strange <= MOST_SHARE * counts.left:
        return
    row = int(joined.arrivals.frame_bytes.argmax())
    yield Refusal(
        Reason.UNEXPLAINED,
        f"{joined.inputs[int(joined.arrivals.port[row])]}: its capture has frames of {largest:,} "
        "bytes, so the network card had not yet cut them, or had merged them; capture with "
        "`ethtool -K DEVICE tso off gso off gro off` at all hosts and ports",
    )


def _recorded_twice(joined: Joined) -> Iterator[Refusal]:
    """Segments that came in twice at once: no sender repeats all it sends within so short a time.

    If an output's capture has them twice too, both copies find their counterpart.
    """
    arrivals = joined.arrivals
    apart = max(SAMPLED, len(arrivals) // SAMPLES)
    segments = copies = 0
    for start in range(0, len(arrivals), apart):
        rows = slice(start, start + SAMPLED)
        of_data = np.flatnonzero((arrivals.payload_bytes[rows] > 0) & (arrivals.flags[rows] > 0))
        of_data += start
        fields = [
            getattr(arrivals, name)[of_data].astype(np.int64)
            for name in ("port", "flow", "seq", "ip_id", "payload_bytes", "tsecr", "stamp_ns")
        ]
        order = np.lexsort(fields[::-1])
        steps = [np.diff(field[order]) for field in fields]
        same = np.logical_and.reduce([step == 0 for step in steps[:-1]])
        copies += int((same & (steps[-1] <= COPIED_WITHIN_NS)).sum())
        segments += of_data.size
    if copies <= max(MOST_SHARE * segments, 1):
        return
    yield Refusal(
        Reason.UNEXPLAINED,
        f"{2 * copies:,} of {segments:,} segments that came in are recorded twice. Probably a "
        "mirror is set up for both directions of a port, or the files were merged; remove the "
        "copies, as by `editcap -w 0.001 FILE NEW`, or capture one direction",
    )


def _one_way(
    joined: Joined, captures: Sequence[PortCapture], told: Directions
) -> Iterator[Refusal]:
    """Files of one direction of a port that hold packets of the other one."""
    ports = joined.sources.ports
    for index, capture in enumerate(captures):
        if ports.count(capture.port) == 1:
            continue
        home = ports.index(capture.port)
        came = home == index
        wrong = np.array([told.is_against(flow, home, came) for flow in capture.flows], np.bool_)
        wrong &= told.ways[index] == (CAME if came else LEFT)
        count, total = int(told.counts[index][wrong].sum()), int(told.counts[index].sum())
        if count > MOST_SHARE * total:
            way, hosts = ("came in", "other ports") if came else ("left", "this port")
            yield Refusal(
                Reason.DIRECTION,
                f"{capture.port}: {capture.path} is given as what {way} there, but {count:,} of "
                f"its {total:,} packets come from hosts behind {hosts}. Probably its two files are "
                f"exchanged, or they hold both directions; then give one, as "
                f"{capture.port}={capture.path}",
            )


def _stepped(joined: Joined, captures: Sequence[PortCapture]) -> Iterator[Refusal]:
    """Two captures whose clocks no single offset and drift makes agree."""
    clocks = joined.sources.clocks
    if clocks is None:
        return
    for found, what in (
        (clocks.contradiction, "packets would leave {} ms before they came in"),
        (clocks.leap, "waits change at once and for good by {} ms, and those back the other way"),
    ):
        if found is not None:
            ports = " and ".join(captures[index].port for index in (found.first, found.second))
            text = f"{ports}: {what.format(f'{found.by_ns / 1e6:.3f}')}; {CUT}"
            yield Refusal(Reason.CLOCKS, text)


def _clocks(
    joined: Joined, captures: Sequence[PortCapture], max_sojourn_ns: int
) -> Iterator[Refusal]:
    clocks = joined.sources.clocks
    if clocks is None:
        return
    beyond: Counter[str] = Counter()
    ways = {(came, output) for came, output, _ in clocks.delays}
    causes = (
        "The clock of one of the captures is wrong, and no packets of the other direction tell by "
        "how much",
        "Packets of the other direction contradict any other clock of one of the captures. So one "
        "clock stamped what came in and another one what left, as `-j adapter_unsynced` can do",
    )
    for came, output, delay in clocks.delays:
        wrong = int(((delay > max_sojourn_ns) | (delay < -CLOCK_TOLERANCE_NS)).sum())
        if wrong > MOST_SHARE * delay.size:
            beyond[
                f"{captures[came].port} to {captures[output].port}: packets would stay in the "
                f"switch for {float(np.median(delay)) / 1e9:.3f} s, but --max-sojourn is "
                f"{max_sojourn_ns / 1e9:g} s. {causes[(output, came) in ways]}"
            ] = wrong
    for text, _ in beyond.most_common(1):
        yield Refusal(Reason.CLOCKS, text)


def _directions(told: Directions, captures: Sequence[PortCapture]) -> Iterator[Refusal]:
    for index, capture in enumerate(captures):
        total = int(told.counts[index].sum())
        if told.packets(index, UNTOLD) > max(MOST_SHARE * total, 1):
            yield Refusal(Reason.DIRECTION, told.why_untold(index, capture))


def _unexplained(
    joined: Joined, captures: Sequence[PortCapture], told: Directions
) -> Iterator[Refusal]:
    """Packets that left without having come in."""
    departures = joined.departures
    places = np.array([told.place(flow.src) for flow in joined.flows], np.int64)
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
            most = Counter(place_of[lost].tolist()).most_common(1)[0][0]
            yield _unexplained_at(output, lost, most, joined, captures, told)
        elif int(twice.sum()) > max(MOST_SHARE * total, 1):
            yield Refusal(
                Reason.UNEXPLAINED,
                f"{name}: {int(twice.sum()):,} of its {total:,} packets left twice. Probably its "
                "file mirrors several ports (SPAN), or the switch sends copies. Mirror one port "
                "into each file, or give the file of each port by itself",
            )
        else:
            # A port with little traffic can lack much of it.
            for place in np.unique(place_of[lost]).tolist():
                from_there = lost & (place_of == place)
                all_of_it = int((here & (place_of == place)).sum())
                if int(from_there.sum()) > max(MOST_SHARE * all_of_it, 1):
                    yield _unexplained_at(output, from_there, place, joined, captures, told)


def _unexplained_at(
    output: int,
    lost: Bool,
    index: int,
    joined: Joined,
    captures: Sequence[PortCapture],
    told: Directions,
) -> Refusal:
    """The refusal for an output with departures that no capture saw arrive.

    Most of them come from behind the port of the capture `index`, or from ELSEWHERE.
    """
    total = int((joined.departures.port == output).sum())
    what = (
        f"{int(lost.sum()):,} of the {total:,} packets that left by {joined.outputs[output]} were "
        "never seen to come in"
    )
    if index == ELSEWHERE:
        cause = _missing_input(lost, joined, captures, told)
    elif told.packets(index, CAME):
        cause = _wrong_span(lost, joined, captures[index])
    else:
        cause = (
            f". The capture of {captures[index].port} ({captures[index].path}) has only what left "
            "there; what came in there is missing"
        )
    return Refusal(Reason.UNEXPLAINED, what + cause)


def _missing_input(
    lost: Bool, joined: Joined, captures: Sequence[PortCapture], told: Directions
) -> str:
    """Which hosts sent what no capture saw arrive."""
    of_flow = np.bincount(joined.departures.flow[lost], minlength=len(joined.flows))
    by_host: Counter[str] = Counter()
    to: Counter[str] = Counter()
    for row in np.flatnonzero(of_flow).tolist():
        flow, packets = joined.flows[row], int(of_flow[row])
        if told.place(flow.src) == ELSEWHERE:
            by_host[flow.src] += packets
            to[flow.dst] += packets
    macs: dict[str, int] = {}
    for capture in captures:
        for flow, mac in zip(capture.flows, capture.macs, strict=False):
            macs.setdefault(flow.src, mac)
    hosts = ", ".join(host_text(host, macs) for host, _ in by_host.most_common(3))
    more = f" and {len(by_host) - 3} more" if len(by_host) > 3 else ""
    return (
        f". Probably a capture of another input port is missing: {by_host.total():,} packets to "
        f"{to.most_common(1)[0][0]} left that no file saw arrive; they come from {hosts}{more}"
    )


def _wrong_span(lost: Bool, joined: Joined, source: PortCapture) -> str:
    """Whether the capture of a port began too late or ended too early, or what else it may be."""
    stamps = joined.departures.stamp_ns[lost]
    capture = f"The capture of {source.port} ({source.path})"
    came = joined.arrivals.stamp_ns[:0]
    if source.port in joined.inputs:
        came = joined.arrivals.stamp_ns[joined.arrivals.port == joined.inputs.index(source.port)]
    if came.size and float((stamps > came.max()).mean()) > 0.5:
        late = int((stamps > came.max()).sum())
        return (
            f". {capture} ends {(int(stamps.max()) - int(came.max())) / 1e9:.3f} s too early: "
            f"{late:,} of them left later"
        )
    if came.size and float((stamps < came.min()).mean()) > 0.5:
        early_s = (int(came.min()) - int(stamps.min())) / 1e9
        return f". {capture} begins {early_s:.3f} s too late"
    return (
        f", though they come from hosts behind {source.port}. Probably its capture "
        f"({source.path}) lost packets, had a filter, is of another time, or was stamped by two "
        "clocks, one for what came in and one for what left"
    )


def _not_captured(
    joined: Joined, captures: Sequence[PortCapture], told: Directions
) -> Iterator[Refusal]:
    """Most of what came in goes to ports of which only what came in was captured."""
    judged = 0
    towards: Counter[int] = Counter()
    for index, capture in enumerate(captures):
        came = joined.sources.came[index]
        if came is None:
            continue
        judged += int(told.frame_bytes[index][came].sum())
        for row in np.flatnonzero((told.ways[index] == CAME) & ~came).tolist():
            place = told.place(capture.flows[row].dst)
            if place != ELSEWHERE and joined.sources.left[place] is not None:
                towards[place] += int(told.frame_bytes[index][row])
    if towards.total() <= judged:
        return
    port = captures[towards.most_common(1)[0][0]]
    yield Refusal(
        Reason.UNDECIDED,
        f"{port.port}: its capture ({port.path}) has only what came in there, but "
        f"{towards.total():,} of the {towards.total() + judged:,} bytes that came in go there; "
        "what left by it is missing",
    )


def _undecided(joined: Joined, captures: Sequence[PortCapture]) -> Iterator[Refusal]:
    """Packets that came in and whose fate no capture shows."""
    paths = {capture.port: capture.path for capture in captures}
    for output, name in enumerate(joined.outputs):
        here = joined.egress == output
        for note, what, way, when in (
            (Note.IN_FLIGHT, "end", "before", "after"),
            (Note.BEFORE_OUTPUT, "begin", "after", "before"),
        ):
            mask = here & (joined.note == note)
            count = int(mask.sum())
            if count <= max(FEW, MOST_SHARE * int(here.sum())):
                continue
            alike = int(mask[joined.sources.alike].sum())
            if 2 * alike > count:
                yield Refusal(
                    Reason.UNDECIDED,
                    f"{name}: nothing tells which packets left, because {alike:,} whose fate is "
                    "unknown are equal to the one of their flow before them, as datagrams of "
                    "constant content without IP ids are",
                )
                continue
            seconds = int(np.ptp(joined.arrivals.stamp_ns[mask])) / 1e9
            yield Refusal(
                Reason.UNDECIDED,
                f"{name}: its capture ({paths[name]}) {what}s {seconds:.3f} s {way} those of the "
                f"inputs {what}, so the fate of {count:,} packets that came in {when} is unknown. "
                "Cut the other files to the same time, as by `editcap -A START -B STOP`",
            )


def _all_dropped(
    joined: Joined, captures: Sequence[PortCapture], told: Directions
) -> Iterator[Refusal]:
    arrivals = joined.arrivals
    answered = _answered(joined, captures, told)
    for port, name in enumerate(joined.inputs):
        mine = arrivals.port == port
        data = mine & answered[arrivals.flow]
        dropped = int((joined.verdict[data] == Verdict.DROPPED).sum())
        forwarded = int((joined.verdict[mine] == Verdict.FORWARDED).sum())
        if dropped > FEW and forwarded <= MOST_SHARE * dropped:
            yield Refusal(
                Reason.ALL_DROPPED,
                f"{name}: all {dropped:,} packets that came in there would be dropped, but packets "
                "that acknowledge them go on. Probably the capture of the output lacks them, or "
                f"the file of {name} is of another port or time",
            )


def _answered(joined: Joined, captures: Sequence[PortCapture], told: Directions) -> Array:
    """For each flow, whether more than a few packets of the other direction were seen."""
    count: Counter[FlowKey] = Counter()
    for capture, packets in zip(captures, told.counts, strict=True):
        for flow, number in zip(capture.flows, packets.tolist(), strict=True):
            count[flow] = max(count[flow], number)
    return np.array(
        [flow.protocol == TCP and count[flow.reversed] > FEW // 4 for flow in joined.flows],
        np.bool_,
    )


def left_out(joined: Joined, captures: Sequence[PortCapture]) -> Iterator[str]:
    """What takes no part in a join that can be believed, a line each."""
    told = joined.sources.directions
    if told is None:
        return
    for index, capture in enumerate(captures):
        left_flows = joined.sources.left[index]
        if left_flows is not None and told.packets(index, LEFT) and not left_flows.any():
            yield (
                f"{capture.port}: what left there is not judged, because it came in where only "
                "what left was captured"
            )
        came = joined.sources.came[index]
        if came is None:
            continue
        away = (told.ways[index] == CAME) & ~came
        count = int(told.counts[index][away].sum())
        if count:
            yield (
                f"{capture.port}: {count:,} packets that came in there take no part, because no "
                "capture shows packets leave for their destinations"
            )
