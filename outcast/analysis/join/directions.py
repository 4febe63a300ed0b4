"""Which way the packets of each capture go, told by where they are seen.

A host is behind one port of the switch. Its packets come in there, and leave by other ports. So it
suffices to find out behind which port each address is. These tell it, in this order:

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
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from outcast.analysis.capture.headers import INBOUND, OUTBOUND, FlowKey
from outcast.analysis.capture.pcap import PortCapture
from outcast.analysis.compiled import I8, I32, I64, Array, compiled
from outcast.analysis.join.pairs import Sightings, grouped, numbered

ELSEWHERE = -1
"""Behind a port that no capture is of."""

CAME, LEFT, UNTOLD, ASIDE = 0, 1, 2, 3
"""Which way a flow goes at a capture. ASIDE: between hosts of one port, or to a group of hosts."""

WINDOWS = 64
"""Into so many stretches of time the common packets of two captures are cut, because clocks may
drift apart by more than a sojourn time."""
NEARLY_ALL = 0.99
MOST_ELSEWHERE = 0.9
"""An address that no capture sees in more than this share of its conversations is elsewhere."""


@dataclass(slots=True)
class Directions:
    """Which way each flow goes at each capture.

    Attributes:
        place: for each address, the index of the capture behind whose port it is, or ELSEWHERE.
        ways: for each capture and each of its flows, one of CAME, LEFT, UNTOLD and ASIDE.
        counts: for each capture and each of its flows, how many packets it has there.
        frame_bytes: likewise, how many bytes of frames.
    """

    place: dict[str, int]
    ways: list[I8] = field(default_factory=list)
    counts: list[I64] = field(default_factory=list)
    frame_bytes: list[I64] = field(default_factory=list)

    def packets(self, capture: int, way: int) -> int:
        """How many packets of a capture go one way."""
        return int(self.counts[capture][self.ways[capture] == way].sum())

    def why_untold(self, index: int, capture: PortCapture) -> str:
        """Why nothing tells which way the untold packets of a capture go, and what is missing."""
        count: Counter[tuple[str, str]] = Counter()
        macs: dict[str, int] = {}
        for row in np.flatnonzero(self.ways[index] == UNTOLD).tolist():
            flow = capture.flows[row]
            count[min(flow.src, flow.dst), max(flow.src, flow.dst)] += int(self.counts[index][row])
            macs.setdefault(flow.src, capture.macs[row])
        (first, second), packets = count.most_common(1)[0]
        return (
            f"{capture.port}: nothing tells which way its {self.packets(index, UNTOLD):,} packets "
            "go, because no other capture has them. Probably a capture of another port is missing: "
            f"{packets:,} are between {host_text(first, macs)} and {host_text(second, macs)}"
        )


def host_text(address: str, macs: dict[str, int]) -> str:
    """A host's address, and its MAC address if that is known."""
    mac = macs.get(address, 0)
    return f"{address} (MAC {mac.to_bytes(6).hex(':')})" if mac else address


def tell(
    captures: Sequence[PortCapture],
    sightings: Sightings,
    said: Sequence[int | None],
    longest_ns: int,
) -> Directions:
    """Tells the directions of all captures of a switch's ports.

    `said` has for each CAME or LEFT if the caller says that it is of an input or of an output only,
    else None. No packet stays in the switch for longer than `longest_ns`.
    """
    with ThreadPoolExecutor(max_workers=2) as pool:
        counted = list(pool.map(_count_flows, captures))
    conversations = _conversations(captures, [packets for packets, _ in counted])
    neighbours: _Neighbours = defaultdict(list)
    for (first, second), seen in conversations.items():
        neighbours[first].append((second, seen))
        neighbours[second].append((first, seen))
    votes: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    known = [_one_way(capture, way) for capture, way in zip(captures, said, strict=True)]
    _hear_captures(captures, known, votes)
    lone = _compare(captures, sightings, votes)
    place = {
        address: max(sorted(ballot), key=lambda index: ballot[index])
        for address, ballot in votes.items()
    }
    _spread(neighbours, place)
    _see_all(neighbours, place)
    _spread(neighbours, place)
    # Who loses all packets is seen at an input alone, so the receiver could look to be elsewhere.
    for ends, seen in conversations.items():
        if place.keys().isdisjoint(ends):
            _settle(_by_the_word(seen, said), neighbours, place)
    _see_none(neighbours, place)
    _spread(neighbours, place)
    for ends, seen in conversations.items():
        if place.keys().isdisjoint(ends) and len(seen) == 2:
            source = _by_the_stamps(seen, lone, longest_ns, *ends)
            _settle(source, neighbours, place)
    told = Directions(place)
    for index, (capture, (packets, frame_bytes)) in enumerate(zip(captures, counted, strict=True)):
        ways = [_way(flow, index, known[index], place) for flow in capture.flows]
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


