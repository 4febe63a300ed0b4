"""Lists packets as text, with the queue's content.

The columns are those of the table in "Life's not fair, neither is TCP": source, destination, input,
time, result (DROP or FOUND there, the verdict here), output, time. Memory does not grow with the
table, because rows are read and printed in slices.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from outcast.analysis import selection
from outcast.analysis.export import captures_of, find
from outcast.analysis.selection import Selection, Source, open_source
from outcast.errors import ConfigError, InputError, did_you_mean
from outcast.plan.addresses import with_port
from outcast.records.run import IN_INTERVAL
from outcast.units import counted
from outcast.view.terminal import forms

Row = dict[str, Any]
Found = Iterator[tuple[Row, tuple[Row, ...]]]


def with_queues(rows: Iterable[Row]) -> Found:
    """Gives each packet, and the packets queued when it came.

    Of the packets that came before it and left later, some can be on their way to or from the
    queue. So the last ones to leave count, and the table has their number.
    """
    held: dict[str, list[Row]] = {}
    for row in rows:
        queue: tuple[Row, ...] = ()
        if row["egress"] is not None:
            content = held.setdefault(row["egress"], [])
            # All are checked, because a queue that is not FIFO sends packets in another order.
            content[:] = [packet for packet in content if packet["t_out"] > row["t_in"]]
            queue = tuple(sorted(content, key=lambda packet: packet["t_out"]))
            if (count := row.get("queue_packets")) is not None:
                queue = queue[max(0, len(queue) - count) :]
            if row["t_out"] is not None:
                content.append(row)
        yield row, queue


SLICE_ROWS = 50_000
PAPERS = ("source", "destination", "ingress", "t_in_ms", "result", "egress", "t_out_ms")
"""The columns of the paper's table, which are shown if no others are requested."""

FIELDS = (
    *("packet", "flow", "source", "destination", "ingress", "t_in_ms", "result", "egress"),
    *("t_out_ms", "ip_id", "seq", "payload", "queue_bytes"),
)
"""The columns of CSV and JSON if none are requested."""


def lines(
    path: Path, wanted: Selection, with_queue: bool, form: str, fields: Sequence[str] | None = None
) -> Iterator[str]:
    source = open_source(path)
    if fields is None:
        fields = PAPERS if form == "table" else FIELDS
        with_content = with_queue
        if with_queue and form == "table":
            fields = (*fields, "queue_bytes")
    else:
        with_content = with_queue or "queue" in fields
        fields = [field for field in fields if field != "queue"]
        _require_fields(source, fields)
    condition = selection.condition(source, wanted)
    selection.require_some(source, wanted)
    rows = _rows(source, wanted, condition, with_content, fields)
    with selection.refusing_table(path):
        if form == "json":
            yield from _json(rows, fields, with_content)
        elif form == "csv":
            yield from _csv(rows, fields, with_content)
        else:
            if wanted.blackout is not None:
                yield _of_blackout(source, wanted.blackout)
            yield from _remarks(source) if with_content else []
            yield from _text(rows, fields, with_content)


def _require_fields(source: Source, fields: Sequence[str]) -> None:
    every = (*_FIELD, "queue")
    schema = source.table.collect_schema()
    for field in fields:
        if field not in every:
            raise ConfigError(
                f"--columns {field}: allowed are {', '.join(every)}{did_you_mean(field, every)}"
            )
        needed = "flags" if field == "relative_seq" else _FIELD[field].optional
        if needed and needed not in schema:
            raise ConfigError(f"--columns {field}: {source.path} has no column {needed}")


def _remarks(source: Source) -> list[str]:
    if source.run is None:
        return []
    return [
        f"{record.egress}: {record.queue.kind} also drops queued packets, which are left out here"
        for record in source.run.manifest.bottlenecks
        if record.queue.drops == "later"
    ]


def _of_blackout(source: Source, number: int) -> str:
    chain = selection.blackout(source, number)
    lasts_us = (chain["t_end"] - chain["t_start"]) / 1e3
    what = "blackout" if chain["others_through"] else "chain"
    from_ms = milliseconds(chain["t_start"] - source.start_ns)
    gap_us, before = chain["longest_gap_ns"] / 1e3, chain["before_gap"]
    gap = f" (longest gap {gap_us:,.1f} us, after {before})" * (chain["drops"] > 1)
    return (
        f"{what} {number}: from {from_ms} ms on, {chain['ingress']} lost {chain['drops']} packets "
        f"in a row, of {counted(chain['flows'], 'flow')}, within {lasts_us:,.1f} us{gap}; "
        f"{chain['others_through']} packets of other ports got through to {chain['egress']}"
    )


