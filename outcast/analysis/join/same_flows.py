"""Flows of two captures that are the same though a hop changes their packets, and their new name.

Looser identities are tried in turn. What fits more than one flow is left alone.
"""

from __future__ import annotations

import hashlib
import socket
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from outcast.analysis.capture.headers import (
    ACK,
    HAS_TIMESTAMP,
    INBOUND,
    OUTBOUND,
    TCP,
    UDP,
    Columns,
    FlowKey,
)
from outcast.analysis.capture.pcap import PortCapture
from outcast.analysis.compiled import I64, U64, Array, Bool
from outcast.analysis.join.packets import number_flows
from outcast.analysis.join.pairs import grouped

SAMPLED = 4_096
"""The number of packets of each flow, its first ones, that are compared."""
LEAST_FOUND = 0.25
"""A looser identity has to find this share of the sampled packets, because a queue may have dropped
the others."""
LEAST_STEADY = 0.9
"""In this share of the packets, sequence numbers have to be moved by one constant."""
FEW = 4
"""A flow with fewer common packets is only joined if one of its ends is unchanged, and only by its
own sequence numbers: those of any two packets differ by some constant."""
MOST_ALIKE = 8
"""What this number of a capture's flows have in common shows nothing."""

ICMP = (1, 58)
_STEP = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Level:
    """An identity: which fields it takes besides the protocol, the flags and the length.

    Attributes:
        ip_id, numbers, stamps: whether it takes the IP id, TCP's sequence and acknowledgement
            numbers (of UDP the checksum without addresses and ports), and TCP's time stamps.
        moved: whether sequence numbers have moved by a constant, which is then taken away.
    """

    words: str
    ip_id: bool
    numbers: bool
    stamps: bool
    moved: bool = False


LEVELS = (
    Level("IP ids, sequence numbers and lengths", True, True, False),
    Level("sequence numbers (of UDP checksums) and lengths", False, True, False),
    Level("IP ids, TCP time stamps and lengths", True, False, True, moved=True),
    Level("TCP time stamps and lengths", False, False, True, moved=True),
    Level("IP ids and lengths", True, False, False, moved=True),
)


@dataclass(frozen=True, slots=True)
class Side:
    """The sampled packets of a capture that are looked for, flow by flow."""

    capture: PortCapture
    index: int
    wanted: Bool
    rows: I64

    def packets(self, rows: I64) -> Array:
        """How many of these packets each flow has."""
        return np.bincount(self.capture.columns.flow[rows], minlength=len(self.capture.flows))


@dataclass(slots=True)
class Match:
    """A flow of one capture that is one of another."""

    flow: int
    other: int
    rows: I64
    others: I64
    moved: tuple[int, int] = (0, 0)


