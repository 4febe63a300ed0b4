"""The direction of each flow at each capture, and the flows that take part in a join.

A host is behind a port of the switch, or behind several equal paths (a bond, ECMP). Its packets
come in there, and leave by other ports. So the ports of each address give all directions. A port
with a file for each direction is one port. The evidence, in this order:

1. The capture itself, if it says of each packet whether it came in or left (Linux cooked). And the
   TTL, which a router counts down.
2. Packets of both directions between two hosts that the same two captures saw. In one direction
   the first capture has the earlier stamp, in the other direction the second. An offset of the
   clocks moves both differences alike.
3. The captures that see an address at all: the port of a host sees all its conversations.
4. The caller's --in and --out. A host of several conversations that share no port is behind one
   that was not captured.
5. The stamps as they are, if the captures agree on them, and the number of packets: the port by
   which packets leave cannot have more of them.
"""

from __future__ import annotations

import ipaddress
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from outcast.analysis.capture.headers import INBOUND, OUTBOUND, FlowKey
from outcast.analysis.capture.pcap import PortCapture
from outcast.analysis.join.packets import Observations, grouped, numbered
from outcast.analysis.join.places import ELSEWHERE, NEARLY_ALL, Conversations, Delays, find
from outcast.analysis.machine_code import I8, I32, I64, Array, Bool
from outcast.errors import InputError, UntrustedError

CAME, LEFT, UNKNOWN, ASIDE = 0, 1, 2, 3
"""The direction of a flow at a capture. ASIDE: between hosts of one port, to a group of hosts, or
from its own destination."""

WINDOWS = 64
"""The parts of the common packets of two captures, in which clocks drift by less than a wait."""


@dataclass(slots=True)
class Directions:
    """The direction of each flow at each capture.

    Attributes:
        places: for each address, the captures behind whose ports it is, the surest first: several
            for equal paths, ELSEWHERE alone for a port without a capture. A port with a file for
            each direction counts as its input file.
        ways: for each capture and each of its flows, one of CAME, LEFT, UNKNOWN and ASIDE.
        counts: for each capture, the packets of each of its flows.
    """

    places: dict[str, tuple[int, ...]]
    ways: list[I8]
    counts: list[I64]

    def place(self, address: str) -> int:
        return self.places.get(address, (ELSEWHERE,))[0]

    def packets(self, capture: int, way: int) -> int:
        return int(self.counts[capture][self.ways[capture] == way].sum())

    def why_unknown(self, index: int, capture: PortCapture) -> str:
        return (
            f"{capture.port}: the direction of its {self.packets(index, UNKNOWN):,} packets is "
            "unknown: no other capture has them, or no stamps differ"
        )


def find_directions(
    captures: Sequence[PortCapture],
    observations: Observations,
    given: Sequence[int | None],
    longest_ns: int,
) -> Directions:
    """Finds the directions of all captures of a switch's ports.

    `given` has CAME or LEFT for a capture that the caller gives as an input or an output only, else
    None. No packet stays in the switch for longer than `longest_ns`.
    """
    counted = [
        np.bincount(capture.columns.flow, minlength=len(capture.flows)) for capture in captures
    ]
    # For each capture, the first one of its port. A port may have a file for each direction.
    names = [capture.port for capture in captures]
    homes = [names.index(name) for name in names]
    halves = {index for index, home in enumerate(homes) if homes.count(home) > 1}
    conversations = _conversations(captures, homes, counted)
    votes: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    known = [
        way if index in halves else _one_way(capture, way)
        for index, (capture, way) in enumerate(zip(captures, given, strict=True))
    ]
    words = tuple(
        {index for index, word in enumerate(given) if word == way and index not in halves}
        for way in (CAME, LEFT)
    )
    _count_marks(captures, homes, halves, known, votes)
    delays = _compare(captures, homes, observations, votes)
    places = find(conversations, delays, votes, (words[0], words[1]), longest_ns)
    ways = [
        np.array([_way(flow, home, way, places) for flow in capture.flows], np.int8)
        for capture, home, way in zip(captures, homes, known, strict=True)
    ]
    return Directions(places, ways, counted)


def _one_way(capture: PortCapture, given: int | None) -> int | None:
    """CAME or LEFT if the caller and the capture agree on it for all packets, else None."""
    marks = capture.columns.marks
    mark = {None: 0, CAME: INBOUND, LEFT: OUTBOUND}[given]
    return given if mark and marks.size and ((marks & mark) != 0).all() else None