class _Row(NamedTuple):
    values: dict[str, Any]
    t_in_ms: str
    t_out_ms: str
    queue: tuple[dict[str, Any], ...]


def milliseconds(time_ns: int | None) -> str:
    """A time in ms with all digits; empty for None."""
    if time_ns is None:
        return ""
    sign = "-" if time_ns < 0 else ""
    return f"{sign}{abs(time_ns) // 10**6}.{abs(time_ns) % 10**6:06d}"


def _rows(
    source: Source, wanted: Selection, condition: pl.Expr, with_queue: bool, fields: Sequence[str]
) -> Iterator[_Row]:
    start_ns = source.start_ns
    schema = {*source.table.collect_schema()}
    more = {_FIELD[field].optional for field in fields} - {""} | {IN_INTERVAL} & schema
    if with_queue:
        more |= {"queue_packets"} & schema
    table = source.table.select(*selection.COLUMNS, *sorted(more)).with_row_index("packet")
    if "relative_seq" in fields:
        table = table.join(
            selection.first_numbers(source), on="flow", how="left", maintain_order="left"
        )
    selected = table.with_columns(shown=condition)
    span = selection.span_of(source, wanted)
    if not with_queue:
        selected = selected.filter(pl.col("shown"))
    elif span is not None:
        # Packets that came before the span can be queued in it.
        may_count = (pl.col("t_out") >= span[0]) | (pl.col("t_in") >= span[0])
        selected = selected.filter(may_count, pl.col("t_in") <= span[1])
    batches = selected.collect_batches(chunk_size=SLICE_ROWS, maintain_order=True)
    each = (row for batch in batches for row in batch.iter_rows(named=True))
    found: Found = with_queues(each) if with_queue else ((values, ()) for values in each)
    for values, queue in found:
        if values["shown"]:
            out_ns = values["t_out"]
            in_ms = milliseconds(values["t_in"] - start_ns)
            left_ms = milliseconds(None if out_ns is None else out_ns - start_ns)
            yield _Row(values, in_ms, left_ms, queue)


def _content(queue: Sequence[dict[str, Any]]) -> str:
    return " ".join(str(packet["flow"]) for packet in queue)


def _text(rows: Iterable[_Row], fields: Sequence[str], with_queue: bool) -> Iterator[str]:
    layout = [(_FIELD[field], _FIELD[field].head or field) for field in fields]

    def line(cells: Sequence[str], last: str) -> str:
        padded = [
            cell.ljust(field.width) if field.is_text else cell.rjust(field.width)
            for cell, (field, _) in zip(cells, layout, strict=True)
        ]
        return "  ".join([*padded, *([last] if with_queue else [])]).rstrip()

    yield line([head for _, head in layout], "flows queued, head first")
    for row in rows:
        cells = [_FIELD[field].read(row) for field in fields]
        yield line(["" if cell is None else str(cell) for cell in cells], _content(row.queue))


def _sojourn_us(row: _Row) -> str | None:
    in_ns, out_ns = row.values["t_in"], row.values["t_out"]
    return None if out_ns is None else f"{int(out_ns - in_ns) / 1e3:.3f}"


class _Field(NamedTuple):
    """A field of a packet.

    Attributes:
        read: takes it from a row.
        head, width: its head and least width in a table for people, if not its name and 10.
        is_text: whether it stands on the left there.
        is_amount: whether JSON has it as a number; elsewhere it is text, to keep its digits.
        optional: its column, if a table from elsewhere may lack that.
    """

    read: Callable[[_Row], Any]
    head: str = ""
    width: int = 10
    is_text: bool = False
    is_amount: bool = False
    optional: str = ""


_FLAGS = ("FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR")
"""Flags of TCP, from the lowest bit (RFC 9293, section 3.1)."""


def _flag_names(flags: int) -> str:
    """The names of TCP's flags: `PSH+ACK`."""
    return "+".join(name for bit, name in enumerate(_FLAGS) if flags >> bit & 1)


def _plain(
    name: str, width: int = 10, head: str = "", *, is_text: bool = False, optional: str = ""
) -> _Field:
    return _Field(lambda row: row.values[name], head, width, is_text, optional=optional)


def _end(address: str, port: str) -> _Field:
    return _Field(lambda row: with_port(row.values[address], row.values[port]), "", 21, True)


def _clock(name: str, head: str) -> _Field:
    def read(row: _Row) -> str | None:
        if (time_ns := row.values[name]) is None:
            return None
        return f"{datetime.fromtimestamp(time_ns // 10**9)}.{time_ns % 10**9:09d}"

    return _Field(read, head, 29)


