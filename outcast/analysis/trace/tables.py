"""From the kernel's events to tables: each event with its time, host, port, flow and packet."""

import ipaddress
import re
import shutil
from collections.abc import Mapping

import numpy as np
import polars as pl

from outcast import __version__
from outcast.analysis.compiled import I64, Array
from outcast.analysis.trace.layout import Field, Layout
from outcast.analysis.trace.pages import Coded, Column, EventFile, Events, open_events
from outcast.analysis.trace.places import (
    IDENTITY,
    Places,
    Texts,
    identity_of,
    nearest,
    read_places,
)
from outcast.errors import InputError, UntrustedError
from outcast.plan import addresses
from outcast.records.run_directory import RunDirectory, write_record
from outcast.records.sender_tables import COLUMNS, VERSION, column_name
from outcast.records.tables import PartsWriter
from outcast.records.trace import Formats, Traced, table_name

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

    packets.parquet has to be there. The pages can be recorded again, and are large. The tables have
    the names of functions, so the kernel's symbols are removed too. Returns None without events.

    Raises:
        InputError: the pages, formats or records are broken, or a table cannot be written.
        UntrustedError: events were lost.
    """
    if not directory.trace_events.exists():
        return None
    return _write_events(directory, directory.read_trace_formats())


def _write_events(directory: RunDirectory, formats: Formats) -> Traced | None:
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
    """No events of this layout."""
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
    """Events of one kind as rows; see `outcast.records.sender_tables`."""
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
        "flow": _nullable(flow),
        "packet": _nullable(packet),
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
        tuple(None if value is None else addresses.ipv4_of(value) for value in texts.values),
    )


def _address(raw: bytes) -> str | None:
    """An address in words: IPv4 and IPv6 in network order, or a struct sockaddr; null if unset."""
    if len(raw) == _SOCKET_ADDRESS_BYTES:
        family = int.from_bytes(raw[:2], "little")
        raw = raw[4:8] if family == _INET else raw[8:24] if family == _INET6 else b""
    if len(raw) not in (4, 16) or not any(raw):
        return None
    return str(ipaddress.ip_address(raw))


def _readable(raw: bytes) -> str:
    """Text of the kernel, without what a terminal would take for a command."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", raw.decode("utf-8", "replace"))


def _nullable(values: I64) -> pl.Series:
    """Negative numbers are null."""
    series = pl.Series(values)
    return series.set(series < 0, None)


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
    """The flow and the packet of each event; -1 where it has no such."""
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
    """A column of whole numbers; None if it is missing."""
    if column is None or isinstance(column, Coded) or column.ndim != 1:
        return None
    return column.astype(np.int64)
