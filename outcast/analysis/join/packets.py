"""The packets of several captures on one clock, in one order, with their identity.

The identity of a packet is what a switch leaves unchanged. It always has addresses, ports,
protocol, IP id, sequence and acknowledgement number, flags and payload length. It also has TTL,
checksum and TCP time stamp if the captures agree on them. MAC addresses, VLAN tags and the ECN bits
may change.

A sample of packets that several captures saw is found before any clock is known: blocks of packets,
spread over each capture, are looked up in all others. Only packets whose identity occurs at most
once in each capture are used.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from outcast.analysis.capture.headers import HAS_TIMESTAMP, SYN, Columns, FlowKey
from outcast.analysis.capture.pcap import PortCapture
from outcast.analysis.compiled import I8, I32, I64, U8, U16, U32, U64, Array, Bool, Scalar, compiled

if TYPE_CHECKING:
    from outcast.analysis.join.offsets import Clock


Name = TypeVar("Name", bound=Hashable)

BLOCKS = 16
BLOCK_PACKETS = 1500
MOST_SAMPLED = 400_000
"""Over all captures. With many captures the blocks are shorter."""


@dataclass(frozen=True, slots=True)
class Sightings:
    """For each sampled packet and capture, the packet's row there, or a negative number."""

    row: I32

    def between(self, first: int, second: int) -> tuple[I32, I32]:
        """The packets that two captures saw: their rows in the one and in the other."""
        both = (self.row[:, first] >= 0) & (self.row[:, second] >= 0)
        return self.row[both, first], self.row[both, second]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Sampled packets that came in and left, by output in the order in which they left."""

    came: I32
    came_row: I32
    left: I32
    left_row: I32

    def __len__(self) -> int:
        return self.came.size

    def groups(self) -> dict[tuple[int, int], I64]:
        """For each two captures where common packets came in and left: which ones."""
        key = self.came.astype(np.int64) << 32 | self.left
        return {divmod(ends, 1 << 32): mine for ends, mine in grouped(key).items()}


def numbered(lists: Sequence[Sequence[Name]]) -> tuple[tuple[Name, ...], list[I32]]:
    """Numbers the names in all lists. Returns them, and the names of each list by number."""
    numbers: dict[Name, int] = {}
    rows = [[numbers.setdefault(name, len(numbers)) for name in names] for names in lists]
    return tuple(numbers), [np.array(row, np.int32) for row in rows]


def grouped(keys: Array) -> dict[int, I64]:
    """For each of the keys, which are not negative, its places in their order."""
    order = np.argsort(keys, kind="stable")
    edges = np.flatnonzero(np.diff(keys[order], prepend=-1, append=-1)).tolist()
    return {int(keys[order[first]]): order[first:end] for first, end in pairwise(edges)}


@compiled
def _enter(keys: U64, slots: I32, number: I32) -> int:
    """Numbers distinct keys in a hash table of their first rows. Returns how many there are."""
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
    """Looks up all packets of a capture: notes the row of each key, or that it occurs twice."""
    mask = np.uint64(slots.size - 1)
    for row in range(identity.size):
        slot = (identity[row] >> np.uint64(13)) & mask
        while slots[slot] >= 0 and keys[slots[slot]] != identity[row]:
            slot = (slot + np.uint64(1)) & mask
        if slots[slot] >= 0:
            key = number[slots[slot]]
            seen[key] = row if seen[key] == -1 else -2


def sample(captures: Sequence[PortCapture], sampled: Sequence[bool] | None = None) -> Sightings:
    """Looks up blocks of packets of each capture in all captures.

    With `sampled`, blocks are taken only from captures for which it is true.
    """
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
    return Sightings(rows.T)


def pair_up(
    sightings: Sightings,
    captures: Sequence[PortCapture],
    came_flows: Sequence[Bool | None],
    left_flows: Sequence[Bool | None],
) -> Pairs:
    """The sampled packets that came in at one capture and left by another.

    `came_flows` and `left_flows` have for each capture and each of its flows whether it came in and
    left there; None if nothing did.
    """
    parts: list[tuple[I32, I32, I32, I32]] = []
    for output, leaving in enumerate(left_flows):
        for came, coming in enumerate(came_flows):
            if came == output or leaving is None or coming is None:
                continue
            came_row, left_row = sightings.between(came, output)
            counts = coming[captures[came].columns.flow[came_row]]
            counts &= leaving[captures[output].columns.flow[left_row]]
            came_row, left_row = came_row[counts], left_row[counts]
            here = np.full(came_row.size, came, np.int32)
            parts.append((here, came_row, np.full(came_row.size, output, np.int32), left_row))
    if not parts:
        none = np.empty(0, np.int32)
        return Pairs(none, none, none, none)
    came_at, came_rows, left_at, left_rows = (
        np.concatenate([part[column] for part in parts]) for column in range(4)
    )
    order = np.lexsort((left_rows, left_at))
    return Pairs(came_at[order], came_rows[order], left_at[order], left_rows[order])


@dataclass(frozen=True, slots=True)
class Crossing:
    """Sampled packets that came in at one capture and left by another, in the order of leaving.

    Attributes:
        came_ns, left_ns: the stamps there, each on its own clock.
        slack_ns: by how much sooner packets may seem to leave, because stamps' units differ.
    """

    came: int
    left: int
    came_ns: I64
    left_ns: I64
    slack_ns: int = 0

    @property
    def delay_ns(self) -> I64:
        """From coming in to leaving, if the clocks were equal."""
        return self.left_ns - self.came_ns + self.slack_ns


def crossings(
    pairs: Pairs, stamps: Sequence[I64], slack_ns: Callable[[int, int], int]
) -> list[Crossing]:
    """The sampled pairs by captures, each of which has its stamps."""
    return [
        Crossing(
            came,
            output,
            stamps[came][pairs.came_row[mine]],
            stamps[output][pairs.left_row[mine]],
            slack_ns(came, output),
        )
        for (came, output), mine in pairs.groups().items()
    ]


PARTS = ("ttl", "checksum", "timestamp", "timestamp of SYN")
"""Parts of the identity that a hop may change or a capture may lack."""


@dataclass(frozen=True, slots=True)
class Packets:
    """Packets in the order of their stamps; arrays of one length.

    Attributes:
        stamp_ns: when it was seen, on the clock of the first output.
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
    """Numbers the flows of all captures. Returns them, and each capture's flows by number."""
    return numbered([capture.flows for capture in captures])


@compiled
def part_of(columns: Columns, row: Scalar, which: Scalar) -> Scalar:
    """Value of one of PARTS, by index, for one packet."""
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
        release: whether its columns are emptied as they are copied, because memory does not have to
            hold both.
    """

    capture: PortCapture
    flows: I32
    counts: Bool | None
    clock: Clock
    release: bool


def _in_order(side: Side) -> tuple[I32, I64]:
    """The rows of packets that count, in the order of time, and their corrected stamps."""
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
