"""The files that a run has kept: which differ from their hashes, and where two captures part."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import zstandard

from outcast import handed_in
from outcast.errors import InputError
from outcast.files import sha256
from outcast.records.run_directory import Manifest, RunDirectory

COMPRESSED = ".zst"

_PCAP_HEADER_BYTES = 24
_MAGIC = bytes.fromhex("4d3cb2a1")
"""The magic number of a little-endian pcap file with nanosecond stamps."""
_RECORD = struct.Struct("<IIII")
_LONGEST_RECORD = 1 << 18
"""The largest snaplen that tcpdump allows (MAXIMUM_SNAPLEN of libpcap)."""


def not_kept(directory: RunDirectory, manifest: Manifest) -> list[str]:
    """Names of the captures that a run no longer has."""
    names = [record.file.removesuffix(COMPRESSED) for record in manifest.captures]
    return [name for name in names if not is_kept(directory.path / name)]


def digests(directory: RunDirectory, manifest: Manifest | None = None) -> dict[str, str]:
    """The SHA-256 of every capture as it was written, also if it is compressed or removed now.

    Raises InputError if this is not the directory of a finished run.
    """
    manifest = manifest or directory.read_manifest()
    known = {**manifest.dropped, **manifest.files}
    found = {}
    for record in manifest.captures:
        name = record.file.removesuffix(COMPRESSED)
        if record.file not in known:
            raise InputError(
                f"{directory.manifest}: has no hash of {record.file}; allowed is a finished run"
            )
        found[name] = known[record.file] if name == record.file else digest(directory.path / name)
    return found


def digest(path: Path) -> str:
    """The SHA-256 of a capture as it was written. Raises InputError if it cannot be read."""
    found = hashlib.sha256()
    try:
        with _opened(path) as stream:
            while part := stream.read(1 << 20):
                found.update(part)
    except zstandard.ZstdError as error:
        raise InputError(f"{path}{COMPRESSED}: cannot be decompressed: {error}") from None
    return found.hexdigest()


def is_kept(path: Path) -> bool:
    return path.exists() or path.with_name(path.name + COMPRESSED).exists()


def _opened(path: Path) -> BinaryIO:
    """Opens a capture, compressed or not. Raises InputError if it cannot be read."""
    compressed = path.with_name(path.name + COMPRESSED)
    try:
        if not compressed.exists():
            return BufferedReader(handed_in.opened(path))
        return cast(BinaryIO, zstandard.open(handed_in.opened(compressed), "rb"))
    except OSError as error:
        why = handed_in.reason(error)
        raise InputError(f"{path}: {why}; allowed is a finished run") from None


class Packet(NamedTuple):
    """A packet of a capture: its time, its length on the link, and its captured bytes."""

    at_ns: int
    frame_bytes: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Parting:
    """The parting of two captures: after how many equal packets, and the next packet of each."""

    number: int
    at_ns: int
    one: Packet | None
    other: Packet | None

    @property
    def only_time(self) -> bool:
        """Whether the two packets are equal but for their time."""
        if self.one is None or self.other is None:
            return False
        return self.one._replace(at_ns=self.other.at_ns) == self.other


def parting(first_path: Path, second_path: Path) -> Parting | None:
    """Finds where two captures part; None if their packets are equal."""
    with _opened(first_path) as first, _opened(second_path) as second:
        pairs = zip_longest(_packets(first, first_path), _packets(second, second_path))
        for number, (here, there) in enumerate(pairs):
            if here != there:
                at_ns = min(record.at_ns for record in (here, there) if record is not None)
                return Parting(number, at_ns, here, there)
    return None


def first_stamp_ns(path: Path) -> int | None:
    """The time of a capture's first packet; None if it has none."""
    with _opened(path) as stream:
        first = next(_packets(stream, path), None)
    return None if first is None else first.at_ns


def _packets(stream: BinaryIO, path: Path) -> Iterator[Packet]:
    """Gives every packet in a capture of a run (pcap-savefile(5)).

    Foreign captures are read by outcast.analysis.capture.pcap.

    Raises InputError: the file is another one, or is cut off.
    """
    header = _read(stream, _PCAP_HEADER_BYTES, path)
    if header[:4] != _MAGIC:
        raise InputError(f"{path}: is no capture of a run; allowed is pcap with nanosecond stamps")
    while header := _read(stream, _RECORD.size, path):
        seconds, nanoseconds, length, frame_bytes = _RECORD.unpack(header.ljust(_RECORD.size))
        data = _read(stream, length, path) if length <= _LONGEST_RECORD else b""
        if len(header) < _RECORD.size or len(data) < length:
            raise InputError(f"{path}: is cut off or broken inside a packet")
        yield Packet(seconds * 10**9 + nanoseconds, frame_bytes, data)


def _read(stream: BinaryIO, size: int, path: Path) -> bytes:
    """Reads `size` bytes, or fewer at the end of the file. Raises InputError."""
    parts = []
    try:
        while size and (part := stream.read(size)):
            parts.append(part)
            size -= len(part)
    except zstandard.ZstdError as error:
        raise InputError(f"{path}{COMPRESSED}: cannot be decompressed: {error}") from None
    return b"".join(parts)


@dataclass(frozen=True, slots=True)
class Differences:
    """Files that differ from the manifest, by their names in the run directory.

    Attributes:
        changed: files whose hash is not the manifest's.
        missing: files that the manifest has a hash of and the folder lacks.
        added: files in the folder that the manifest has no hash of.
    """

    changed: tuple[str, ...]
    missing: tuple[str, ...]
    added: tuple[str, ...]


def differences(directory: RunDirectory, manifest: Manifest) -> Differences:
    """Hashes every file of the run again and compares the hashes with the manifest's.

    Raises:
        InputError: the folder holds something that is neither a file nor a folder.
        OSError: a file cannot be read.
    """
    present = {
        str(path.relative_to(directory.path)): path
        for path in handed_in.plain_files(directory.path)
        if path != directory.manifest
    }
    return Differences(
        changed=tuple(
            name
            for name, digest in manifest.files.items()
            if name in present and sha256(present[name]) != digest
        ),
        missing=tuple(name for name in manifest.files if name not in present),
        added=tuple(name for name in present if name not in manifest.files),
    )
