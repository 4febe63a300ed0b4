"""The file of raw samples: the kernel's own netlink messages, each with its time.

```
zstd-compressed:
  u32 length, then JSON: {"every_ns": 10000000, "sources": ["s1-eth1", ...]}
  for each message: i64 time in ns since the epoch, u32 index of its source, u32 length, message
```

All integers are little-endian. A message is stored as the kernel sent it (netlink(7)).
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import zstandard

from outcast.errors import InputError

SOCKETS_FILE = "sockets.zst"
PORTS_FILE = "ports.zst"

_LENGTH = struct.Struct("<I")
_RECORD = struct.Struct("<qII")
_LEVEL = 1
"""The lowest level, because compression takes time from the run. Messages of a source are alike."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One message of the kernel.

    Attributes:
        t_ns: when its sample began, on the captures' clock.
        source: index of the port or flow that it describes.
        message: a whole netlink message with its header.
    """

    t_ns: int
    source: int
    message: bytes


class SamplesWriter:
    """Writes samples under a temporary name. The file gets its own name if no error occurs."""

    def __init__(self, path: Path, every_ns: int, sources: Sequence[str]) -> None:
        self._path = path
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        self._stream = zstandard.ZstdCompressor(level=_LEVEL).stream_writer(
            self._temporary.open("wb"), closefd=True
        )
        header = json.dumps({"every_ns": every_ns, "sources": list(sources)}).encode()
        self._stream.write(_LENGTH.pack(len(header)) + header)

    def write(self, samples: Sequence[Sample]) -> None:
        self._stream.write(
            b"".join(
                _RECORD.pack(sample.t_ns, sample.source, len(sample.message)) + sample.message
                for sample in samples
            )
        )

    def __enter__(self) -> SamplesWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        self._stream.close()  # type: ignore[no-untyped-call]
        if kind is None:
            self._temporary.replace(self._path)
        else:
            self._temporary.unlink(missing_ok=True)


@dataclass(frozen=True)
class SamplesFile:
    """A whole file of samples.

    Attributes:
        every_ns: the requested time between samples.
        sources: the ports (by name) or flows (by number) that the samples describe.
    """

    every_ns: int
    sources: tuple[str, ...]
    samples: tuple[Sample, ...]


def read_samples(path: Path) -> SamplesFile:
    """Reads a file of samples. Raises InputError if it is another file or is cut off."""
    try:
        with (
            path.open("rb") as stream,
            zstandard.ZstdDecompressor().stream_reader(stream) as raw,
        ):
            data = raw.read()
        (length,) = _LENGTH.unpack_from(data)
        header = json.loads(data[_LENGTH.size : _LENGTH.size + length])
        every_ns, sources = header["every_ns"], header["sources"]
        samples = tuple(_records(data, _LENGTH.size + length))
        return SamplesFile(every_ns, tuple(sources), samples)
    except (OSError, zstandard.ZstdError, struct.error, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: no file of samples: {error}") from None


def _records(data: bytes, at: int) -> Iterator[Sample]:
    while at < len(data):
        t_ns, source, length = _RECORD.unpack_from(data, at)
        at += _RECORD.size
        if at + length > len(data):
            raise ValueError("cut off inside a record")
        yield Sample(t_ns, source, data[at : at + length])
        at += length
