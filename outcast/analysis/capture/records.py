"""The records of a capture file: where each packet's bytes are, and when it was seen.

It reads pcap (draft-ietf-opsawg-pcap; microseconds and nanoseconds, both byte orders), pcapng
(draft-ietf-opsawg-pcapng; any resolution, several sections and interfaces) and ERF, plain or
compressed. It reads files in blocks, so memory does not grow with the file.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from outcast.analysis.capture.compressed import open_capture
from outcast.analysis.capture.erf import LINK_ERF, index_erf, looks_like_erf, unwrap_erf
from outcast.analysis.compiled import I32, I64, U8, Scalar, compiled
from outcast.errors import InputError

BLOCK_BYTES = 4 << 20
"""How much of a file is in memory at once."""

MAX_RECORD_BYTES = 1 << 20
"""A longer record is taken for damage. libpcap's bound for network captures is 256 KiB."""

MAX_BLOCK_BYTES = 64 << 20
"""A longer pcapng block is taken for damage. Blocks of names or secrets can be long."""

MAX_EXPANSION = 200
"""How many bytes one byte of a compressed capture may expand to. Whole packets of equal payload
reach a hundred, headers alone ten, a decompression bomb thousands."""

ALWAYS_EXPANDED_BYTES = 256 << 20

MAX_INTERFACES = 1024
"""In one section of a pcapng file."""

MAX_STAMP_NS = 1 << 62
"""In the year 2116. A later stamp is taken for damage."""

LINK_TYPES = {
    0: "BSD loopback",
    1: "Ethernet",
    9: "PPP",
    12: "raw IP",
    14: "raw IP",
    101: "raw IP",
    104: "Cisco HDLC",
    108: "BSD loopback",
    113: "Linux cooked v1",
    LINK_ERF: "ERF",
    228: "raw IPv4",
    229: "raw IPv6",
    239: "NFLOG",
    276: "Linux cooked v2",
}
"""Link types that can be decoded, by number (tcpdump.org/linktypes.html)."""

_NEEDED = "a pcap, pcapng or ERF file is needed"

_OTHER_FORMATS = {
    b"\xa1\xb2\xcd\x34": "a pcap of a patched libpcap",
    b"\x34\xcd\xb2\xa1": "a pcap of a patched libpcap",
    b"snoop\0\0\0": "a capture of snoop",
    b"GMBU": "a capture of Microsoft Network Monitor",
    b"RTSS": "a capture of Microsoft Network Monitor",
}
"""What files of other captures begin with."""

_LINK_NAMES = {105: "IEEE 802.11", 127: "IEEE 802.11 radiotap", 195: "802.15.4"}

_OK, _BROKEN, _INTERFACE, _STAMP, _BLOCK = 0, 1, 2, 3, 4
_FAULTS = {
    _BROKEN: "a record claims an impossible length",
    _INTERFACE: "a packet names an interface not described",
    _STAMP: "a time stamp is out of all bounds",
    _BLOCK: "a block contradicts the pcapng format",
}

_COOKED_V1, _COOKED_V2 = 113, 276
INTO, OUT_OF = "in", "out"
"""In place of names of interfaces, what Linux cooked v1 tells: that a packet came in, or left."""

_AS_WRITTEN, _PERHAPS_SWAPPED, _SWAPPED = 0, 1, 2
_LENGTHS = {
    **{(2, minor): _SWAPPED for minor in range(3)},
    (2, 3): _PERHAPS_SWAPPED,
    (2, 4): _AS_WRITTEN,
    (543, 0): _SWAPPED,
}
"""For each version of pcap, whether a record has the captured length behind the one on the wire.

These versions are those of libpcap's sf-pcap.c; 543.0 is that of DG/UX.
"""

_Found = tuple[I64, I64, I64, I64, I32, I32]
"""Arrays that are filled: all of Records, from `offset` on."""

_Indexed = tuple[int, int, int]
"""Packets found, bytes consumed, and a key of _FAULTS or _OK."""


