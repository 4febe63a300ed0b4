"""Whether two runs are the same, to the byte of their captures; and if not, what differs first."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO

from outcast.errors import ReplayError
from outcast.run import Manifest, RunDirectory

_PCAP_HEADER_BYTES = 24
_RECORD = struct.Struct("<IIII")


def require_equal(one: RunDirectory, other: RunDirectory) -> int:
    """The number of captures, all equal byte by byte.

    Raises:
        ReplayError: naming what differs first, causes before effects: the configuration, the
            kernel, the programs, then the captures' packets.
        InputError: where one of the two is no run directory.
    """
    first, second = one.read_manifest(), other.read_manifest()
    cause = _cause(first, second)
    names = sorted({record.file for record in (*first.captures, *second.captures)})
    different = [name for name in names if first.files.get(name) != second.files.get(name)]
    if different:
        effect = min(
            (_first_difference(one.path / name, other.path / name), name) for name in different
        )
        at_s, name = effect[0] / 1e9, effect[1]
        because = f"; before that, {cause}" if cause else ""
        raise ReplayError(f"{name} differs first, {at_s:.9f} s after its first packet{because}")
    return len(names)


def _cause(first: Manifest, second: Manifest) -> str:
    """What the manifests say that could make the runs differ."""
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


def _first_difference(one: Path, other: Path) -> int:
    """Nanoseconds after the first packet at which two captures differ; 0 where one is missing."""
    if not (one.exists() and other.exists()):
        return 0
    with one.open("rb") as first, other.open("rb") as second:
        began_ns = at_ns = None
        for here, there in zip_longest(_records(first), _records(second)):
            at_ns = min(record[0] for record in (here, there) if record is not None)
            began_ns = at_ns if began_ns is None else began_ns
            if here != there:
                break
    return (at_ns or 0) - (began_ns or 0)


def _records(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Time stamp and bytes of every packet of a capture that our tcpdump wrote (pcap-savefile(5)).

    Foreign captures are read by outcast.analysis.pcap.
    """
    stream.seek(_PCAP_HEADER_BYTES)
    while len(header := stream.read(_RECORD.size)) == _RECORD.size:
        seconds, nanoseconds, length, _ = _RECORD.unpack(header)
        yield seconds * 10**9 + nanoseconds, stream.read(length)
