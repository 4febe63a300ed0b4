"""Which way the packets of each capture go, by where they are seen, and which take part in a join.

A host is behind a port of the switch, or behind several of equal paths (a bond, ECMP). Its packets
come in there, and leave by other ports. So it suffices to find out behind which ports each address
is. A port whose directions have a file each is one port. These tell it, in this order:

1. The capture itself, where it says of each packet whether it came in or left (Linux cooked).
   And the TTL, which a router counts down.
2. Packets of both directions between two hosts that the same two captures saw. One way the later
   stamp is that of the one capture, the other way that of the other. This holds whatever the
   offset of the clocks is, because it moves both differences alike.
3. The captures that see an address at all: the port of a host sees all its conversations.
4. What the caller says: which captures are of inputs, and which of outputs.
   A host of several conversations that share no port is behind one that was not captured.
5. The stamps as they are, if the captures agree on them, and the number of packets: the port by
   which packets leave cannot have more of them.
"""

from __future__ import annotations

import ipaddress
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from outcast.analysis.capture.headers import INBOUND, OUTBOUND, FlowKey
from outcast.analysis.capture.pcap import PortCapture
from outcast.analysis.compiled import I8, I32, I64, Array, Bool, compiled
from outcast.analysis.join.packets import Sightings, grouped, numbered
from outcast.analysis.join.places import ELSEWHERE, NEARLY_ALL, Conversations, Delays, find
from outcast.errors import InputError, UntrustedError

CAME, LEFT, UNTOLD, ASIDE = 0, 1, 2, 3
"""Which way a flow goes at a capture. ASIDE: between hosts of one port, to a group of hosts, or
from its own destination."""

WINDOWS = 64
"""The number of parts into which common packets of two captures are cut, because clocks may
drift apart by more than a sojourn time."""


@dataclass(slots=True)
class Directions:
    """Which way each flow goes at each capture.

    Attributes:
        places: for each address, the captures behind whose ports it is, the surest first. One of
            equal paths has several, and one behind a port that was not captured ELSEWHERE alone.
            Of a port with a file for each direction it is the capture of what came in.
        ways: for each capture and each of its flows, one of CAME, LEFT, UNTOLD and ASIDE.
        counts: for each capture and each of its flows, how many packets it has there.
        frame_bytes: likewise, how many bytes of frames.
    """

    places: dict[str, tuple[int, ...]]
    ways: list[I8] = field(default_factory=list)
    counts: list[I64] = field(default_factory=list)
    frame_bytes: list[I64] = field(default_factory=list)

    def place(self, address: str) -> int:
        """The surest of the captures behind whose ports an address is, or ELSEWHERE."""
        return self.places.get(address, (ELSEWHERE,))[0]

    def packets(self, capture: int, way: int) -> int:
        """How many packets of a capture go one way."""
        return int(self.counts[capture][self.ways[capture] == way].sum())

    def why_untold(self, index: int, capture: PortCapture) -> str:
        """Why nothing shows which way the untold packets of a capture go."""
        return (
            f"{capture.port}: nothing tells which way its {self.packets(index, UNTOLD):,} packets "
            "go; no other capture has them, or no stamps differ"
        )


def tell(
    captures: Sequence[PortCapture],
    sightings: Sightings,
    said: Sequence[int | None],
    longest_ns: int,
) -> Directions:
    """Finds the directions of all captures of a switch's ports.

    `said` has for each CAME or LEFT if the caller says that it is of an input or of an output only,
    else None. No packet stays in the switch for longer than `longest_ns`.
    """
    with ThreadPoolExecutor(max_workers=2) as pool:
        counted = list(pool.map(_count_flows, captures))
    # For each capture, the first one of its port. A port may have a file for each direction.
    names = [capture.port for capture in captures]
    homes = [names.index(name) for name in names]
    halves = {index for index, home in enumerate(homes) if homes.count(home) > 1}
    conversations = _conversations(captures, homes, [packets for packets, _ in counted])
    votes: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    known = [
        way if index in halves else _one_way(capture, way)
        for index, (capture, way) in enumerate(zip(captures, said, strict=True))
    ]
    words = tuple(
        {index for index, word in enumerate(said) if word == way and index not in halves}
        for way in (CAME, LEFT)
    )
    _hear_captures(captures, homes, halves, known, votes)
    delays = _compare(captures, homes, sightings, votes)
    places = find(conversations, delays, votes, (words[0], words[1]), longest_ns)
    told = Directions(places)
    for index, (capture, (packets, frame_bytes)) in enumerate(zip(captures, counted, strict=True)):
        ways = [_way(flow, homes[index], known[index], places) for flow in capture.flows]
        told.ways.append(np.array(ways, np.int8))
        told.counts.append(packets)
        told.frame_bytes.append(frame_bytes)
    return told


