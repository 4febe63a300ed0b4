"""The columns and flows of a capture, which `decoder` fills, and the headers outside a packet.

Link layers, tags and tunnels stand outside. Tunnels are GRE (RFC 2784, 2890), IP in IP (RFC 2003,
2473), 6in4 (RFC 4213), VXLAN (RFC 7348), Geneve (RFC 8926) and GTP-U (3GPP TS 29.281). A hop at the
end of a tunnel adds or removes the outer headers, and the packet inside stays the same. So packets
of foreign captures are known by the packet inside. Their length is that of the whole frame.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from outcast.analysis.machine_code import (
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Array,
    Scalar,
    compiled,
    load16,
    load32,
)

TCP = 6
UDP = 17
AUTHENTICATION = 51
"""The header of RFC 4302. The packet behind it is in the clear."""

FIN, SYN, RST, PSH, ACK = 0x01, 0x02, 0x04, 0x08, 0x10

HAS_TIMESTAMP = 1
"""Mark: the packet has a TCP time stamp, so `tsval` and `tsecr` are valid."""
OPTIONS_CUT = 2
"""Mark: the captured bytes end inside the TCP options, so a time stamp may be missing."""
FRAGMENT = 4
"""Mark: the packet is a fragment of an IP packet. Later fragments carry no ports."""
INBOUND, OUTBOUND = 8, 16
"""Marks: the capture records that the packet came in, or left, as Linux cooked does."""
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
        sacked: for an acknowledgement without data, the end of its first SACK block, which has
            the segment that it answers (RFC 2018, section 4); else 0.
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
        kinds: list[Any] = [np.int64, np.uint64, *[np.int32] * 3, *[np.uint32] * 5]
        kinds += [*[np.uint16] * 2, *[np.uint8] * 4]
        return cls.of(np.empty(capacity, kind) for kind in kinds)

    @classmethod
    def of(cls, columns: Iterable[Array]) -> Columns:
        return cls(*cast(Any, tuple(columns)))

    def resized(self, capacity: int) -> Columns:
        """The columns with another length. The old ones become invalid."""
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
        identity: hash of the fields that a hop leaves unchanged; 0 if too little was captured.
        mac: the source MAC address; 0 without one.
        marks: INBOUND or OUTBOUND if the capture records it.
    """

    stamp_ns: I64
    frame_bytes: I32
    identity: U64
    mac: U64
    marks: U8

    @classmethod
    def empty(cls, size: int) -> Others:
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
        return FlowKey(self.dst, self.dport, self.src, self.sport, self.protocol)

    @property
    def text(self) -> str:
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
        """The same flows in a table of four times the size."""
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
    """Finds or adds a flow's row. Returns (row, hash); row is -1 if the table is full."""
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


TUNNELS = ("GRE", "IPv4 in IP", "IPv6 in IP", "Ethernet in GRE", "VXLAN", "Geneve", "GTP", "ERSPAN")
"""Codes are indices into it. ERSPAN is counted, but not read."""
_GRE_OF_IP, _IPV4, _IPV6, _GRE_OF_ETHERNET, _VXLAN, _GENEVE, _GTP, ERSPAN = range(len(TUNNELS))

_DEEPEST = 4
"""The most tunnels, one in another, whose inner headers are read."""

_GRE, _UDP = 47, 17
_VXLAN_PORTS = (4789, 8472)
"""IANA's, and the one that Linux used before."""
_GENEVE_PORT, _GTP_PORT = 6081, 2152


