"""What is kept of the headers of a capture's packets, in columns; `decoder` fills them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from outcast.analysis.compiled import I32, I64, U8, U16, U32, U64, Array

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
