"""From the kernel's events to tables: each event with its time, host, port, flow and packet.

An event names a packet by its addresses, ports, IP identification, sequence number and payload.
The packets' table has these fields of every packet that entered a bottleneck, so the join is exact.
If several packets agree in all of them, as copies of a SYN, the event belongs to the packet that
came in or left nearest to its time.
"""

from __future__ import annotations

import ipaddress
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import polars as pl

from outcast import __version__
from outcast.analysis import I64, U64, Array, compiled, nullable
from outcast.api import ipv4_of
from outcast.errors import InputError, UntrustedError
from outcast.records import (
    Formats,
    Manifest,
    PartsWriter,
    RunDirectory,
    Traced,
    scan_table,
    table_name,
    write_record,
)
from outcast.uses.why.pages import (
    Coded,
    Column,
    EventFile,
    Events,
    Field,
    Layout,
    open_events,
)
from outcast.uses.why.sender_tables import COLUMNS, VERSION, column_name

IDENTITY = ("ip_id", "seq", "payload")
"""The columns in which packets of a flow differ."""
Ends: TypeAlias = tuple[str, int, str, int]
"""Source address and port, destination address and port."""

_SYMBOL = re.compile(r"([0-9a-fA-F]{1,16}) [a-zA-Z] (\S{1,512})(?:\s.*)?")


@dataclass(frozen=True)
class Places:
    """Where in the run events belong; `flow_of` has both directions of each pair of ends."""

    node_of: Mapping[str, str]
    host_of: Mapping[str, str]
    flow_of: Mapping[Ends, int]
    packets: Packets
    functions: Functions


@dataclass(frozen=True, slots=True)
class Texts:
    """A column of few distinct texts; None is null."""

    codes: I64
    values: tuple[str | None, ...]

    @property
    def series(self) -> pl.Series:
        return pl.Series(self.values, dtype=pl.String).gather(self.codes)

    @property
    def enumerated(self) -> pl.Series:
        distinct = sorted({value for value in self.values if value is not None})
        return pl.Series(self.values, dtype=pl.Enum(distinct)).gather(self.codes)


@dataclass(frozen=True)
class Functions:
    begin: U64
    names: tuple[str, ...]

    def at(self, addresses: U64) -> pl.Series:
        """The function in which each address lies; null before the first one."""
        distinct, codes = np.unique(addresses, return_inverse=True)
        places = np.searchsorted(self.begin, distinct, side="right").tolist()
        names = tuple(self.names[place - 1] if place else None for place in places)
        return Texts(codes.reshape(-1), names).series


@dataclass(frozen=True)
class Packets:
    """The packets' table, in the order of flow, identity and time.

    Attributes:
        numbers: a number for each pair of addresses and ports, in one direction.
        number, identity: of each packet: that number, and its sequence number, IP identification
            and payload in one word.
        t_in_ns, t_out_ns: when it came in, and when it left; the same if it did not.
    """

    numbers: Mapping[Ends, int]
    number: I64
    identity: I64
    t_in_ns: I64
    t_out_ns: I64
    row: I64


def read_places(directory: RunDirectory, manifest: Manifest) -> Places:
    """What a run's records say of its interfaces, addresses, flows and packets."""
    plan = directory.read_plan()
    ends_of_flows: list[tuple[Ends, int]] = [
        ((ipv4_of(src), sport, ipv4_of(dst), dport), record.flow)
        for record in manifest.flows
        for src, sport, dst, dport in record.connections
    ]
    entered = (
        scan_table(directory.path / "packets.parquet")
        .select("flow", "src", "sport", "dst", "dport", *IDENTITY, "t_in", "t_out", "flags")
        .with_columns(
            _in_events("src"),
            _in_events("dst"),
            # The kernel's events have neither of a datagram. TCP always sets a flag.
            pl.when(pl.col("flags") != 0).then(pl.col("seq", "payload")).otherwise(0).name.keep(),
            t_out=pl.col("t_out").fill_null(pl.col("t_in")),
        )
        .collect()
    )
    ends = ("src", "sport", "dst", "dport")
    flows = entered.unique(ends, maintain_order=True).select("flow", *ends).with_row_index("number")
    numbers: dict[Ends, int] = {}
    for at, flow, src, sport, dst, dport in flows.iter_rows():
        ends_of_flows.append(((src, sport, dst, dport), flow))
        numbers[src, sport, dst, dport] = at
    numbered = entered.join(flows.drop("flow"), on=ends, how="left", maintain_order="left")
    number, t_in_ns, t_out_ns = (
        numbered[name].to_numpy().astype(np.int64) for name in ("number", "t_in", "t_out")
    )
    identity = identity_of(*(numbered[name].to_numpy() for name in IDENTITY))
    row = np.lexsort((t_in_ns, identity, number))
    return Places(
        node_of={name: node for name, (node, _) in plan.ends.items()},
        host_of={plan.ip(host): host for host in plan.hosts},
        flow_of=flows_by_ends(ends_of_flows),
        functions=read_functions(directory.trace_symbols),
        packets=Packets(numbers, number[row], identity[row], t_in_ns[row], t_out_ns[row], row),
    )