def sampled(columns: Columns, flows: Bool) -> I64:
    """The first SAMPLED packets of each of these flows."""
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
    """The sum of an address's words of 16 bits, as a checksum has it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return int(np.frombuffer(socket.inet_pton(family, address), ">u2").sum())


def _numbers(columns: Columns, rows: I64, protocol: Array, ends: I64) -> tuple[Array, Array]:
    """What a hop leaves of the numbers above IP if it translates addresses and ports.

    A NAT also translates the identifier of an ICMP echo. Of UDP it is the checksum without what is
    translated (RFC 768); `ends` has each packet's sum of addresses and ports.
    """
    first, second = columns.seq[rows].astype(np.int64), columns.ack[rows].astype(np.int64)
    is_icmp = np.isin(protocol, ICMP)
    first = np.where(is_icmp, first >> 16, first)
    second = np.where(is_icmp, second & 0xFFFF, second)
    checksum = columns.checksum[rows].astype(np.int64)
    rest = np.where(checksum == 0, 0, (checksum + ends) % 0xFFFF)
    return np.where(protocol == UDP, rest, first), second


def _identities(
    start: U64, columns: Columns, rows: I64, protocol: Array, ends: I64, level: Level
) -> U64:
    """The identities of packets at a level; see `_numbers`."""
    # A firewall may clear the ECN bits of TCP's flags.
    value = _mixed(start, columns.flags[rows] & 0x3F)
    value = _mixed(value, columns.payload_bytes[rows])
    if level.ip_id:
        value = _mixed(value, columns.ip_id[rows])
    if level.numbers:
        first, second = _numbers(columns, rows, protocol, ends)
        if level.ip_id:
            # A card may finish the checksum of a datagram later, and the IP id suffices.
            first = np.where(protocol == UDP, 0, first)
        value = _mixed(_mixed(value, first), second)
    if level.stamps:
        value = _mixed(_mixed(value, columns.tsval[rows]), columns.tsecr[rows])
    return value


def _ends(flow: FlowKey) -> int:
    return _words(flow.src) + _words(flow.dst) + flow.sport + flow.dport


def _keys(side: Side, level: Level) -> tuple[I64, U64]:
    """The packets that a level identifies, and their identities: the first of each in a flow."""
    columns, flows = side.capture.columns, side.capture.flows
    rows = side.rows[side.wanted[columns.flow[side.rows]]]
    protocols = np.array([flow.protocol for flow in flows], np.int64)
    if level.moved:
        is_told = protocols[columns.flow[rows]] == TCP
        if level.stamps:
            is_told &= (columns.marks[rows] & HAS_TIMESTAMP) != 0
        rows = rows[is_told]
    protocol = protocols[columns.flow[rows]]
    ends = np.array([_ends(flow) for flow in flows], np.int64)[columns.flow[rows]]
    key = _identities(protocol.astype(np.uint64), columns, rows, protocol, ends, level)
    flow = columns.flow[rows]
    order = np.lexsort((rows, flow, key))
    rows, key, flow = rows[order], key[order], flow[order]
    is_first = np.ones(rows.size, np.bool_)
    is_first[1:] = (key[1:] != key[:-1]) | (flow[1:] != flow[:-1])
    # A flow whose packets are nearly all alike has none that could be told.
    is_told = np.bincount(flow, is_first, len(flows)) >= LEAST_FOUND * np.bincount(
        flow, minlength=len(flows)
    )
    is_first &= is_told[flow]
    rows, key = rows[is_first], key[is_first]
    alike = np.searchsorted(key, key, "right") - np.searchsorted(key, key, "left")
    return rows[alike <= MOST_ALIKE], key[alike <= MOST_ALIKE]


def matches_by(
    side: Side, other: Side, level: Level
) -> tuple[list[Match], dict[tuple[int, int], int]]:
    """The flows of two captures that are the same by a level, and pairs that only could be.

    Each of these has the number of packets that are alike.
    """
    rows, key = _keys(side, level)
    others, other_key = _keys(other, level)
    first = np.searchsorted(other_key, key, "left")
    count = np.searchsorted(other_key, key, "right") - first
    if not count.sum():
        return [], {}
    which = np.repeat(np.arange(rows.size), count)
    nth = np.arange(which.size) - np.repeat(np.cumsum(count) - count, count)
    at, there = rows[which], others[first[which] + nth]
    flow, other_flow = side.capture.columns.flow[at], other.capture.columns.flow[there]
    # A flow that both captures have by its name is no other one.
    _, (names, other_names) = number_flows([side.capture, other.capture])
    name, other_name = names[flow], other_names[other_flow]
    shared = np.intersect1d(names, other_names)
    fits = (name == other_name) | ~(np.isin(name, shared) | np.isin(other_name, shared))
    at, there, flow, other_flow = at[fits], there[fits], flow[fits], other_flow[fits]
    pair = flow.astype(np.int64) * len(other.capture.flows) + other_flow
    found = {divmod(ends, len(other.capture.flows)): mine for ends, mine in grouped(pair).items()}
    votes = {ends: mine.size for ends, mine in found.items()}

    @cache
    def match(ends: tuple[int, int]) -> Match | None:
        made = Match(*ends, at[found[ends]], there[found[ends]])
        columns = side.capture.columns, other.capture.columns
        return made if not level.moved or _is_moved(made, *columns) else None

    packets = (side.packets(rows), other.packets(others))
    chosen, doubtful = _choose((side, other), votes, packets, level, match)
    return [made for ends in chosen if (made := match(ends))], doubtful


def _choose(
    sides: tuple[Side, Side],
    votes: dict[tuple[int, int], int],
    packets: tuple[Array, Array],
    level: Level,
    match: Callable[[tuple[int, int]], Match | None],
) -> tuple[list[tuple[int, int]], dict[tuple[int, int], int]]:
    """The pairs of flows that fit each other best, both directions of a connection together.

    Returns them, and the pairs of which each flow fits another one about as well, with the packets
    that they have in common. `packets` has those of each flow that could be in common. `match` is
    None where sequence numbers do not fit. They have to fit in both directions, because IP ids can
    be alike by chance.
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
        is_enough = total >= FEW or (not level.moved and _has_same_end(flow, other))
        if total < LEAST_FOUND * possible or not is_enough:
            continue
        if all(match(ends) for ends in ((here, there), back) if ends in votes):
            score[here, there] = total
    best: dict[int, list[int]] = defaultdict(list)
    other_best: dict[int, list[int]] = defaultdict(list)
    for (here, there), total in score.items():
        best[here].append(total)
        other_best[there].append(total)
    chosen = []
    for (here, there), total in score.items():
        # The best and the next best of each flow; none has to come near to the best.
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


