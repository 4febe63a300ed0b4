"""Flows whose packets a hop changes, and what still tells which packet is which.

A NAT gives packets other addresses and ports; other hops number IP ids anew, or add a constant to
the sequence numbers of a connection (RFC 6528 does so in hosts, firewalls for hosts). Where the
exact identity finds no packet of a flow, looser ones are tried in turn. If one fits, the flow gets
one name and one identity in both captures, so that all that follows sees one flow. What fits more
than one flow is left alone and counted.
"""

from __future__ import annotations

import hashlib
import socket
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

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
from outcast.analysis.join.directions import CAME, LEFT, is_group
from outcast.analysis.join.pairs import Sightings

SAMPLED = 4_096
"""So many packets of each flow, its first ones, are compared."""
LEAST = 8
"""A flow with fewer sampled packets tells nothing by itself."""
MOST_FOUND = 0.05
"""A flow whose packets the exact identity finds up to this share is looked for by looser ones."""
LEAST_FOUND = 0.25
"""A looser identity has to find this share of the sampled packets, because a queue may have dropped
the others."""
LEAST_STEADY = 0.9
"""In this share of the packets, sequence numbers have to be moved by one constant."""
FEW = 4
"""A flow with fewer common packets is only joined if one of its ends is unchanged."""
MOST_ALIKE = 8
"""What so many flows of a capture have in common tells nothing."""

LEAST_TOLD = 0.01
"""What differs is said only of more than this share of a capture's packets."""

ICMP = (1, 58)
ESP = 50
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
class United:
    """What was found.

    Attributes:
        changed: whether a capture was changed, so that it has to be looked at anew.
        notes: a line on each two captures and each identity by which flows were joined.
        refusals: a line on each two captures whose flows no identity joins.
        unsure: for each capture, its flows that could be one of several. They take no part.
    """

    changed: bool = False
    notes: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    unsure: tuple[Bool, ...] = ()


@dataclass(frozen=True, slots=True)
class _Side:
    """The sampled packets of a capture that are looked for, flow by flow."""

    capture: PortCapture
    index: int
    wanted: Bool
    rows: I64


@dataclass(slots=True)
class _Match:
    """A flow of one capture that is one of another."""

    first: int
    second: int
    flow: int
    other: int
    rows: I64
    others: I64
    moved: tuple[int, int] = (0, 0)


def unite(
    captures: Sequence[PortCapture], sightings: Sightings, said: Sequence[int | None]
) -> United:
    """Gives flows that a hop changes the same name and identity in all captures.

    Nothing is changed where the exact identity finds the packets of all flows.

    Args:
        captures: the captures of a hop's ports. Their columns and flows are changed.
        sightings: a sample of their packets, by the exact identity.
        said: for each capture, CAME or LEFT if the caller says that it has one direction.
    """
    alone = _alone(captures)
    failing = _failing(captures, sightings, alone)
    if sum(bool(flows.any()) for flows in alone) < 2:
        alone = [np.zeros_like(flows) for flows in alone]
    wanted = [one | other for one, other in zip(alone, failing, strict=True)]
    if not any(flows.any() for flows in wanted):
        return United()
    wanted = [
        _split_echoes(capture, flows) for capture, flows in zip(captures, wanted, strict=True)
    ]
    notes: list[str] = []
    unsure = [np.zeros_like(flows) for flows in wanted]
    for level in LEVELS:
        sides = [
            _Side(capture, index, flows, _sampled(capture.columns, flows))
            for index, (capture, flows) in enumerate(zip(captures, wanted, strict=True))
        ]
        for one, other in combinations(sides, 2):
            if not one.rows.size or not other.rows.size:
                continue
            matches, doubtful = _matches(one, other, level)
            for (flow, other_flow), alike in doubtful.items():
                # A few packets that are alike do not tell by themselves that there is a NAT.
                if alike >= FEW or notes or matches:
                    unsure[one.index][flow] = unsure[other.index][other_flow] = True
            if matches:
                notes.append(_join_flows(captures, matches, level, said))
                for match in matches:
                    one.wanted[match.flow] = other.wanted[match.other] = False
    changed = bool(notes)
    refusals = _differences(captures, wanted)
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
    """For each capture, the flows that no other capture has, but for those to groups of hosts."""
    seen = Counter(flow for capture in captures for flow in set(capture.flows))
    return [
        np.array(
            [seen[flow] == 1 and not is_group(flow.dst) for flow in capture.flows],
            np.bool_,
        )
        for capture in captures
    ]