def _in_events(name: str) -> pl.Expr:
    """An address as events have it: of IPv6 the last four bytes, which are the host's of IPv4."""
    column = pl.col(name).cast(pl.String)
    return column.map_elements(ipv4_of, return_dtype=pl.String).alias(name)


def flows_by_ends(flows: Sequence[tuple[Ends, int]]) -> dict[Ends, int]:
    """The flow of each pair of ends, in both directions; the first, as programs' have two."""
    flow_of: dict[Ends, int] = {}
    for ends, flow in flows:
        flow_of.setdefault(ends, flow)
    for (src, sport, dst, dport), flow in flows:
        flow_of.setdefault((dst, dport, src, sport), flow)
    return flow_of


def read_functions(path: Path) -> Functions:
    """The kernel's functions from a file as /proc/kallsyms, if there is one."""
    lines = path.read_text().splitlines() if path.exists() else []
    parsed = sorted(
        (int(match[1], 16), match[2]) for line in lines if (match := _SYMBOL.fullmatch(line))
    )
    begin = np.array([address for address, _ in parsed], np.uint64)
    return Functions(begin, tuple(name for _, name in parsed))


def identity_of(ip_id: Array, seq: Array, payload: Array) -> I64:
    """The fields in which packets of a flow differ, in one word: 16, 32 and 16 bits."""
    parts = (part.astype(np.int64) for part in (ip_id, seq, payload))
    identification, sequence, size = parts
    return sequence << 32 | (identification & 0xFFFF) << 16 | size & 0xFFFF


@compiled
def nearest(
    number: I64,
    identity: I64,
    t_in_ns: I64,
    t_out_ns: I64,
    row: I64,
    event_number: I64,
    event_identity: I64,
    event_ns: I64,
    packet: I64,
) -> None:
    """Finds each event's packet, or -1, among those in the order of number, identity and time."""
    for event in range(event_ns.size):
        packet[event] = -1
        mine, same, when = event_number[event], event_identity[event], event_ns[event]
        if mine < 0:
            continue
        low, high = 0, row.size
        while low < high:
            middle = (low + high) // 2
            if number[middle] != mine:
                before = number[middle] < mine
            elif identity[middle] != same:
                before = identity[middle] < same
            else:
                before = t_in_ns[middle] < when
            if before:
                low = middle + 1
            else:
                high = middle
        best = np.int64(-1)
        # Of packets that agree, few are in the queue at a time.
        for near in range(max(low - 16, 0), min(low + 1, row.size)):
            if number[near] != mine or identity[near] != same:
                continue
            apart = min(abs(t_in_ns[near] - when), abs(t_out_ns[near] - when))
            if best < 0 or apart < best:
                best = apart
                packet[event] = row[near]


_PARTS_FOLDER = ".parts"
_ADDRESSES = ("saddr", "daddr", "saddr_v6", "daddr_v6")
_IN_CODE = ("location", "function", "caller")
"""Fields that are addresses of the kernel's code."""
_CONTROL = re.compile("[\0-\x1f\x7f-\x9f\ud800-\udfff]")
_SOCKET_ADDRESS_BYTES = 28
_INET, _INET6 = 2, 10
"""AF_INET and AF_INET6, with which struct sockaddr_in and struct sockaddr_in6 begin."""


