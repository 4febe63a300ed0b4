"""Finds the records of pcap and pcapng in memory: the place of each packet's bytes, and its time.

The formats are draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np

from outcast.analysis.machine_code import I32, I64, U8, Scalar, compiled

MAX_RECORD_BYTES = 1 << 20
"""A longer record is damage. libpcap's bound for network captures is 256 KiB."""

MAX_BLOCK_BYTES = 64 << 20
"""A longer pcapng block is damage. Blocks of names or secrets can be long."""

MAX_INTERFACES = 1024
"""In one section of a pcapng file."""

MAX_STAMP_NS = 1 << 62
"""In the year 2116. A later stamp is damage."""

OK, BROKEN, INTERFACE, STAMP, BLOCK = 0, 1, 2, 3, 4
FAULTS = {
    BROKEN: "a record claims an impossible length",
    INTERFACE: "a packet names an interface not described",
    STAMP: "a time stamp is out of all bounds",
    BLOCK: "a block contradicts the pcapng format",
}

COOKED_V1, COOKED_V2 = 113, 276
"""The link types of Linux cooked captures."""

INTO_NUMBER, OUT_OF_NUMBER = 1 << 32, (1 << 32) + 1
"""Above all numbers of interfaces."""


class Records(NamedTuple):
    """The packets in one block of a file.

    Attributes:
        offset: the start of each packet's bytes in `data`.
        original: each packet's length on the wire, by the capture.
        stamp_ns: nanoseconds since the epoch.
        interface: an index of `CaptureFile.interfaces`.
    """

    data: U8
    count: int  # type: ignore[assignment]  # A tuple's own `count` is of no use here.
    offset: I64
    length: I64
    original: I64
    stamp_ns: I64
    link: I32
    interface: I32

    @classmethod
    def empty(cls, data: U8, most: int) -> Records:
        """Arrays for up to `most` packets."""
        kinds: list[Any] = [*[np.int64] * 4, *[np.int32] * 2]
        return cls(data, 0, *cast(Any, (np.empty(most, kind) for kind in kinds)))

    def of(self, interface: int) -> Records:
        rows = np.flatnonzero(self.interface[: self.count] == interface)
        return Records(self.data, rows.size, *cast(Any, (column[rows] for column in self[2:])))


Indexed = tuple[int, int, int]
"""Packets found, bytes consumed, and a key of FAULTS or OK."""


@compiled
def index_pcap(records: Records, end: int, big: bool, factor: int, tally: I64) -> Indexed:
    """Finds whole records in `records.data`[:end], and fills in the others of its arrays.

    `tally` counts packets whose fraction of a second is a second or more.
    """
    data = records.data
    at = 0
    count = 0
    while count < records.offset.size and at + 16 <= end:
        seconds, fraction = _u32(data, at, big), _u32(data, at + 4, big)
        captured, original = _u32(data, at + 8, big), _u32(data, at + 12, big)
        if captured > MAX_RECORD_BYTES:
            return count, at, BROKEN
        if at + 16 + captured > end:
            break
        records.offset[count] = at + 16
        records.length[count] = captured
        records.original[count] = max(original, captured)
        tally[0] += fraction * factor >= 1_000_000_000
        records.stamp_ns[count] = seconds * 1_000_000_000 + fraction * factor
        count += 1
        at += 16 + captured
    return count, at, OK


@compiled
def _u32(data: U8, at: Scalar, big: Scalar) -> Scalar:
    b0, b1 = np.int64(data[at]), np.int64(data[at + 1])
    b2, b3 = np.int64(data[at + 2]), np.int64(data[at + 3])
    if big:
        return (b0 << 24) | (b1 << 16) | (b2 << 8) | b3
    return (b3 << 24) | (b2 << 16) | (b1 << 8) | b0


@compiled
def _u16(data: U8, at: Scalar, big: Scalar) -> Scalar:
    b0, b1 = np.int64(data[at]), np.int64(data[at + 1])
    if big:
        return (b0 << 8) | b1
    return (b1 << 8) | b0


@compiled
def _nanoseconds(high: Scalar, low: Scalar, resolution: Scalar) -> Scalar:
    """Converts a pcapng time stamp to nanoseconds.

    `resolution` is the interface's `if_tsresol`: a negative power of ten, or of two if its top bit
    is set.
    """
    ticks = (np.uint64(high) << np.uint64(32)) | np.uint64(low)
    power = resolution & 0x7F
    billion = np.uint64(1_000_000_000)
    if resolution & 0x80:
        if power > 63:
            return 0
        seconds = ticks >> np.uint64(power)
        rest = ticks & ((np.uint64(1) << np.uint64(power)) - np.uint64(1))
        if power > 34:
            rest >>= np.uint64(power - 34)
            power = 34
        return np.int64(seconds * billion + ((rest * billion) >> np.uint64(power)))
    if power <= 9:
        for _ in range(9 - power):
            ticks *= np.uint64(10)
    else:
        for _ in range(min(power, 30) - 9):
            ticks //= np.uint64(10)
    return np.int64(ticks)