def _failing(
    captures: Sequence[PortCapture], sightings: Sightings, alone: Sequence[Bool]
) -> list[Bool]:
    """For each capture, the flows of which another has the name but not the packets."""
    nothing = [np.zeros(len(capture.flows), np.bool_) for capture in captures]
    found = (sightings.row != -1).sum(axis=1) > 1
    for index, capture in enumerate(captures):
        here = np.flatnonzero(sightings.row[:, index] >= 0)
        flow = capture.columns.flow[sightings.row[here, index]]
        sampled = np.bincount(flow, ~alone[index][flow], len(capture.flows))
        common = np.bincount(flow, found[here], len(capture.flows))
        small = sampled < LEAST
        few, few_common = sampled[small].sum(), common[small & ~alone[index]].sum()
        lost = ~small & (common <= MOST_FOUND * sampled)
        if lost.any() or (few >= LEAST and few_common <= MOST_FOUND * few):
            break
    else:
        return nothing
    # The sample does not show all flows, so all packets are looked at now.
    numbers: dict[FlowKey, int] = {}
    of_flow = [
        np.array([numbers.setdefault(flow, len(numbers)) for flow in capture.flows], np.int64)
        for capture in captures
    ]
    for one, other in combinations(range(len(captures)), 2):
        first, second = captures[one], captures[other]
        counts = []
        for capture, flows, rest in (
            (first, of_flow[one], second),
            (second, of_flow[other], first),
        ):
            number = flows[capture.columns.flow]
            exact = np.isin(capture.columns.identity, rest.columns.identity)
            counts.append(
                (
                    np.bincount(number, minlength=len(numbers)),
                    np.bincount(number, exact, len(numbers)),
                )
            )
        (here, exact_here), (there, exact_there) = counts
        fewer = np.minimum(here, there)
        lost = (fewer > 0) & (np.minimum(exact_here, exact_there) <= MOST_FOUND * fewer)
        nothing[one] |= lost[of_flow[one]]
        nothing[other] |= lost[of_flow[other]]
    return nothing