def _is_moved(match: Match, columns: Columns, others: Columns) -> bool:
    """Whether sequence numbers differ by a constant, which the match is then told."""
    by = []
    for name in ("seq", "ack"):
        rows, there = match.rows, match.others
        if name == "ack":
            has = (columns.flags[rows] & ACK) != 0
            rows, there = rows[has], there[has]
        # Of 32 bits, as the numbers themselves, so it wraps as they do.
        apart = getattr(others, name)[there] - getattr(columns, name)[rows]
        values, counts = np.unique(apart, return_counts=True)
        if not values.size:
            by.append(0)
            continue
        if counts.max() < LEAST_STEADY * apart.size:
            return False
        by.append(int(values[counts.argmax()]))
    match.moved = (by[0], by[1])
    return True


def join_flows(
    capture: PortCapture, other: PortCapture, matches: Sequence[Match], level: Level, by_said: int
) -> str:
    """Changes both captures. Returns what is said of it.

    `by_said` is positive if the caller says that packets come in at the first, negative if they
    leave there, and 0 if nothing is said.
    """
    packets = 0
    is_translated = False
    comes_first = _came_first(capture, other, matches, by_said)
    all_rows = _rows_by_flow(capture.columns, [match.flow for match in matches])
    all_others = _rows_by_flow(other.columns, [match.other for match in matches])
    for match, is_first in zip(matches, comes_first, strict=True):
        here, there = capture.flows[match.flow], other.flows[match.other]
        came, outgoing = (here, there) if is_first else (there, here)
        # Hosts keep the addresses that they have at their own port.
        name = replace(came, dst=outgoing.dst, dport=outgoing.dport)
        rows, others = all_rows[match.flow], all_others[match.other]
        packets += max(rows.size, others.size)
        if level.moved:
            _move(other.columns, others, match.moved)
        _identify(capture.columns, rows, here, name, level)
        _identify(other.columns, others, there, name, level)
        is_translated |= here != there
        capture.flows[match.flow] = other.flows[match.other] = name
    change = "addresses are translated between them (NAT)" if is_translated else "packets change"
    return (
        f"{capture.port} and {other.port}: {change}. {packets:,} packets of {len(matches):,} flows "
        f"are joined by {level.words}"
    )


def _rows_by_flow(columns: Columns, flows: Sequence[int]) -> dict[int, I64]:
    rows = np.flatnonzero(np.isin(columns.flow, flows))
    return {flow: rows[mine] for flow, mine in grouped(columns.flow[rows]).items()}


def _came_first(
    here: PortCapture, other: PortCapture, matches: Sequence[Match], by_said: int
) -> list[bool]:
    """For each match, whether its packets came in at the first capture.

    By the captures' own word, by the TTL, which a router counts down, by the two directions of the
    connection, by the caller's word, and by the stamps as they are, in this order.
    """
    later: dict[FlowKey, float] = {}
    told: dict[FlowKey, int] = {}
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
        told[flow] = int(np.sign(word)) or int(np.sign(np.median(ttl)))
    result = []
    for match in matches:
        flow = here.flows[match.flow]
        back = flow.reversed
        first: float = told[flow] or -told.get(back, 0)
        if not first and back in later:
            first = later[flow] - later[back]
        result.append((first or by_said or later[flow]) >= 0)
    return result


def _move(columns: Columns, rows: I64, by: tuple[int, int]) -> None:
    """Takes away what was added to sequence numbers. Without an ACK there is nothing to correct."""
    columns.seq[rows] -= np.uint32(by[0])
    columns.ack[rows[(columns.flags[rows] & ACK) != 0]] -= np.uint32(by[1])


def _identify(columns: Columns, rows: I64, old: FlowKey, name: FlowKey, level: Level) -> None:
    """Gives packets of a flow a new identity."""
    seed = int.from_bytes(hashlib.blake2b(repr(name).encode(), digest_size=8).digest())
    columns.identity[rows] = _identities(
        np.full(rows.size, seed, np.uint64),
        columns,
        rows,
        np.full(rows.size, old.protocol),
        np.full(rows.size, _ends(old)),
        replace(level, numbers=True, stamps=False),
    )
    # It covers what was changed, so it would not agree.
    columns.checksum[rows] = 0
