"""Opens captures of others: whole ones that gzip or zstd may have compressed.

What is not read gets a refusal with the command that makes it readable, in which `IN` is the
capture and `OUT` a new file. docs/own-captures.md has the same as a table.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, cast

from outcast import files
from outcast.errors import InputError

LINKS = {
    9: ("PPP", "editcap -L -C 4 -T rawip IN OUT"),
    104: ("Cisco HDLC", "editcap -L -C 4 -T rawip IN OUT"),
    197: ("ERF", "editcap -L -C -4 -T ether IN OUT"),
}
"""Link types by number (tcpdump.org/linktypes.html), with their names."""

OTHER_LINK = "tcpdump -i any -y LINUX_SLL2 -w OUT"
"""Of all others: it captures what is read, whatever the interface."""

ENCAPSULATIONS = {
    0x8847: ("MPLS", "editcap -L -C 18 -T rawip IN OUT"),
    0x8848: ("MPLS", "editcap -L -C 18 -T rawip IN OUT"),
    0x8864: ("PPPoE", "editcap -L -C 22 -T rawip IN OUT"),
    0x88E7: ("802.1ah", "editcap -L -C 18 IN OUT"),
    0x893F: ("802.1BR", "editcap -L -C 12:8 IN OUT"),
    0x8903: ("FabricPath", "editcap -L -C 16 IN OUT"),
}
"""What stands between a frame's addresses and IP, by its EtherType."""

MIRRORED = "editcap -L -C 50 IN OUT"
"""Takes off the headers of ERSPAN II or VXLAN. ERSPAN I has 38 bytes, ERSPAN III 54."""

FORMATS = (
    (b"\xa1\xb2\xcd\x34", "a pcap of a patched libpcap"),
    (b"\x34\xcd\xb2\xa1", "a pcap of a patched libpcap"),
    (b"snoop\0\0\0", "a capture of snoop"),
    (b"GMBU", "a capture of Microsoft Network Monitor"),
    (b"RTSS", "a capture of Microsoft Network Monitor"),
)
"""What files of other captures begin with."""

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
"""What files of other compressors begin with, and what decompresses them."""


MAX_WINDOW_BYTES = 1 << 27
"""How far back a compressed file may refer. `zstd --ultra -22` stays below it."""

_INPUT_BYTES = 1 << 12
"""How much is decompressed in one step. As zstd, so much can stand for 175 MB."""


class _Stepwise(io.RawIOBase):
    """Reads a stream of one or more compressed parts, of which each needs a decompressor.

    The libraries' own readers of streams give nothing of the last step of a file that is cut off
    (gzip), or do not see that (zstd).
    """

    def __init__(self, stream: IO[bytes], new: Callable[[], Any]) -> None:
        """`new` makes a decompressor with `decompress`, `eof` and `unused_data`."""
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

    Its `readinto` raises EOFError where compressed data end too early, and the library's own
    exceptions where they are broken.

    Raises InputError if the file cannot be read, or another program compressed it.
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
    # A skippable frame, with which pzstd begins (RFC 8878, 3.1.2).
    **{bytes([0x50 + number]) + b"\x2a\x4d\x18": _zstd for number in range(16)},
}
"""A decompressor for each beginning of compressed files."""


_SCAN_S = 1.0
"""How long to look for who writes to a capture. A machine can have very many open files."""

_ROTATED = re.compile(r"(?P<base>.+\.(?:pcapng|pcap|cap))\d*(?P<packed>(?:\.(?:gz|zst))?)")
"""The names that tcpdump makes of the one it is given: eth1.pcap, eth1.pcap1, eth1.pcap2."""


def require_file(path: Path) -> None:
    """Raises InputError if a capture's name is a folder's, or the pattern of several files."""
    if path.is_dir():
        raise InputError(f"{path}: is a folder; allowed is a capture")
    if set("*?[") & set(path.name) and not path.exists():
        raise InputError(
            f"{path}: is a pattern; allowed is one file, as "
            f"`mergecap -w OUT {path.name}` makes of several that follow one another"
        )


def continued_by(path: Path) -> str:
    """A word on files beside a capture that continue it by their names; empty if there are none."""
    name = _ROTATED.fullmatch(path.name)
    if name is None:
        return ""
    sibling = re.compile(rf"{re.escape(name['base'])}\d*{re.escape(name['packed'])}")
    others = []
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        others = [
            entry.name
            for entry in entries
            if entry.name != path.name and sibling.fullmatch(entry.name)
        ]
    if not others:
        return ""
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    return (
        f"{path}: {min(others)}{more} beside it are not read, which seem to belong to the same "
        f"capture; `mergecap -w OUT {name['base']}*{name['packed']}` makes one of all"
    )


def refuse_live(files: Sequence[Path], processes: Path = Path("/proc")) -> None:
    """Raises InputError if a process is seen to write to one of the files.

    Without root, only processes of the same user are seen.
    """
    wanted: dict[tuple[int, int], Path] = {}
    for file in files:
        with contextlib.suppress(OSError, ValueError):
            if file.is_file():
                wanted[(status := file.stat()).st_dev, status.st_ino] = file
    ends = time.monotonic() + _SCAN_S
    with contextlib.suppress(OSError), os.scandir(processes) as entries:
        for entry in entries:
            if not entry.name.isdecimal() or int(entry.name) == os.getpid():
                continue
            if time.monotonic() > ends:
                return
            with contextlib.suppress(OSError):
                _refuse_written(wanted, Path(entry.path))


def _refuse_written(wanted: dict[tuple[int, int], Path], process: Path) -> None:
    with os.scandir(process / "fd") as descriptors:
        for descriptor in descriptors:
            with contextlib.suppress(OSError):
                status = descriptor.stat()
                file = wanted.get((status.st_dev, status.st_ino))
                if file is None:
                    continue
                flags = (process / "fdinfo" / descriptor.name).read_text().split("flags:")[1]
                if int(flags.split()[0], 8) & os.O_ACCMODE == os.O_RDONLY:
                    continue
                name = (process / "comm").read_text().strip()
                name_text = name if name.isprintable() else "a program"
                raise InputError(
                    f"{file}: {name_text} (process {process.name}) still writes to it; end the "
                    "capture first"
                )
