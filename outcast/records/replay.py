"""Compares the captures of two runs byte by byte, and says what differs first."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO, cast

import zstandard

from outcast import handed_in
from outcast.errors import InputError, ReplayError, shortened
from outcast.experiment import Experiment, load_resolved
from outcast.records.run_directory import Manifest, RunDirectory

COMPRESSED = ".zst"
_PCAP_HEADER_BYTES = 24
_RECORD = struct.Struct("<IIII")


def require_equal(one: RunDirectory, other: RunDirectory) -> int:
    """Requires that all captures are equal byte by byte. Returns their number.

    Raises:
        ReplayError: something differs. Its text names causes before effects: the configuration,
            the kernel, the programs, then the packets of the captures.
        InputError: one of the two is not the directory of a finished run.
    """
    first, second = one.read_manifest(), other.read_manifest()
    cause = _cause(first, second)
    here, there = _digests(one, first), _digests(other, second)
    different = [name for name in sorted({*here, *there}) if here.get(name) != there.get(name)]
    if different:
        because = f"; before that, {cause}" if cause else ""
        known = [
            (at_ns, name)
            for name in different
            if (at_ns := _first_difference(one.path / name, other.path / name)) is not None
        ]
        if not known:
            raise ReplayError(
                f"{different[0]} differs; the packet is unknown, because a capture was not kept"
                f"{because}"
            )
        at_ns, name = min(known)
        raise ReplayError(
            f"{name} differs first, {at_ns / 1e9:.9f} s after its first packet{because}"
        )
    return len(here)


@dataclass(frozen=True, slots=True)
class SeenPacket:
    """A packet as one of two captures shows it.

    Attributes:
        at_ns: epoch time on the run's clock.
        frame_bytes: its length on the link, without the checksum.
        source, destination: addresses with ports, as `10.0.0.1:20001`; empty if it is not IPv4.
        what: what it is, as `TCP, ACK, sequence number 7, 1448 bytes of payload`.
        flow: the number of its flow; None if it belongs to none of the manifest.
        host: the host that sent it; None if unknown.
        process: the process that sent it, as `sender of flow 3`; None if unknown.
    """

    at_ns: int
    frame_bytes: int
    source: str
    destination: str
    what: str
    flow: int | None
    host: str | None
    process: str | None


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The first packet in which two runs part, by virtual time over all captures of both.

    Attributes:
        capture: the capture's name in the run directory, without `.zst`.
        port, direction: where it was captured.
        number: how many packets of this capture are equal before it.
        at_ns: epoch time of the earlier of the two packets.
        since_start_ns: the same after the traffic's start in the first run; negative before it.
        since_first_packet_ns: the same after the earliest packet of all compared captures.
        one, other: the packet in each run; None where the capture has ended.
    """

    capture: str
    port: str
    direction: str
    number: int
    at_ns: int
    since_start_ns: int
    since_first_packet_ns: int
    one: SeenPacket | None
    other: SeenPacket | None


@dataclass(frozen=True, slots=True)
class ManifestDifference:
    """A value that differs between two manifests.

    Attributes:
        part: the part of the manifest: `config`, `engine`, `seed`, `outcast`, `kernel`, `guest`,
            `versions`, `effective` or `traffic`.
        name: the setting's name in that part.
        one, other: its value in each run; None where it is absent.
        decides: whether it can decide the packets. A measured value, for example how long
            connecting took, only follows from them.
    """

    part: str
    name: str
    one: object
    other: object
    decides: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """Whether two runs are equal, and where they part if not.

    Attributes:
        equal: whether both have the same captures with the same bytes.
        captures: how many captures both have.
        different: names of the captures that both have and that differ.
        only_one, only_other: names of the captures that only one run has.
        not_kept: names of different captures whose packets at least one run did not keep.
        first: the first difference; None if nothing differs or nothing was kept.
        manifests: what differs between the manifests, causes before effects.
    """

    equal: bool
    captures: int
    different: tuple[str, ...]
    only_one: tuple[str, ...]
    only_other: tuple[str, ...]
    not_kept: tuple[str, ...]
    first: FirstDifference | None
    manifests: tuple[ManifestDifference, ...]

    def lines(self) -> list[str]:
        """The explanation in words, a thought on each line."""
        return []


