"""Opens foreign captures, which gzip or zstd may have compressed.

A refusal names the command that makes a capture readable; `IN` is the capture, `OUT` a new file.
docs/own-captures.md has the same table.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable
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

    Of a file that is cut off, gzip's own reader drops the last step, and zstd's ends without error.
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
