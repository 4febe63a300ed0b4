"""What follows from a run's events: tables of senders and drops, kept in its folder trace/."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from outcast.analysis.trace.causes import retransmission_table, synack_rows
from outcast.analysis.trace.drops import drop_table, drops_of_packets
from outcast.analysis.trace.events import TcpEvents, read_events, recorded
from outcast.analysis.trace.series import of_flows, series_table
from outcast.plan.addresses import ipv4_of
from outcast.records.run_directory import RunDirectory
from outcast.records.sender_tables import write_sender_table
from outcast.records.tables import read_table, refusing


@dataclass(frozen=True)
class Traced:
    """The events of a run, and what follows from them.

    Attributes:
        drops: every drop (`drops.drop_table`).
        again: every attempt to send again (`causes.retransmission_table`).
    """

    every: TcpEvents
    senders: TcpEvents
    drops: pl.DataFrame
    again: pl.DataFrame


def read_traced(directory: RunDirectory) -> Traced:
    """Reads a run's events.

    packets.parquet and the tables of events have to be there.

    Raises InputError if the run did not record them, or if a table cannot be read.
    """
    every = read_events(directory)
    with refusing(f"{directory.trace}: its tables of events cannot be read"):
        manifest = directory.read_manifest()
        if "kfree_skb" in every.tables:
            host_of = {ipv4_of(record.src_ip): record.src for record in manifest.flows} | {
                ipv4_of(record.dst_ip): record.dst for record in manifest.flows
            }
            drops = drop_table(every, host_of)
        else:
            packets = read_table(directory.path / "packets.parquet")
            drops = drops_of_packets(packets, manifest.traffic.t_start_ns)
        senders = every.of_senders(manifest)
        again = pl.concat(
            [retransmission_table(senders, drops), synack_rows(every)], how="diagonal_relaxed"
        ).sort("order")
        return Traced(every, senders, drops, again)


def write(directory: RunDirectory) -> bool:
    """Writes tcp.parquet, retransmissions.parquet and drops.parquet to a run's folder trace/.

    Returns whether it did; it does not if the run recorded other events than these need.

    Raises InputError as `read_traced` does.
    """
    if not recorded(directory):
        return False
    traced = read_traced(directory)
    with refusing(f"{directory.trace}: its tables of events cannot be read"):
        ports = {record.flow: record.sport for record in directory.read_manifest().flows}
        series = of_flows(series_table(traced.senders), ports)
    tables = {"tcp": series, "retransmissions": traced.again, "drops": traced.drops}
    for name, table in tables.items():
        write_sender_table(directory.trace, name, table)
    return True
