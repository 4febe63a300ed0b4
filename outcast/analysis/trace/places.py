"""Where in a run an event of the kernel belongs: its node, flow and packet.

An event names a packet by its addresses, ports, IP identification, sequence number and payload.
The packets' table has the same of every packet that entered a bottleneck, so the join is exact.
Where two packets agree in all of it, as a SYN that was sent twice, the one is meant that came in or
left nearest to the event's time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import polars as pl

from outcast import handed_in
from outcast.analysis.compiled import I64, U64, Array, compiled
from outcast.errors import InputError
from outcast.plan import addresses
from outcast.records.run_directory import Manifest, RunDirectory
from outcast.records.tables import scan_table

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
        """The texts as an enumeration."""
        distinct = sorted({value for value in self.values if value is not None})
        return pl.Series(self.values, dtype=pl.Enum(distinct)).gather(self.codes)


@dataclass(frozen=True)
class Functions:
    """The kernel's functions, by the address at which each begins."""

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
        numbers: a number of its own for each pair of addresses and ports, in one direction.
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
        ((addresses.ipv4_of(src), sport, addresses.ipv4_of(dst), dport), record.flow)
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
    return column.map_elements(addresses.ipv4_of, return_dtype=pl.String).alias(name)


def flows_by_ends(flows: Sequence[tuple[Ends, int]]) -> dict[Ends, int]:
    """The flow of each pair of ends, in both directions; the first, as programs' have two."""
    flow_of: dict[Ends, int] = {}
    for ends, flow in flows:
        flow_of.setdefault(ends, flow)
    for (src, sport, dst, dport), flow in flows:
        flow_of.setdefault((dst, dport, src, sport), flow)
    return flow_of


def read_functions(path: Path) -> Functions:
    """The kernel's functions from a file as /proc/kallsyms, if there is one. Raises InputError."""
    try:
        lines = handed_in.read_text(path).splitlines()
    except FileNotFoundError:
        return Functions(np.empty(0, np.uint64), ())
    parsed = sorted(
        (int(match[1], 16), match[2]) for line in lines if (match := _SYMBOL.fullmatch(line))
    )
    if len(parsed) < len(lines):
        raise InputError(f"{path}: a line is no symbol; allowed are lines as in /proc/kallsyms")
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