@compiled
def link_layer(data: U8, at: Scalar, end: Scalar, link: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """Reads a packet's link layer, with tags.

    Returns (EtherType, start of the network layer, bytes to add for the length of an Ethernet
    frame). The EtherType is -1 if the packet is too short, and 0 if it is unknown.
    """
    kind: Scalar = np.int64(0)
    overhead: Scalar = np.int64(0)
    if link == 1:
        if at + 14 > end:
            return np.int64(-1), at, overhead
        kind = load16(data, at + 12)
        at += 14
    elif link == 113:
        if at + 16 > end:
            return np.int64(-1), at, overhead
        kind = load16(data, at + 14)
        at += 16
        overhead = np.int64(14 - 16)
    elif link == 276:
        if at + 20 > end:
            return np.int64(-1), at, overhead
        kind = load16(data, at)
        at += 20
        overhead = np.int64(14 - 20)
    elif link == 0 or link == 108:
        # The address family of the machine that captured: AF_INET is 2, AF_INET6 differs.
        if at + 4 > end:
            return np.int64(-1), at, overhead
        family = data[at] + data[at + 3]
        is_6 = family == 10 or family == 24 or family == 28 or family == 30
        kind = np.int64(0x0800 if family == 2 else (0x86DD if is_6 else 0))
        at += 4
        overhead = np.int64(14 - 4)
    else:
        if at + 1 > end:
            return np.int64(-1), at, overhead
        overhead = np.int64(14)
        version = data[at] >> 4
        kind = np.int64(0x0800 if version == 4 else (0x86DD if version == 6 else 0))
    # VLAN tags (IEEE 802.1Q, 802.1ad), also old ones of vendors.
    while kind == 0x8100 or kind == 0x88A8 or kind == 0x9100 or kind == 0x9200:
        if at + 4 > end:
            return np.int64(-1), at, overhead
        kind = load16(data, at + 2)
        at += 4
    return kind, at, overhead


@compiled
def _gre(data: U8, at: Scalar, end: Scalar) -> tuple[Scalar, Scalar]:
    """Reads a GRE header: the payload's EtherType, and its start.

    The EtherType is -1 if the header is cut off or of another kind: PPTP's (version 1), or one with
    routing (RFC 1701).
    """
    if at + 4 > end:
        return np.int64(-1), at
    flags = load16(data, at)
    if flags & 0x4007:
        return np.int64(-1), at
    payload = load16(data, at + 2)
    at += 4
    # A checksum, a key and a sequence number of 4 bytes each.
    for bit in (0x8000, 0x2000, 0x1000):
        if flags & bit:
            at += 4
    return payload, at


@compiled
def inside(data: U8, at: Scalar, end: Scalar, kind: Scalar, tally: I64) -> tuple[Scalar, Scalar]:
    """The EtherType and start of the innermost packet. Counts tunnels in `tally`.

    The given ones return if there is no tunnel, if the outer packet is a fragment, or if the
    addresses of the packet inside were not captured.
    """
    for _ in range(_DEEPEST):
        code, inner_kind, inner_at = _in_tunnel(data, at, end, kind)
        if code < 0:
            break
        tally[code] += 1
        if code == ERSPAN:
            break
        kind, at = inner_kind, inner_at
    return kind, at


@compiled
def _in_tunnel(data: U8, at: Scalar, end: Scalar, kind: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """The packet that an IP packet carries: (the tunnel's code or -1, EtherType, start)."""
    none = np.int64(-1), np.int64(0), np.int64(0)
    protocol: Scalar = np.int64(0)
    inner: Scalar = np.int64(0)
    code: Scalar = np.int64(0)
    if kind == 0x0800:
        if at + 20 > end or load16(data, at + 6) & 0x3FFF:
            return none
        protocol = np.int64(data[at + 9])
        at += (np.int64(data[at]) & 15) * 4
    elif kind == 0x86DD:
        if at + 48 > end:
            return none
        protocol = np.int64(data[at + 6])
        at += 40
        if protocol == 60:
            # Linux puts a limit on nested tunnels into destination options (RFC 2473, 4.1.1).
            protocol = np.int64(data[at])
            at += 8 + 8 * np.int64(data[at + 1])
    if protocol == 4:
        inner = np.int64(0x0800)
        code = np.int64(_IPV4)
    elif protocol == 41:
        inner = np.int64(0x86DD)
        code = np.int64(_IPV6)
    elif protocol == _GRE:
        inner, at = _gre(data, at, end)
        if inner == 0x88BE or inner == 0x22EB:
            return np.int64(ERSPAN), inner, at
        code = np.int64(_GRE_OF_ETHERNET if inner == 0x6558 else _GRE_OF_IP)
    elif protocol == _UDP:
        code, inner, at = _in_udp(data, at, end)
    if inner == 0x6558:
        inner, at, _ = link_layer(data, at, end, 1)
        if inner == 0x0806:
            return code, inner, at
    if inner == 0x0800 and at + 20 <= end and data[at] >> 4 == 4:
        return code, inner, at
    if inner == 0x86DD and at + 40 <= end and data[at] >> 4 == 6:
        return code, inner, at
    return none


@compiled
def _in_udp(data: U8, at: Scalar, end: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """The packet that a datagram carries; see `_in_tunnel`."""
    none = np.int64(-1), np.int64(0), at
    if at + 16 > end:
        return none
    port = load16(data, at + 2)
    at += 8
    if port == _VXLAN_PORTS[0] or port == _VXLAN_PORTS[1]:
        # All bits except that of a valid network number are reserved, and 0.
        if load32(data, at) == 0x08000000 and data[at + 7] == 0:
            return np.int64(_VXLAN), np.int64(0x6558), at + 8
    elif port == _GENEVE_PORT and data[at] >> 6 == 0:
        return np.int64(_GENEVE), load16(data, at + 2), at + 8 + 4 * (np.int64(data[at]) & 63)
    elif port == _GTP_PORT and data[at] >> 4 == 3 and data[at + 1] == 255:
        has_more = data[at] & 7
        following: Scalar = np.int64(0)
        at += 8
        if has_more and at + 4 <= end:
            following = np.int64(data[at + 3])
            at += 4
        while following and at + 4 <= end and data[at]:
            at += 4 * np.int64(data[at])
            following = np.int64(data[min(at, end) - 1])
        if at < end:
            version = data[at] >> 4
            inner = np.int64(0x0800 if version == 4 else 0x86DD)
            return np.int64(_GTP), inner, at
    return none
