"""Flows whose packets a hop changes, known by looser identities.

A NAT changes addresses and ports; other hops renumber IP ids. If the exact identity finds no packet
of a flow, looser ones are tried in turn. If one fits, the flow gets one name and one identity in
both captures. Ambiguous flows are left alone and counted.
"""

from __future__ import annotations

import hashlib
import socket
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from outcast.analysis.capture.headers import INBOUND, OUTBOUND, TCP, UDP, Columns, FlowKey
from outcast.analysis.capture.pcap import PortCapture
from outcast.analysis.join.directions import CAME, LEFT, UNCHANGED, United, is_group
from outcast.analysis.join.packets import Observations, grouped, number_flows
from outcast.analysis.machine_code import I64, U64, Array, Bool

SAMPLED = 4_096
"""The number of packets of each flow, its first ones, that are compared."""
LEAST_FOUND = 0.25
"""A looser identity has to find this share of the sampled packets. A queue may drop the others."""
FEW = 4
"""A flow with fewer common packets is only joined if one of its ends is unchanged."""
MOST_ALIKE = 8
"""A key that more packets of a capture share is no evidence."""

ICMP = (1, 58)
ECHOES = (0x100, 0x108, 0x3A80, 0x3A81)
"""Protocol and type of echo replies and requests (RFC 792 and RFC 4443)."""
_STEP = np.uint64(0x9E3779B97F4A7C15)


LEVELS = {
    True: "IP ids, sequence numbers and lengths",
    False: "sequence numbers (of UDP checksums) and lengths",
}
"""The identities in turn, by whether they have IP ids. All have the protocol, flags and length."""


@dataclass(frozen=True, slots=True)
class Side:
    """The sampled packets of a capture's `wanted` flows."""

    capture: PortCapture
    index: int
    wanted: Bool
    rows: I64

    def packets(self, rows: I64) -> Array:
        """The number of these packets that each flow has."""
        return np.bincount(self.capture.columns.flow[rows], minlength=len(self.capture.flows))


@dataclass(slots=True)
class Match:
    flow: int
    other: int
    rows: I64
    others: I64


def sampled(columns: Columns, flows: Bool) -> I64:
    """The first SAMPLED packets of each flow."""
    rows = np.flatnonzero(flows[columns.flow]) if flows.any() else np.empty(0, np.int64)
    flow = columns.flow[rows]
    order = np.argsort(flow, kind="stable")
    begins = np.searchsorted(flow[order], flow[order])
    return rows[order[np.arange(order.size) - begins < SAMPLED]]


def _mixed(value: U64, word: Array) -> U64:
    value = (value ^ word.astype(np.uint64)) * _STEP
    mixed: U64 = value ^ (value >> np.uint64(29))
    return mixed


def _words(address: str) -> int:
    """The sum of an address's words of 16 bits, as in a checksum."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return int(np.frombuffer(socket.inet_pton(family, address), ">u2").sum())


def _numbers(columns: Columns, rows: I64, protocol: Array, ends: I64) -> tuple[Array, Array]:
    """The numbers above IP that a NAT leaves unchanged.

    A NAT also translates the identifier of an ICMP echo. Of UDP and echoes the checksum remains,
    less the translated fields (RFC 768), whose sums are `ends`.
    """
    first, second = columns.seq[rows].astype(np.int64), columns.ack[rows].astype(np.int64)
    is_icmp = np.isin(protocol, ICMP)
    is_echo = np.isin(protocol.astype(np.int64) << 8 | first >> 24, ECHOES)
    second = np.where(is_icmp, second & 0xFFFF, second)
    checksum = np.where(is_icmp, first & 0xFFFF, columns.checksum[rows])
    rest = np.where(is_echo | (checksum > 0), (checksum + ends) % 0xFFFF, 0)
    above = np.where(is_icmp, first >> 16, first)
    return np.where(is_echo, above << 16 | rest, np.where(protocol == UDP, rest, above)), second


def _identities(
    start: U64, columns: Columns, rows: I64, protocol: Array, ends: I64, has_ids: bool
) -> U64:
    # A firewall may clear the ECN bits of TCP's flags.
    value = _mixed(start, columns.flags[rows] & 0x3F)
    value = _mixed(value, columns.payload_bytes[rows])
    first, second = _numbers(columns, rows, protocol, ends)
    if has_ids:
        value = _mixed(value, columns.ip_id[rows])
        # A network card may complete the checksum of a datagram later. The IP id suffices.
        first = np.where(protocol == UDP, 0, first)
    return _mixed(_mixed(value, first), second)


def _ends(flow: FlowKey) -> int:
    """The sum of the fields that a NAT translates. ICMP's checksum for IPv4 covers no addresses."""
    addresses = 0 if flow.protocol == ICMP[0] else _words(flow.src) + _words(flow.dst)
    return addresses + flow.sport + flow.dport


