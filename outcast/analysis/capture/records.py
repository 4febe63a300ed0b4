"""The records of a capture file: the place and the time of each packet.

It reads pcap (microseconds and nanoseconds, both byte orders) and pcapng (any resolution, several
sections and interfaces), plain or compressed by gzip or zstd; see `formats`. Files are read in
blocks, so memory does not grow with the file.

A refusal names the command that makes a capture readable; `IN` is the capture, `OUT` a new file.
docs/own-captures.md has the same table.
"""

from __future__ import annotations

import hashlib
import io
import struct
import unicodedata
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from outcast import files
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
from outcast.errors import InputError

LINKS = {
    9: ("PPP", "editcap -L -C 4 -T rawip IN OUT"),
    104: ("Cisco HDLC", "editcap -L -C 4 -T rawip IN OUT"),
    197: ("ERF", "editcap -L -C -4 -T ether IN OUT"),
}
"""Link types by number (tcpdump.org/linktypes.html), with their names."""

OTHER_LINK = "tcpdump -i any -y LINUX_SLL2 -w OUT"
"""For all other link types: a capture that can be read, on any interface."""

ENCAPSULATIONS = {
    0x8847: ("MPLS", "editcap -L -C 18 -T rawip IN OUT"),
    0x8848: ("MPLS", "editcap -L -C 18 -T rawip IN OUT"),
    0x8864: ("PPPoE", "editcap -L -C 22 -T rawip IN OUT"),
    0x88E7: ("802.1ah", "editcap -L -C 18 IN OUT"),
    0x893F: ("802.1BR", "editcap -L -C 12:8 IN OUT"),
    0x8903: ("FabricPath", "editcap -L -C 16 IN OUT"),
}
"""Headers between a frame's addresses and IP, by EtherType."""

MIRRORED = "editcap -L -C 50 IN OUT"
"""Takes off the headers of ERSPAN II or VXLAN. ERSPAN I has 38 bytes, ERSPAN III 54."""

CONVERTS = "editcap IN OUT"
"""Makes pcapng of every format that Wireshark reads."""

COMPRESSORS = {
    b"PK\x03\x04": ("zip", "unzip"),
    b"7z\xbc\xaf": ("7-Zip", "7z x"),
    b"BZh": ("bzip2", "bzip2 -d"),
    b"\xfd7zXZ\0": ("xz", "xz -d"),
    b"\x04\x22\x4d\x18": ("lz4", "lz4 -d"),
    b"\x02\x21\x4c\x18": ("lz4", "lz4 -d"),
    b"\x1f\x9d": ("compress", "uncompress"),
}
"""The first bytes of files of other compressors, and the command that decompresses them."""

MAX_WINDOW_BYTES = 1 << 27
"""The largest distance of a reference in compressed data. `zstd --ultra -22` stays below it."""

_INPUT_BYTES = 1 << 12
"""The bytes that are decompressed in one step. In zstd they can expand to 175 MB."""


class _Stepwise(io.RawIOBase):
    """Reads a stream of one or more compressed parts.

    If a file is cut off, gzip's own reader drops the last step, and zstd's ends without error.
    """

    def __init__(self, stream: IO[bytes], new: Callable[[], Any]) -> None:
        self._stream = stream
        self._new = new
        self._inner = new()
        self._pending = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Raises EOFError if the stream ends inside a part."""
        view = memoryview(buffer).cast("B")
        while not self._pending:
            if self._inner.eof:
                data = (self._inner.unused_data or b"").lstrip(b"\0")
                # Between parts and after the last one, xz allows null bytes.
                while not data:
                    more = self._stream.read(_INPUT_BYTES)
                    if not more:
                        return 0
                    data = more.lstrip(b"\0")
                self._inner = self._new()
            else:
                data = self._stream.read(_INPUT_BYTES)
                if not data:
                    raise EOFError("the compressed data end too early")
            self._pending = memoryview(self._inner.decompress(data))
        part = self._pending[: len(view)]
        view[: len(part)] = part
        self._pending = self._pending[len(part) :]
        return len(part)

    def close(self) -> None:
        self._stream.close()
        super().close()


def open_capture(path: Path) -> IO[bytes]:
    """Opens a file, and decompresses it while it is read.

    `readinto` raises EOFError if compressed data end too early, and exceptions of zlib or zstandard
    if they are broken.
    """
    try:
        stream = files.opened(path)
        magic = stream.read(6)
        stream.seek(0)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {files.reason(error)}") from None
    for beginning, (name, command) in COMPRESSORS.items():
        if magic.startswith(beginning):
            stream.close()
            raise InputError(
                f"{path}: compressed by {name}; read are plain files and those of gzip and zstd, "
                f"so decompress it by `{command}`"
            )
    for beginning, new in _DECOMPRESSORS.items():
        if magic.startswith(beginning):
            return cast(IO[bytes], _Stepwise(stream, new))
    return stream


def _zstd() -> Any:
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES).decompressobj()


_DECOMPRESSORS: dict[bytes, Callable[[], Any]] = {
    b"\x1f\x8b": lambda: zlib.decompressobj(wbits=31),
    b"\x28\xb5\x2f\xfd": _zstd,
    # pzstd begins with a skippable frame (RFC 8878, 3.1.2).
    **{bytes([0x50 + number]) + b"\x2a\x4d\x18": _zstd for number in range(16)},
}
"""A decompressor by the first bytes of a file."""


def require_file(path: Path) -> None:
    if path.is_dir():
        raise InputError(f"{path}: is a folder; allowed is a capture")
    if set("*?[") & set(path.name) and not path.exists():
        raise InputError(
            f"{path}: is a pattern; allowed is one file, as "
            f"`mergecap -w OUT {path.name}` makes of several that follow one another"
        )


BLOCK_BYTES = 4 << 20
"""The part of a file that is in memory at once."""

MAX_EXPANSION = 200
"""The most bytes that a byte of a compressed capture may expand to. Whole packets of equal payload
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
"""The first bytes of pcap files: whether they are big-endian, and the nanoseconds of their unit."""
LONGEST_BYTES = 1 << 20
"""Twice what a host hands over at once with BIG TCP (GSO_MAX_SIZE in include/linux/netdevice.h)."""