_Seen = Counter[str]
"""What one capture saw of a conversation: how many packets of each source."""
_Conversations = dict[tuple[str, str], dict[int, _Seen]]
"""For each two hosts that talk, in alphabetical order, the captures that saw them."""
_Neighbours = dict[str, list[tuple[str, dict[int, _Seen]]]]
"""For each host, those that it talks with, and the captures that saw them."""


def is_group(address: str) -> bool:
    """Whether an address is that of a group of hosts: multicast or broadcast."""
    return address == "255.255.255.255" or ipaddress.ip_address(address).is_multicast


def _conversations(captures: Sequence[PortCapture], counts: Sequence[I64]) -> _Conversations:
    """What captures saw of hosts that talk, without groups of hosts."""
    conversations: _Conversations = {}
    for index, (capture, count) in enumerate(zip(captures, counts, strict=True)):
        for flow, packets in zip(capture.flows, count.tolist(), strict=True):
            if not packets:
                continue
            first, second = sorted((flow.src, flow.dst))
            seen = conversations.setdefault((first, second), {}).setdefault(index, Counter())
            seen[flow.src] += packets
    return {
        pair: seen
        for pair, seen in conversations.items()
        if not is_group(pair[0]) and not is_group(pair[1])
    }


def _hear_captures(
    captures: Sequence[PortCapture], known: Sequence[int | None], votes: dict[str, dict[int, float]]
) -> None:
    """Counts what captures say themselves about the direction of their packets.

    A capture of all that left, by whatever port, has a say only on hosts that never sent.
    """
    for index in sorted(range(len(captures)), key=lambda index: known[index] == LEFT):
        capture = captures[index]
        marks = capture.columns.marks
        if not (marks[:1000] & (INBOUND | OUTBOUND)).any():
            continue
        for mark, end in ((INBOUND, "src"), (OUTBOUND, "dst")):
            packets = np.bincount(capture.columns.flow[(marks & mark) != 0])
            for row in np.flatnonzero(packets).tolist():
                # A copy of what is flooded leaves by all ports, so a destination needs few votes.
                address = getattr(capture.flows[row], end)
                if known[index] != LEFT or address not in votes or index in votes[address]:
                    votes[address][index] += float(packets[row])


def _compare(
    captures: Sequence[PortCapture], sightings: Sightings, votes: dict[str, dict[int, float]]
) -> dict[tuple[int, int, str, str], I64]:
    """Compares the two directions of conversations that two captures saw.

    Returns for (capture, later capture, source, destination) by how much the second's stamps are
    later than the first's.
    """
    delays: dict[tuple[int, int, str, str], I64] = {}
    for first, second in combinations(range(len(captures)), 2):
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
            delays[first, second, src, dst] = later[rows]
            back = rows_of.get((dst, src))
            balance = _counted_down(columns.ttl[first_row[rows]], second_ttl[rows])
            if not balance and src < dst and back is not None:
                balance = _balance(first_row[rows], later[rows], first_row[back], later[back])
            if balance:
                behind_first, behind_second = (src, dst) if balance > 0 else (dst, src)
                votes[behind_first][first] += abs(balance)
                votes[behind_second][second] += abs(balance)
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