def _one_way(capture: PortCapture, said: int | None) -> int | None:
    """CAME or LEFT if both the caller and the capture say it of all packets, else None."""
    marks = capture.columns.marks
    mark = {None: 0, CAME: INBOUND, LEFT: OUTBOUND}[said]
    return said if mark and marks.size and ((marks & mark) != 0).all() else None


def sent_by_the_machine(captures: Sequence[PortCapture]) -> set[str]:
    """The addresses whose packets leave without ever having come in, by what captures say.

    They are of the machine that captured. Empty if the captures are not all of one file, or do not
    say it of each packet.
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


@compiled
def _tally(flow: I32, frame: I32, packets: I64, frame_bytes: I64) -> None:
    for row in range(flow.size):
        packets[flow[row]] += 1
        frame_bytes[flow[row]] += frame[row]


def _count_flows(capture: PortCapture) -> tuple[I64, I64]:
    """How many packets and bytes of frames each flow of a capture has."""
    packets, frame_bytes = (np.zeros(len(capture.flows), np.int64) for _ in range(2))
    _tally(capture.columns.flow, capture.columns.frame_bytes, packets, frame_bytes)
    return packets, frame_bytes


def is_group(address: str) -> bool:
    """Whether an address is that of a group of hosts: multicast or broadcast."""
    return address == "255.255.255.255" or ipaddress.ip_address(address).is_multicast


def _conversations(
    captures: Sequence[PortCapture], homes: Sequence[int], counts: Sequence[I64]
) -> Conversations:
    """What ports saw of hosts that talk, without groups of hosts and forged packets of one end."""
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


def _hear_captures(
    captures: Sequence[PortCapture],
    homes: Sequence[int],
    halves: Collection[int],
    known: Sequence[int | None],
    votes: dict[str, dict[int, float]],
) -> None:
    """Counts what captures say themselves about the direction of their packets.

    Of `halves`, which have one direction of a port, the caller says it. A capture of all that left,
    by whatever port, has a say only on hosts that never sent.
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
                # A copy of what is flooded leaves by all ports, so a destination needs few votes.
                address = getattr(capture.flows[row], end)
                if known[index] != LEFT or address not in votes or home in votes[address]:
                    votes[address][home] += float(packets[row])


def _compare(
    captures: Sequence[PortCapture],
    homes: Sequence[int],
    sightings: Sightings,
    votes: dict[str, dict[int, float]],
) -> Delays:
    """Compares the two directions of conversations that two captures saw."""
    delays: Delays = {}
    for first, second in combinations(range(len(captures)), 2):
        if homes[first] == homes[second]:
            continue
        if homes[first] > homes[second]:
            first, second = second, first
        first_row, second_row = sightings.between(first, second)
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
    """How many packets have a lower TTL at the other capture; negative if it is higher there."""
    steps = np.sign(ttl.astype(np.int16) - other_ttl)
    return float(steps.sum()) if abs(int(steps.sum())) >= NEARLY_ALL * steps.size else 0.0