def _keys(side: Side, has_ids: bool) -> tuple[I64, U64]:
    """The first sampled packet of each identity in a flow, and the identities."""
    columns, flows = side.capture.columns, side.capture.flows
    rows = side.rows[side.wanted[columns.flow[side.rows]]]
    protocols = np.array([flow.protocol for flow in flows], np.int64)
    protocol = protocols[columns.flow[rows]]
    ends = np.array([_ends(flow) for flow in flows], np.int64)[columns.flow[rows]]
    key = _identities(protocol.astype(np.uint64), columns, rows, protocol, ends, has_ids)
    flow = columns.flow[rows]
    order = np.lexsort((rows, flow, key))
    rows, key, flow = rows[order], key[order], flow[order]
    is_first = np.ones(rows.size, np.bool_)
    is_first[1:] = (key[1:] != key[:-1]) | (flow[1:] != flow[:-1])
    # Packets of a flow that are nearly all alike are no evidence.
    is_told = np.bincount(flow, is_first, len(flows)) >= LEAST_FOUND * np.bincount(
        flow, minlength=len(flows)
    )
    is_first &= is_told[flow]
    rows, key = rows[is_first], key[is_first]
    alike = np.searchsorted(key, key, "right") - np.searchsorted(key, key, "left")
    return rows[alike <= MOST_ALIKE], key[alike <= MOST_ALIKE]


def matches_by(
    side: Side, other: Side, has_ids: bool, keeps_ids: bool
) -> tuple[list[Match], dict[tuple[int, int], int]]:
    """The flows of two captures that are the same by a level, and ambiguous pairs.

    These have the number of packets that are alike. If the hop `keeps_ids` of other packets, those
    without TCP's numbers have to agree in it too.
    """
    rows, key = _keys(side, has_ids)
    others, other_key = _keys(other, has_ids)
    first = np.searchsorted(other_key, key, "left")
    count = np.searchsorted(other_key, key, "right") - first
    if not count.sum():
        return [], {}
    which = np.repeat(np.arange(rows.size), count)
    nth = np.arange(which.size) - np.repeat(np.cumsum(count) - count, count)
    at, there = rows[which], others[first[which] + nth]
    flow, other_flow = side.capture.columns.flow[at], other.capture.columns.flow[there]
    # A flow that both captures have by its name matches itself alone.
    _, (names, other_names) = number_flows([side.capture, other.capture])
    name, other_name = names[flow], other_names[other_flow]
    shared = np.intersect1d(names, other_names)
    fits = (name == other_name) | ~(np.isin(name, shared) | np.isin(other_name, shared))
    if keeps_ids:
        is_tcp = np.array([name.protocol == TCP for name in side.capture.flows])[flow]
        fits &= is_tcp | (side.capture.columns.ip_id[at] == other.capture.columns.ip_id[there])
    at, there, flow, other_flow = at[fits], there[fits], flow[fits], other_flow[fits]
    pair = flow.astype(np.int64) * len(other.capture.flows) + other_flow
    found = {divmod(ends, len(other.capture.flows)): mine for ends, mine in grouped(pair).items()}
    votes = {ends: mine.size for ends, mine in found.items()}
    packets = (side.packets(rows), other.packets(others))
    chosen, doubtful = _choose((side, other), votes, packets)
    return [Match(*ends, at[found[ends]], there[found[ends]]) for ends in chosen], doubtful


