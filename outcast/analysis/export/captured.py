"""The captured packets of a run, and which row of the table of packets each of them is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from outcast.analysis.capture.decoder import Decoder
from outcast.analysis.capture.pcap import of_interface, shared_files
from outcast.analysis.capture.records import CaptureFile
from outcast.analysis.compiled import I32, I64, Array, Bool
from outcast.errors import InputError
from outcast.records import captures
from outcast.records.run import Run

_TOLERANCE_NS = 100_000
"""By how much a packet of a foreign capture may miss the time that its neighbours foretell."""

_IDENTITY = ("src", "sport", "dst", "dport", "ip_id", "seq", "payload")


@dataclass(frozen=True, slots=True)
class PortFiles:
    """A capture: its port, which packets of the port it holds, and its file.

    `interface` is that of the file whose packets they are; None takes all. `one_clock` says whether
    its clock is that of the table, as in runs.
    """

    port: str
    direction: Literal["in", "out", "any"]
    path: Path
    interface: str | None = None
    one_clock: bool = True


def captures_of(run: Run) -> list[PortFiles]:
    """The captures of a run, or those that were joined. Raises InputError if one is gone."""
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
    """A capture whose packets were found in the table.

    Arrays have an element for each packet of the capture, in its order.

    Attributes:
        stamp_ns: when it was seen, on the clock of the table.
        row: its row in the table; -1 if it has none.
        left: whether it was seen as it left; else as it came in. Means nothing without a row.
    """

    source: PortFiles
    stamp_ns: I64
    row: I32
    left: Bool
    link: I32

    def packets(self) -> Iterator[tuple[bytes, int]]:
        """Reads the captured bytes of each packet, and its length on the wire."""
        for block in of_interface(CaptureFile(self.source.path), self.source.interface):
            places = (block.offset, block.length, block.original)
            rows = zip(*(each[: block.count].tolist() for each in places), strict=True)
            for offset, length, original in rows:
                yield block.data[offset : offset + length].tobytes(), max(original, length)


def find(source: PortFiles, rows: pl.DataFrame) -> Captured:
    """Reads a capture and finds its packets among the table's rows.

    A packet is a row's if it has its addresses, ports and numbers, at its time. `rows` have their
    numbers as `packet`. Without one clock the capture's times are corrected so that the packets
    that occur once have the table's times.

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
                "the captures anew. Where the hop changed packets (NAT, fragments), this finds none"
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
        # The decoder leaves packets out, so it is given their numbers in place of their times.
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
    """What a packet is known by, as one number. The same fields give the same number."""
    kinds = {name: pl.String if name in ("src", "dst") else pl.Int64 for name in _IDENTITY}
    return pl.struct(pl.col(name).cast(kind) for name, kind in kinds.items()).hash().alias("key")


def _shift(seen: pl.DataFrame, expected: pl.DataFrame, stamp_ns: I64) -> Array:
    """What to add to each stamp for the table's clock, by the packets that occur only once."""
    alone = pl.len().over("key") == 1
    once = seen.filter(alone).join(expected.filter(alone), on="key", suffix="_table").sort("t")
    if not once.height:
        return np.zeros(stamp_ns.size, np.int64)
    at, by = once["t"].to_numpy(), (once["t_table"] - once["t"]).to_numpy()
    # Less the first time, because doubles hold 53 bits.
    shift: Array = np.rint(np.interp(stamp_ns - at[0], at - at[0], by)).astype(np.int64)
    return shift
