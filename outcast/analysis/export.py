"""Writes the captured packets of a run into one file for Wireshark, with their verdicts."""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import polars as pl

from outcast import __version__, files
from outcast.analysis.capture.decoder import Decoder
from outcast.analysis.capture.pcap import of_interface, shared_files
from outcast.analysis.capture.records import CaptureFile
from outcast.analysis.machine_code import I32, I64, Array, Bool
from outcast.analysis.measure.blackout import is_blackout
from outcast.analysis.selection import Source
from outcast.errors import InputError
from outcast.records import captures
from outcast.records.run import Run

_TOLERANCE_NS = 100_000
"""The largest error of a foreign packet's time, interpolated between its neighbours."""

_IDENTITY = ("src", "sport", "dst", "dport", "ip_id", "seq", "payload")


@dataclass(frozen=True, slots=True)
class PortFiles:
    """A capture of a port. An `interface` of None takes all; with `one_clock`, as in runs, its
    clock is that of the table.
    """

    port: str
    direction: Literal["in", "out", "any"]
    path: Path
    interface: str | None = None
    one_clock: bool = True


def captures_of(run: Run) -> list[PortFiles]:
    """The captures of a run, or of a join. Raises InputError if one is gone."""
    if run.captured is None:
        return [
            PortFiles(record.port, record.direction, run.directory.path / record.file)
            for record in run.manifest.captures
        ]
    requested = run.captured.request.captures
    shared = shared_files([(one.port, Path(one.file.path)) for one in requested])
    return [
        PortFiles(
            one.port,
            one.direction,
            captures.find(run.directory, one.file, hashed=False),
            one.port if Path(one.file.path) in shared else None,
            one_clock=False,
        )
        for one in requested
    ]


@dataclass(frozen=True, slots=True)
class Captured:
    """A capture whose packets were found in the table; arrays are by packet, in its order.

    Attributes:
        stamp_ns: the time on the clock of the table.
        row: the row in the table; -1 without one.
        left: whether the packet left there; else it came in. Valid only with a row.
    """

    source: PortFiles
    stamp_ns: I64
    row: I32
    left: Bool
    link: I32

    def packets(self) -> Iterator[tuple[bytes, int]]:
        """The captured bytes of each packet, and its length on the wire."""
        for block in of_interface(CaptureFile(self.source.path), self.source.interface):
            places = (block.offset, block.length, block.original)
            rows = zip(*(each[: block.count].tolist() for each in places), strict=True)
            for offset, length, original in rows:
                yield block.data[offset : offset + length].tobytes(), max(original, length)


def find(source: PortFiles, rows: pl.DataFrame) -> Captured:
    """Reads a capture and finds its packets among the table's rows, whose numbers are `packet`.

    A packet matches the row with its addresses, ports, numbers and time. Without one clock the
    capture's times are corrected so that packets that occur once have the table's times.

    Raises InputError if the capture cannot be read, or lacks packets that the table has.
    """
    seen, stamp_ns, link = _seen(source)
    row = np.full(stamp_ns.size, -1, np.int32)
    left = np.zeros(stamp_ns.size, np.bool_)
    shift: Array = np.zeros(stamp_ns.size, np.int64)
    for way, port, time in (("in", "ingress", "t_in"), ("out", "egress", "t_out")):
        if source.direction not in (way, "any"):
            continue
        here = (pl.col(port).cast(pl.String) == source.port) & pl.col(time).is_not_null()
        expected = rows.filter(here).select("packet", pl.col(time).alias("t"), _key())
        if source.one_clock:
            # Equal packets at the same time are taken in their order.
            nth = pl.int_range(pl.len()).over("key", "t").alias("nth")
            found = seen.with_columns(nth).join(
                expected.with_columns(nth), on=["key", "t", "nth"], how="inner"
            )
        else:
            shift = _shift(seen, expected, stamp_ns)
            moved = seen.with_columns(t=pl.col("t") + pl.Series(shift).gather(seen["frame"]))
            found = (
                moved.sort("t")
                .join_asof(
                    expected.sort("t"),
                    on="t",
                    by="key",
                    strategy="nearest",
                    tolerance=_TOLERANCE_NS,
                    check_sortedness=False,
                )
                .drop_nulls("packet")
                .unique("packet", keep="first", maintain_order=True)
            )
        if found.height < 0.99 * expected.height:
            raise InputError(
                f"{source.path}: lacks {expected.height - found.height} of the "
                f"{expected.height} packets that the table has of {source.port}; analyze or join "
                "the captures again. Packets that the hop changed (NAT, fragments) are not found"
            )
        row[found["frame"].to_numpy()] = found["packet"].to_numpy()
        left[found["frame"].to_numpy()] = way == "out"
    return Captured(source, stamp_ns + shift, row, left, link)