_FIELD: dict[str, _Field] = {
    "packet": _plain("packet"),
    "flow": _plain("flow"),
    "source": _end("src", "sport"),
    "destination": _end("dst", "dport"),
    "ingress": _plain("ingress", 9, is_text=True),
    "t_in_ms": _Field(lambda row: row.t_in_ms, "came in (ms)", 14, is_amount=True),
    "result": _plain("verdict", 9, is_text=True),
    "egress": _Field(
        lambda row: row.values["egress"] if row.values["t_out"] is not None else None, "", 9, True
    ),
    "t_out_ms": _Field(lambda row: row.t_out_ms or None, "left (ms)", 14, is_amount=True),
    "ip_id": _plain("ip_id"),
    "seq": _plain("seq"),
    "payload": _plain("payload"),
    "queue_bytes": _plain("queue_bytes", 9, "queue (B)"),
    "clock_in": _clock("t_in", "came in"),
    "clock_out": _clock("t_out", "left"),
    "relative_seq": _Field(
        lambda row: (row.values["seq"] - row.values["base"]) % (1 << 32), "relative seq", 12
    ),
    "sojourn_us": _Field(_sojourn_us, "sojourn (us)", 13, is_amount=True),
    "queue_packets": _plain("queue_packets", optional="queue_packets"),
    "frame": _plain("frame", optional="frame"),
    "flags": _Field(
        lambda row: _flag_names(row.values["flags"]), "", 7, is_text=True, optional="flags"
    ),
    "note": _plain("note", 13, is_text=True, optional="note"),
}
"""The fields that `--columns` takes, besides `queue`."""


def _csv(rows: Iterable[_Row], fields: Sequence[str], with_queue: bool) -> Iterator[str]:
    yield forms.csv_line([*fields, "queue"] if with_queue else fields)
    for row in rows:
        content = [_content(row.queue)] if with_queue else []
        yield forms.csv_line([*(_FIELD[field].read(row) for field in fields), *content])


def _json(rows: Iterable[_Row], fields: Sequence[str], with_queue: bool) -> Iterator[str]:
    yield "["
    before: str | None = None
    for row in rows:
        if before is not None:
            yield before + ","
        values = {field: _FIELD[field].read(row) for field in fields}
        for field, value in values.items():
            if _FIELD[field].is_amount and value is not None:
                values[field] = float(value)
        if with_queue:
            values["queue"] = [
                {name: packet[name] for name in ("packet", "flow", "ingress", "seq", "payload")}
                for packet in row.queue
            ]
        before = json.dumps(values)
    if before is not None:
        yield before
    yield "]"


def detail(path: Path, row: int) -> str:
    """A packet's header fields as scapy shows them, and its fate. Raises InputError."""
    from scapy.layers.inet import IP
    from scapy.layers.l2 import CookedLinux, CookedLinuxV2, Ether

    source = open_source(path)
    if source.run is None:
        raise InputError(f"{path}: is a table alone; captured packets need a folder")
    found = pl.DataFrame()
    if 0 <= row < 2**63:
        found = source.table.select(selection.COLUMNS).slice(row, 1).collect()
    if not found.height:
        raise InputError(f"{path}: no packet {row}")
    values = found.row(0, named=True)
    port = values["ingress"]
    of_port = (files for files in captures_of(source.run) if files.port == port)
    files = next((files for files in of_port if files.direction in ("in", "any")), None)
    if files is None:
        raise InputError(f"{path}: no capture of packets that came in by {port}")
    table = source.table.with_row_index("packet").collect()
    capture = find(files, table)
    places = ((capture.row == row) & ~capture.left).nonzero()[0]
    if not places.size:
        raise InputError(f"{files.path}: packet {row} is not in it any more")
    place = int(places[0])
    data, _ = next(itertools.islice(capture.packets(), place, None))
    out_ms = milliseconds(None if values["t_out"] is None else values["t_out"] - source.start_ns)
    fate = f"left by {values['egress']} at {out_ms} ms" if out_ms else values["verdict"]
    came = milliseconds(values["t_in"] - source.start_ns)
    layers = {1: Ether, 113: CookedLinux, 276: CookedLinuxV2}
    text: str = layers.get(int(capture.link[place]), IP)(data).show(dump=True)
    return (
        f"packet {row}, flow {values['flow']}: in by {port} at {came} ms, {fate}\n"
        f"found {values['queue_bytes']} bytes queued\n{text}"
    )