def _balance(at: I32, later: I64, back_at: I32, back_later: I64) -> float:
    """How many packets say that the one way is later at the second capture than the other way.

    Negative if they say that it is earlier. They are compared with those that came at about the
    same time.
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
    """Which way a flow goes at a port; `known` is that of all its flows, if it has one."""
    # A packet from its own destination is forged (a LAND attack), and shows nothing.
    if is_group(flow.dst) or flow.src == flow.dst:
        return ASIDE
    if known is not None:
        return known
    source, destination = places.get(flow.src), places.get(flow.dst)
    from_here = source is not None and home in source
    to_here = destination is not None and home in destination
    if from_here and to_here and source is not None and destination is not None:
        # Who is behind this port alone has no other way.
        alone = (len(source) == 1) - (len(destination) == 1)
        return (LEFT, ASIDE, CAME)[alone + 1]
    if from_here:
        return CAME
    if to_here or source is not None:
        return LEFT
    return UNTOLD if destination is None else CAME


FIRST_TTLS = (64, 128, 255)
"""What operating systems begin with (RFC 1700 and practice)."""


@dataclass(frozen=True, slots=True)
class United:
    """What was found.

    Attributes:
        changed: whether a capture was changed, so that it has to be looked at again.
        notes: a line on each two captures and each identity by which flows were joined.
        refusals: a line on each capture with flows that could be one of several.
        unsure: for each capture, its flows that could be one of several. They take no part.
    """

    changed: bool = False
    notes: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    unsure: tuple[Bool, ...] = ()


UNCHANGED = United()


@dataclass(frozen=True, slots=True)
class Hop:
    """The captures of a hop's ports, each once, and what they show of its flows.

    Attributes:
        inputs, outputs: the places of the captures that are inputs, and that are outputs.
        flows: the flows of all captures.
        rows: for each capture and each of its flows, the flow's place in `flows`.
        sightings: a sample of packets, and which captures saw them.
        said: for each capture, CAME or LEFT if the caller says that it is of one side only.
        told: which way flows go; None if the captures are known to have one direction.
        united: flows that the hop changes.
        notes: what the hop does besides queueing, and what takes no part, a line each.
    """

    captures: list[PortCapture]
    inputs: list[int]
    outputs: list[int]
    flows: tuple[FlowKey, ...]
    rows: list[I32]
    sightings: Sightings
    said: Sequence[int | None]
    told: Directions | None = None
    united: United = UNCHANGED
    notes: tuple[str, ...] = ()

    def require_departures(self, left_flows: Sequence[Bool | None], to: Collection[str]) -> None:
        """Raises InputError or UntrustedError, which say why, if nothing leaves for `to`."""
        told = self.told
        if told is None or any(mask is not None and mask.any() for mask in left_flows):
            return
        if self.united.refusals:
            raise UntrustedError(self.united.refusals[0])
        untold = [told.packets(index, UNTOLD) for index in range(len(self.captures))]
        if any(untold):
            index = untold.index(max(untold))
            why = told.why_untold(index, self.captures[index])
            raise InputError(f"{why}; say it with --in and --out")
        if all(told.packets(index, CAME) for index in self.outputs) and all(
            told.packets(index, LEFT) for index in self.inputs
        ):
            ins, outs = (
                ", ".join(self.captures[index].port for index in side)
                for side in (self.inputs, self.outputs)
            )
            raise InputError(
                f"packets came in at {outs} and left by {ins}, so inputs and outputs are exchanged"
            )
        addresses = f" to {', '.join(sorted(to))}" if to else ""
        raise InputError(f"no packets{addresses} leave the switch: nothing left by the output")


def taking_part(
    hop: Hop, inputs: Collection[int], outputs: Collection[int]
) -> tuple[list[Bool | None], list[Bool | None]]:
    """For each capture and each of its flows, whether it counts as coming in, and as leaving.

    What leaves counts. What comes in counts if packets leave for its destination.
    """
    captures, told = hop.captures, hop.told
    left_flows: list[Bool | None] = [None] * len(captures)
    came: list[Bool | None] = [None] * len(captures)
    for index in set(outputs):
        count = np.bincount(captures[index].columns.flow, minlength=len(captures[index].flows))
        left_flows[index] = (count > 0) & (told is None or told.ways[index] == LEFT)
    if told is not None:
        _leave_out_one_sided(left_flows, captures, told)
    addresses = {
        hop.flows[number].dst
        for row, mask in zip(hop.rows, left_flows, strict=True)
        if mask is not None
        for number in row[mask].tolist()
    }
    for index in set(inputs):
        there = goes_to(captures[index], addresses)
        came[index] = there & (told is None or told.ways[index] == CAME)
    return came, left_flows


def goes_to(capture: PortCapture, addresses: Collection[str]) -> Bool:
    """For each flow of a capture, whether it goes to one of the addresses."""
    return capture.flows_with(lambda flow: flow.dst in addresses)


def _leave_out_one_sided(
    left_flows: list[Bool | None], captures: Sequence[PortCapture], told: Directions
) -> None:
    """Leaves out outputs whose packets all come from ports where only what left was captured.

    Their queues cannot be told, and no other queue depends on them.
    """
    ports = [capture.port for capture in captures]
    # A port with a file of what came in was captured, though nothing did.
    silent = {
        index
        for index, port in enumerate(ports)
        if ports.count(port) == 1 and not told.packets(index, CAME)
    }
    for index, here in enumerate(left_flows):
        if here is None or not here.any():
            continue
        packets = told.counts[index]
        hidden = captures[index].flows_with(
            lambda flow: silent.issuperset(told.places.get(flow.src, (ELSEWHERE,)))
        )
        if packets[here & hidden].sum() >= NEARLY_ALL * packets[here].sum():
            left_flows[index] = np.zeros_like(here)


def set_own_aside(captures: Sequence[PortCapture], told: Directions, is_router: bool) -> list[str]:
    """Sets aside what a router, or the capturing machine, sent or got itself. Returns lines."""
    unseen = "What the queue dropped of them, no capture shows"
    notes = []
    for index, capture in enumerate(captures if is_router else ()):
        others = {flow for other in captures if other is not capture for flow in other.flows}
        sent, got = _of_router(capture, index, told, others)
        why = f"they bear its MAC address and a TTL that nobody has counted down. {unseen}"
        notes += _set_aside(capture, index, told, sent, " that the router itself sent", why)
        why = "no other capture has them, nor have they its MAC address: they were for the router"
        notes += _set_aside(capture, index, told, got, "", why)
    addresses = sent_by_the_machine(captures)
    for index, capture in enumerate(captures if addresses else ()):
        own = capture.flows_with(lambda flow: flow.src in addresses) & (told.ways[index] != ASIDE)
        why = f"by its capture they left and never came in. {unseen}"
        notes += _set_aside(capture, index, told, own, " that this machine itself sent", why)
    return notes


def _set_aside(
    capture: PortCapture, index: int, told: Directions, own: Bool, which: str, why: str
) -> list[str]:
    """Sets flows aside. Returns what is said of their packets, nothing if there are none."""
    told.ways[index][own] = ASIDE
    packets = int(told.counts[index][own].sum())
    senders = sorted({capture.flows[row].src for row in np.flatnonzero(own).tolist()})[:3]
    who = f"{capture.port}: {packets:,} packets{which} ({', '.join(senders)})"
    return [f"{who} take no part; {why}"] if packets else []


def _of_router(
    capture: PortCapture, index: int, told: Directions, others: Collection[FlowKey]
) -> tuple[Bool, Bool]:
    """For each flow of a capture at a router, whether the router itself sent it, and got it.

    What it sent (ping, ssh, BGP) bears its own MAC address like all that it forwards, but the TTL
    is as the sender set it. A host that talks with the router alone may look as if it were behind
    another port, but what answers it is the router's own. `others` are the other captures' flows.
    """
    here: Bool = (told.ways[index] == LEFT) & (told.counts[index] > 0)
    own, first = np.zeros((2, len(capture.flows)), np.bool_)
    if not here.any() or len(capture.macs) < len(capture.flows):
        return own, own
    macs = np.array(capture.macs, np.int64)
    forwarded = here & capture.flows_with(lambda flow: flow in others)
    routers: Counter[int] = Counter()
    for row in np.flatnonzero(forwarded if forwarded.any() else here).tolist():
        routers[int(macs[row])] += int(told.counts[index][row])
    router_mac, packets = routers.most_common(1)[0]
    if not router_mac:
        return own, own
    alone = ~forwarded & (told.counts[index] > 0)
    for row in np.flatnonzero(alone & (macs == router_mac)).tolist():
        ttls = np.unique(capture.columns.ttl[capture.columns.flow == row])
        first[row] = ttls.size == 1 and int(ttls[0]) in FIRST_TTLS
        is_away = told.place(capture.flows[row].src) == ELSEWHERE
        own[row] = here[row] and is_away and first[row]
    is_sure = forwarded.any() and packets >= NEARLY_ALL * routers.total()
    its = {capture.flows[row].src for row in np.flatnonzero(first)} - {flow.src for flow in others}
    got = here & alone & (macs != router_mac) & capture.flows_with(lambda flow: flow.dst in its)
    # Hosts behind a port that was not captured come with a lower TTL, but so near a bridge that
    # nothing shows which these are: then all that left would be the router's own.
    return own if not own[here].all() else np.zeros_like(own), got & is_sure