def write_events(directory: RunDirectory) -> Traced | None:
    """Makes the tables of a run's recorded events, then removes the pages that they came from.

    Needs packets.parquet. The pages are large and can be recorded again. The tables have the names
    of functions, so the kernel's symbols are removed too. Returns None without events.

    Raises:
        InputError: the pages or formats are broken, or a table cannot be written.
        UntrustedError: events were lost.
    """
    if not directory.trace_events.exists():
        return None
    formats = directory.read_trace_formats()
    if not formats.events:
        return None
    manifest = directory.read_manifest()
    names = _table_names(formats)
    places = read_places(directory, manifest)
    file = open_events(directory.trace_events, formats)
    times_ns = (formats.to_captures_ns, manifest.traffic.t_start_ns)
    parts = directory.trace / _PARTS_FOLDER
    about = {"outcast.trace": str(VERSION)}
    writers = {}
    for layout in file.layouts.values():
        path = directory.trace / f"{names[layout.event]}.parquet"
        empty = table(none_of(layout), places, *times_ns)
        writers[layout.event] = PartsWriter(path, parts, empty, about)
    try:
        for events in (events for block in file.blocks() for events in block):
            writers[events.layout.event].add(table(events, places, *times_ns))
        _require_whole(file, formats)
        rows = {event: writer.finish() for event, writer in writers.items()}
    finally:
        shutil.rmtree(parts, ignore_errors=True)
    traced = Traced(outcast=__version__, events=rows)
    write_record(directory.traced, traced)
    directory.trace_events.unlink()
    directory.trace_symbols.unlink(missing_ok=True)
    return traced


def _require_whole(file: EventFile, formats: Formats) -> None:
    """Raises UntrustedError where events were lost, or are fewer than the kernel handed out."""
    counted, recorded = max(formats.statistics.lost, file.lost), file.events
    if counted or file.lost_uncounted:
        how_many = f"{counted} events" if counted else "events"
        raise UntrustedError(
            f"{file.path}: the kernel's buffer was full, so {how_many} were lost; {recorded} were "
            "recorded"
        )
    handed_out = formats.statistics.read_events
    if recorded != handed_out:
        raise UntrustedError(
            f"{file.path}: has {recorded} events; the kernel handed out {handed_out}, so it was "
            "not written whole"
        )


def _table_names(formats: Formats) -> dict[str, str]:
    """The name of each event's table. Raises InputError if two events would share a file."""
    names: dict[str, str] = {}
    for event in formats.events:
        name = table_name(event)
        for other in (other for other, taken in names.items() if taken == name):
            raise InputError(
                f"{other} and {event}: both would be {name}.parquet; allowed is one of them"
            )
        names[event] = name
    return names