def explain(one: RunDirectory, other: RunDirectory) -> Explanation:
    """Finds where two runs part, by virtual time, and what could have caused it.

    Raises:
        InputError: one of the two is not the directory of a finished run, or a capture is broken.
    """
    first, second = one.read_manifest(), other.read_manifest()
    here, there = _digests(one, first), _digests(other, second)
    different = tuple(name for name in sorted(here) if name in there and here[name] != there[name])
    return Explanation(
        equal=here == there,
        captures=len(set(here) & set(there)),
        different=different,
        only_one=tuple(sorted(set(here) - set(there))),
        only_other=tuple(sorted(set(there) - set(here))),
        not_kept=(),
        first=None,
        manifests=(),
    )


def require_finished(directory: RunDirectory) -> None:
    """Raises InputError if this is not the directory of a finished run with hashes of captures."""
    _digests(directory, directory.read_manifest())


def require_comparable(directory: RunDirectory, experiment: Experiment) -> None:
    """Raises InputError if a run of this experiment could not replay the run in the directory.

    Args:
        directory: the directory of a finished run.
        experiment: the resolved experiment, as its own run directory will have it.
    """
    there, here = (
        config.model_dump(mode="json", by_alias=True)
        for config in (load_resolved(directory.config), experiment)
    )
    for key, value in there.items():
        if here.get(key) != value:
            raise InputError(
                f"{directory.config}: {key} is {shortened(str(value), 200)}, and here it is "
                f"{shortened(str(here.get(key)), 200)}; allowed is a run of the same configuration"
            )


def digests(directory: RunDirectory) -> dict[str, str]:
    """The SHA-256 of every capture as it was written. Raises InputError for no finished run."""
    return _digests(directory, directory.read_manifest())


def _digests(directory: RunDirectory, manifest: Manifest) -> dict[str, str]:
    """Returns the SHA-256 of every capture as it was written, compressed and removed ones too."""
    known = {**manifest.dropped, **manifest.files}
    digests = {}
    for record in manifest.captures:
        name = record.file.removesuffix(COMPRESSED)
        if record.file not in known:
            raise InputError(
                f"{directory.manifest}: has no hash of {record.file}; allowed is a finished run"
            )
        digests[name] = (
            known[record.file] if name == record.file else _digest(directory.path / name)
        )
    return digests


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with _opened(path) as stream:
            while part := stream.read(1 << 20):
                digest.update(part)
    except zstandard.ZstdError as error:
        raise InputError(f"{path}{COMPRESSED}: cannot be decompressed: {error}") from None
    return digest.hexdigest()


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


def _cause(first: Manifest, second: Manifest) -> str:
    """Names the first difference between two manifests that could make the runs differ."""
    if first.files.get("config.yaml") != second.files.get("config.yaml"):
        for key, value in first.requested.items():
            if second.requested.get(key) != value:
                return f"{key} was {value} and is {second.requested.get(key)}"
        return "the configurations differ"
    for what, here, there in (
        ("the engine", first.engine, second.engine),
        ("the seed", first.seed, second.seed),
        ("outcast", first.outcast, second.outcast),
        *(
            (f"the kernel's {key}", value, second.kernel.get(key))
            for key, value in first.kernel.items()
        ),
        *((name, version, second.versions.get(name)) for name, version in first.versions.items()),
    ):
        if here != there:
            return f"{what} was {here} and is {there}"
    return ""


def _first_difference(one: Path, other: Path) -> int | None:
    """Returns when two captures differ, in ns after the first packet; None if one is gone."""
    if not all(
        path.exists() or path.with_name(path.name + COMPRESSED).exists() for path in (one, other)
    ):
        return None
    with _opened(one) as first, _opened(other) as second:
        began_ns = at_ns = None
        for here, there in zip_longest(_records(first), _records(second)):
            at_ns = min(record[0] for record in (here, there) if record is not None)
            began_ns = at_ns if began_ns is None else began_ns
            if here != there:
                break
    return (at_ns or 0) - (began_ns or 0)


def _records(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Gives the time stamp and the bytes of every packet in a capture of ours (pcap-savefile(5)).

    Foreign captures are read by outcast.analysis.capture.pcap.
    """
    stream.read(_PCAP_HEADER_BYTES)
    while len(header := stream.read(_RECORD.size)) == _RECORD.size:
        seconds, nanoseconds, length, _ = _RECORD.unpack(header)
        yield seconds * 10**9 + nanoseconds, stream.read(length)