def _seen(source: PortFiles) -> tuple[pl.DataFrame, I64, I32]:
    """The packets of IP with their places (`frame`); the stamps and link types of all packets."""
    decoder = Decoder(None, looks_inside=not source.one_clock)
    stamps, links, count = [np.empty(0, np.int64)], [np.empty(0, np.int32)], 0
    for block in of_interface(CaptureFile(source.path), source.interface):
        stamps.append(block.stamp_ns[: block.count].copy())
        links.append(block.link[: block.count].copy())
        # The decoder leaves packets out, so their numbers take the place of their times.
        numbers = np.arange(count, count + block.count, dtype=np.int64)
        decoder.add(block._replace(stamp_ns=numbers))
        count += block.count
    columns, flows = decoder.finish()
    stamp_ns = np.concatenate(stamps)
    ends = {"src": pl.String, "sport": pl.Int64, "dst": pl.String, "dport": pl.Int64}
    rows = pl.DataFrame({name: [getattr(key, name) for key in flows] for name in ends}, schema=ends)
    seen = rows[columns.flow].with_columns(
        frame=pl.Series(columns.stamp_ns),
        t=pl.Series(stamp_ns[columns.stamp_ns]),
        ip_id=pl.Series(columns.ip_id),
        seq=pl.Series(columns.seq),
        payload=pl.Series(columns.payload_bytes),
    )
    return seen.select("frame", "t", _key()), stamp_ns, np.concatenate(links)


def _key() -> pl.Expr:
    """A hash of the fields that identify a packet."""
    kinds = {name: pl.String if name in ("src", "dst") else pl.Int64 for name in _IDENTITY}
    return pl.struct(pl.col(name).cast(kind) for name, kind in kinds.items()).hash().alias("key")


def _shift(seen: pl.DataFrame, expected: pl.DataFrame, stamp_ns: I64) -> Array:
    """The correction of each stamp to the table's clock, by packets that occur only once."""
    alone = pl.len().over("key") == 1
    once = seen.filter(alone).join(expected.filter(alone), on="key", suffix="_table").sort("t")
    if not once.height:
        return np.zeros(stamp_ns.size, np.int64)
    at, by = once["t"].to_numpy(), (once["t_table"] - once["t"]).to_numpy()
    # Less the first time, because doubles hold 53 bits.
    shift: Array = np.rint(np.interp(stamp_ns - at[0], at - at[0], by)).astype(np.int64)
    return shift


_NEW = ("chain_drops", "drop", "blackout")


def with_drops(source: Source, rows: pl.DataFrame) -> pl.DataFrame:
    """Adds to each dropped packet its chain of drops; null for all others, and in a table alone.

    Columns: `chain_drops`, the length of the chain; `drop`, the place in it, from 1; `blackout`,
    the chain's number if it is a blackout.
    """
    if source.run is None or not source.chains.height:
        return rows.with_columns(pl.lit(None, pl.Int64).alias(name) for name in _NEW)
    ports = [pl.col(name).cast(pl.String) for name in ("ingress", "egress")]
    chains = source.chains.with_columns(ports).with_row_index("chain").sort("t_start")
    nth = pl.int_range(pl.len()).over("chain") + 1
    dropped = (
        rows.filter(pl.col("verdict").cast(pl.String) == "dropped")
        .select("packet", "t_in", *ports)
        .sort("t_in", maintain_order=True)
        .join_asof(
            chains.select("chain", "ingress", "egress", "t_start", "others_through", "drops"),
            left_on="t_in",
            right_on="t_start",
            by=["ingress", "egress"],
            check_sortedness=False,
        )
        .select(
            "packet",
            pl.col("drops").cast(pl.Int64).alias("chain_drops"),
            pl.when(pl.col("chain").is_not_null()).then(nth).alias("drop"),
            pl.when(is_blackout()).then("chain").cast(pl.Int64).alias("blackout"),
        )
    )
    return rows.join(dropped, on="packet", how="left", maintain_order="left")