def none_of(layout: Layout) -> Events:
    none = np.empty(0, np.int64)
    columns: dict[str, Column] = {}
    for field in layout.fields:
        shape = (0, field.size // field.element_bytes) if field.kind == "numbers" else (0,)
        is_coded = field.is_coded
        columns[field.name] = (
            Coded(none, (b"",)) if is_coded else np.empty(shape, field.number_type)
        )
    return Events(layout, none, none, columns)


def table(events: Events, places: Places, to_captures_ns: int, t_start_ns: int) -> pl.DataFrame:
    """Events of one kind as rows; see `outcast.uses.why.sender_tables`."""
    known = {
        field.name: _addresses(column)
        for field in events.layout.fields
        if (field.network or field.name in _ADDRESSES)
        and isinstance(column := events.columns[field.name], Coded)
    }
    seen_ns = events.time_ns + to_captures_ns
    known_by = {name: _known_by(name, known) for name in known if not name.endswith("_v6")}
    flow, packet = _flow_and_packet(events, known_by, places, seen_ns)
    port, host = _port_and_host(events, known_by, places)
    columns = {
        "t_ns": pl.Series(seen_ns - t_start_ns),
        "order": pl.Series(events.order),
        "host": host,
        "port": port,
        "flow": nullable(flow),
        "packet": nullable(packet),
    }
    own = {field.name for field in events.layout.fields}
    for field in events.layout.fields:
        column = events.columns[field.name]
        if field.name in known:
            values = known[field.name].series
        elif not isinstance(column, Coded):
            values = pl.Series(column)
        elif field.kind == "text":
            texts = tuple(_readable(value) for value in column.values)
            values = Texts(column.codes, texts).series
        else:
            values = pl.Series(column.values, dtype=pl.Binary).gather(column.codes)
        columns[column_name(field.name)] = values
        named = f"{field.name}_name"
        if named in own:
            continue
        if field.symbols and not isinstance(column, Coded):
            columns[named] = _symbols(field, column)
        elif field.name in _IN_CODE and field.size == 8 and not isinstance(column, Coded):
            columns[named] = places.functions.at(column.astype(np.uint64))
    typed = {name: column.cast(COLUMNS.get(name, column.dtype)) for name, column in columns.items()}
    return pl.DataFrame(typed)


def _addresses(column: Coded) -> Texts:
    return Texts(column.codes, tuple(_address(value) for value in column.values))


def _known_by(name: str, known: Mapping[str, Texts]) -> Texts:
    """The IPv4 addresses of the hosts that an event names, by which `Places` knows them."""
    texts = known.get(f"{name}_v6")
    if texts is None or None in texts.values:
        texts = known[name]
    return Texts(
        texts.codes,
        tuple(None if value is None else ipv4_of(value) for value in texts.values),
    )


def _address(raw: bytes) -> str | None:
    """An address as text, of IPv4 or IPv6 in network order or a struct sockaddr; null if unset."""
    if len(raw) == _SOCKET_ADDRESS_BYTES:
        family = int.from_bytes(raw[:2], "little")
        raw = raw[4:8] if family == _INET else raw[8:24] if family == _INET6 else b""
    if len(raw) not in (4, 16) or not any(raw):
        return None
    return str(ipaddress.ip_address(raw))


def _readable(raw: bytes) -> str:
    """Text of the kernel, without what a terminal would take for a command."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", raw.decode("utf-8", "replace"))


def _symbols(field: Field, values: Array) -> pl.Series:
    """The kernel's name of each number; null where it has none."""
    known = sorted(field.symbols)
    numbers = values.astype(np.int64)
    place = np.searchsorted(np.array(known, np.int64), numbers)
    place[place == len(known)] = 0
    is_known = np.array(known, np.int64)[place] == numbers
    names = (None, *(field.symbols[number] for number in known))
    # Every part of a table has the same enumeration, so all names are in it.
    return Texts(np.where(is_known, place + 1, 0), names).enumerated


def _port_and_host(
    events: Events, known_by: Mapping[str, Texts], places: Places
) -> tuple[pl.Series, pl.Series]:
    """The interface and the node of each event; an event of a socket has the host's own source."""
    device = events.columns.get("dev")
    if device is None and events.layout.event.startswith("net:"):
        device = events.columns.get("name")
    if isinstance(device, Coded):
        names = tuple(_readable(value) or None for value in device.values)
        nodes = tuple(places.node_of.get(name or "") for name in names)
        return Texts(device.codes, names).series, Texts(device.codes, nodes).series
    none = pl.Series([None], dtype=pl.String).new_from_index(0, events.order.size)
    source = known_by.get("saddr")
    if source is None:
        return none, none
    hosts = tuple(places.host_of.get(address or "") for address in source.values)
    return none, Texts(source.codes, hosts).series


def _flow_and_packet(
    events: Events, known_by: Mapping[str, Texts], places: Places, seen_ns: I64
) -> tuple[I64, I64]:
    """The flow and the packet of each event; -1 where it has none."""
    none = np.full(events.order.size, -1, np.int64)
    source, destination = known_by.get("saddr"), known_by.get("daddr")
    ports = [_whole(events.columns.get(name)) for name in ("sport", "dport")]
    if source is None or destination is None or ports[0] is None or ports[1] is None:
        return none, none
    quadruples = np.stack([source.codes, ports[0], destination.codes, ports[1]], axis=1)
    distinct, which = np.unique(quadruples, axis=0, return_inverse=True)
    ends = [
        (source.values[src] or "", sport, destination.values[dst] or "", dport)
        for src, sport, dst, dport in distinct.tolist()
    ]
    which = which.reshape(-1)
    flow = np.array([places.flow_of.get(end, -1) for end in ends], np.int64)[which]
    parts = [_whole(events.columns.get(name)) for name in IDENTITY]
    if any(part is None for part in parts):
        return flow, none
    number = np.array([places.packets.numbers.get(end, -1) for end in ends], np.int64)[which]
    row = np.empty(number.size, np.int64)
    packets = places.packets
    nearest(
        packets.number,
        packets.identity,
        packets.t_in_ns,
        packets.t_out_ns,
        packets.row,
        number,
        identity_of(*(part for part in parts if part is not None)),
        seen_ns,
        row,
    )
    return flow, row


def _whole(column: Column | None) -> I64 | None:
    if column is None or isinstance(column, Coded) or column.ndim != 1:
        return None
    return column.astype(np.int64)
