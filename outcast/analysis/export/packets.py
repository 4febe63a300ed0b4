"""Exports selected packets: as captured with comments (pcapng), or as rows of the table."""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import numpy as np
import polars as pl

from outcast import __version__, files
from outcast.analysis.compiled import I32, Bool
from outcast.analysis.export import comments
from outcast.analysis.export.captured import Captured, PortFiles, find
from outcast.analysis.export.pcapng import INBOUND, OUTBOUND, UNTOLD, Interface, Writer
from outcast.analysis.selection import Selection, Source, condition, require_some, span_of
from outcast.errors import ConfigError, InputError
from outcast.records.run import Run
from outcast.records.tables import write_table

_DESCRIPTIONS = {
    "in": "packets that came in",
    "out": "packets that left",
    "any": "packets that came in and that left",
}
_UNKNOWN_LINK = 147
"""LINKTYPE_USER0, for what is no Ethernet or IP in a capture of ERF."""


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written: how many packets; of these, how many comments tell of a drop."""

    packets: int
    dropped: int


def rows(source: Source, wanted: Selection) -> pl.DataFrame:
    """The selected packets of the table, a row each, with what follows from their neighbours.

    Besides the table's columns: `packet` (the row number there), `t_in_run` (ns after the traffic's
    start), `sojourn_ns`, and the columns of `comments.with_drops`.

    Raises ConfigError if the selection is refused or takes nothing.
    """
    table = comments.with_drops(source, _selected(source, wanted)).filter("_selected")
    table = table.drop("_selected")
    return table.with_columns(
        t_in_run=pl.col("t_in") - source.start_ns, sojourn_ns=pl.col("t_out") - pl.col("t_in")
    )


def _selected(source: Source, wanted: Selection) -> pl.DataFrame:
    """The whole table with row numbers, and whether each row is selected. Raises ConfigError."""
    require_some(source, wanted)
    chosen = condition(source, wanted)
    return source.table.with_row_index("packet").with_columns(_selected=chosen).collect()


def write_rows(source: Source, wanted: Selection, file: Path) -> Exported:
    """Writes what `rows` gives, to CSV if the name ends in .csv, else to Parquet."""
    table = rows(source, wanted)
    write_table(table, file)
    is_dropped = table["verdict"].cast(pl.String) == "dropped"
    return Exported(table.height, int(is_dropped.sum()))


def write_pcapng(
    source: Source, wanted: Selection, captures: Sequence[PortFiles], file: Path
) -> Exported:
    """Writes the selected packets of all captures into one file, in the order of their times.

    Packets of a port keep the order of their capture. A packet that was forwarded is there twice:
    as it came in and as it left. Packets without a row, as acknowledgements, are there too if only
    times are selected; a flow's are there with the flow. A name in .zst is compressed by zstd.

    Raises:
        ConfigError: the selection is refused or takes nothing.
        InputError: a capture cannot be read, or is not the one that was joined; or the file cannot
            be written.
    """
    if source.run is None:
        raise ConfigError(f"{source.path}: is a table alone; captured packets need a run's folder")
    table = _selected(source, wanted).with_columns(pl.col(pl.Enum).cast(pl.String))
    found = [find(capture, table) for capture in captures]
    table = comments.with_drops(source, table).join(
        _limits(source.run), on="egress", how="left", maintain_order="left"
    )
    selected = table["_selected"].to_numpy()
    keeps = [_kept(source, wanted, capture, table, selected) for capture in found]
    interfaces, places = _interfaces(source.run, found)
    told = _Told(table, found, source.run)
    merged = heapq.merge(
        *(
            _stream(number, capture, keep, places[number])
            for number, (capture, keep) in enumerate(zip(found, keeps, strict=True))
        ),
        key=lambda packet: packet[0],
    )
    count = dropped = 0
    try:
        with files.writing(file) as plain, _compressing(file, plain) as stream:
            writer = Writer(
                stream,
                f"outcast {__version__}",
                f"{source.run.manifest.name}: the packets of all captured ports, with verdicts",
                interfaces,
                _hosts(source.run),
            )
            for stamp_ns, number, frame, interface, data, wire_bytes in merged:
                direction, comment = told.of(number, frame)
                writer.packet(interface, stamp_ns, data, wire_bytes, direction, comment)
                count += 1
                dropped += comment.startswith("dropped")
    except OSError as error:
        raise InputError(f"{file}: cannot be written: {error.strerror or error}") from None
    return Exported(count, dropped)


def _limits(run: Run) -> pl.DataFrame:
    """The limit of each output's queue, as columns."""
    records = run.manifest.bottlenecks
    return pl.DataFrame(
        {
            "egress": [record.egress for record in records],
            "limit_bytes": [record.queue.limit_bytes for record in records],
            "limit_packets": [record.queue.limit_packets for record in records],
        },
        schema={"egress": pl.String, "limit_bytes": pl.Int64, "limit_packets": pl.Int64},
    ).unique("egress", keep="first", maintain_order=True)


