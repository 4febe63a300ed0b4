"""The captured packets of a run, and which row of the table of packets each of them is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from outcast.analysis.capture import sequence
from outcast.analysis.capture.decoder import Decoder
from outcast.analysis.capture.headers import Columns, FlowKey
from outcast.analysis.capture.pcap import of_interface, shared_files
from outcast.analysis.capture.records import CaptureFile
from outcast.analysis.compiled import I32, I64, Array, Bool
from outcast.errors import InputError
from outcast.records import captures
from outcast.records.run import Run

Direction = Literal["in", "out", "any"]

_TOLERANCE_NS = 100_000
"""By how much a packet of a foreign capture may miss the time that its neighbours foretell."""

_IDENTITY = ("src", "sport", "dst", "dport", "ip_id", "seq", "payload")


@dataclass(frozen=True, slots=True)
class PortFiles:
    """A capture: its port, which packets of the port it holds, and its files in a row.

    `interface` is that of the files whose packets they are; None takes all. `one_clock` says
    whether its clock is that of the table, as in runs of ours.
    """

    port: str
    direction: Direction
    files: tuple[Path, ...]
    interface: str | None = None
    one_clock: bool = True


def captures_of(run: Run) -> list[PortFiles]:
    """The captures of a run, or those that were joined. Raises InputError if one is gone."""
    if run.captured is not None:
        requested = run.captured.request.captures
        shared = shared_files(
            [(capture.port, Path(file.path)) for capture in requested for file in capture.files]
        )
        return [
            PortFiles(
                capture.port,
                capture.direction,
                tuple(captures.find(run.directory, file, hashed=False) for file in capture.files),
                capture.port if Path(capture.files[0].path) in shared else None,
                one_clock=False,
            )
            for capture in requested
        ]
    return [
        PortFiles(record.port, record.direction, (run.directory.path / record.file,))
        for record in run.manifest.captures
    ]


@dataclass(frozen=True, slots=True)
class Captured:
    """A capture whose packets were found in the table.

    Arrays have an element for each packet of the capture, in its order.

    Attributes:
        stamp_ns: when it was seen, on the clock of the table.
        row: its row in the table; -1 if it has none.
        left: whether it was seen as it left; else as it came in. Means nothing without a row.
        flow: index into `flows`; -1 if it has no IP headers.
        columns: the decoded headers of the packets of IP, which `frames` places among all. Their
            `stamp_ns` are these places too.
    """

    source: PortFiles
    files: tuple[CaptureFile, ...]
    stamp_ns: I64
    row: I32
    left: Bool
    flow: I32
    flows: tuple[FlowKey, ...]
    link: I32
    columns: Columns

    @property
    def frames(self) -> I64:
        """For each row of `columns`, the place of its packet in the capture."""
        return self.columns.stamp_ns

    def packets(self) -> Iterator[tuple[bytes, int]]:
        """Reads the captured bytes of each packet, and its length on the wire."""
        for file in self.files:
            for block in of_interface(file, self.source.interface):
                data = block.data
                offsets = block.offset[: block.count].tolist()
                lengths = block.length[: block.count].tolist()
                originals = block.original[: block.count].tolist()
                for offset, length, original in zip(offsets, lengths, originals, strict=True):
                    yield data[offset : offset + length].tobytes(), max(original, length)


def find(source: PortFiles, rows: pl.DataFrame) -> Captured:
    """Reads a capture and finds its packets among the table's rows.

    A packet is a row's if it has its addresses, ports and numbers, at its time. `rows` have their
    numbers as `packet`. Without one clock the capture's times are corrected so that the packets
    that occur once have the table's times.

    Raises InputError if the capture cannot be read, or lacks packets that the table has.
    """
    files, columns, flows, stamp_ns, link = _read(source, looks_inside=not source.one_clock)
    frame = columns.stamp_ns
    flow = np.full(stamp_ns.size, -1, np.int32)
    flow[frame] = columns.flow
    seen = _table(columns, flows, stamp_ns)
    row = np.full(stamp_ns.size, -1, np.int32)
    outbound = np.zeros(stamp_ns.size, np.bool_)
    shift: Array = np.zeros(stamp_ns.size, np.int64)
    for is_left, expected in _expected(source, rows):
        if not source.one_clock:
            shift = _shift(seen, expected, stamp_ns)
        found = _matches(seen, expected, shift, source.one_clock)
        if found.height < 0.99 * expected.height:
            raise InputError(
                f"{source.files[0]}: lacks {expected.height - found.height} of the "
                f"{expected.height} packets that the table has of {source.port}; analyze or join "
                "the captures anew. Where the hop changed packets (NAT, fragments), this finds none"
            )
        row[found["frame"].to_numpy()] = found["packet"].to_numpy()
        outbound[found["frame"].to_numpy()] = is_left
    return Captured(source, files, stamp_ns + shift, row, outbound, flow, flows, link, columns)


def _read(
    source: PortFiles, looks_inside: bool
) -> tuple[tuple[CaptureFile, ...], Columns, tuple[FlowKey, ...], I64, I32]:
    """Reads files, packets of IP with their places as stamps, flows, all stamps and link types."""
    files = sequence.in_order(source.files[0].parent, source.files)
    decoder = Decoder(None, looks_inside)
    stamps, links = [np.empty(0, np.int64)], [np.empty(0, np.int32)]
    count = 0
    for file in files:
        for block in of_interface(file, source.interface):
            stamps.append(block.stamp_ns[: block.count].copy())
            links.append(block.link[: block.count].copy())
            numbers = np.arange(count, count + block.count, dtype=np.int64)
            # The decoder leaves packets out, so it is given their numbers in place of their times.
            decoder.add(block._replace(stamp_ns=numbers))
            count += block.count
    columns, flows = decoder.finish()
    return tuple(files), columns, tuple(flows), np.concatenate(stamps), np.concatenate(links)


def _table(columns: Columns, flows: Sequence[FlowKey], stamp_ns: I64) -> pl.DataFrame:
    """The packets of IP: their places in the capture, their times, and what they are known by."""
    ends = {"src": pl.String, "sport": pl.Int64, "dst": pl.String, "dport": pl.Int64}
    of_flows = pl.DataFrame(
        {name: [getattr(key, name) for key in flows] for name in ends}, schema=ends
    )
    return (
        of_flows[columns.flow]
        .with_columns(
            frame=pl.Series(columns.stamp_ns),
            t=pl.Series(stamp_ns[columns.stamp_ns]),
            ip_id=pl.Series(columns.ip_id),
            seq=pl.Series(columns.seq),
            payload=pl.Series(columns.payload_bytes),
        )
        .select("frame", "t", _key())
    )


def _expected(source: PortFiles, rows: pl.DataFrame) -> Iterator[tuple[bool, pl.DataFrame]]:
    """The rows that a capture should have: whether they left there, and their times."""
    for is_left, way, port, time in (
        (False, "in", "ingress", "t_in"),
        (True, "out", "egress", "t_out"),
    ):
        if source.direction in (way, "any"):
            chosen = rows.filter(
                (pl.col(port).cast(pl.String) == source.port) & pl.col(time).is_not_null()
            )
            yield is_left, chosen.select("packet", pl.col(time).alias("t"), _key())


def _key() -> pl.Expr:
    """What a packet is known by, as one number. The same fields give the same number."""
    texts = ("src", "dst")
    return (
        pl.struct(pl.col(name).cast(pl.String if name in texts else pl.Int64) for name in _IDENTITY)
        .hash()
        .alias("key")
    )


def _shift(seen: pl.DataFrame, expected: pl.DataFrame, stamp_ns: I64) -> Array:
    """What to add to each stamp for the table's clock, by the packets that occur only once."""
    once = seen.filter(pl.len().over("key") == 1).join(
        expected.filter(pl.len().over("key") == 1), on="key", suffix="_table"
    )
    if not once.height:
        return np.zeros(stamp_ns.size, np.int64)
    once = once.sort("t")
    at = once["t"].to_numpy()
    by = (once["t_table"] - once["t"]).to_numpy()
    # Less the first time, because doubles hold 53 bits.
    shift: Array = np.rint(np.interp(stamp_ns - at[0], at - at[0], by)).astype(np.int64)
    return shift


def _matches(
    seen: pl.DataFrame, expected: pl.DataFrame, shift: Array, one_clock: bool
) -> pl.DataFrame:
    """Pairs `frame` with `packet`; each occurs at most once."""
    if one_clock:
        # Equal packets at the same time are taken in their order.
        seen, expected = (
            frame.with_columns(nth=pl.int_range(pl.len()).over("key", "t"))
            for frame in (seen, expected)
        )
        return seen.join(expected, on=["key", "t", "nth"]).select("frame", "packet")
    moved = seen.with_columns(t=pl.col("t") + pl.Series(shift).gather(seen["frame"])).sort("t")
    return (
        moved.join_asof(
            expected.sort("t"),
            on="t",
            by="key",
            strategy="nearest",
            tolerance=_TOLERANCE_NS,
            check_sortedness=False,
        )
        .drop_nulls("packet")
        .unique("packet", keep="first", maintain_order=True)
        .select("frame", "packet")
    )