class Section(NamedTuple):
    """The state of a pcapng file's section, kept from block to block.

    Attributes:
        state: [big-endian, rows of `interfaces` in use, length of a block that does not fit into
            the window, the row of the section's first interface, packets without a time stamp,
            which are left out].
        interfaces: each row is [link type, snaplen, time resolution, offset in seconds, where its
            name begins in the data, the name's length, its number in the section].
    """

    state: I64
    interfaces: I64


@compiled
def index_pcapng(records: Records, end: int, section: Section) -> Indexed:
    """Finds whole blocks in `records.data`[:end], and fills in the others of its arrays.

    `records.interface` is the row of each packet's interface in `section.interfaces`. It returns
    early if no row is free.
    """
    data, state = records.data, section.state
    at = 0
    count = 0
    state[2] = 0
    while count < records.offset.size and at + 12 <= end:
        kind = _u32(data, at, state[0] != 0)
        if kind == 0x0A0D0D0A:
            magic = _u32(data, at + 8, True)
            if magic != 0x1A2B3C4D and magic != 0x4D3C2B1A:
                return count, at, BLOCK
            state[0] = magic == 0x1A2B3C4D
            state[3] = state[1]
        big = state[0] != 0
        size = _u32(data, at + 4, big)
        if size < 12 or size % 4 or size > MAX_BLOCK_BYTES:
            return count, at, BLOCK
        if at + size > end:
            state[2] = size
            break
        if _u32(data, at + size - 4, big) != size:
            return count, at, BLOCK
        if kind == 1:
            if size < 20 or state[1] - state[3] >= MAX_INTERFACES:
                return count, at, BLOCK
            if state[1] >= section.interfaces.shape[0]:
                break
            _read_interface(data, at, at + size - 4, section)
        elif kind == 6 or kind == 2:
            fault = _read_packet(at, size, kind == 6, section, records, count)
            if fault != OK:
                return count, at, fault
            count += 1
        elif kind == 3:
            state[4] += 1
        at += size
    return count, at, OK


@compiled
def _read_interface(data: U8, at: Scalar, end: Scalar, section: Section) -> None:
    """Adds the interface that a block from `at` to `end` describes."""
    state, row = section.state, section.interfaces[section.state[1]]
    big = state[0] != 0
    row[0] = _u16(data, at + 8, big)
    row[1] = _u32(data, at + 12, big)
    row[2] = 6
    row[3] = 0
    row[5] = 0
    row[6] = state[1] - state[3]
    option = at + 16
    while option + 4 <= end:
        code, size = _u16(data, option, big), _u16(data, option + 2, big)
        if code == 0 or option + 4 + size > end:
            break
        if code == 2:
            row[4] = option + 4
            row[5] = size
        elif code == 9 and size >= 1:
            row[2] = data[option + 4]
        elif code == 14 and size >= 8:
            first, second = _u32(data, option + 4, big), _u32(data, option + 8, big)
            row[3] = ((first << 32) | second) if big else ((second << 32) | first)
        option += 4 + (size + 3) // 4 * 4
    state[1] += 1


@compiled
def _read_packet(
    at: Scalar, size: Scalar, enhanced: bool, section: Section, records: Records, row: Scalar
) -> Scalar:
    """Reads an enhanced packet block, or the older packet block, into a row. Returns a fault."""
    data, state = records.data, section.state
    big = state[0] != 0
    if size < 32:
        return BLOCK
    number = _u32(data, at + 8, big) if enhanced else _u16(data, at + 8, big)
    captured = _u32(data, at + 20, big)
    if captured > MAX_RECORD_BYTES or captured > size - 32:
        return BLOCK
    number += state[3]
    if number >= state[1]:
        return INTERFACE
    interface = section.interfaces[number]
    seconds = interface[3]
    counted = _nanoseconds(_u32(data, at + 12, big), _u32(data, at + 16, big), interface[2])
    if seconds < -(1 << 32) or seconds > (1 << 32) or counted < 0:
        return STAMP
    seen = counted + seconds * 1_000_000_000
    if counted > MAX_STAMP_NS or seen < 0 or seen > MAX_STAMP_NS:
        return STAMP
    records.offset[row] = at + 28
    records.length[row] = captured
    records.original[row] = max(_u32(data, at + 24, big), captured)
    records.stamp_ns[row] = seen
    records.link[row] = interface[0]
    records.interface[row] = number
    return OK


@compiled
def cooked_interfaces(records: Records) -> I64:
    """The interface's number of each packet of Linux cooked v2; -1 for other formats.

    Linux cooked v1 has INTO_NUMBER or OUT_OF_NUMBER. A packet that is too short has 0, or came in.
    """
    data, length = records.data, records.length
    number = np.full(records.count, -1, np.int64)
    for packet in range(records.count):
        at = records.offset[packet]
        if records.link[packet] == COOKED_V2:
            number[packet] = _u32(data, at + 4, True) if length[packet] >= 8 else 0
        elif records.link[packet] == COOKED_V1:
            is_outbound = length[packet] >= 2 and data[at + 1] == 4
            number[packet] = OUT_OF_NUMBER if is_outbound else INTO_NUMBER
    return number
