"""Records of ERF, the format of Endace's capture cards.

Each has a header of 16 bytes: a time stamp in 2^-32 s, least significant byte first; then, most
significant byte first, the type, flags, the length of the record, a counter of losses, and the
length of the packet on the wire ("ERF types reference guide", EDM11-01). ERF stands in a file of
its own, which has no beginning to be known by, or in pcap as link type 197.
"""

from __future__ import annotations

import struct

import numpy as np

from outcast.analysis.capture.formats import BROKEN, OK, Indexed, Records
from outcast.analysis.compiled import Scalar, compiled, load16

LINK_ERF = 197
"""Of a packet that begins with the header of an ERF record (tcpdump.org/linktypes.html)."""

LINK_UNKNOWN = -1
"""Of a packet whose link layer is not decoded, as of ATM's. It counts as not IP."""

_HEADER_BYTES = 16
_PACKET_TYPES = frozenset({2, 11, 16, 20, 22, 23})
"""Ethernet; with a color, a stream or a hash in place of the counter of losses; IPv4 and IPv6."""
_PROVENANCE, _PADDING = 27, 48
"""What is said of the capture itself, often with time 0, and filling."""
_TYPES = frozenset({*range(1, 30), _PADDING})
_FIRST_FIELDS = struct.Struct("<4xIBxH")
"""Seconds, type and, in the wrong byte order, the record's length."""
_MOST_TRIED = 20
_MOST_APART_S = 86_400
"""In a file that is ERF, neighbouring records are at most so far apart."""


@compiled
def index_erf(records: Records, end: int) -> Indexed:
    """Finds whole records in `records.data`[:end], and fills in the others of its arrays.

    The packets are left with their ERF headers, for `unwrap_erf`.
    """
    data = records.data
    at = 0
    count = 0
    while count < records.offset.size and at + _HEADER_BYTES <= end:
        size = load16(data, at + 10)
        if size < _HEADER_BYTES:
            return count, at, BROKEN
        if at + size > end:
            break
        fraction = np.uint64(0)
        seconds = np.int64(0)
        for i in range(4):
            fraction |= np.uint64(data[at + i]) << np.uint64(8 * i)
            seconds |= np.int64(data[at + 4 + i]) << (8 * i)
        # Rounded as Wireshark does, so that both show the same time.
        rest = fraction * np.uint64(1_000_000_000)
        rest += (rest & np.uint64(0x80000000)) << np.uint64(1)
        records.offset[count] = at
        records.length[count] = size
        records.original[count] = size
        records.stamp_ns[count] = seconds * 1_000_000_000 + np.int64(rest >> np.uint64(32))
        records.link[count] = LINK_ERF
        count += 1
        at += size
    return count, at, OK


@compiled
def unwrap_erf(records: Records) -> None:
    """Moves the packets of link type ERF to what their records hold, and tells its link type."""
    data, offset, length = records.data, records.offset, records.length
    original, link = records.original, records.link
    for packet in range(records.count):
        if link[packet] != LINK_ERF:
            continue
        link[packet] = LINK_UNKNOWN
        at = offset[packet]
        end = at + length[packet]
        if at + _HEADER_BYTES > end:
            # Ethernet, so that it counts as captured too short.
            link[packet] = 1
            length[packet] = 0
            continue
        kind: Scalar = np.int64(data[at + 8])
        end = min(end, at + load16(data, at + 10))
        wire = load16(data, at + 14)
        more = kind & 0x80
        kind &= 0x7F
        at += _HEADER_BYTES
        # Extension headers of 8 bytes; the first bit of each tells whether another follows.
        while more and at + 8 <= end:
            more = np.int64(data[at]) & 0x80
            at += 8
        if kind == 2 or kind == 11 or kind == 16 or kind == 20:
            # Two bytes before the frame align what follows its header. The length on the wire has
            # the check sequence.
            at += 2
            wire = max(wire - 4, 0)
            link[packet] = 1
        elif kind == 22 or kind == 23:
            link[packet] = 101
        else:
            continue
        captured = max(min(end - at, wire), 0)
        offset[packet] = min(at, end)
        length[packet] = captured
        original[packet] = wire


def looks_like_erf(beginning: bytes, is_whole: bool) -> bool:
    """Whether a file is ERF, by its first records; `is_whole` says that `beginning` is all of it.

    At least one has to be a packet, and each has to begin where the one before ends.
    """
    at = tried = packets = cut = 0
    before_s: int | None = None
    while tried < _MOST_TRIED and at + _HEADER_BYTES <= len(beginning):
        seconds, kind, size = _FIRST_FIELDS.unpack_from(beginning, at)
        kind &= 0x7F
        size = size >> 8 | (size & 0xFF) << 8
        if kind not in _TYPES or size < _HEADER_BYTES:
            return False
        if kind not in (_PROVENANCE, _PADDING):
            if before_s is not None and abs(seconds - before_s) > _MOST_APART_S:
                return False
            before_s = seconds
        if at + size > len(beginning):
            cut = size
            break
        packets += kind in _PACKET_TYPES
        at += size
        tried += kind != _PROVENANCE
    # The last record may be cut off, but its header has to be right, or others stand before it.
    return packets > 0 and (at == len(beginning) or cut > 0 or packets > 1 or not is_whole)