def sent_by_the_machine(captures: Sequence[PortCapture]) -> set[str]:
    """The addresses whose packets leave without coming in: those of the capturing machine.

    Empty unless one file has all captures and the direction of each packet.
    """
    if len({capture.path for capture in captures}) > 1:
        return set()
    came: set[str] = set()
    outbound: set[str] = set()
    for capture in captures:
        columns = capture.columns
        for mark, sources in ((INBOUND, came), (OUTBOUND, outbound)):
            rows = np.unique(columns.flow[(columns.marks & mark) != 0]).tolist()
            sources.update(capture.flows[row].src for row in rows)
        if not ((columns.marks & (INBOUND | OUTBOUND)) != 0).all():
            return set()
    return outbound - came


def is_group(address: str) -> bool:
    return address == "255.255.255.255" or ipaddress.ip_address(address).is_multicast


def _conversations(
    captures: Sequence[PortCapture], homes: Sequence[int], counts: Sequence[I64]
) -> Conversations:
    """The conversations at each port, without groups of hosts and packets with equal ends."""
    conversations: Conversations = {}
    for index, capture, count in zip(homes, captures, counts, strict=True):
        for flow, packets in zip(capture.flows, count.tolist(), strict=True):
            if not packets:
                continue
            first, second = sorted((flow.src, flow.dst))
            seen = conversations.setdefault((first, second), {}).setdefault(index, Counter())
            seen[flow.src] += packets
    return {
        pair: seen
        for pair, seen in conversations.items()
        if not is_group(pair[0]) and not is_group(pair[1]) and pair[0] != pair[1]
    }


def _count_marks(
    captures: Sequence[PortCapture],
    homes: Sequence[int],
    halves: Collection[int],
    known: Sequence[int | None],
    votes: dict[str, dict[int, float]],
) -> None:
    """Counts the directions that captures record themselves.

    `halves` have one direction of a port, as the caller states. A capture of the departures of all
    ports counts only for hosts that never sent.
    """
    for index in sorted(range(len(captures)), key=lambda index: known[index] == LEFT):
        capture, home = captures[index], homes[index]
        marks = capture.columns.marks
        if index in halves:
            marks = np.full_like(marks, INBOUND if known[index] == CAME else OUTBOUND)
        if not (marks[:1000] & (INBOUND | OUTBOUND)).any():
            continue
        for mark, end in ((INBOUND, "src"), (OUTBOUND, "dst")):
            packets = np.bincount(capture.columns.flow[(marks & mark) != 0])
            for row in np.flatnonzero(packets).tolist():
                # Flooded packets leave by all ports, so a destination needs few votes.
                address = getattr(capture.flows[row], end)
                if known[index] != LEFT or address not in votes or home in votes[address]:
                    votes[address][home] += float(packets[row])


def _compare(
    captures: Sequence[PortCapture],
    homes: Sequence[int],
    observations: Observations,
    votes: dict[str, dict[int, float]],
) -> Delays:
    """Compares the two directions of conversations that two captures saw."""
    delays: Delays = {}
    for first, second in combinations(range(len(captures)), 2):
        if homes[first] == homes[second]:
            continue
        if homes[first] > homes[second]:
            first, second = second, first
        first_row, second_row = observations.between(first, second)
        if not first_row.size:
            continue
        columns, flows = captures[first].columns, captures[first].flows
        stamps = columns.stamp_ns[first_row]
        second_ttl = captures[second].columns.ttl[second_row]
        later = captures[second].columns.stamp_ns[second_row] - stamps
        names, (of_flow,) = numbered([[(flow.src, flow.dst) for flow in flows]])
        in_order = np.argsort(first_row, kind="stable")
        ends = of_flow[columns.flow[first_row[in_order]]]
        rows_of = {names[number]: in_order[rows] for number, rows in grouped(ends).items()}
        for (src, dst), rows in rows_of.items():
            ports = homes[first], homes[second], src, dst
            delays[ports] = np.append(delays.get(ports, later[:0]), later[rows])
            back = rows_of.get((dst, src))
            balance = _counted_down(columns.ttl[first_row[rows]], second_ttl[rows])
            if not balance and src < dst and back is not None:
                balance = _balance(first_row[rows], later[rows], first_row[back], later[back])
            if balance:
                behind_first, behind_second = (src, dst) if balance > 0 else (dst, src)
                votes[behind_first][homes[first]] += abs(balance)
                votes[behind_second][homes[second]] += abs(balance)
    return delays


def _counted_down(ttl: Array, other_ttl: Array) -> float:
    """The packets whose TTL is lower at the other capture; negative if it is higher there."""
    steps = np.sign(ttl.astype(np.int16) - other_ttl)
    return float(steps.sum()) if abs(int(steps.sum())) >= NEARLY_ALL * steps.size else 0.0