def _spread(neighbours: _Neighbours, place: dict[str, int]) -> None:
    """Finds the places of hosts that talk with hosts whose place is known."""
    known = [address for address in place if address in neighbours]
    while known:
        address = known.pop()
        for other, seen in neighbours[address]:
            if other in place:
                continue
            ports = sorted(seen, key=lambda index: -seen[index].total())
            rest = [index for index in ports if index != place[address]]
            reaches = place[address] in ports or place[address] == ELSEWHERE
            # Seen at one more port, it is there. Seen nowhere else, nothing is known.
            if reaches and len(rest) == 1:
                place[other] = rest[0]
                known.append(other)


def _settle(source: tuple[str, int] | None, neighbours: _Neighbours, place: dict[str, int]) -> None:
    """Puts a host into its place, if it was told, and finds what follows from that."""
    if source is not None:
        place[source[0]] = source[1]
        _spread(neighbours, place)


def _see_all(neighbours: _Neighbours, place: dict[str, int]) -> None:
    """Finds hosts of several conversations: all of these pass the host's own port."""
    for address, total, passing in _several(neighbours, place):
        whole = [index for index, weight in passing.items() if weight >= NEARLY_ALL * total]
        if len(whole) == 1:
            place[address] = whole[0]


def _see_none(neighbours: _Neighbours, place: dict[str, int]) -> None:
    """Finds hosts of several conversations that share no port: they are elsewhere.

    One conversation may have nearly all packets. If no two captures saw any of them, the port of
    the host was not captured all the same, and no stamps can tell more.
    """
    for address, total, passing in _several(neighbours, place):
        is_shared = sum(passing.values()) > total
        if max(passing.values()) <= (MOST_ELSEWHERE if is_shared else NEARLY_ALL) * total:
            place[address] = ELSEWHERE


def _several(
    neighbours: _Neighbours, place: dict[str, int]
) -> list[tuple[str, int, dict[int, int]]]:
    """Hosts of several conversations whose place is not known, in order.

    Each has the packets of all its conversations, and those that each capture saw.
    """
    hosts = []
    for address, talks in sorted(neighbours.items()):
        if address in place or len(talks) < 2:
            continue
        total = 0
        passing: dict[int, int] = defaultdict(int)
        for _, seen in talks:
            weight = max(at.total() for at in seen.values())
            total += weight
            for index in seen:
                passing[index] += weight
        hosts.append((address, total, passing))
    return hosts


def _by_the_word(seen: dict[int, _Seen], said: Sequence[int | None]) -> tuple[str, int] | None:
    """The source and its place if the captures are of an input and of an output.

    If both hold both directions, it is the source that lost packets from the input to the output,
    or else the one that sent more.
    """
    came = [index for index in seen if said[index] == CAME]
    outputs = [index for index in seen if said[index] == LEFT]
    if len(came) != 1 or len(outputs) != 1:
        return None
    entered, gone = seen[came[0]], seen[outputs[0]]
    sources = sorted(set(entered) & set(gone))
    if not sources:
        return None
    return max(sources, key=lambda src: (entered[src] - gone[src], entered[src])), came[0]


def _by_the_stamps(
    seen: dict[int, _Seen],
    delays: dict[tuple[int, int, str, str], I64],
    longest_ns: int,
    first: str,
    second: str,
) -> tuple[str, int] | None:
    """The source and its place, by the stamps as they are and by the number of packets."""
    index, other = sorted(seen)
    for src, dst in ((first, second), (second, first)):
        later = delays.get((index, other, src, dst))
        if later is None:
            continue
        if float((later > 0).mean()) >= NEARLY_ALL and int(np.median(later)) <= longest_ns:
            came, output = index, other
        elif float((later < 0).mean()) >= NEARLY_ALL and -int(np.median(later)) <= longest_ns:
            came, output = other, index
        else:
            continue
        if seen[came][src] >= NEARLY_ALL * seen[output][src]:
            return src, came
    return None


def _way(flow: FlowKey, index: int, known: int | None, place: dict[str, int]) -> int:
    """Which way a flow goes at a capture; `known` is that of all its flows, if it has one."""
    if is_group(flow.dst):
        return ASIDE
    if known is not None:
        return known
    source, destination = place.get(flow.src), place.get(flow.dst)
    if source == index:
        return ASIDE if destination == index else CAME
    if destination == index or source is not None:
        return LEFT
    return UNTOLD if destination is None else CAME