def _choose(
    sides: tuple[Side, Side],
    votes: dict[tuple[int, int], int],
    packets: tuple[Array, Array],
) -> tuple[list[tuple[int, int]], dict[tuple[int, int], int]]:
    """The pairs of flows that fit best, both directions of a connection together.

    Returns also the pairs that fit others about as well, with their common packets. `packets` has
    the packets of each flow that could be common.
    """
    flows, other_flows = (side.capture.flows for side in sides)
    rows, other_rows = (
        {flow: row for row, flow in enumerate(side.capture.flows)} for side in sides
    )
    score: dict[tuple[int, int], int] = {}
    for (here, there), count in votes.items():
        flow, other = flows[here], other_flows[there]
        back = rows.get(flow.reversed, -1), other_rows.get(other.reversed, -1)
        possible = min(int(packets[0][here]), int(packets[1][there]))
        total = count + votes.get(back, 0)
        if min(back) >= 0:
            possible += min(int(packets[0][back[0]]), int(packets[1][back[1]]))
        if total >= LEAST_FOUND * possible and (total >= FEW or _has_same_end(flow, other)):
            score[here, there] = total
    best: dict[int, list[int]] = defaultdict(list)
    other_best: dict[int, list[int]] = defaultdict(list)
    for (here, there), total in score.items():
        best[here].append(total)
        other_best[there].append(total)
    chosen = []
    for (here, there), total in score.items():
        # The next best of each flow has to be far from the best.
        rivals = [sorted([0, *totals])[-2:] for totals in (best[here], other_best[there])]
        if all(total >= top and total >= 2 * next_best for next_best, top in rivals):
            chosen.append((here, there))
    settled, other_settled = {here for here, _ in chosen}, {there for _, there in chosen}
    return chosen, {
        (here, there): total
        for (here, there), total in score.items()
        if here not in settled and there not in other_settled
    }


def _has_same_end(flow: FlowKey, other: FlowKey) -> bool:
    return (flow.src, flow.sport) == (other.src, other.sport) or (
        (flow.dst, flow.dport) == (other.dst, other.dport)
    )


def join_flows(
    capture: PortCapture, other: PortCapture, matches: Sequence[Match], has_ids: bool, by_given: int
) -> str:
    """Gives the matches one name and identity in both captures. Returns a remark.

    `by_given` is positive if the caller states that packets arrive at the first capture, negative
    if they leave there, else 0.
    """
    packets = 0
    is_translated = False
    comes_first = _came_first(capture, other, matches, by_given)
    all_rows = _rows_by_flow(capture.columns, [match.flow for match in matches])
    all_others = _rows_by_flow(other.columns, [match.other for match in matches])
    for match, is_first in zip(matches, comes_first, strict=True):
        here, there = capture.flows[match.flow], other.flows[match.other]
        came, outgoing = (here, there) if is_first else (there, here)
        # Hosts keep the addresses that they have at their own port.
        name = replace(came, dst=outgoing.dst, dport=outgoing.dport)
        rows, others = all_rows[match.flow], all_others[match.other]
        packets += max(rows.size, others.size)
        _identify(capture.columns, rows, here, name, has_ids)
        _identify(other.columns, others, there, name, has_ids)
        is_translated |= here != there
        capture.flows[match.flow] = other.flows[match.other] = name
    change = "addresses are translated between them (NAT)" if is_translated else "packets change"
    return (
        f"{capture.port} and {other.port}: {change}. {packets:,} packets of {len(matches):,} flows "
        f"are joined by {LEVELS[has_ids]}"
    )


def _rows_by_flow(columns: Columns, flows: Sequence[int]) -> dict[int, I64]:
    rows = np.flatnonzero(np.isin(columns.flow, flows))
    return {flow: rows[mine] for flow, mine in grouped(columns.flow[rows]).items()}