_COOKED = (COOKED_V1, COOKED_V2)
INTO, OUT_OF = "in", "out"
"""The interfaces of Linux cooked v1, which says only that a packet came in, or left."""

_COOKED_V1_NAMES = {INTO_NUMBER: INTO, OUT_OF_NUMBER: OUT_OF}

_Index = Callable[[Records], Indexed]
"""Finds the whole records in `data` of Records, and fills its arrays."""


class _Source:
    """A window over a stream. Bytes that are not consumed stay; new ones follow them."""

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
        """Makes the window `size` bytes long."""
        rest = bytes(self.window[: self.end])
        self.window = bytearray(size)
        self.window[: self.end] = rest
        self.data = np.frombuffer(self.window, np.uint8)


class CaptureFile:
    """An open capture, read block by block.

    Attributes:
        cut_short: whether the file ended inside a record, which was left out. Known after reading.
        interfaces: the interfaces of the packets that were read; "" for formats without them.
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
        return self.path.stat().st_size > self.size

    def _interface(self, name: str) -> int:
        if name not in self.interfaces:
            self.interfaces.append(name)
        return self.interfaces.index(name)

    def _check_link(self, link: int) -> None:
        if link not in LINK_TYPES:
            name, command = LINKS.get(link, ("", OTHER_LINK))
            raise InputError(
                f"{self.path}: link type {link}{f' ({name})' if name else ''} is not read; run "
                f"`{command}` first. Allowed are {', '.join(dict.fromkeys(LINK_TYPES.values()))}"
            )

    def blocks(self) -> Iterator[Records]:
        """Yields the packets in the file's order. Arrays are valid until the next block."""
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
                    f"{self.path}: not a capture in pcap or pcapng; `{CONVERTS}` converts "
                    "all formats that Wireshark reads"
                )

    def _pcap(self, source: _Source, big: bool, factor: int) -> Iterator[Records]:
        order = ">" if big else "<"
        version = struct.unpack_from(f"{order}HH", source.window, 4)
        if version != (2, 4):
            raise InputError(
                f"{self.path}: pcap of version {version[0]}.{version[1]}, which is not read; "
                f"`{CONVERTS}` makes pcapng of it"
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
            # The reader of the last block may have changed it.
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
        buffer = Records.empty(source.data, most)
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
        """Fills in the interfaces of Linux cooked captures."""
        numbers = cooked_interfaces(records)
        for number in np.unique(numbers[numbers >= 0]).tolist():
            name = _COOKED_V1_NAMES.get(number, f"if{number}")
            records.interface[: records.count][numbers == number] = self._interface(name)


MOST_COLUMNS = 24
"""The width of a name in small figures and tables. Linux's names have 15 characters at most."""


def shown_name(name: str, blank: str = "", most: int = MOST_COLUMNS) -> str:
    """A name of at most `most` columns that is safe to show; `blank` if nothing can be seen.

    Control characters and direction marks are escaped. The end of a longer name becomes a hash of
    it, so that different names stay different.
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
    return sum(1 + (unicodedata.east_asian_width(letter) in "WF") for letter in text)
