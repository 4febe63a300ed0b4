"""The packets of several captures on one clock, in one order, with their identity.

The identity of a packet is what a switch leaves unchanged. It always has addresses, ports,
protocol, IP id, sequence and acknowledgement number, flags and payload length. It also has TTL,
checksum and TCP time stamp if the captures agree on them. MAC addresses, VLAN tags and the ECN bits
may change.

A sample of packets that several captures saw needs no clock: blocks of packets, spread over each
capture, are looked up in all others. A packet counts only if its identity occurs at most once in
each capture.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from outcast.analysis.capture.headers import HAS_TIMESTAMP, SYN, Columns, FlowKey
from outcast.analysis.capture.pcap import PortCapture
from outcast.analysis.machine_code import (
    I8,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Array,
    Bool,
    Scalar,
    compiled,
)

if TYPE_CHECKING:
    from outcast.analysis.join.clocks import Clock


Name = TypeVar("Name", bound=Hashable)

BLOCKS = 16
BLOCK_PACKETS = 1500
MOST_SAMPLED = 400_000
"""Over all captures. With many captures the blocks are shorter."""


@dataclass(frozen=True, slots=True)
class Observations:
    """For each sampled packet and capture, the packet's row there, or a negative number."""

    row: I32

    def between(self, first: int, second: int) -> tuple[I32, I32]:
        """The rows of the packets that two captures saw, in each."""
        both = (self.row[:, first] >= 0) & (self.row[:, second] >= 0)
        return self.row[both, first], self.row[both, second]


def numbered(lists: Sequence[Sequence[Name]]) -> tuple[tuple[Name, ...], list[I32]]:
    """Numbers the names in all lists. Returns the names, and each list as numbers."""
    numbers: dict[Name, int] = {}
    rows = [[numbers.setdefault(name, len(numbers)) for name in names] for names in lists]
    return tuple(numbers), [np.array(row, np.int32) for row in rows]


def grouped(keys: Array) -> dict[int, I64]:
    """The rows of each key, in order. Keys are not negative."""
    order = np.argsort(keys, kind="stable")
    edges = np.flatnonzero(np.diff(keys[order], prepend=-1, append=-1)).tolist()
    return {int(keys[order[first]]): order[first:end] for first, end in pairwise(edges)}


@compiled
def _enter(keys: U64, slots: I32, number: I32) -> int:
    """Numbers distinct keys in a hash table of their first rows. Returns their count."""
    mask = np.uint64(slots.size - 1)
    count = 0
    for i in range(keys.size):
        slot = (keys[i] >> np.uint64(13)) & mask
        while slots[slot] >= 0 and keys[slots[slot]] != keys[i]:
            slot = (slot + np.uint64(1)) & mask
        if slots[slot] < 0:
            slots[slot] = i
            number[i] = count
            count += 1
    return count


@compiled
def _seek(identity: U64, keys: U64, slots: I32, number: I32, seen: I32) -> None:
    """Looks up the packets of a capture: `seen` is the row of each key, or -2 if it has several."""
    mask = np.uint64(slots.size - 1)
    for row in range(identity.size):
        slot = (identity[row] >> np.uint64(13)) & mask
        while slots[slot] >= 0 and keys[slots[slot]] != identity[row]:
            slot = (slot + np.uint64(1)) & mask
        if slots[slot] >= 0:
            key = number[slots[slot]]
            seen[key] = row if seen[key] == -1 else -2


