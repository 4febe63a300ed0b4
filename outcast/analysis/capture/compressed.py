"""Opens captures that gzip, bzip2, zstd, lz4 or xz may have compressed."""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Protocol, cast

from outcast import files
from outcast.errors import InputError

MAX_WINDOW_BYTES = 1 << 27
"""How far back a compressed file may refer. `zstd --ultra -22` and `xz -9` stay below it."""

_INPUT_BYTES = 1 << 12
"""How much is decompressed in one step. As zstd, so much can stand for 175 MB."""

_REFUSED = {
    b"PK\x03\x04": "zip",
    b"7z\xbc\xaf": "7-Zip",
    b"\x02\x21\x4c\x18": "the old format of lz4 (lz4 -l)",
    b"\x1f\x9d": "compress",
}
"""What files of other compressors begin with."""


class _Decompressor(Protocol):
    """What bz2, lzma and lz4 agree on: decompresses in steps of bounded size."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes | None: ...

    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Stepwise(io.RawIOBase):
    """Reads a stream of one or more compressed parts, of which each needs a decompressor."""

    def __init__(self, stream: IO[bytes], new: Callable[[], _Decompressor]) -> None:
        self._stream = stream
        self._new = new
        self._inner = new()
        self._has_begun = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Raises EOFError if the stream ends inside a part."""
        view = memoryview(buffer).cast("B")
        while True:
            data = b""
            if self._inner.eof:
                data = (self._inner.unused_data or b"").lstrip(b"\0")
                # Between parts and after the last one, xz allows null bytes.
                while not data:
                    more = self._stream.read(_INPUT_BYTES)
                    if not more:
                        return 0
                    data = more.lstrip(b"\0")
                self._inner = self._new()
            elif self._inner.needs_input:
                data = self._stream.read(_INPUT_BYTES)
                if not data:
                    raise EOFError("the compressed data end too early")
            part = self._inner.decompress(data, len(view))
            if part:
                view[: len(part)] = part
                return len(part)

    def close(self) -> None:
        self._stream.close()
        super().close()


class _Gzip:
    """Decompresses one member of a gzip file in steps.

    Python's own reader of streams gives nothing of the last step of a file that is cut off.
    """

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._inner.eof and not self._inner.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max(max_length, 0))


class _Zstd:
    """Decompresses one frame of zstd in steps.

    zstandard's own reader of streams does not tell a frame that is cut off from one that ends.
    """

    def __init__(self) -> None:
        import zstandard

        whole = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
        self._inner = whole.decompressobj()
        self._pending = memoryview(b"")

    @property
    def eof(self) -> bool:
        return self._inner.eof and not self._pending

    @property
    def needs_input(self) -> bool:
        return not self._inner.eof and not self._pending

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        if data:
            self._pending = memoryview(self._inner.decompress(data))
        length = len(self._pending) if max_length < 0 else max_length
        part = bytes(self._pending[:length])
        self._pending = self._pending[length:]
        return part


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
    try:
        return _decompressed(path, stream, magic)
    except BaseException:
        stream.close()
        raise


def _decompressed(path: Path, stream: io.FileIO, magic: bytes) -> IO[bytes]:
    for beginning, name in _REFUSED.items():
        if magic.startswith(beginning):
            raise InputError(
                f"{path}: compressed by {name}; allowed are gzip, bzip2, zstd, lz4 and xz, and none"
            )
    if magic.startswith(b"\x1f\x8b"):
        return _stepwise(stream, _Gzip)
    if magic.startswith(b"BZh"):
        return _stepwise(stream, bz2.BZ2Decompressor)
    # A skippable frame, with which pzstd begins, or a frame of data (RFC 8878, 3.1).
    is_skippable = magic[1:4] == b"\x2a\x4d\x18" and magic[0] & 0xF0 == 0x50
    if magic.startswith(b"\x28\xb5\x2f\xfd") or is_skippable:
        return _stepwise(stream, _Zstd)
    if magic.startswith(b"\x04\x22\x4d\x18"):
        import lz4.frame

        return _stepwise(stream, lz4.frame.LZ4FrameDecompressor)
    if magic.startswith(b"\xfd7zXZ\0"):
        return _stepwise(
            stream,
            lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_WINDOW_BYTES + (8 << 20)),
        )
    return stream


def _stepwise(stream: io.FileIO, new: Callable[[], Any]) -> IO[bytes]:
    return cast(IO[bytes], _Stepwise(stream, new))
