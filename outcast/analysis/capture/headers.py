"""What is kept of the headers of a capture's packets, and its flows; `decoder` fills them."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from outcast.analysis.compiled import I32, I64, U8, U16, U32, U64, Array, Scalar, compiled

TCP = 6
UDP = 17
AUTHENTICATION = 51
"""The header of RFC 4302, behind which the packet goes on in the clear."""

FIN, SYN, RST, PSH, ACK = 0x01, 0x02, 0x04, 0x08, 0x10

HAS_TIMESTAMP = 1
"""Mark: the packet has a TCP time stamp, so `tsval` and `tsecr` are valid."""
OPTIONS_CUT = 2
"""Mark: the capture ended inside the TCP options, so a time stamp may be missing."""
FRAGMENT = 4
"""Mark: the packet is a fragment of an IP packet. Later fragments carry no ports."""
INBOUND, OUTBOUND = 8, 16
"""Marks: the capture itself says that the packet came in, or that it left. Linux cooked does."""
LATER_FRAGMENT = 32
"""Mark: the packet is a fragment, but not the first one. `seq` is its offset in 8 bytes."""


class Columns(NamedTuple):
    """One value per packet; every array has the same length.

    Attributes:
        identity: hash of the fields that every hop leaves unchanged.
        flow: row of the flow table.
        frame_bytes: Ethernet frame on the wire without its check sequence.
        payload_bytes: bytes above TCP or UDP.
        seq, ack, flags: TCP's; 0 for other protocols.
        tsval, tsecr: the TCP time stamp.
        sacked: of an acknowledgement without data, the end of its first selectively acknowledged
            block, which holds what it answers (RFC 2018, section 4); 0 without one.
        ip_id: 0 for IPv6.
        marks: bits of HAS_TIMESTAMP, OPTIONS_CUT, FRAGMENT, LATER_FRAGMENT, INBOUND and OUTBOUND.
        tos: IPv4's TOS or IPv6's traffic class: the code point (RFC 2474), and ECN in two low bits.
    """

    stamp_ns: I64
    identity: U64
    flow: I32
    frame_bytes: I32
    payload_bytes: I32
    seq: U32
    ack: U32
    tsval: U32
    tsecr: U32
    sacked: U32
    ip_id: U16
    checksum: U16
    flags: U8
    ttl: U8
    marks: U8
    tos: U8

    @classmethod
    def empty(cls, capacity: int) -> Columns:
        """Columns with undefined content."""
        kinds: list[Any] = [np.int64, np.uint64, *[np.int32] * 3, *[np.uint32] * 5]
        kinds += [*[np.uint16] * 2, *[np.uint8] * 4]
        return cls.of(np.empty(capacity, kind) for kind in kinds)

    @classmethod
    def of(cls, columns: Iterable[Array]) -> Columns:
        """Columns from arrays in the order of the fields."""
        return cls(*cast(Any, tuple(columns)))

    def resized(self, capacity: int) -> Columns:
        """The columns with another length; these are given up."""
        return Columns.of(_resized(column, capacity) for column in self)


def _resized(column: Array, capacity: int) -> Array:
    if column.flags.owndata:
        # Remapped, not copied, if it is large.
        column.resize(capacity, refcheck=False)
        return column
    longer = np.empty(capacity, column.dtype)
    longer[: column.size] = column[:capacity]
    return longer


class Others(NamedTuple):
    """Frames that are not decoded, one value each: not IP, cut, or to no wanted destination.

    Attributes:
        identity: hash of what a hop leaves unchanged; 0 if too little was captured.
        mac: the source MAC address; 0 without one.
        marks: INBOUND or OUTBOUND if the capture says it.
    """

    stamp_ns: I64
    frame_bytes: I32
    identity: U64
    mac: U64
    marks: U8

    @classmethod
    def empty(cls, size: int) -> Others:
        """Frames with undefined content."""
        kinds: list[Any] = [np.int64, np.int32, np.uint64, np.uint64, np.uint8]
        return cls(*cast(Any, (np.empty(size, kind) for kind in kinds)))


@dataclass(frozen=True, slots=True, order=True)
class FlowKey:
    """One direction of a transport flow: IP addresses as text, and ports (0 if it has none)."""

    src: str
    sport: int
    dst: str
    dport: int
    protocol: int

    @property
    def reversed(self) -> FlowKey:
        """The other direction."""
        return FlowKey(self.dst, self.dport, self.src, self.sport, self.protocol)

    @property
    def text(self) -> str:
        """Both ends in words; ports only if there are any."""
        if not self.sport and not self.dport:
            return f"{self.src} to {self.dst}"
        ends = [
            f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
            for address, port in ((self.src, self.sport), (self.dst, self.dport))
        ]
        return " to ".join(ends)


WANTED, SOURCE_MAC = 5, 6
_FLOW_WORDS = 7


class Flows(NamedTuple):
    """The flows seen so far, as a hash table.

    Attributes:
        rows: each is [family and protocol and ports, source (2), destination (2), 1 if the flow is
            wanted, source MAC of its first packet].
        slots: the row at each place of the hash table, or -1.
        used: how many rows there are.
        wanted: the addresses to which packets count, of two words each; unless `wanted_all`.
    """

    rows: U64
    slots: I32
    used: I64
    wanted_all: bool
    wanted: U64

    @classmethod
    def to(cls, destinations: frozenset[str] | None) -> Flows:
        """An empty table of flows, of which those to `destinations` are wanted; None wants all."""
        wanted = [_address_words(address) for address in sorted(destinations or ())]
        return cls(
            rows=np.zeros((256, _FLOW_WORDS), np.uint64),
            slots=np.full(1024, -1, np.int32),
            used=np.zeros(1, np.int64),
            wanted_all=destinations is None,
            wanted=np.array(wanted, np.uint64).reshape(-1, 2),
        )

    def grown(self) -> Flows:
        """The same flows with room for four times as many."""
        rows = np.zeros((4 * len(self.rows), _FLOW_WORDS), np.uint64)
        rows[: len(self.rows)] = self.rows
        slots = np.full(4 * len(self.slots), -1, np.int32)
        _rehash(rows, slots, int(self.used[0]))
        return self._replace(rows=rows, slots=slots)

    def macs(self) -> list[int]:
        """The source MAC address of each flow's first packet, by row; 0 where it is missing."""
        macs: list[int] = self.rows[: int(self.used[0]), SOURCE_MAC].tolist()
        return macs

    def keys(self) -> list[FlowKey]:
        """The flows by row."""
        return [
            FlowKey(
                _address_text(row[0] >> 48, row[1], row[2]),
                (row[0] >> 16) & 0xFFFF,
                _address_text(row[0] >> 48, row[3], row[4]),
                row[0] & 0xFFFF,
                (row[0] >> 32) & 0xFFFF,
            )
            for row in self.rows[: int(self.used[0])].tolist()
        ]