@dataclass(frozen=True, slots=True)
class Records:
    """The packets in one block of a file.

    Attributes:
        offset: where each packet's bytes begin in `data`.
        original: each packet's length on the wire, as the capture says.
        stamp_ns: when each packet was seen, in nanoseconds since the epoch.
        interface: where each packet was captured, as an index of `CaptureFile.interfaces`.
    """

    data: U8
    count: int
    offset: I64
    length: I64
    original: I64
    stamp_ns: I64
    link: I32
    interface: I32

    def of(self, interface: int) -> Records:
        """The packets of one interface."""
        rows = np.flatnonzero(self.interface[: self.count] == interface)
        return Records(
            self.data,
            rows.size,
            self.offset[rows],
            self.length[rows],
            self.original[rows],
            self.stamp_ns[rows],
            self.link[rows],
            self.interface[rows],
        )


@compiled
def _index_pcap(
    data: U8,
    end: int,
    big: bool,
    factor: int,
    lengths: int,
    offset: I64,
    length: I64,
    original: I64,
    stamp: I64,
    tally: I64,
) -> tuple[int, int, int]:
    """Finds whole records in data[:end]. Returns (count, bytes consumed, error).

    `tally` counts packets whose fraction of a second is a second or more.
    """
    at = 0
    count = 0
    word = np.zeros(4, np.int64)
    while count < offset.size and at + 16 <= end:
        for i in range(4):
            p = at + 4 * i
            b0, b1 = np.int64(data[p]), np.int64(data[p + 1])
            b2, b3 = np.int64(data[p + 2]), np.int64(data[p + 3])
            if big:
                word[i] = (b0 << 24) | (b1 << 16) | (b2 << 8) | b3
            else:
                word[i] = (b3 << 24) | (b2 << 16) | (b1 << 8) | b0
        if lengths == _SWAPPED or (lengths == _PERHAPS_SWAPPED and word[2] > word[3]):
            word[2], word[3] = word[3], word[2]
        captured = word[2]
        if captured > MAX_RECORD_BYTES:
            return count, at, _BROKEN
        if at + 16 + captured > end:
            break
        offset[count] = at + 16
        length[count] = captured
        original[count] = max(word[3], captured)
        tally[0] += word[1] * factor >= 1_000_000_000
        stamp[count] = word[0] * 1_000_000_000 + word[1] * factor
        count += 1
        at += 16 + captured
    return count, at, _OK


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


@compiled
def _index_pcapng(
    data: U8,
    end: int,
    state: I64,
    interfaces: I64,
    offset: I64,
    length: I64,
    original: I64,
    stamp: I64,
    link: I32,
    at_interface: I32,
) -> tuple[int, int, int]:
    """Finds whole blocks in data[:end]. Returns (packets, bytes consumed, error).

    `state` is kept between calls: [big-endian, rows of `interfaces` in use, length of a block that
    does not fit into the window, the row of the section's first interface, packets without a time
    stamp, which are left out]. A row of `interfaces` is [link type, snaplen, time resolution,
    offset in seconds, where its name begins in `data`, the name's length, its number in the
    section]; `at_interface` is the row of each packet. It returns early if no row is free.
    """
    at = 0
    count = 0
    state[2] = 0
    while count < offset.size and at + 12 <= end:
        kind = _u32(data, at, state[0] != 0)
        if kind == 0x0A0D0D0A:
            magic = _u32(data, at + 8, True)
            if magic == 0x1A2B3C4D:
                state[0] = 1
            elif magic == 0x4D3C2B1A:
                state[0] = 0
            else:
                return count, at, _BLOCK
            state[3] = state[1]
        big = state[0] != 0
        size = _u32(data, at + 4, big)
        if size < 12 or size % 4 or size > MAX_BLOCK_BYTES:
            return count, at, _BLOCK
        if at + size > end:
            state[2] = size
            break
        if _u32(data, at + size - 4, big) != size:
            return count, at, _BLOCK
        if kind == 1:
            if size < 20 or state[1] - state[3] >= MAX_INTERFACES:
                return count, at, _BLOCK
            if state[1] >= interfaces.shape[0]:
                break
            row = state[1]
            interfaces[row, 0] = _u16(data, at + 8, big)
            interfaces[row, 1] = _u32(data, at + 12, big)
            interfaces[row, 2] = 6
            interfaces[row, 3] = 0
            interfaces[row, 5] = 0
            interfaces[row, 6] = row - state[3]
            option = at + 16
            while option + 4 <= at + size - 4:
                code, n = _u16(data, option, big), _u16(data, option + 2, big)
                if code == 0 or option + 4 + n > at + size - 4:
                    break
                if code == 2:
                    interfaces[row, 4] = option + 4
                    interfaces[row, 5] = n
                elif code == 9 and n >= 1:
                    interfaces[row, 2] = data[option + 4]
                elif code == 14 and n >= 8:
                    first = _u32(data, option + 4, big)
                    second = _u32(data, option + 8, big)
                    interfaces[row, 3] = (
                        ((first << 32) | second) if big else ((second << 32) | first)
                    )
                option += 4 + (n + 3) // 4 * 4
            state[1] += 1
        elif kind == 6 or kind == 2:
            if size < 32:
                return count, at, _BLOCK
            interface = _u32(data, at + 8, big) if kind == 6 else _u16(data, at + 8, big)
            captured = _u32(data, at + 20, big)
            if captured > MAX_RECORD_BYTES or captured > size - 32:
                return count, at, _BLOCK
            interface += state[3]
            if interface >= state[1]:
                return count, at, _INTERFACE
            seconds = interfaces[interface, 3]
            counted = _nanoseconds(
                _u32(data, at + 12, big), _u32(data, at + 16, big), interfaces[interface, 2]
            )
            if seconds < -(1 << 32) or seconds > (1 << 32) or counted < 0:
                return count, at, _STAMP
            seen = counted + seconds * 1_000_000_000
            if counted > MAX_STAMP_NS or seen < 0 or seen > MAX_STAMP_NS:
                return count, at, _STAMP
            offset[count] = at + 28
            length[count] = captured
            original[count] = max(_u32(data, at + 24, big), captured)
            stamp[count] = seen
            link[count] = interfaces[interface, 0]
            at_interface[count] = interface
            count += 1
        elif kind == 3:
            state[4] += 1
        at += size
    return count, at, _OK


