"""Writes the captured packets of a run into one file for Wireshark, with their verdicts."""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np
import polars as pl

from outcast import __version__, files
from outcast.analysis.export import comments
from outcast.analysis.export.captured import Captured, captures_of, find
from outcast.analysis.selection import Source
from outcast.errors import InputError
from outcast.records.run import Run

INBOUND, OUTBOUND, UNTOLD = 1, 2, 0
"""Directions in a packet's flags (section 4.3)."""
_WAYS = {
    "in": (INBOUND, "packets that came in"),
    "out": (OUTBOUND, "packets that left"),
    "any": (UNTOLD, "packets that came in and that left"),
}


def write(source: Source, run: Run, file: Path) -> int:
    """Writes the packets of all captures in the order of their times.

    A packet that was forwarded is there twice: as it came in and as it left. Returns how many
    packets were written.

    Raises InputError if a capture cannot be read, or is not the one that was joined, or would be
    replaced; or if the file cannot be written.
    """
    captures = captures_of(run)
    if any(file.resolve() == capture.path.resolve() for capture in captures):
        raise InputError(f"{file}: is a capture of the run; allowed is another name")
    queues = {record.egress: record.queue for record in run.manifest.bottlenecks}
    table = source.table.with_row_index("packet").collect()
    table = comments.with_drops(source, table).with_columns(pl.col(pl.Enum).cast(pl.String))
    for name in ("limit_bytes", "limit_packets"):
        limits = {egress: getattr(queue, name) for egress, queue in queues.items()}
        limit = pl.col("egress").replace_strict(limits, default=None, return_dtype=pl.Int64)
        table = table.with_columns(limit.alias(name))
    found = [find(capture, table) for capture in captures]
    interfaces = [
        (number, link)
        for number, capture in enumerate(found)
        for link in np.unique(capture.link).tolist() or [1]
    ]
    described = [
        (found[number].source.port, _WAYS[found[number].source.direction][1], link)
        for number, link in interfaces
    ]
    streams = [_stream(number, capture) for number, capture in enumerate(found)]
    count = 0
    try:
        with files.writing(file) as stream:
            writer = Writer(stream, f"outcast {__version__}", described)
            for stamp_ns, number, frame, data, wire_bytes in heapq.merge(*streams):
                capture = found[number]
                row, left = int(capture.row[frame]), bool(capture.left[frame])
                way, comment = _WAYS[capture.source.direction][0], "not joined"
                if row >= 0:
                    way = OUTBOUND if left else INBOUND
                    comment = comments.comment(table.row(row, named=True), left)
                interface = interfaces.index((number, int(capture.link[frame])))
                writer.packet(interface, stamp_ns, data, wire_bytes, way, comment)
                count += 1
    except OSError as error:
        raise InputError(f"{file}: cannot be written: {error.strerror or error}") from None
    return count


def _stream(number: int, capture: Captured) -> Iterator[tuple[int, int, int, bytes, int]]:
    """Time, capture, number in it, captured bytes and length on the wire of each packet."""
    # The file may have grown since it was read first.
    packets = zip(capture.stamp_ns.tolist(), capture.packets(), strict=False)
    for frame, (stamp_ns, (data, wire_bytes)) in enumerate(packets):
        yield stamp_ns, number, frame, data, wire_bytes


_SECTION, _INTERFACE, _PACKET = 0x0A0D0D0A, 1, 6


class Writer:
    """Writes one section. Times are nanoseconds since the epoch."""

    def __init__(
        self, stream: IO[bytes], application: str, interfaces: Sequence[tuple[str, str, int]]
    ) -> None:
        """Writes what stands before the packets; an interface is name, description, link type."""
        self._stream = stream
        head = struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)
        self._block(_SECTION, head, [(4, application.encode())])
        for name, description, link in interfaces:
            options = [(2, name.encode()), (3, description.encode()), (9, b"\x09")]
            self._block(_INTERFACE, struct.pack("<HHI", link, 0, 0), options)

    def packet(
        self, interface: int, stamp_ns: int, data: bytes, wire_bytes: int, way: int, comment: str
    ) -> None:
        """Writes a packet: the captured bytes, the length that it had on the wire, a direction."""
        stamp = stamp_ns >> 32, stamp_ns & 0xFFFFFFFF
        head = struct.pack("<IIIII", interface, *stamp, len(data), wire_bytes)
        options = [(1, comment.encode()), (2, struct.pack("<I", way))]
        self._block(_PACKET, head + _padded(data), options)

    def _block(self, kind: int, body: bytes, options: Sequence[tuple[int, bytes]]) -> None:
        for code, value in (*options, (0, b"")):
            body += struct.pack("<HH", code, len(value)) + _padded(value)
        size = struct.pack("<I", len(body) + 12)
        self._stream.write(struct.pack("<I", kind) + size + body + size)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