def _kept(
    source: Source, wanted: Selection, capture: Captured, table: pl.DataFrame, selected: Bool
) -> Bool:
    """Which packets of a capture are written."""
    has_row = capture.row >= 0
    keep = has_row & selected[np.where(has_row, capture.row, 0)] if selected.size else has_row
    if (wanted.port, wanted.dst, wanted.verdict) != (None, None, None):
        return keep
    others = ~has_row
    span = span_of(source, wanted)
    if span is not None:
        others &= (capture.stamp_ns >= span[0]) & (capture.stamp_ns <= span[1])
    if wanted.flow is not None:
        mine = table.filter(pl.Series(selected)).select("src", "sport", "dst", "dport").unique()
        ends = set(mine.iter_rows())
        ends |= {(dst, dport, src, sport) for src, sport, dst, dport in ends}
        of_flow = np.array(
            [(key.src, key.sport, key.dst, key.dport) in ends for key in capture.flows] + [False],
            np.bool_,
        )
        others &= of_flow[capture.flow]
    return keep | others


def _interfaces(
    run: Run, found: Sequence[Captured]
) -> tuple[list[Interface], list[dict[int, int]]]:
    """An interface for each capture and link type; for each capture, their numbers by link type."""
    rates = {record.egress: record.queue.rate_bps for record in run.manifest.bottlenecks}
    interfaces: list[Interface] = []
    places = []
    for capture in found:
        port, direction = capture.source.port, capture.source.direction
        place = {}
        for link in np.unique(capture.link).tolist() or [1]:
            place[link] = len(interfaces)
            known = _UNKNOWN_LINK if link < 0 else link
            rate = rates.get(port) if direction != "in" else None
            interfaces.append(Interface(port, _DESCRIPTIONS[direction], known, rate))
        places.append(place)
    return interfaces, places


def _hosts(run: Run) -> dict[str, str]:
    """The names of hosts by their addresses, as the run's manifest has them."""
    manifest = run.manifest
    named = [(flow.src_ip, flow.src) for flow in manifest.flows]
    named += [(flow.dst_ip, flow.dst) for flow in manifest.flows]
    for program in manifest.programs:
        named.append((program.ip, program.host))
        named += [(peer.ip, peer.host) for peer in program.peers]
    return {address: name for address, name in dict(named).items() if address != name}


_Packet = tuple[int, int, int, int, bytes, int]
"""Time, capture, number in the capture, interface, captured bytes, length on the wire."""


def _stream(
    number: int, capture: Captured, keep: Bool, places: dict[int, int]
) -> Iterator[_Packet]:
    """The packets of a capture that are written."""
    packets = capture.packets()
    for frame, (data, wire_bytes) in enumerate(packets):
        # The file may have grown since it was read first.
        if frame >= keep.size:
            break
        if keep[frame]:
            interface = places[int(capture.link[frame])]
            yield int(capture.stamp_ns[frame]), number, frame, interface, data, wire_bytes


class _Told:
    """The comment of each packet."""

    def __init__(self, table: pl.DataFrame, found: Sequence[Captured], run: Run) -> None:
        self._table = table
        self._found = found
        self._came_as, self._left_as = (
            _numbers_there(found, is_left, table.height) for is_left in (False, True)
        )
        self._destinations = set(table["dst"].unique().to_list())
        self._outputs = {record.egress for record in run.manifest.bottlenecks}

    def of(self, number: int, frame: int) -> tuple[int, str]:
        """The direction and the comment of a packet."""
        capture = self._found[number]
        row = int(capture.row[frame])
        if row < 0:
            source = capture.source
            way = {"in": INBOUND, "out": OUTBOUND}.get(source.direction, UNTOLD)
            flow = int(capture.flow[frame])
            dst = capture.flows[flow].dst if flow >= 0 else None
            is_output = source.port in self._outputs
            return way, comments.not_joined(
                source.direction, dst, dst in self._destinations, is_output
            )
        values = self._table.row(row, named=True)
        if capture.left[frame]:
            return OUTBOUND, comments.left(values, int(self._came_as[row]) or None)
        return INBOUND, comments.came(values, int(self._left_as[row]) or None)


def _numbers_there(found: Sequence[Captured], is_left: bool, height: int) -> I32:
    """For each row, its packet's number, from 1, in the capture where it came in or left; or 0."""
    numbers = np.zeros(height, np.int32)
    for capture in found:
        seen = (capture.row >= 0) & (capture.left == is_left)
        numbers[capture.row[seen]] = np.flatnonzero(seen) + 1
    return numbers


@contextlib.contextmanager
def _compressing(file: Path, stream: IO[bytes]) -> Iterator[IO[bytes]]:
    """Compresses what is written by zstd if the file's name ends in .zst."""
    if file.suffix != ".zst":
        yield stream
        return
    import zstandard

    with zstandard.ZstdCompressor(level=3).stream_writer(stream, closefd=False) as packed:
        yield cast(IO[bytes], packed)