_INTO, _OUT_OF = 1 << 32, (1 << 32) + 1
_COOKED_V1_NAMES = {_INTO: INTO, _OUT_OF: OUT_OF}
"""Above all numbers of interfaces."""


@compiled
def _cooked_interfaces(data: U8, offset: I64, length: I64, link: I32, number: I64) -> None:
    """The interface's number of each packet of Linux cooked v2, _INTO or _OUT_OF of v1; else -1.

    A packet that is too short for it is 0's, or came in.
    """
    for packet in range(offset.size):
        number[packet] = -1
        at = offset[packet]
        if link[packet] == _COOKED_V2:
            number[packet] = _u32(data, at + 4, True) if length[packet] >= 8 else 0
        elif link[packet] == _COOKED_V1:
            left = length[packet] >= 2 and data[at + 1] == 4
            number[packet] = _OUT_OF if left else _INTO


class _Source:
    """A window over a stream. Bytes that are not yet consumed stay; new ones follow them."""

    def __init__(self, path: Path, stream: IO[bytes]) -> None:
        self.path = path
        self.stream = stream
        self.window = bytearray(BLOCK_BYTES)
        self.data = np.frombuffer(self.window, np.uint8)
        self.end = 0
        self.position = 0
        self.finished = False
        self.cut_short = False
        self.expanded_bytes = 0
        self.most_bytes = max(ALWAYS_EXPANDED_BYTES, MAX_EXPANSION * path.stat().st_size)

    def refill(self) -> None:
        """Reads until the window is full or the stream has ended."""
        view = memoryview(self.window)
        while self.end < len(self.window) and not self.finished:
            try:
                count = self.stream.readinto(view[self.end :])  # type: ignore[attr-defined]
            except EOFError:
                self.finished = self.cut_short = True
                break
            except Exception as error:
                # Each library of decompression raises exceptions of its own for broken data.
                raise InputError(f"{self.path}: cannot be decompressed: {error}") from None
            if not count:
                self.finished = True
                break
            self.end += count
            self.expanded_bytes += count
            if self.expanded_bytes > self.most_bytes:
                raise InputError(
                    f"{self.path}: stands for more than {MAX_EXPANSION} times its size; if it is "
                    "no bomb, decompress it first"
                )

    def consume(self, count: int) -> None:
        self.window[: self.end - count] = self.window[count : self.end]
        self.end -= count
        self.position += count

    def widen(self, size: int) -> None:
        """Makes room for a block of `size` bytes."""
        rest = bytes(self.window[: self.end])
        self.window = bytearray(size)
        self.window[: self.end] = rest
        self.data = np.frombuffer(self.window, np.uint8)


