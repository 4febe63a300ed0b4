"""One segment's way through every captured port: each time that it was sent, and its fate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from outcast.analysis import selection
from outcast.analysis.capture.headers import ACK, HAS_TIMESTAMP, TCP, FlowKey
from outcast.analysis.compiled import I64, Array, Bool
from outcast.analysis.export.captured import Captured, captures_of, find
from outcast.analysis.selection import Source
from outcast.errors import ConfigError, InputError

_SAME_PACKET_NS = 10**9
"""Packets without payload, and datagrams, are the same only within this time: IP ids return."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A packet at a port, on the table's clock; `way` is `in`, `out`, or `?` if nothing tells."""

    port: str
    way: str
    t_ns: int
    ttl: int


@dataclass(frozen=True, slots=True)
class Transmission:
    """A packet that carried the segment, or a part of it.

    `packet` is its row in the table of packets. It, the verdict, the egress and `queue_bytes` are
    None if it did not come to a measured output.
    """

    packet: int | None
    relative_seq: int
    payload_bytes: int
    ip_id: int
    flags: int
    verdict: str | None
    egress: str | None
    queue_bytes: int | None
    sightings: tuple[Sighting, ...]


@dataclass(frozen=True, slots=True)
class Journey:
    """A segment's way, past all the captured `ports`.

    `relative_seq` is as `selection.first_numbers` counts. `acknowledged` is the first packet that
    acknowledges all of it; None if none was captured.
    """

    flow: int
    key: FlowKey
    relative_seq: int
    payload_bytes: int
    transmissions: tuple[Transmission, ...]
    acknowledged: Sighting | None
    ports: int


def follow(source: Source, wanted: str) -> Journey:
    """Follows a packet by its number, or a segment by its flow and relative number (`0:4425`).

    Raises:
        ConfigError: there is no such packet, or the source is a table alone.
        InputError: a capture is missing or is another one.
    """
    if source.run is None:
        raise ConfigError(f"--follow: {source.path} is a table alone; allowed is a folder")
    base = selection.first_numbers(source)
    row = _row(source, base, wanted)
    first = base.filter(pl.col("flow") == row["flow"]).collect().item(0, "base")
    table = source.table.with_row_index("packet").collect()
    found = [find(capture, table) for capture in captures_of(source.run)]
    seen = [part for capture in found for part in _sightings(capture, row)]
    # A link without delay carries a packet in no time, from the output to the next input.
    seen.sort(key=lambda part: (part.sighting.t_ns, part.sighting.way == "in"))
    if not seen:
        raise InputError(f"{source.path}: packet {row['packet']} is in no capture")
    key = seen[0].key
    sent_ns = min(part.sighting.t_ns for part in seen)
    end = row["seq"] + row["payload"]
    return Journey(
        flow=row["flow"],
        key=key,
        relative_seq=(row["seq"] - first) % (1 << 32),
        payload_bytes=row["payload"],
        transmissions=tuple(_transmissions(seen, table, first)),
        acknowledged=_acknowledged(found, key, end, sent_ns) if row["payload"] else None,
        ports=len(found),
    )