def _balance(at: I32, later: I64, back_at: I32, back_later: I64) -> float:
    """The packets that are later at the second capture, relative to those of the way back.

    Negative if they are earlier. Packets are compared with those of about the same time.
    """
    both = np.concatenate([at, back_at])
    windows = min(WINDOWS, 1 + both.size // 50)
    edges = np.quantile(both, np.linspace(0, 1, windows + 1)[1:-1]) if windows > 1 else np.empty(0)
    here, there = np.searchsorted(edges, at), np.searchsorted(edges, back_at)
    balance = 0.0
    for window in range(windows):
        delays, other = later[here == window], back_later[there == window]
        if delays.size and other.size:
            difference = float(np.median(delays) - np.median(other))
            balance += float(np.sign(difference)) * min(delays.size, other.size)
    return balance


def _way(flow: FlowKey, home: int, known: int | None, places: Mapping[str, tuple[int, ...]]) -> int:
    """The direction of a flow at a port; `known` is the direction of all its flows, if any."""
    # A packet from its own destination is forged (a LAND attack).
    if is_group(flow.dst) or flow.src == flow.dst:
        return ASIDE
    if known is not None:
        return known
    source, destination = places.get(flow.src), places.get(flow.dst)
    from_here = source is not None and home in source
    to_here = destination is not None and home in destination
    if from_here and to_here and source is not None and destination is not None:
        # A host behind this port alone has no other path.
        alone = (len(source) == 1) - (len(destination) == 1)
        return (LEFT, ASIDE, CAME)[alone + 1]
    if from_here:
        return CAME
    if to_here or source is not None:
        return LEFT
    return UNKNOWN if destination is None else CAME


FIRST_TTLS = (64, 128, 255)
"""The first TTLs of operating systems (RFC 1700 and practice)."""


@dataclass(frozen=True, slots=True)
class United:
    """The flows that a hop changes.

    Attributes:
        changed: whether captures were changed, so that a new sample is needed.
        notes: a line on each two captures and each identity by which flows were joined.
        refusals: a line on each capture with ambiguous flows.
        unsure: for each capture, its ambiguous flows. They take no part.
    """

    changed: bool = False
    notes: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    unsure: tuple[Bool, ...] = ()


UNCHANGED = United()


@dataclass(frozen=True, slots=True)
class Hop:
    """The captures of a hop's ports, each once, and their flows.

    Attributes:
        inputs, outputs: the indices of the captures that are inputs, and that are outputs.
        flows: the flows of all captures.
        rows: for each capture and each of its flows, the flow's index in `flows`.
        given: for each capture, CAME or LEFT if the caller gives it as one side only.
        directions: None if each capture is known to have one direction.
        notes: a line on each change that the hop makes, and on packets that take no part.
    """

    captures: list[PortCapture]
    inputs: list[int]
    outputs: list[int]
    flows: tuple[FlowKey, ...]
    rows: list[I32]
    observations: Observations
    given: Sequence[int | None]
    directions: Directions | None = None
    united: United = UNCHANGED
    notes: tuple[str, ...] = ()

    def require_departures(self, left_flows: Sequence[Bool | None], to: Collection[str]) -> None:
        """Raises InputError or UntrustedError if nothing leaves for `to`."""
        directions = self.directions
        if directions is None or any(mask is not None and mask.any() for mask in left_flows):
            return
        if self.united.refusals:
            raise UntrustedError(self.united.refusals[0])
        unknown = [directions.packets(index, UNKNOWN) for index in range(len(self.captures))]
        if any(unknown):
            index = unknown.index(max(unknown))
            why = directions.why_unknown(index, self.captures[index])
            raise InputError(f"{why}; say it with --in and --out")
        addresses = f" to {', '.join(sorted(to))}" if to else ""
        came = all(directions.packets(index, CAME) for index in self.outputs)
        exchanged = "; inputs and outputs may be exchanged" if came else ""
        raise InputError(
            f"no packets{addresses} leave the switch: nothing left by the output{exchanged}"
        )


def taking_part(
    hop: Hop, inputs: Collection[int], outputs: Collection[int]
) -> tuple[list[Bool | None], list[Bool | None]]:
    """For each capture and each of its flows, whether it counts as arriving, and as leaving.

    An arriving flow counts if packets leave for its destination.
    """
    captures, directions = hop.captures, hop.directions
    left_flows: list[Bool | None] = [None] * len(captures)
    came: list[Bool | None] = [None] * len(captures)
    for index in set(outputs):
        count = np.bincount(captures[index].columns.flow, minlength=len(captures[index].flows))
        left_flows[index] = (count > 0) & (directions is None or directions.ways[index] == LEFT)
    if directions is not None:
        _leave_out_one_sided(left_flows, captures, directions)
    addresses = {
        hop.flows[number].dst
        for row, mask in zip(hop.rows, left_flows, strict=True)
        if mask is not None
        for number in row[mask].tolist()
    }
    for index in set(inputs):
        there = goes_to(captures[index], addresses)
        came[index] = there & (directions is None or directions.ways[index] == CAME)
    return came, left_flows


def goes_to(capture: PortCapture, addresses: Collection[str]) -> Bool:
    return capture.flows_with(lambda flow: flow.dst in addresses)


def _leave_out_one_sided(
    left_flows: list[Bool | None], captures: Sequence[PortCapture], directions: Directions
) -> None:
    """Leaves out outputs whose packets all come from ports of which only departures were captured.

    Their queues cannot be measured, and no other queue depends on them.
    """
    ports = [capture.port for capture in captures]
    # A port with a file of its own for arrivals was captured.
    silent = {
        index
        for index, port in enumerate(ports)
        if ports.count(port) == 1 and not directions.packets(index, CAME)
    }
    for index, here in enumerate(left_flows):
        if here is None or not here.any():
            continue
        packets = directions.counts[index]
        hidden = captures[index].flows_with(
            lambda flow: silent.issuperset(directions.places.get(flow.src, (ELSEWHERE,)))
        )
        if packets[here & hidden].sum() >= NEARLY_ALL * packets[here].sum():
            left_flows[index] = np.zeros_like(here)


def set_own_aside(
    captures: Sequence[PortCapture], directions: Directions, is_router: bool
) -> list[str]:
    """Sets aside packets from and to the router, or the capturing machine. Returns remarks."""
    notes = []
    for index, capture in enumerate(captures if is_router else ()):
        others = {flow for other in captures if other is not capture for flow in other.flows}
        sent, got = _of_router(capture, index, directions, others)
        notes += _set_aside(capture, index, directions, sent, " that the router itself sent")
        notes += _set_aside(capture, index, directions, got, " for the router")
    addresses = sent_by_the_machine(captures)
    for index, capture in enumerate(captures if addresses else ()):
        own = capture.flows_with(lambda flow: flow.src in addresses) & (
            directions.ways[index] != ASIDE
        )
        notes += _set_aside(capture, index, directions, own, " that this machine itself sent")
    return notes


def _set_aside(
    capture: PortCapture, index: int, directions: Directions, own: Bool, which: str
) -> list[str]:
    """Sets flows aside. Returns a line if they have packets."""
    directions.ways[index][own] = ASIDE
    packets = int(directions.counts[index][own].sum())
    senders = sorted({capture.flows[row].src for row in np.flatnonzero(own).tolist()})[:3]
    who = f"{capture.port}: {packets:,} packets{which} ({', '.join(senders)})"
    return [f"{who} take no part; no capture shows what was dropped of them"] if packets else []


def _of_router(
    capture: PortCapture, index: int, directions: Directions, others: Collection[FlowKey]
) -> tuple[Bool, Bool]:
    """For each flow of a capture at a router, whether the router itself sent it, and received it.

    Its own packets (ping, ssh, BGP) have its MAC address like those that it forwards, but a TTL
    that nobody counted down. A host that talks with the router alone may seem to be behind another
    port, but the answers are the router's own. `others` are the flows of other captures.
    """
    here: Bool = (directions.ways[index] == LEFT) & (directions.counts[index] > 0)
    own, first = np.zeros((2, len(capture.flows)), np.bool_)
    if not here.any() or len(capture.macs) < len(capture.flows):
        return own, own
    macs = np.array(capture.macs, np.int64)
    forwarded = here & capture.flows_with(lambda flow: flow in others)
    routers: Counter[int] = Counter()
    for row in np.flatnonzero(forwarded if forwarded.any() else here).tolist():
        routers[int(macs[row])] += int(directions.counts[index][row])
    router_mac, packets = routers.most_common(1)[0]
    if not router_mac:
        return own, own
    alone = ~forwarded & (directions.counts[index] > 0)
    for row in np.flatnonzero(alone & (macs == router_mac)).tolist():
        ttls = np.unique(capture.columns.ttl[capture.columns.flow == row])
        first[row] = ttls.size == 1 and int(ttls[0]) in FIRST_TTLS
        is_away = directions.place(capture.flows[row].src) == ELSEWHERE
        own[row] = here[row] and is_away and first[row]
    is_sure = forwarded.any() and packets >= NEARLY_ALL * routers.total()
    its = {capture.flows[row].src for row in np.flatnonzero(first)} - {flow.src for flow in others}
    got = here & alone & (macs != router_mac) & capture.flows_with(lambda flow: flow.dst in its)
    # A bridge does not lower the TTL of hosts behind a port that was not captured. Then all that
    # left would seem to be the router's own.
    return own if not own[here].all() else np.zeros_like(own), got & is_sure