def comment(row: dict[str, Any], left: bool) -> str:
    """The verdict on a packet in words, at the port where it came in, or `left`.

    The row has the columns of `with_drops`, and `limit_bytes` and `limit_packets` of its output.
    """
    if row["verdict"] == "unknown":
        return f"fate unknown: {row['note']}"
    if row["verdict"] == "forwarded":
        stayed = f"{(row['t_out'] - row['t_in']) / 1000:,.1f} us"
        if left:
            return f"left {stayed} after it came in at {row['ingress']}"
        return f"forwarded after {stayed} to {row['egress']}"
    unit = "packets" if row["limit_bytes"] is None and row["limit_packets"] is not None else "bytes"
    held, limit, parts = row[f"queue_{unit}"], row[f"limit_{unit}"], []
    if held is not None:
        parts.append(f"queue held {held:,}{f' of {limit:,}' if limit is not None else ''} {unit}")
    if row["blackout"] is not None:
        parts.append(f"blackout {row['blackout']}, drop {row['drop']} of {row['chain_drops']}")
    elif (row["chain_drops"] or 0) > 1:
        parts.append(f"drop {row['drop']} of {row['chain_drops']} in a row")
    where = f"dropped at {row['egress']}" if row["egress"] else "dropped"
    return f"{where}: {'; '.join(parts)}" if parts else where


INBOUND, OUTBOUND, UNKNOWN = 1, 2, 0
"""Directions in a packet's flags (draft-ietf-opsawg-pcapng, section 4.3)."""
_WAYS = {
    "in": (INBOUND, "packets that came in"),
    "out": (OUTBOUND, "packets that left"),
    "any": (UNKNOWN, "packets that came in and that left"),
}


def write(source: Source, run: Run, file: Path) -> int:
    """Writes the packets of all captures by time. Returns their number.

    A forwarded packet is there twice: as it came in and as it left. Raises InputError if a capture
    cannot be read, is not the one that was joined, or would be replaced.
    """
    captures = captures_of(run)
    if any(file.resolve() == capture.path.resolve() for capture in captures):
        raise InputError(f"{file}: is a capture of the run; allowed is another name")
    queues = {record.egress: record.queue for record in run.manifest.bottlenecks}
    table = source.table.with_row_index("packet").collect()
    table = with_drops(source, table).with_columns(pl.col(pl.Enum).cast(pl.String))
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
                way, words = _WAYS[capture.source.direction][0], "not joined"
                if row >= 0:
                    way = OUTBOUND if left else INBOUND
                    words = comment(table.row(row, named=True), left)
                interface = interfaces.index((number, int(capture.link[frame])))
                writer.packet(interface, stamp_ns, data, wire_bytes, way, words)
                count += 1
    except OSError as error:
        raise InputError(f"{file}: cannot be written: {error.strerror or error}") from None
    return count


def _stream(number: int, capture: Captured) -> Iterator[tuple[int, int, int, bytes, int]]:
    """The time, capture, number in it, captured bytes and wire length of each packet."""
    # The file may have grown since it was read first.
    packets = zip(capture.stamp_ns.tolist(), capture.packets(), strict=False)
    for frame, (stamp_ns, (data, wire_bytes)) in enumerate(packets):
        yield stamp_ns, number, frame, data, wire_bytes


_SECTION, _INTERFACE, _PACKET = 0x0A0D0D0A, 1, 6


class Writer:
    """Writes one section of pcapng. Times are nanoseconds since the epoch."""

    def __init__(
        self, stream: IO[bytes], application: str, interfaces: Sequence[tuple[str, str, int]]
    ) -> None:
        """Writes the section's head; an interface is a name, a description and a link type."""
        self._stream = stream
        head = struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)
        self._block(_SECTION, head, [(4, application.encode())])
        for name, description, link in interfaces:
            options = [(2, name.encode()), (3, description.encode()), (9, b"\x09")]
            self._block(_INTERFACE, struct.pack("<HHI", link, 0, 0), options)

    def packet(
        self, interface: int, stamp_ns: int, data: bytes, wire_bytes: int, way: int, comment: str
    ) -> None:
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
