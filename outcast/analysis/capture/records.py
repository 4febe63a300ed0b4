"""The records of a capture file: where each packet's bytes are, and when it was seen.

It reads pcap (microseconds and nanoseconds, both byte orders), pcapng (any resolution, several
sections and interfaces), plain or compressed; see `formats`. It reads files in blocks, so memory
does not grow with the file.
"""

from __future__ import annotations

import hashlib
import struct
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import numpy as np

from outcast.analysis.capture import opening
from outcast.analysis.capture.formats import (
    COOKED_V1,
    COOKED_V2,
    FAULTS,
    INTO_NUMBER,
    MAX_INTERFACES,
    OUT_OF_NUMBER,
    Indexed,
    Records,
    Section,
    cooked_interfaces,
    index_pcap,
    index_pcapng,
)
from outcast.analysis.capture.opening import open_capture
from outcast.errors import InputError

BLOCK_BYTES = 4 << 20
"""How much of a file is in memory at once."""

MAX_EXPANSION = 200
"""How many bytes one byte of a compressed capture may expand to. Whole packets of equal payload
reach a hundred, headers alone ten, a decompression bomb thousands."""

ALWAYS_EXPANDED_BYTES = 256 << 20

LINK_TYPES = {
    0: "BSD loopback",
    1: "Ethernet",
    12: "raw IP",
    14: "raw IP",
    101: "raw IP",
    108: "BSD loopback",
    113: "Linux cooked v1",
    228: "raw IPv4",
    229: "raw IPv6",
    276: "Linux cooked v2",
}
"""Link types that can be decoded, by number (tcpdump.org/linktypes.html)."""

_MAGICS = {
    b"\xd4\xc3\xb2\xa1": (False, 1000),
    b"\xa1\xb2\xc3\xd4": (True, 1000),
    b"\x4d\x3c\xb2\xa1": (False, 1),
    b"\xa1\xb2\x3c\x4d": (True, 1),
}
"""What pcap files begin with: whether they are big-endian, and the nanoseconds of their unit."""
LONGEST_BYTES = 1 << 20
"""Twice what a host hands over at once with BIG TCP (GSO_MAX_SIZE in include/linux/netdevice.h)."""

_COOKED = (COOKED_V1, COOKED_V2)
INTO, OUT_OF = "in", "out"
"""In place of names of interfaces, what Linux cooked v1 says: that a packet came in, or left."""

_COOKED_V1_NAMES = {INTO_NUMBER: INTO, OUT_OF_NUMBER: OUT_OF}