def _split_echoes(capture: PortCapture, wanted: Bool) -> Bool:
    """Makes a flow of the echoes of each identifier, because behind a NAT all hosts are one.

    The identifier takes the place of the port of the host that asks. Returns `wanted` with the new
    flows.
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
                columns.flow[rows[echoes & (number == identifier)]] = len(flows)
                flows.append(replace(flows[row], **{end: identifier}))
                if capture.macs:
                    capture.macs.append(capture.macs[row])
    return np.append(wanted, np.ones(len(flows) - wanted.size, np.bool_))


def _sampled(columns: Columns, flows: Bool) -> I64:
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


def _keys(side: _Side, level: Level) -> tuple[I64, U64]:
    """The packets that a level can tell, and their identities."""
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
    return rows, _identities(protocol.astype(np.uint64), columns, rows, protocol, ends, level)


def _unique(rows: I64, key: U64, flow: Array) -> tuple[I64, U64]:
    """The first packet of each flow and key, without keys of many flows."""
    order = np.lexsort((rows, flow, key))
    rows, key, flow = rows[order], key[order], flow[order]
    is_first = np.ones(rows.size, np.bool_)
    is_first[1:] = (key[1:] != key[:-1]) | (flow[1:] != flow[:-1])
    rows, key = rows[is_first], key[is_first]
    alike = np.searchsorted(key, key, "right") - np.searchsorted(key, key, "left")
    return rows[alike <= MOST_ALIKE], key[alike <= MOST_ALIKE]


def _matches(
    one: _Side, other: _Side, level: Level
) -> tuple[list[_Match], dict[tuple[int, int], int]]:
    """The flows of two captures that are the same by a level, and pairs that only could be.

    Each of these has the number of packets that are alike.
    """
    rows, key = _keys(one, level)
    rows, key = _unique(rows, key, one.capture.columns.flow[rows])
    others, other_key = _keys(other, level)
    others, other_key = _unique(others, other_key, other.capture.columns.flow[others])
    first = np.searchsorted(other_key, key, "left")
    count = np.searchsorted(other_key, key, "right") - first
    if not count.sum():
        return [], {}
    which = np.repeat(np.arange(rows.size), count)
    nth = np.arange(which.size) - np.repeat(np.cumsum(count) - count, count)
    at, there = rows[which], others[first[which] + nth]
    flow, other_flow = one.capture.columns.flow[at], other.capture.columns.flow[there]
    # A flow that both captures have by its name is no other one.
    numbers: dict[FlowKey, int] = {}
    name = np.array([numbers.setdefault(f, len(numbers)) for f in one.capture.flows], np.int64)
    known = len(numbers)
    other_name = np.array(
        [numbers.setdefault(f, len(numbers)) for f in other.capture.flows], np.int64
    )
    shared = np.zeros(len(numbers), np.bool_)
    shared[other_name[other_name < known]] = True
    in_both = shared[name[flow]] | (other_name[other_flow] < known)
    fits = ~in_both | (name[flow] == other_name[other_flow])
    at, there, flow, other_flow = at[fits], there[fits], flow[fits], other_flow[fits]
    pair = flow.astype(np.int64) * len(other.capture.flows) + other_flow
    order = np.argsort(pair, kind="stable")
    edges = np.flatnonzero(np.diff(pair[order], prepend=-1, append=-1))
    found = {
        (int(flow[order[a]]), int(other_flow[order[a]])): order[a:b]
        for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    }
    totals = np.bincount(one.capture.columns.flow[rows], minlength=len(one.capture.flows))
    other_totals = np.bincount(
        other.capture.columns.flow[others], minlength=len(other.capture.flows)
    )
    chosen, doubtful = _choose(one, other, {k: v.size for k, v in found.items()},
                               totals, other_totals)  # fmt: skip
    matches = []
    for pairs in chosen:
        mine = found[pairs]
        match = _Match(one.index, other.index, *pairs, at[mine], there[mine])
        if level.moved and not _is_moved(match, one.capture.columns, other.capture.columns):
            continue
        matches.append(match)
    return matches, doubtful


def _choose(
    one: _Side,
    other: _Side,
    votes: dict[tuple[int, int], int],
    totals: Array,
    other_totals: Array,
) -> tuple[list[tuple[int, int]], dict[tuple[int, int], int]]:
    """The pairs of flows that fit each other best, both directions of a connection together.

    Returns them, and the pairs of which each flow fits another one about as well, with the packets
    that they have in common.
    """
    flows, other_flows = one.capture.flows, other.capture.flows
    row = {flow: index for index, flow in enumerate(flows)}
    other_row = {flow: index for index, flow in enumerate(other_flows)}

    def back(flow: FlowKey) -> FlowKey:
        return FlowKey(flow.dst, flow.dport, flow.src, flow.sport, flow.protocol)

    score: dict[tuple[int, int], int] = {}
    for (here, there), count in votes.items():
        reverse = (row.get(back(flows[here]), -1), other_row.get(back(other_flows[there]), -1))
        possible = min(int(totals[here]), int(other_totals[there]))
        total = count + votes.get(reverse, 0)
        if min(reverse) >= 0:
            possible += min(int(totals[reverse[0]]), int(other_totals[reverse[1]]))
        ends = (flows[here].src, flows[here].sport) == (
            other_flows[there].src,
            other_flows[there].sport,
        ) or (flows[here].dst, flows[here].dport) == (
            other_flows[there].dst,
            other_flows[there].dport,
        )
        if total >= LEAST_FOUND * possible and (total >= FEW or ends):
            score[here, there] = total
    best: dict[int, list[int]] = {}
    other_best: dict[int, list[int]] = {}
    for (here, there), total in score.items():
        best.setdefault(here, []).append(total)
        other_best.setdefault(there, []).append(total)
    chosen = []
    for (here, there), total in score.items():
        rivals = sorted(best[here])[-2:], sorted(other_best[there])[-2:]
        if any(total < totals_of[-1] for totals_of in rivals):
            continue
        if any(len(totals_of) > 1 and 2 * totals_of[0] > total for totals_of in rivals):
            continue
        chosen.append((here, there))
    settled, other_settled = {here for here, _ in chosen}, {there for _, there in chosen}
    return chosen, {
        (here, there): total
        for (here, there), total in score.items()
        if here not in settled and there not in other_settled
    }


def _is_moved(match: _Match, columns: Columns, others: Columns) -> bool:
    """Whether sequence numbers differ by a constant, which the match is then told."""
    by = []
    for name in ("seq", "ack"):
        rows, there = match.rows, match.others
        if name == "ack":
            has = (columns.flags[rows] & ACK) != 0
            rows, there = rows[has], there[has]
        apart = (
            getattr(others, name)[there].astype(np.int64)
            - getattr(columns, name)[rows].astype(np.int64)
        ) % 2**32
        values, counts = np.unique(apart, return_counts=True)
        if not values.size:
            by.append(0)
            continue
        if counts.max() < LEAST_STEADY * apart.size:
            return False
        by.append(int(values[counts.argmax()]))
    match.moved = (by[0], by[1])
    return True


# --- one name and one identity


def _join_flows(
    captures: Sequence[PortCapture],
    matches: Sequence[_Match],
    level: Level,
    said: Sequence[int | None],
) -> str:
    """Changes both captures. Returns what is said of it."""
    one, other = captures[matches[0].first], captures[matches[0].second]
    renamed: list[tuple[FlowKey, FlowKey, int]] = []
    moved = alike = packets = 0
    comes_first = _came_first(captures, matches, said)
    whole = [
        (_rows_by_flow(one.columns, [m.flow for m in matches])),
        (_rows_by_flow(other.columns, [m.other for m in matches])),
    ]
    for match, is_first in zip(matches, comes_first, strict=True):
        here, there = one.flows[match.flow], other.flows[match.other]
        came, left = (here, there) if is_first else (there, here)
        # Hosts keep the addresses that they have at their own port.
        name = replace(came, dst=left.dst, dport=left.dport)
        rows, others = whole[0][match.flow], whole[1][match.other]
        packets += rows.size + others.size
        moved += match.moved != (0, 0)
        if level.moved:
            _move(other.columns, others, match.moved)
        alike += _identify(one.columns, rows, here, name, level)
        alike += _identify(other.columns, others, there, name, level)
        if here != there:
            renamed.append((here, there, rows.size))
        one.flows[match.flow] = other.flows[match.other] = name
    return _note(one, other, matches, level, renamed, moved, alike, packets)


def _rows_by_flow(columns: Columns, flows: Sequence[int]) -> dict[int, I64]:
    wanted = np.zeros(int(columns.flow.max(initial=0)) + 1, np.bool_)
    wanted[list(flows)] = True
    rows = np.flatnonzero(wanted[columns.flow])
    rows = rows[np.argsort(columns.flow[rows], kind="stable")]
    flow = columns.flow[rows]
    return {
        number: rows[np.searchsorted(flow, number) : np.searchsorted(flow, number, "right")]
        for number in flows
    }


def _came_first(
    captures: Sequence[PortCapture], matches: Sequence[_Match], said: Sequence[int | None]
) -> list[bool]:
    """For each match, whether its packets came in at the first capture.

    By the captures' own word, by the TTL, which a router counts down, by the two directions of the
    connection, by the caller's word, and by the stamps as they are, in this order.
    """
    one, other = captures[matches[0].first], captures[matches[0].second]
    later: dict[FlowKey, float] = {}
    told: dict[FlowKey, int] = {}
    for match in matches:
        flow = one.flows[match.flow]
        stamps = other.columns.stamp_ns[match.others] - one.columns.stamp_ns[match.rows]
        later[flow] = float(np.median(stamps))
        ttl = one.columns.ttl[match.rows].astype(int) - other.columns.ttl[match.others].astype(int)
        word = 0
        for capture, rows, sign in ((one, match.rows, 1), (other, match.others, -1)):
            marks = capture.columns.marks[rows]
            word += sign * int(((marks & INBOUND) != 0).sum())
            word -= sign * int(((marks & OUTBOUND) != 0).sum())
        told[flow] = int(np.sign(word)) or int(np.sign(np.median(ttl)))
    words = {CAME: 1, LEFT: -1, None: 0}
    by_said = words[said[matches[0].first]] - words[said[matches[0].second]]
    result = []
    for match in matches:
        flow = one.flows[match.flow]
        back = FlowKey(flow.dst, flow.dport, flow.src, flow.sport, flow.protocol)
        first: float = told[flow] or -told.get(back, 0)
        if not first and back in later:
            first = later[flow] - later[back]
        result.append((first or by_said or later[flow]) >= 0)
    return result


def _move(columns: Columns, rows: I64, by: tuple[int, int]) -> None:
    """Takes away what was added to sequence numbers. Without an ACK there is none to correct."""
    columns.seq[rows] = (columns.seq[rows].astype(np.int64) - by[0]) % 2**32
    rows = rows[(columns.flags[rows] & ACK) != 0]
    columns.ack[rows] = (columns.ack[rows].astype(np.int64) - by[1]) % 2**32


def _identify(columns: Columns, rows: I64, old: FlowKey, name: FlowKey, level: Level) -> int:
    """Gives packets of a flow a new identity. Returns how many have become equal by that."""
    before = _copies(columns, rows)
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
    return _copies(columns, rows) - before


def _copies(columns: Columns, rows: I64) -> int:
    """How many packets are equal to one before them."""
    key = _mixed(_mixed(columns.identity[rows], columns.tsval[rows]), columns.tsecr[rows])
    return rows.size - np.unique(key).size


# --- words


def _text(flow: FlowKey) -> str:
    def end(address: str, port: int) -> str:
        return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"

    if not flow.sport and not flow.dport:
        return f"{flow.src} to {flow.dst}"
    return f"{end(flow.src, flow.sport)} to {end(flow.dst, flow.dport)}"


def _note(
    one: PortCapture,
    other: PortCapture,
    matches: Sequence[_Match],
    level: Level,
    renamed: Sequence[tuple[FlowKey, FlowKey, int]],
    moved: int,
    alike: int,
    packets: int,
) -> str:
    what = []
    if renamed:
        here, there, _ = max(renamed, key=lambda flow: flow[2])
        what.append(
            f"addresses are translated between them (NAT), as {_text(here)} at {one.port}, which "
            f"{other.port} has as {_text(there)}"
        )
    if not level.ip_id:
        what.append("IP ids are not the same")
    if moved:
        what.append(f"the sequence numbers of {moved:,} flows are moved by a constant each")
    if not what:
        what.append("the ECN bits of TCP differ")
    return (
        f"{one.port} and {other.port}: {'; '.join(what)}. {packets:,} packets of {len(matches):,} "
        f"flows are joined by {level.words}"
        + (", and named by their hosts' own addresses" if renamed else "")
        + (
            f"; {alike:,} of them have equals, so it can be another one of these that was dropped"
            if alike
            else ""
        )
    )


def _differences(
    captures: Sequence[PortCapture],
    wanted: Sequence[Bool],
) -> list[str]:
    """A line for each two captures that have flows in common whose packets nothing joins."""
    lines = []
    for one, other in combinations(range(len(captures)), 2):
        here, there = captures[one], captures[other]
        names = {here.flows[row] for row in np.flatnonzero(wanted[one]).tolist()}
        names &= {there.flows[row] for row in np.flatnonzero(wanted[other]).tolist()}
        if names:
            lines += _difference(here, there, names)
        else:
            lines += _encrypted(here, there, wanted[one], wanted[other])
    return lines


def _of(capture: PortCapture, names: set[FlowKey]) -> I64:
    flows: Bool = np.array([flow in names for flow in capture.flows], np.bool_)
    return _sampled(capture.columns, flows)


def _difference(here: PortCapture, there: PortCapture, names: set[FlowKey]) -> list[str]:
    """What differs between two captures of the same flows, if anything of them agrees."""
    rows, others = _of(here, names), _of(there, names)
    if min(rows.size, others.size) <= LEAST_TOLD * min(
        here.columns.flow.size, there.columns.flow.size
    ):
        return []
    same: list[str] = []
    differing: list[str] = []
    for word, field in (
        ("IP ids", "ip_id"),
        ("sequence numbers", "seq"),
        ("TCP time stamps", "tsval"),
        ("lengths", "payload_bytes"),
    ):
        values = np.unique(getattr(here.columns, field)[rows])
        other_values = np.unique(getattr(there.columns, field)[others])
        fewer = min(values.size, other_values.size)
        if fewer < LEAST and field != "payload_bytes":
            continue
        agrees = np.intersect1d(values, other_values).size >= 0.5 * fewer
        (same if agrees else differing).append(word)
    if not differing or same in ([], ["lengths"]):
        return []
    flow = max(names)
    return [
        f"{here.port} and {there.port}: {min(rows.size, others.size):,} packets, as from "
        f"{_text(flow)}, have the same addresses, ports and {' and '.join(same)} in both, but "
        f"other {' and '.join(differing)}. The hop changes more than any identity of the join "
        "allows for: it ends connections itself (a proxy), or merges and cuts segments (offloads)"
    ]


def _encrypted(here: PortCapture, there: PortCapture, wanted: Bool, others: Bool) -> list[str]:
    """A line if one of two captures has ESP (RFC 4303) that the other has in the clear."""
    for clear, sealed, plain, secret in (
        (here, there, wanted, others),
        (there, here, others, wanted),
    ):
        is_esp = np.array([flow.protocol == ESP for flow in sealed.flows], np.bool_) & secret
        count = int(is_esp[sealed.columns.flow].sum())
        packets = int(plain[clear.columns.flow].sum())
        if count > LEAST_TOLD * sealed.columns.flow.size and 2 * packets > count:
            return [
                f"{sealed.port}: {count:,} packets are encrypted (ESP), and {clear.port} has "
                f"{packets:,} in the clear that no other capture has. The hop encrypts between "
                "them, so nothing tells which packet is which. Capture both ports on one side of "
                "the tunnel"
            ]
    return []