def _came_first(
    here: PortCapture, other: PortCapture, matches: Sequence[Match], by_given: int
) -> list[bool]:
    """For each match, whether its packets came in at the first capture.

    The evidence, in this order: the captures' own record, the TTL, which a router counts down, both
    directions of the connection, the caller's word, and the stamps as they are.
    """
    later: dict[FlowKey, float] = {}
    recorded: dict[FlowKey, int] = {}
    for match in matches:
        flow = here.flows[match.flow]
        stamps = other.columns.stamp_ns[match.others] - here.columns.stamp_ns[match.rows]
        later[flow] = float(np.median(stamps))
        ttl = here.columns.ttl[match.rows].astype(int) - other.columns.ttl[match.others].astype(int)
        word = 0
        for capture, rows, sign in ((here, match.rows, 1), (other, match.others, -1)):
            marks = capture.columns.marks[rows]
            word += sign * int(((marks & INBOUND) != 0).sum())
            word -= sign * int(((marks & OUTBOUND) != 0).sum())
        recorded[flow] = int(np.sign(word)) or int(np.sign(np.median(ttl)))
    result = []
    for match in matches:
        flow = here.flows[match.flow]
        back = flow.reversed
        first: float = recorded[flow] or -recorded.get(back, 0)
        if not first and back in later:
            first = later[flow] - later[back]
        result.append((first or by_given or later[flow]) >= 0)
    return result


def _identify(columns: Columns, rows: I64, old: FlowKey, name: FlowKey, has_ids: bool) -> None:
    seed = int.from_bytes(hashlib.blake2b(repr(name).encode(), digest_size=8).digest())
    columns.identity[rows] = _identities(
        np.full(rows.size, seed, np.uint64),
        columns,
        rows,
        np.full(rows.size, old.protocol),
        np.full(rows.size, _ends(old)),
        has_ids,
    )
    # It covers the changed fields, so it would not agree.
    columns.checksum[rows] = 0


LEAST = 8
"""A flow with fewer sampled packets is no evidence by itself."""
MOST_FOUND = 0.05
"""Looser identities are tried if the exact one finds at most this share of a flow's packets."""
LEAST_TOLD = 0.01
"""Ambiguous flows with more than this share of a capture's packets refuse the join."""


def unite(
    captures: Sequence[PortCapture], observations: Observations, given: Sequence[int | None]
) -> United:
    """Gives flows that a hop changes the same name and identity in all captures.

    `given` has CAME or LEFT for captures whose single direction the caller states.
    """
    alone = _alone(captures)
    wanted = _failing(captures, observations, alone)
    if sum(bool(flows.any()) for flows in alone) > 1:
        wanted = [first | other for first, other in zip(alone, wanted, strict=True)]
    if not any(flows.any() for flows in wanted):
        return UNCHANGED
    wanted = [
        _split_echoes(capture, flows) for capture, flows in zip(captures, wanted, strict=True)
    ]
    notes: list[str] = []
    words = {CAME: 1, LEFT: -1, None: 0}
    unsure = [np.zeros_like(flows) for flows in wanted]
    # The packets joined by a looser identity that have the same IP id in two captures.
    kept: Counter[tuple[int, int]] = Counter()
    for has_ids in LEVELS:
        sides = [
            Side(capture, index, flows, sampled(capture.columns, flows))
            for index, (capture, flows) in enumerate(zip(captures, wanted, strict=True))
        ]
        for first, other in combinations(sides, 2):
            if not first.rows.size or not other.rows.size:
                continue
            ends = first.index, other.index
            ids = first.capture.columns.ip_id
            exact = int(np.count_nonzero(ids[observations.between(*ends)[0]]))
            matches, doubtful = matches_by(first, other, has_ids, kept[ends] + exact >= LEAST)
            for (flow, other_flow), alike in doubtful.items():
                # A few packets that are alike do not prove a NAT.
                if alike >= FEW or notes or matches:
                    unsure[first.index][flow] = unsure[other.index][other_flow] = True
            if matches:
                by_given = words[given[first.index]] - words[given[other.index]]
                kept[ends] += sum(int(np.count_nonzero(ids[match.rows])) for match in matches)
                notes.append(join_flows(first.capture, other.capture, matches, has_ids, by_given))
                for match in matches:
                    first.wanted[match.flow] = other.wanted[match.other] = False
    changed = bool(notes)
    refusals: list[str] = []
    for capture, doubtful_flows, flows in zip(captures, unsure, wanted, strict=True):
        doubtful_flows &= flows
        count = int(doubtful_flows[capture.columns.flow].sum())
        if count:
            line = (
                f"{capture.port}: addresses are translated (NAT), but {count:,} of its packets "
                "could be of several flows that are alike in IP ids, sequence numbers and lengths"
            )
            if count > LEAST_TOLD * capture.columns.flow.size:
                refusals.insert(0, f"{line}. Capture both ports on one side of the translation")
            else:
                notes.append(f"{line}; they take no part")
    return United(changed, tuple(notes), tuple(refusals), tuple(unsure))