def _row(source: Source, base: pl.LazyFrame, wanted: str) -> dict[str, Any]:
    """The row of the table that is meant. Raises ConfigError."""
    rows = source.table.select(selection.COLUMNS).with_row_index("packet")
    if wanted.isdecimal():
        if int(wanted) < 1 << 32:
            found = rows.filter(pl.col("packet") == int(wanted)).collect()
            if found.height:
                return found.row(0, named=True)
        last = rows.select(pl.len()).collect().item() - 1
        raise ConfigError(f"--follow {wanted}: no such packet; there are 0 to {last}")
    flow, separator, number = wanted.partition(":")
    if not (separator and flow.isdecimal() and number.isdecimal()):
        raise ConfigError(
            f"--follow {wanted}: allowed is a packet's number, or FLOW:SEQ with a relative "
            "sequence number, as 0:4425"
        )
    of_flow = rows.filter(selection.condition(source, selection.Selection(flow=flow)))
    relative = (pl.col("seq").cast(pl.Int64) - pl.col("base")) % (1 << 32)
    segments = of_flow.join(base, on="flow").with_columns(relative=relative)
    at = min(int(number), 1 << 32)
    found = segments.filter(
        pl.col("relative") <= at, at < pl.col("relative") + pl.col("payload").clip(1)
    ).collect()
    if not found.height:
        first, last = segments.select(
            pl.col("relative").min().alias("a"),
            (pl.col("relative") + pl.col("payload")).max().alias("b"),
        ).collect().row(0)  # fmt: skip
        raise ConfigError(f"--follow {wanted}: no such byte; flow {flow} has {first} to {last - 1}")
    return found.row(0, named=True)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A sighting with what tells whose it is."""

    key: FlowKey
    identity: int
    tsval: int | None
    seq: int
    payload_bytes: int
    ip_id: int
    flags: int
    row: int
    sighting: Sighting


def _sightings(capture: Captured, row: dict[str, Any]) -> Iterator[_Seen]:
    columns, frames = capture.columns, capture.frames
    ends = (row["src"], row["sport"], row["dst"], row["dport"])
    for number, key in enumerate(capture.flows):
        if (key.src, key.sport, key.dst, key.dport) != ends:
            continue
        mine: Bool = columns.flow == number
        if key.protocol == TCP and row["payload"]:
            begins = _after(columns.seq, row["seq"])
            carries = (begins < row["payload"]) & (begins + columns.payload_bytes > 0)
            mine = mine & carries & (columns.payload_bytes > 0)
        else:
            mine = mine & (columns.ip_id == row["ip_id"]) & (columns.seq == row["seq"])
            mine = mine & (columns.payload_bytes == row["payload"])
            mine = mine & (np.abs(capture.stamp_ns[frames] - row["t_in"]) < _SAME_PACKET_NS)
        for at in np.flatnonzero(mine).tolist():
            frame = int(frames[at])
            stamped = bool(columns.marks[at] & HAS_TIMESTAMP)
            place = int(capture.row[frame])
            way: str = capture.source.direction
            if way == "any":
                way = "?" if place < 0 else "out" if capture.left[frame] else "in"
            stamp_ns, ttl = int(capture.stamp_ns[frame]), int(columns.ttl[at])
            yield _Seen(
                key,
                int(columns.identity[at]),
                int(columns.tsval[at]) if stamped else None,
                int(columns.seq[at]),
                int(columns.payload_bytes[at]),
                int(columns.ip_id[at]),
                int(columns.flags[at]),
                place,
                Sighting(capture.source.port, way, stamp_ns, ttl),
            )


def _after(numbers: Array, zero: int) -> I64:
    """How far sequence numbers are after one of them, by the shorter way around."""
    half = 1 << 31
    return np.asarray((numbers.astype(np.int64) - zero + half) % (1 << 32) - half, np.int64)


def _transmissions(seen: Sequence[_Seen], table: pl.DataFrame, base: int) -> list[Transmission]:
    """Puts the sightings of each packet together. Equal packets at one port are several."""
    groups: list[list[_Seen]] = []
    for part in seen:
        place = (part.sighting.port, part.sighting.way)
        group = next((group for group in reversed(groups) if _is_same(part, group)), None)
        if group is None or any(
            place == (other.sighting.port, other.sighting.way) for other in group
        ):
            groups.append([part])
        else:
            group.append(part)
    return [_transmission(group, table, base) for group in groups]


def _is_same(part: _Seen, group: Sequence[_Seen]) -> bool:
    """Whether a sighting is of the packet of a group: by its row of the table, or as it looks.

    A short snaplen can cut off the time stamp.
    """
    if part.row >= 0 and any(part.row == other.row for other in group):
        return True
    return all(
        part.identity == other.identity
        and (part.tsval is None or other.tsval is None or part.tsval == other.tsval)
        for other in group
    )


def _transmission(group: Sequence[_Seen], table: pl.DataFrame, base: int) -> Transmission:
    first = group[0]
    row = max(part.row for part in group)
    values = table.row(row, named=True) if row >= 0 else {}
    return Transmission(
        packet=row if row >= 0 else None,
        relative_seq=(first.seq - base) % (1 << 32),
        payload_bytes=first.payload_bytes,
        ip_id=first.ip_id,
        flags=first.flags,
        verdict=values.get("verdict"),
        egress=values.get("egress"),
        queue_bytes=values.get("queue_bytes"),
        sightings=tuple(part.sighting for part in group),
    )


def _acknowledged(
    found: Sequence[Captured], key: FlowKey, end: int, sent_ns: int
) -> Sighting | None:
    """The first captured packet of the other direction that acknowledges all up to `end`."""
    earliest: Sighting | None = None
    for capture in found:
        if key.reversed not in capture.flows:
            continue
        columns = capture.columns
        stamps = capture.stamp_ns[capture.frames]
        mine = (columns.flow == capture.flows.index(key.reversed)) & ((columns.flags & ACK) != 0)
        mine &= (_after(columns.ack, end % (1 << 32)) >= 0) & (stamps >= sent_ns)
        if not mine.any():
            continue
        at = int(np.flatnonzero(mine)[stamps[mine].argmin()])
        t_ns = int(stamps[at])
        if earliest is None or t_ns < earliest.t_ns:
            way = "?" if capture.source.direction == "any" else capture.source.direction
            earliest = Sighting(capture.source.port, way, t_ns, int(columns.ttl[at]))
    return earliest
