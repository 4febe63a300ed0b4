"""Datagrams that a hop cuts into fragments (RFC 791, 3.2), or that it puts together.

Fragments that a hop only passes on are packets like others. But where one capture has a datagram
whole, or in other fragments, these become one packet there: with the time of the first one, and the
length of all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from outcast.analysis.capture.headers import FRAGMENT, LATER_FRAGMENT, Columns
from outcast.analysis.capture.pcap import PortCapture
from outcast.analysis.compiled import I64, Array
from outcast.analysis.join.pairs import numbered

TOGETHER_NS = 1_000_000_000
"""Fragments of one datagram are not farther apart; ids come again later."""

_ONE_PACKET = (
    "Each datagram is one packet, with the time of its first fragment and the length of all. No "
    "limit is estimated, because queues count fragments"
)


def assemble(captures: Sequence[PortCapture]) -> list[str]:
    """Makes one packet of the fragments of each datagram that another capture has not in the same.

    The captures' columns and flows are changed. Returns a line on each such capture.
    """
    cut = [np.flatnonzero(capture.columns.marks & FRAGMENT) for capture in captures]
    if not any(rows.size for rows in cut):
        return []
    names, numbers = numbered(
        [[(flow.src, flow.dst, flow.protocol) for flow in capture.flows] for capture in captures]
    )
    of_flow = [flows.astype(np.int64) for flows in numbers]
    lines = _assemble_cut_anew(captures, of_flow, cut)
    if lines:
        cut = [np.flatnonzero(capture.columns.marks & FRAGMENT) for capture in captures]
    is_cut = np.zeros(len(names), np.bool_)
    for flows, rows, capture in zip(of_flow, cut, captures, strict=True):
        is_cut[flows[capture.columns.flow[rows]]] = True
    wholes = [
        _whole(capture.columns, flows, is_cut)
        for capture, flows in zip(captures, of_flow, strict=True)
    ]
    for index, (capture, flows, rows) in enumerate(zip(captures, of_flow, cut, strict=True)):
        if rows.size:
            others = [n for n in range(len(captures)) if n != index and wholes[n][0].size]
            lines += _assemble(capture, flows, rows, [(captures[n], *wholes[n]) for n in others])
    return lines


def _assemble_cut_anew(
    captures: Sequence[PortCapture], of_flow: Sequence[I64], cut: Sequence[Array]
) -> list[str]:
    """Makes datagrams whole that have other fragments in another capture, where most of them are.

    Fragments that are the same but for some that are missing are left as they are.
    """
    sizes: dict[int, list[Counter[int]]] = defaultdict(lambda: [Counter() for _ in captures])
    keys = [
        _key(capture.columns, flows, rows)
        for capture, flows, rows in zip(captures, of_flow, cut, strict=True)
    ]
    for index, (capture, rows) in enumerate(zip(captures, cut, strict=True)):
        payload = capture.columns.payload_bytes[rows].tolist()
        for key, size in zip(keys[index].tolist(), payload, strict=True):
            sizes[key][index][size] += 1
    anew: dict[int, Counter[int]] = {}
    for key, of_captures in sizes.items():
        largest = max(of_captures, key=lambda parts: sum(size * n for size, n in parts.items()))
        if any(not parts <= largest for parts in of_captures):
            count = anew.setdefault(key >> 16, Counter())
            count[of_captures.index(largest)] += 1
    lines = []
    for index, (capture, rows, key) in enumerate(zip(captures, cut, keys, strict=True)):
        mine = [number for number, count in anew.items() if count.most_common(1)[0][0] == index]
        taken = np.isin(key >> 16, mine)
        if not taken.any():
            continue
        columns = capture.columns
        rows, _, first = _by_datagram(columns, rows[taken], key[taken])
        heads = rows[first]
        for name in ("payload_bytes", "frame_bytes"):
            column = getattr(columns, name)
            column[heads] = np.add.reduceat(column[rows].astype(np.int64), first)
        columns.marks[heads] &= np.uint8(0xFF & ~(FRAGMENT | LATER_FRAGMENT))
        columns.identity[heads] ^= np.uint64(0x9E3779B97F4A7C15)
        keep = np.ones(columns.flow.size, np.bool_)
        keep[np.setdiff1d(rows, heads)] = False
        capture.columns = Columns.of(column[keep] for column in columns)
        lines.append(
            f"{capture.port}: {rows.size:,} fragments are of {heads.size:,} datagrams that another "
            f"capture has in other fragments. {_ONE_PACKET}"
        )
    return lines


def _by_datagram(columns: Columns, rows: Array, key: I64) -> tuple[Array, I64, I64]:
    """Fragments and their keys in the order of keys and time, and where each datagram begins."""
    order = np.lexsort((rows, key))
    rows, key = rows[order], key[order]
    begins = np.ones(rows.size, np.bool_)
    begins[1:] = (key[1:] != key[:-1]) | (np.diff(columns.stamp_ns[rows]) > TOGETHER_NS)
    return rows, key, np.flatnonzero(begins)


def _key(columns: Columns, flows: I64, rows: Array) -> I64:
    key: I64 = flows[columns.flow[rows]] << 16 | columns.ip_id[rows]
    return key


def _whole(columns: Columns, flows: I64, is_cut: Array) -> tuple[I64, I64]:
    """The whole datagrams between hosts that also have fragments: their keys, and rows."""
    here = is_cut[flows]
    if not here.any():
        return np.empty(0, np.int64), np.empty(0, np.int64)
    rows = np.flatnonzero(here[columns.flow] & ((columns.marks & FRAGMENT) == 0))
    key = _key(columns, flows, rows)
    order = np.argsort(key, kind="stable")
    return key[order], rows[order]


def _assemble(
    capture: PortCapture, flows: I64, rows: Array, others: Sequence[tuple[PortCapture, I64, I64]]
) -> list[str]:
    """Makes one packet of the fragments of each datagram; see `assemble`."""
    columns = capture.columns
    rows, key, first = _by_datagram(columns, rows, _key(columns, flows, rows))
    count = np.diff(np.append(first, rows.size))
    payload = np.add.reduceat(columns.payload_bytes[rows].astype(np.int64), first)
    frame = np.add.reduceat(columns.frame_bytes[rows].astype(np.int64), first)
    keep = np.ones(columns.flow.size, np.bool_)
    row_of = {flow: row for row, flow in enumerate(capture.flows)}
    datagrams = fragments = partly = 0
    for group, (begin, size) in enumerate(zip(first.tolist(), count.tolist(), strict=True)):
        mine = rows[begin : begin + size]
        found = _same(columns, mine, int(key[begin]), others)
        if found is None:
            continue
        other, whole = found
        name = other.flows[int(other.columns.flow[whole])]
        row = int(mine[0])
        head = mine[(columns.marks[mine] & LATER_FRAGMENT) == 0]
        checksum = columns.checksum[head[0]] if head.size else other.columns.checksum[whole]
        for field in ("identity", "payload_bytes", "seq", "ack", "tsval", "tsecr", "flags"):
            getattr(columns, field)[row] = getattr(other.columns, field)[whole]
        columns.checksum[row] = checksum
        columns.frame_bytes[row] = frame[group]
        columns.marks[row] = other.columns.marks[whole] & ~np.uint8(FRAGMENT)
        if name not in row_of:
            row_of[name] = capture.add_flow(name, int(columns.flow[row]))
        columns.flow[row] = row_of[name]
        keep[mine[1:]] = False
        datagrams += 1
        fragments += size
        partly += int(payload[group]) < int(other.columns.payload_bytes[whole])
    if not datagrams:
        return []
    capture.columns = Columns.of(column[keep] for column in columns)
    lacking = (
        f"; {partly:,} datagrams lack fragments, which were dropped or not captured. They count as "
        "forwarded, because a part of them was"
    )
    return [
        f"{capture.port}: {fragments:,} fragments are of {datagrams:,} datagrams that another "
        f"capture has whole. {_ONE_PACKET}{lacking if partly else ''}"
    ]


def _same(
    columns: Columns, rows: Array, key: int, others: Sequence[tuple[PortCapture, I64, I64]]
) -> tuple[PortCapture, int] | None:
    """The whole datagram that these are fragments of: the nearest one in time with its id."""
    sent = int(columns.payload_bytes[rows].sum())
    came_ns = int(columns.stamp_ns[rows[0]])
    candidates = [
        (capture, row)
        for capture, keys, wholes in others
        for row in wholes[slice(*np.searchsorted(keys, [key, key + 1]).tolist())].tolist()
        if int(capture.columns.payload_bytes[row]) >= sent
    ]

    def apart_ns(found: tuple[PortCapture, int]) -> int:
        return abs(int(found[0].columns.stamp_ns[found[1]]) - came_ns)

    return min(candidates, key=apart_ns, default=None)