_Index = Callable[[Records], Indexed]
"""Finds the whole records in `data` of Records, and fills its arrays."""


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
                raise InputError(f"{self.path}: its compressed data are damaged") from error
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
        repeated: names that several interfaces of a section have.
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
        self.repeated: set[str] = set()
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
            name, command = opening.LINKS.get(link, ("", opening.OTHER_LINK))
            raise InputError(
                f"{self.path}: link type {link}{f' ({name})' if name else ''} is not read; run "
                f"`{command}` first. Allowed are {', '.join(dict.fromkeys(LINK_TYPES.values()))}"
            )

    def blocks(self) -> Iterator[Records]:
        """Yields the packets in the file's order.

        Arrays are reused: they are valid until the next block, and may be changed until then.
        """
        with open_capture(self.path) as stream:
            source = _Source(self.path, stream)
            source.refill()
            beginning = bytes(source.window[: source.end])
            if not beginning and source.cut_short:
                raise InputError(f"{self.path}: cut off inside its first compressed block")
            if not beginning:
                raise InputError(f"{self.path}: empty; a pcap or pcapng file is needed")
            if beginning.startswith(b"\x0a\x0d\x0d\x0a"):
                yield from self._pcapng(source)
            elif beginning[:4] in _MAGICS:
                if len(beginning) < 24:
                    raise InputError(f"{self.path}: cut off inside the file's header")
                yield from self._pcap(source, *_MAGICS[beginning[:4]])
            else:
                raise InputError(
                    f"{self.path}: not a capture in pcap or pcapng; `{opening.CONVERTS}` converts "
                    "all formats that Wireshark reads"
                )

    def _pcap(self, source: _Source, big: bool, factor: int) -> Iterator[Records]:
        order = ">" if big else "<"
        version = struct.unpack_from(f"{order}HH", source.window, 4)
        if version != (2, 4):
            raise InputError(
                f"{self.path}: pcap of version {version[0]}.{version[1]}, which is not read; "
                f"`{opening.CONVERTS}` makes pcapng of it"
            )
        field = struct.unpack_from(f"{order}I", source.window, 20)[0]
        link_type = field & 0xFFFF
        fcs = (field >> 28) * 2 if field & 0x04000000 else 0
        self._check_link(link_type)
        source.consume(24)
        tally = np.zeros(1, np.int64)

        def index(found: Records) -> Indexed:
            indexed = index_pcap(found, source.end, big, factor, tally)
            count = indexed[0]
            found.original[:count] -= fcs
            # Who read the block before may have changed it.
            found.link[:count] = link_type
            if count and link_type not in _COOKED:
                found.interface[:count] = self._interface("")
            self.overfull = int(tally[0])
            return indexed

        return self._walk(source, BLOCK_BYTES // 40, index)

    def _pcapng(self, source: _Source) -> Iterator[Records]:
        state, rows = np.zeros(5, np.int64), np.zeros((4 * MAX_INTERFACES, 7), np.int64)
        names: list[str] = []

        def index(found: Records) -> Indexed:
            indexed = index_pcapng(found, source.end, Section(state, rows))
            count, used, _ = indexed
            link, interface = found.link[:count], found.interface[:count]
            for number in np.unique(link):
                self._check_link(int(number))
            in_use, first = int(state[1]), int(state[3])
            for begin, size, number in rows[len(names) : in_use, 4:].tolist():
                name = bytes(source.window[begin : begin + size]).rstrip(b"\0")
                text = name.decode(errors="backslashreplace")
                shown = shown_name(text, blank=f"if{number}")
                self.repeated |= {shown} & set(names[len(names) - number :])
                names.append(shown)
            # Each packet of Linux cooked has its own.
            for row in np.unique(interface[~np.isin(link, _COOKED)]).tolist():
                self._interface(names[row])
            place = {name: number for number, name in enumerate(self.interfaces)}
            by_row = np.array([place.get(name, 0) for name in names], np.int32)
            if count:
                interface[:] = by_row[interface]
            # Later packets name only interfaces of the section that was read last.
            rows[: in_use - first] = rows[first:in_use].copy()
            del names[:first]
            state[1], state[3] = in_use - first, 0
            self.untimed = int(state[4])
            if state[2] > len(source.window) and not used and not source.finished:
                source.widen(int(state[2]))
            return indexed

        return self._walk(source, BLOCK_BYTES // 32, index)

    def _walk(self, source: _Source, most: int, index: _Index) -> Iterator[Records]:
        """Yields the packets, at most `most` at a time."""
        buffer = Records.room(source.data, most)
        while True:
            source.refill()
            buffer = buffer._replace(data=source.data)
            count, used, error = index(buffer)
            if count:
                found = buffer._replace(count=count)
                if (longest := int(found.original[:count].max())) > LONGEST_BYTES:
                    raise InputError(
                        f"{self.path}: says that a packet had {longest:,} bytes; allowed are "
                        f"{LONGEST_BYTES:,}. The file is damaged"
                    )
                if np.isin(found.link[:count], _COOKED).any():
                    self._tell_cooked(found)
                yield found
                self.records += count
            source.consume(used)
            if error:
                raise InputError(
                    f"{self.path}: broken after {self.records} packets, at byte "
                    f"{source.position}: {FAULTS[error]}"
                )
            if not used and source.finished:
                self.cut_short = source.cut_short or source.end > 0
                return

    def _tell_cooked(self, records: Records) -> None:
        """Finds where packets of Linux cooked were captured, where they say it."""
        numbers = cooked_interfaces(records)
        for number in np.unique(numbers[numbers >= 0]).tolist():
            name = _COOKED_V1_NAMES.get(number, f"if{number}")
            records.interface[: records.count][numbers == number] = self._interface(name)


MOST_COLUMNS = 24
"""Small figures and tables have no place for more. Linux has 15 characters at most."""


def shown_name(name: str, blank: str = "", most: int = MOST_COLUMNS) -> str:
    """A name of at most `most` columns without characters that act on what shows it.

    Control characters and direction marks are escaped. The end of a longer name gives way to a hash
    of it, so that different names stay different. `blank` is taken if nothing of it can be seen.
    """
    if not name.strip():
        return blank
    shown = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in name
    )
    if max(len(shown), _columns(shown)) <= most:
        return shown
    digest = hashlib.blake2s(name.encode(errors="surrogatepass")).hexdigest()[:6]
    kept = shown[: most - 7]
    while _columns(kept) > most - 7:
        kept = kept[:-1]
    return f"{kept}…{digest}"


def _columns(text: str) -> int:
    """How many columns a terminal takes for a text."""
    return sum(1 + (unicodedata.east_asian_width(letter) in "WF") for letter in text)