def _alone(captures: Sequence[PortCapture]) -> list[Bool]:
    """For each capture, the flows that no other capture has, except to groups of hosts."""
    seen = Counter(flow for capture in captures for flow in set(capture.flows))
    return [
        capture.flows_with(lambda flow: seen[flow] == 1 and not is_group(flow.dst))
        for capture in captures
    ]


def _failing(
    captures: Sequence[PortCapture], observations: Observations, alone: Sequence[Bool]
) -> list[Bool]:
    """For each capture, the flows that another has by name, but without the packets."""
    failing = [np.zeros(len(capture.flows), np.bool_) for capture in captures]
    found = (observations.row != -1).sum(axis=1) > 1
    for index, capture in enumerate(captures):
        here = np.flatnonzero(observations.row[:, index] >= 0)
        flow = capture.columns.flow[observations.row[here, index]]
        sample_sizes = np.bincount(flow, ~alone[index][flow], len(capture.flows))
        common = np.bincount(flow, found[here], len(capture.flows))
        small = sample_sizes < LEAST
        few, few_common = sample_sizes[small].sum(), common[small & ~alone[index]].sum()
        lost = ~small & (common <= MOST_FOUND * sample_sizes)
        if lost.any() or (few >= LEAST and few_common <= MOST_FOUND * few):
            break
    else:
        return failing
    # The sample lacks some flows, so all packets count now.
    names, of_flow = number_flows(captures)
    # One of several paths has packets of another port, but none of the other paths.
    elsewhere = [_found_anywhere(capture, captures) for capture in captures]
    for first, other in combinations(range(len(captures)), 2):
        here, exact_here = _count_in(captures[first], captures[other], of_flow[first], len(names))
        there, exact_there = _count_in(captures[other], captures[first], of_flow[other], len(names))
        fewer = np.minimum(here, there)
        lost = (fewer > 0) & (np.minimum(exact_here, exact_there) <= MOST_FOUND * fewer)
        for index in (first, other):
            failing[index] |= lost[of_flow[index]] & ~elsewhere[index]
    return failing


def _found_anywhere(capture: PortCapture, captures: Sequence[PortCapture]) -> Bool:
    """For each flow of a capture, whether others have more than a few of its packets."""
    columns = capture.columns
    found = np.zeros(columns.flow.size, np.bool_)
    for other in captures:
        if other is not capture:
            found |= np.isin(columns.identity, other.columns.identity)
    packets = np.bincount(columns.flow, minlength=len(capture.flows))
    is_found: Bool = np.bincount(columns.flow, found, len(capture.flows)) > MOST_FOUND * packets
    return is_found


def _count_in(
    capture: PortCapture, other: PortCapture, of_flow: Array, names: int
) -> tuple[Array, Array]:
    """The packets of each name, and those that the exact identity finds in the other capture."""
    number = of_flow[capture.columns.flow]
    exact = np.isin(capture.columns.identity, other.columns.identity)
    return np.bincount(number, minlength=names), np.bincount(number, exact, names)


def _split_echoes(capture: PortCapture, wanted: Bool) -> Bool:
    """Makes a flow of the echoes of each identifier, because behind a NAT all hosts are one.

    The identifier becomes the port of the host that requests. Returns `wanted` with the new flows.
    """
    columns, flows = capture.columns, capture.flows
    for row in np.flatnonzero(wanted).tolist():
        if flows[row].protocol not in ICMP:
            continue
        rows = np.flatnonzero(columns.flow == row)
        # The type, and the identifier (RFC 792 and RFC 4443).
        kind, number = columns.seq[rows] >> 24, columns.ack[rows] >> 16
        for kinds, end in (((8, 128), "sport"), ((0, 129), "dport")):
            echoes = np.isin(kind, kinds)
            for identifier in np.unique(number[echoes]).tolist():
                name = replace(flows[row], **{end: identifier})
                columns.flow[rows[echoes & (number == identifier)]] = capture.add_flow(name, row)
    return np.append(wanted, np.ones(len(flows) - wanted.size, np.bool_))