@compiled
def mix(value: Scalar, word: Scalar) -> Scalar:
    """One round of a 64-bit hash (the finalizer of MurmurHash3 over a running value)."""
    h = np.uint64(value) ^ (np.uint64(word) * np.uint64(0x9E3779B97F4A7C15))
    h ^= h >> np.uint64(33)
    h *= np.uint64(0xFF51AFD7ED558CCD)
    h ^= h >> np.uint64(33)
    h *= np.uint64(0xC4CEB9FE1A85EC53)
    h ^= h >> np.uint64(33)
    return h


@compiled
def _hash(entry: U64) -> Scalar:
    h: Scalar = np.uint64(0x243F6A8885A308D3)
    for i in range(5):
        h = mix(h, entry[i])
    return h | np.uint64(1)


@compiled
def flow_row(flows: Flows, entry: U64) -> tuple[Scalar, Scalar]:
    """Finds or adds a flow's row. Returns (row, hash); row is -1 if there is no room."""
    table, slots, used, wanted_all, wanted = flows
    h = _hash(entry)
    mask = slots.size - 1
    slot = np.int64(h >> np.uint64(8)) & mask
    while slots[slot] >= 0:
        row = slots[slot]
        same = True
        for i in range(5):
            if table[row, i] != entry[i]:
                same = False
                break
        if same:
            return row, h
        slot = (slot + 1) & mask
    row = used[0]
    if row >= table.shape[0]:
        return -1, h
    for i in range(5):
        table[row, i] = entry[i]
    is_wanted = wanted_all
    if not wanted_all:
        for i in range(wanted.shape[0]):
            if wanted[i, 0] == entry[3] and wanted[i, 1] == entry[4]:
                is_wanted = True
                break
    table[row, WANTED] = np.uint64(1) if is_wanted else np.uint64(0)
    slots[slot] = row
    used[0] = row + 1
    return row, h


@compiled
def _rehash(rows: U64, slots: I32, used: int) -> None:
    mask = slots.size - 1
    for row in range(used):
        slot = np.int64(_hash(rows[row]) >> np.uint64(8)) & mask
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = row


def _address_words(address: str) -> tuple[int, int]:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    packed = socket.inet_pton(family, address).rjust(16, b"\0")
    return int.from_bytes(packed[:8]), int.from_bytes(packed[8:])


def _address_text(family: int, high: int, low: int) -> str:
    if family == 4:
        return socket.inet_ntop(socket.AF_INET, low.to_bytes(4))
    return socket.inet_ntop(socket.AF_INET6, high.to_bytes(8) + low.to_bytes(8))