def sample(captures: Sequence[PortCapture], sampled: Sequence[bool] | None = None) -> Observations:
    """Looks up blocks of packets of each capture, or of those `sampled`, in all captures."""
    chosen: list[U64] = []
    block = min(BLOCK_PACKETS, max(1, MOST_SAMPLED // (BLOCKS * max(1, len(captures)))))
    for index, capture in enumerate(captures):
        if sampled is not None and not sampled[index]:
            continue
        identity = capture.columns.identity
        if identity.size <= BLOCKS * block:
            chosen.append(identity)
            continue
        starts: I64 = np.linspace(0, identity.size - block, BLOCKS).astype(np.int64)
        chosen += [identity[start : start + block] for start in starts.tolist()]
    keys = np.concatenate(chosen) if chosen else np.empty(0, np.uint64)
    slots = np.full(1 << (2 * keys.size).bit_length(), -1, np.int32)
    number = np.full(keys.size, -1, np.int32)
    count = _enter(keys, slots, number)
    rows: Array = np.full((len(captures), count), -1, np.int32)
    for capture, seen in zip(captures, rows, strict=True):
        if count:
            _seek(capture.columns.identity, keys, slots, number, seen)
    return Observations(rows.T)


@dataclass(frozen=True, slots=True)
class Crossing:
    """Sampled packets that came in at one capture and left by another, in the order of leaving.

    Attributes:
        came_row, left_row: the packets' rows there.
        came_ns, left_ns: their stamps, each on its own clock.
        slack_ns: by how much sooner packets may seem to leave, because stamps' units differ.
    """

    came: int
    left: int
    came_row: I32
    left_row: I32
    came_ns: I64
    left_ns: I64
    slack_ns: int = 0

    @property
    def delay_ns(self) -> I64:
        return self.left_ns - self.came_ns + self.slack_ns

    def on(self, clocks: Sequence[Clock]) -> Crossing:
        """With corrected stamps."""
        came_ns = clocks[self.came].correct(self.came_ns)
        return replace(self, came_ns=came_ns, left_ns=clocks[self.left].correct(self.left_ns))


def crossings(
    observations: Observations,
    captures: Sequence[PortCapture],
    came_flows: Sequence[Bool | None],
    left_flows: Sequence[Bool | None],
) -> list[Crossing]:
    """The sampled packets of each two captures, in the order of the captures.

    The masks say for each flow of a capture whether it came in, or left, there. None: no flow did.
    """
    found = []
    for came, coming in enumerate(came_flows):
        for left, leaving in enumerate(left_flows):
            if came == left or leaving is None or coming is None:
                continue
            here, there = captures[came].columns, captures[left].columns
            came_row, left_row = observations.between(came, left)
            counts = coming[here.flow[came_row]] & leaving[there.flow[left_row]]
            order = np.flatnonzero(counts)[np.argsort(left_row[counts], kind="stable")]
            came_row, left_row = came_row[order], left_row[order]
            if order.size:
                stamps = here.stamp_ns[came_row], there.stamp_ns[left_row]
                found.append(Crossing(came, left, came_row, left_row, *stamps))
    return found


PARTS = ("ttl", "checksum", "timestamp", "timestamp of SYN")
"""Parts of the identity that a hop may change or a capture may lack."""


@dataclass(frozen=True, slots=True)
class Packets:
    """Packets in the order of their stamps; arrays of one length.

    Attributes:
        stamp_ns: the time on the clock of the first output.
        frame_bytes: length of the Ethernet frame without its check sequence.
        payload_bytes, seq, flags: payload above TCP or UDP, and TCP's fields; 0 without.
        tsval, tsecr: a TCP packet's time stamp, and the one that it echoes; 0 without any.
        tos: IPv4's TOS or IPv6's traffic class; ECN is its two low bits.
    """

    port: I8
    flow: I32
    stamp_ns: I64
    frame_bytes: I32
    payload_bytes: I32
    seq: U32
    tsval: U32
    tsecr: U32
    ip_id: U16
    flags: U8
    tos: U8

    def __len__(self) -> int:
        return self.port.size

    def rows(self, rows: Array, *, port: int) -> Packets:
        """These packets, as those of one port."""
        packets = Packets(*(getattr(self, name)[rows] for name in Packets.__slots__))
        packets.port[:] = port
        return packets

    @classmethod
    def empty(cls, size: int) -> Packets:
        """Packets with undefined content."""
        kinds: list[Any] = [np.int8, np.int32, np.int64, *[np.int32] * 2, *[np.uint32] * 3]
        kinds += [np.uint16, *[np.uint8] * 2]
        return cls(*(np.empty(size, kind) for kind in kinds))


def number_flows(captures: Sequence[PortCapture]) -> tuple[tuple[FlowKey, ...], list[I32]]:
    """Numbers the flows of all captures; see `numbered`."""
    return numbered([capture.flows for capture in captures])


@compiled
def part_of(columns: Columns, row: Scalar, which: Scalar) -> Scalar:
    """The value of one of PARTS, by index, for one packet."""
    if which == 0:
        return np.uint64(columns.ttl[row])
    if which == 1:
        # A router that clamps the MSS changes the checksums of SYNs alone (RFC 4459, 3.2).
        if columns.flags[row] & SYN:
            return np.uint64(0)
        return np.uint64(columns.checksum[row])
    # A snaplen that holds the time stamp of all other segments can cut off that of a SYN.
    of_syn = columns.flags[row] & SYN != 0
    if columns.marks[row] & HAS_TIMESTAMP and of_syn == (which == 3):
        return (np.uint64(columns.tsval[row]) << np.uint64(32)) + np.uint64(columns.tsecr[row])
    return np.uint64(0x5851F42D4C957F2D)


@compiled
def _fold(columns: Columns, row: Scalar, use: Bool) -> Scalar:
    """The identity of one packet, including the parts in use."""
    h: Scalar = columns.identity[row]
    for which in range(4):
        if use[which]:
            h ^= part_of(columns, row, which) * np.uint64(0x9E3779B97F4A7C15)
            h ^= h >> np.uint64(32)
            h *= np.uint64(0xD6E8FEB86659FD93)
            h ^= h >> np.uint64(32)
    return h


@compiled
def _fold_all(columns: Columns, use: Bool, flow_of: I32, to_flow: I32, to_identity: U64) -> None:
    for row in range(to_identity.size):
        to_flow[row] = flow_of[columns.flow[row]]
        to_identity[row] = _fold(columns, row, use)


@compiled
def _rank(own: I64, other: I64, other_first: bool, position: I32) -> None:
    """Adds to each position how many elements of `other` precede it. Both are sorted."""
    passed = 0
    for i in range(own.size):
        while passed < other.size and (
            other[passed] < own[i] or (other_first and other[passed] == own[i])
        ):
            passed += 1
        position[i] += passed


@compiled
def _place(
    columns: Columns,
    rows: I32,
    stamps: I64,
    position: I32,
    flow_of: I32,
    port: int,
    use: Bool,
    to: tuple[Array, ...],
    to_identity: U64,
) -> None:
    """Copies the packets of a capture to their positions, and folds their identities.

    `to` are the arrays of Packets.
    """
    to_port, to_flow, to_stamp, to_frame, to_payload = to[:5]
    to_seq, to_tsval, to_tsecr, to_ip_id, to_flags, to_tos = to[5:]
    for i in range(rows.size):
        row = rows[i]
        at = position[i]
        to_port[at] = port
        to_flow[at] = flow_of[columns.flow[row]]
        to_stamp[at] = stamps[i]
        to_frame[at] = columns.frame_bytes[row]
        to_payload[at] = columns.payload_bytes[row]
        to_seq[at] = columns.seq[row]
        to_tsval[at] = columns.tsval[row]
        to_tsecr[at] = columns.tsecr[row]
        to_ip_id[at] = columns.ip_id[row]
        to_flags[at] = columns.flags[row]
        to_tos[at] = columns.tos[row]
        to_identity[at] = _fold(columns, row, use)


@dataclass(frozen=True, slots=True)
class Side:
    """A capture as an input or as an output.

    Attributes:
        counts: for each of its flows, whether it counts here; None if none does.
        release: whether its columns are emptied once they are copied, to save memory.
    """

    capture: PortCapture
    flows: I32
    counts: Bool | None
    clock: Clock
    release: bool


def _in_order(side: Side) -> tuple[I32, I64]:
    """The rows of packets that count, by time, and their corrected stamps."""
    columns = side.capture.columns
    chosen = np.arange(columns.flow.size, dtype=np.int32)
    if side.counts is None:
        chosen = chosen[:0]
    elif not side.counts.all():
        chosen = chosen[side.counts[columns.flow]]
    stamps = side.clock.correct(columns.stamp_ns)[chosen]
    if (stamps[1:] < stamps[:-1]).any():
        order = np.argsort(stamps, kind="stable")
        chosen, stamps = chosen[order], stamps[order]
    return chosen, stamps


def merge(sides: Sequence[Side], parts: Sequence[str]) -> tuple[Packets, U64]:
    """Merges the packets of flows that count. Returns them and their identities.

    Ties are ordered by capture, then by place in the file.
    """
    captures = [side.capture for side in sides]
    rows, stamps = zip(*(_in_order(side) for side in sides), strict=True)
    use = np.array([part in parts for part in PARTS], np.bool_)
    if len(sides) == 1 and sides[0].release and rows[0].size == captures[0].columns.flow.size:
        return _adopt(captures[0], sides[0].flows, stamps[0], use)
    packets = Packets.empty(sum(chosen.size for chosen in rows))
    identity = np.empty(len(packets), np.uint64)
    places = tuple(getattr(packets, name) for name in Packets.__slots__)

    def place(index: int) -> None:
        position = np.arange(rows[index].size, dtype=np.int32)
        for other, other_stamps in enumerate(stamps):
            if other != index:
                _rank(stamps[index], other_stamps, other < index, position)
        _place(
            captures[index].columns,
            rows[index],
            stamps[index],
            position,
            sides[index].flows,
            index,
            use,
            places,
            identity,
        )
        if sides[index].release:
            captures[index].columns = Columns.empty(0)

    with ThreadPoolExecutor(max_workers=2) as pool:
        list(pool.map(place, range(len(captures))))
    return packets, identity


def _adopt(capture: PortCapture, flow_of: I32, stamps: I64, use: Bool) -> tuple[Packets, U64]:
    """The packets of a single capture that is in order, without copying them."""
    columns = capture.columns
    _fold_all(columns, use, flow_of, columns.flow, columns.identity)
    capture.columns = Columns.empty(0)
    fields = {name: getattr(columns, name) for name in Packets.__slots__ if name != "port"}
    fields["stamp_ns"] = stamps
    return Packets(np.zeros(stamps.size, np.int8), **fields), columns.identity