class CaptureFile:
    """An open capture, read block by block.

    Attributes:
        cut_short: whether the file ended inside a record, which was left out. Known after reading.
        interfaces: names of the interfaces of which a packet was read. Only pcapng and Linux cooked
            tell them; all other packets have the name "".
        untimed: simple packet blocks of pcapng, which have no time stamp and are left out.
        overfull: packets whose fraction of a second is a second or more.

    Raises InputError if the file cannot be read, is no capture, has a link type that cannot
    be decoded, or contradicts its own format.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cut_short = False
        self.records = 0
        self.interfaces: list[str] = []
        self.untimed = 0
        self.overfull = 0
        self.size = path.stat().st_size if path.exists() else 0

    def has_grown(self) -> bool:
        """Whether the file is longer than when it was opened."""
        return self.path.stat().st_size > self.size

    def _interface(self, name: str) -> int:
        """The index of an interface, which is added if it is new."""
        if name not in self.interfaces:
            self.interfaces.append(name)
        return self.interfaces.index(name)

    def _check_link(self, link: int) -> None:
        if link not in LINK_TYPES:
            name = f" ({_LINK_NAMES[link]})" if link in _LINK_NAMES else ""
            allowed = ", ".join(dict.fromkeys(LINK_TYPES.values()))
            raise InputError(
                f"{self.path}: link type {link}{name} is not supported; allowed are {allowed}"
            )

    def _broken(self, position: int, detail: str) -> InputError:
        return InputError(
            f"{self.path}: broken after {self.records} packets, at byte {position}: {detail}"
        )

    def blocks(self) -> Iterator[Records]:
        """Yields the packets in the file's order.

        Arrays are reused: they are valid until the next block, and may be changed until then.
        """
        with open_capture(self.path) as stream:
            source = _Source(self.path, stream)
            source.refill()
            head = bytes(source.window[: min(source.end, 28)])
            if not head and source.cut_short:
                raise InputError(f"{self.path}: cut off inside its first compressed block")
            if not head:
                raise InputError(f"{self.path}: empty; {_NEEDED}")
            magic = head[:4]
            if magic == b"\x0a\x0d\x0d\x0a":
                yield from self._pcapng(source)
                return
            formats = {
                b"\xd4\xc3\xb2\xa1": (False, 1000),
                b"\xa1\xb2\xc3\xd4": (True, 1000),
                b"\x4d\x3c\xb2\xa1": (False, 1),
                b"\xa1\xb2\x3c\x4d": (True, 1),
            }
            if magic not in formats:
                beginning = bytes(source.window[: source.end])
                if looks_like_erf(beginning, source.finished):
                    yield from self._erf(source)
                    return
                for begins, name in _OTHER_FORMATS.items():
                    if beginning.startswith(begins):
                        raise InputError(
                            f"{self.path}: {name}, which is not read; "
                            "`editcap -F pcapng` converts it"
                        )
                raise InputError(f"{self.path}: not a capture; {_NEEDED}")
            if len(head) < 24:
                raise InputError(f"{self.path}: cut off inside the file's header")
            yield from self._pcap(source, *formats[magic])

    def _pcap(self, source: _Source, big: bool, factor: int) -> Iterator[Records]:
        order = ">" if big else "<"
        version = struct.unpack_from(f"{order}HH", source.window, 4)
        if version not in _LENGTHS:
            raise InputError(
                f"{self.path}: pcap of version {version[0]}.{version[1]}; allowed are 2.0 to 2.4"
            )
        lengths = _LENGTHS[version]
        field = struct.unpack_from(f"{order}I", source.window, 20)[0]
        link_type = field & 0xFFFF
        fcs = (field >> 28) * 2 if field & 0x04000000 else 0
        self._check_link(link_type)
        source.consume(24)
        tally = np.zeros(1, np.int64)

        def index(found: _Found) -> _Indexed:
            offset, length, original, stamp, link, interface = found
            data, end = source.data, source.end
            indexed = _index_pcap(
                data, end, big, factor, lengths, offset, length, original, stamp, tally
            )
            count = indexed[0]
            original[:count] -= fcs
            # Who read the block before may have changed it.
            link[:count] = link_type
            if count and link_type not in (_COOKED_V1, _COOKED_V2):
                interface[:count] = self._interface("")
            self.overfull = int(tally[0])
            return indexed

        return self._walk(source, BLOCK_BYTES // 40, index)

    def _erf(self, source: _Source) -> Iterator[Records]:
        def index(found: _Found) -> _Indexed:
            offset, length, original, stamp, link, interface = found
            indexed = index_erf(source.data, source.end, offset, length, original, stamp, link)
            if indexed[0]:
                interface[: indexed[0]] = self._interface("")
            return indexed

        return self._walk(source, BLOCK_BYTES // 16, index)

    def _pcapng(self, source: _Source) -> Iterator[Records]:
        state = np.zeros(5, np.int64)
        rows = np.zeros((4 * MAX_INTERFACES, 7), np.int64)
        names: list[str] = []

        def index(found: _Found) -> _Indexed:
            indexed = _index_pcapng(source.data, source.end, state, rows, *found)
            count, used, _ = indexed
            _, _, _, _, link, interface = found
            for number in np.unique(link[:count]):
                self._check_link(int(number))
            in_use, first = int(state[1]), int(state[3])
            for begin, size, number in rows[len(names) : in_use, 4:].tolist():
                name = bytes(source.window[begin : begin + size]).rstrip(b"\0")
                names.append(name.decode(errors="backslashreplace") or f"if{number}")
            # Each packet of Linux cooked tells its own.
            cooked = (link[:count] == _COOKED_V1) | (link[:count] == _COOKED_V2)
            for row in np.unique(interface[:count][~cooked]).tolist():
                self._interface(names[row])
            place = {name: number for number, name in enumerate(self.interfaces)}
            by_row = np.array([place.get(name, 0) for name in names], np.int32)
            if count:
                interface[:count] = by_row[interface[:count]]
            # Later packets name only interfaces of the section that was read last.
            rows[: in_use - first] = rows[first:in_use].copy()
            del names[:first]
            state[1], state[3] = in_use - first, 0
            self.untimed = int(state[4])
            if state[2] > len(source.window) and not used and not source.finished:
                source.widen(int(state[2]))
            return indexed

        return self._walk(source, BLOCK_BYTES // 32, index)

    def _walk(
        self, source: _Source, most: int, index: Callable[[_Found], _Indexed]
    ) -> Iterator[Records]:
        """Yields the packets, at most `most` at a time.

        `index` finds the whole records in the source's window. It fills the arrays of Records, and
        returns (packets, bytes consumed, error).
        """
        offset, length, original, stamp = (np.empty(most, np.int64) for _ in range(4))
        link, interface = (np.empty(most, np.int32) for _ in range(2))
        while True:
            source.refill()
            count, used, error = index((offset, length, original, stamp, link, interface))
            if count:
                if (link[:count] == LINK_ERF).any():
                    unwrap_erf(source.data, count, offset, length, original, link)
                if ((link[:count] == _COOKED_V1) | (link[:count] == _COOKED_V2)).any():
                    self._tell_cooked(source.data, count, offset, length, link, interface)
                yield Records(source.data, count, offset, length, original, stamp, link, interface)
                self.records += count
            source.consume(used)
            if error:
                raise self._broken(source.position, _FAULTS[error])
            if not used and source.finished:
                self.cut_short = source.cut_short or source.end > 0
                return

    def _tell_cooked(
        self, data: U8, count: int, offset: I64, length: I64, link: I32, interface: I32
    ) -> None:
        """Tells where packets of Linux cooked were captured, as far as each says it."""
        numbers = np.empty(count, np.int64)
        _cooked_interfaces(data, offset[:count], length[:count], link, numbers)
        for number in np.unique(numbers[numbers >= 0]).tolist():
            name = _COOKED_V1_NAMES.get(number, f"if{number}")
            interface[:count][numbers == number] = self._interface(name)
