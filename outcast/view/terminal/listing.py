"""Lists packets as text, with the queue's content.

The columns are those of the table in "Life's not fair, neither is TCP": source, destination, input,
time, DROP or FOUND, output, time. Memory does not grow with the table, because rows are read and
printed in slices.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from outcast.analysis.capture.records import CaptureFile
from outcast.errors import ConfigError, InputError, did_you_mean
from outcast.records.run import Run
from outcast.records.tables import refusing, scan_table
from outcast.units import format_time

SLICE_ROWS = 50_000
LOOK_BACK_NS = 1_000_000_000
"""How far before the first row shown packets are read, to know what is still queued there."""

_MOST_NAMED = 20
"""The most flows or ports that a message lists."""

RESULTS = {"forwarded": "FOUND", "dropped": "DROP", "unknown": "UNKNOWN"}

_COLUMNS = (
    *("flow", "src", "sport", "dst", "dport", "ip_id", "seq", "payload", "ingress", "t_in"),
    *("verdict", "egress", "t_out", "queue_bytes"),
)
_TEXTS = ("src", "dst", "ingress", "verdict", "egress")
"""Columns that hold text. All others hold whole numbers."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which packets to show; None shows all.

    Attributes:
        port: a port that the packet came in by or left by.
        flow: a flow's number, or its source as `address:port`.
        around_ns: a time after the traffic's start, around which the packet came in.
        within_ns: the greatest distance from `around_ns`.
        verdict: what became of the packet, as in the table.
    """

    port: str | None = None
    flow: str | None = None
    around_ns: int | None = None
    within_ns: int = 1_000_000
    verdict: str | None = None


def lines(
    source: Path, wanted: Filter, with_queue: bool, form: str, note: Callable[[str], None]
) -> Iterator[str]:
    """Gives the packets of a run directory or of a joined table as lines of text.

    If no packet fits filters that are each valid, `note` gets one line that says so.

    Raises:
        InputError: there is no table of packets.
        ConfigError: a filter names a port, flow or time that the table lacks.
    """
    table, start_ns = _open(source)
    condition = _condition(table, start_ns, wanted)
    rows = _noting_none(_rows(table, start_ns, wanted, condition, with_queue), note)
    remarks = _remarks(source) if with_queue else []
    with _refusing(source):
        if form == "json":
            yield from _json(rows, with_queue)
        elif form == "csv":
            yield from _csv(rows, with_queue)
        else:
            yield from itertools.chain(remarks, _text(rows, with_queue))


def _refusing(path: Path) -> AbstractContextManager[None]:
    return refusing(f"{path}: cannot be read as a table of packets")


def _remarks(source: Path) -> list[str]:
    """Returns a note for each queue that also drops packets after queueing them."""
    if not source.is_dir():
        return []
    return [
        f"{record.egress}: {record.queue.kind} also drops queued packets, which are left out here"
        for record in Run(source).manifest.bottlenecks
        if record.queue.drops == "later"
    ]


def _open(source: Path) -> tuple[pl.LazyFrame, int]:
    """Returns the table of packets, and the time from which times are counted."""
    run = Run(source) if source.is_dir() else None
    path = source if run is None else source / "packets.parquet"
    table = scan_table(path) if run is None else run.scan("packets")
    with _refusing(path):
        schema = table.collect_schema()
        for name in _COLUMNS:
            if name not in schema:
                raise InputError(f"{path}: not a table of joined packets: no column {name}")
            kind = schema[name]
            fits = kind in (pl.String, pl.Enum, pl.Categorical)
            # In CSV an empty column has no type, for example `egress` if no packet left.
            if kind != pl.Null and not (fits if name in _TEXTS else kind.is_integer()):
                what = "text" if name in _TEXTS else "whole numbers"
                raise InputError(f"{path}: column {name} holds {kind}; allowed are {what}")
        first = table.select("t_in").head(1).collect()
    if run is not None:
        return table, run.manifest.traffic.t_start_ns
    return table, first.item() if first.height else 0


def _noting_none(rows: Iterator[_Row], note: Callable[[str], None]) -> Iterator[_Row]:
    first = next(rows, None)
    if first is None:
        note("no packet fits")
        return
    yield first
    yield from rows


def _values(table: pl.LazyFrame, column: pl.Expr) -> list[Any]:
    """Returns the distinct values of a column, in order."""
    return table.select(column.unique().sort()).collect().to_series().drop_nulls().to_list()


def _named(values: Sequence[Any]) -> str:
    """Lists values for a message: `there are 0, 1, 2, ..., 12`."""
    texts = [str(value) for value in values]
    if len(texts) > _MOST_NAMED:
        texts = [*texts[: _MOST_NAMED - 1], "...", texts[-1]]
    return f"there are {', '.join(texts) or 'none'}"


def _require_flow(table: pl.LazyFrame, flow: str) -> pl.Expr:
    """Returns the condition for rows of a flow. Raises ConfigError if there is no such flow."""
    address, separator, port = flow.rpartition(":")
    if flow.isdecimal():
        numbers = _values(table, pl.col("flow"))
        if int(flow) not in numbers:
            raise ConfigError(f"--flow {flow}: no such flow; {_named(numbers)}")
        return pl.col("flow") == int(flow)
    if not separator or not port.isdecimal():
        raise ConfigError(
            f"--flow {flow}: allowed is a flow's number or its source, as 10.0.0.2:20001"
        )
    sources = _values(table, pl.format("{}:{}", pl.col("src").cast(pl.String), pl.col("sport")))
    if flow not in sources:
        raise ConfigError(
            f"--flow {flow}: no such source; {_named(sources)}{did_you_mean(flow, sources)}"
        )
    return (pl.col("src").cast(pl.String) == address) & (pl.col("sport") == int(port))


def require_time(source: Path, around_ns: int, within_ns: int) -> None:
    """Raises ConfigError if all packets came in before or after `around_ns` ± `within_ns`."""
    table, start_ns = _open(source)
    _require_time(table, start_ns, around_ns, within_ns)


def _require_time(table: pl.LazyFrame, start_ns: int, around_ns: int, within_ns: int) -> None:
    column = pl.col("t_in")
    first, last = table.select(column.min().alias("a"), column.max().alias("b")).collect().row(0)
    place = f"--around {around_ns / 1e9:.12g}"
    if first is None:
        raise ConfigError(f"{place}: there are no packets")
    from_ns, to_ns = first - start_ns, last - start_ns
    if around_ns + within_ns < from_ns or around_ns - within_ns > to_ns:
        raise ConfigError(
            f"{place}: nothing came in within {format_time(within_ns)} of it; "
            f"packets came in from {from_ns / 1e9:.9g} to {to_ns / 1e9:.9g} s"
        )


def _condition(table: pl.LazyFrame, start_ns: int, wanted: Filter) -> pl.Expr:
    """Returns the condition for rows to show.

    Raises ConfigError if a filter names a port, flow or time that the table lacks.
    """
    condition = pl.lit(True)
    if wanted.port is not None:
        ports = sorted(
            {
                *_values(table, pl.col("ingress").cast(pl.String)),
                *_values(table, pl.col("egress").cast(pl.String)),
            }
        )
        if wanted.port not in ports:
            raise ConfigError(
                f"--port {wanted.port}: {_named(ports)}{did_you_mean(wanted.port, ports)}"
            )
        condition &= (pl.col("ingress").cast(pl.String) == wanted.port) | (
            (pl.col("egress").cast(pl.String) == wanted.port) & (pl.col("verdict") == "forwarded")
        )
    if wanted.flow is not None:
        condition &= _require_flow(table, wanted.flow)
    if wanted.verdict is not None:
        condition &= pl.col("verdict").cast(pl.String) == wanted.verdict
    if wanted.around_ns is not None:
        _require_time(table, start_ns, wanted.around_ns, wanted.within_ns)
        middle = start_ns + wanted.around_ns
        condition &= pl.col("t_in").is_between(middle - wanted.within_ns, middle + wanted.within_ns)
    return condition


@dataclass(frozen=True, slots=True)
class _Row:
    packet: int
    values: dict[str, Any]
    t_in_ms: str
    t_out_ms: str
    queue: tuple[dict[str, Any], ...]


def _milliseconds(time_ns: int | None) -> str:
    if time_ns is None:
        return ""
    sign = "-" if time_ns < 0 else ""
    return f"{sign}{abs(time_ns) // 10**6}.{abs(time_ns) % 10**6:06d}"


def _rows(
    table: pl.LazyFrame, start_ns: int, wanted: Filter, condition: pl.Expr, with_queue: bool
) -> Iterator[_Row]:
    selected = table.select(_COLUMNS).with_row_index("packet").with_columns(shown=condition)
    if wanted.around_ns is not None:
        first_ns = start_ns + wanted.around_ns - wanted.within_ns
        look_back = LOOK_BACK_NS if with_queue else 0
        selected = selected.filter(
            pl.col("t_in").is_between(
                first_ns - look_back, start_ns + wanted.around_ns + wanted.within_ns
            )
        )
    if not with_queue:
        selected = selected.filter(pl.col("shown"))
    held: dict[str, deque[dict[str, Any]]] = {}
    for values in _stream(selected):
        queue: tuple[dict[str, Any], ...] = ()
        if with_queue and values["egress"] is not None:
            content = held.setdefault(values["egress"], deque())
            # All are checked, because a queue that is no FIFO sends packets in another order.
            kept = [packet for packet in content if packet["t_out"] > values["t_in"]]
            if len(kept) < len(content):
                content.clear()
                content.extend(kept)
            # Sorted by departure, because flows that are served in turn overtake one another.
            queue = tuple(sorted(content, key=lambda packet: int(packet["t_out"])))
            if values["t_out"] is not None:
                content.append(values)
        if values["shown"]:
            out_ns = values["t_out"]
            yield _Row(
                values["packet"],
                values,
                _milliseconds(values["t_in"] - start_ns),
                _milliseconds(None if out_ns is None else out_ns - start_ns),
                queue,
            )


def _stream(frame: pl.LazyFrame) -> Iterator[dict[str, Any]]:
    """Gives the rows in order, and reads a slice of them at a time."""
    for batch in frame.collect_batches(chunk_size=SLICE_ROWS, maintain_order=True):
        yield from batch.iter_rows(named=True)


def _source(values: dict[str, Any]) -> str:
    return f"{values['src']}:{values['sport']}"


def _destination(values: dict[str, Any]) -> str:
    return f"{values['dst']}:{values['dport']}"


def _content(queue: Sequence[dict[str, Any]]) -> str:
    return " ".join(str(packet["flow"]) for packet in queue)


def _text(rows: Iterable[_Row], with_queue: bool) -> Iterator[str]:
    heads = ["source", "destination", "ingress", "time (ms)", "result", "egress", "time (ms)"]
    if with_queue:
        heads += ["queue (B)", "flows queued, head first"]
    widths = [21, 21, 9, 14, 7, 9, 14, 9, 0]
    right = {3, 6, 7}

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if place in right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(cells, widths, strict=False))
        ]
        return "  ".join(padded).rstrip()

    yield line(heads)
    for row in rows:
        values = row.values
        left = values["t_out"] is not None
        cells = [
            _source(values),
            _destination(values),
            values["ingress"],
            row.t_in_ms,
            RESULTS[values["verdict"]],
            values["egress"] if left else "",
            row.t_out_ms,
        ]
        if with_queue:
            found = values["queue_bytes"]
            cells += ["" if found is None else str(found), _content(row.queue)]
        yield line(cells)


_FIELDS = (
    *("packet", "flow", "source", "destination", "ingress", "t_in_ms", "result", "egress"),
    *("t_out_ms", "ip_id", "seq", "payload", "queue_bytes"),
)


def _fields(row: _Row) -> dict[str, Any]:
    values = row.values
    return {
        "packet": row.packet,
        "flow": values["flow"],
        "source": _source(values),
        "destination": _destination(values),
        "ingress": values["ingress"],
        "t_in_ms": row.t_in_ms,
        "result": RESULTS[values["verdict"]],
        "egress": values["egress"] if values["t_out"] is not None else None,
        "t_out_ms": row.t_out_ms or None,
        "ip_id": values["ip_id"],
        "seq": values["seq"],
        "payload": values["payload"],
        "queue_bytes": values["queue_bytes"],
    }


def _csv(rows: Iterable[_Row], with_queue: bool) -> Iterator[str]:
    fields = [*_FIELDS, "queue"] if with_queue else list(_FIELDS)
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, fields, lineterminator="")

    def line(write: Any) -> str:
        buffer.seek(0)
        buffer.truncate()
        write()
        return buffer.getvalue()

    yield line(writer.writeheader)
    for row in rows:
        content = {"queue": _content(row.queue)} if with_queue else {}
        values = _fields(row) | content
        yield line(lambda values=values: writer.writerow(values))


def _json(rows: Iterable[_Row], with_queue: bool) -> Iterator[str]:
    """Gives one array with a line for each packet."""
    yield "["
    before: str | None = None
    for row in rows:
        if before is not None:
            yield before + ","
        values = _fields(row)
        values["t_in_ms"] = float(row.t_in_ms)
        values["t_out_ms"] = float(row.t_out_ms) if row.t_out_ms else None
        if with_queue:
            values["queue"] = [
                {name: packet[name] for name in ("packet", "flow", "ingress", "seq", "payload")}
                for packet in row.queue
            ]
        before = json.dumps(values)
    if before is not None:
        yield before
    yield "]"


def detail(source: Path, row: int) -> str:
    """Returns all header fields of one packet of a run as scapy shows them, and its fate.

    Raises InputError if there is no such packet or its capture does not hold it.
    """
    table, start_ns = _open(source)
    found = table.select(_COLUMNS).slice(row, 1).collect() if 0 <= row < 2**63 else pl.DataFrame()
    if not found.height:
        raise InputError(f"{source}: no packet {row}")
    values = found.row(0, named=True)
    manifest = Run(source).manifest
    files = {(record.port, record.direction): record.file for record in manifest.captures}
    file = files.get((values["ingress"], "in"))
    if file is None:
        raise InputError(f"{source}: no capture of packets that came in by {values['ingress']}")
    for link, data in _frames_at(source / file, values["t_in"]):
        packet = _dissect(link, data)
        network = packet.getlayer("IP") or packet.getlayer("IPv6")
        if network is None or network.src != values["src"] or network.dst != values["dst"]:
            continue
        transport = network.getlayer("TCP")
        if transport is not None and transport.seq != values["seq"]:
            continue
        left = _milliseconds(None if values["t_out"] is None else values["t_out"] - start_ns)
        fate = f"left by {values['egress']} at {left} ms" if left else values["verdict"]
        came = _milliseconds(values["t_in"] - start_ns)
        shown: str = packet.show(dump=True)
        return (
            f"packet {row}, flow {values['flow']}: in by {values['ingress']} at {came} ms, {fate}\n"
            f"found {values['queue_bytes']} bytes queued\n{shown}"
        )
    raise InputError(f"{source / file}: packet {row} is not in it any more")


def _frames_at(path: Path, stamp_ns: int) -> Iterator[tuple[int, bytes]]:
    """Gives the link type and the captured bytes of all packets with this time stamp."""
    for block in CaptureFile(path).blocks():
        for place in (block.stamp_ns[: block.count] == stamp_ns).nonzero()[0].tolist():
            offset, length = int(block.offset[place]), int(block.length[place])
            yield int(block.link[place]), block.data[offset : offset + length].tobytes()


def _dissect(link: int, data: bytes) -> Any:
    from scapy.layers.inet import IP
    from scapy.layers.l2 import CookedLinux, CookedLinuxV2, Ether

    return {1: Ether, 113: CookedLinux, 276: CookedLinuxV2}.get(link, IP)(data)
