"""Opens captures that gzip or zstd may have compressed."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, cast

from outcast import files
from outcast.analysis.capture import cures
from outcast.errors import InputError

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
    try:
        return _decompressed(path, stream, magic)
    except BaseException:
        stream.close()
        raise


def _decompressed(path: Path, stream: io.FileIO, magic: bytes) -> IO[bytes]:
    for beginning, (name, command) in cures.COMPRESSORS.items():
        if magic.startswith(beginning):
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
