"""What follows from a run's events: tables of senders and drops, kept in trace/, and sums.

A sender's window, round trip, timeout, packets in flight and state are exact over time. Events are
summed as the kernel's counters count, to hold one against the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from outcast.api import ipv4_of
from outcast.records import RunDirectory, read_table
from outcast.uses.why import recorded_events as of
from outcast.uses.why.causes import (
    drop_table,
    drops_of_packets,
    retransmission_table,
    synack_rows,
)
from outcast.uses.why.event_tables import write_events
from outcast.uses.why.recorded_events import SOCKET, TcpEvents, read_events, recorded, with_last
from outcast.uses.why.sender_tables import write_sender_table


@dataclass(frozen=True)
class Traced:
    """The events of a run, every drop (`drop_table`), and every attempt to send again."""

    every: TcpEvents
    senders: TcpEvents
    drops: pl.DataFrame
    again: pl.DataFrame


def read_traced(directory: RunDirectory) -> Traced:
    """Reads a run's events, for which packets.parquet has to be there. Raises InputError."""
    every = read_events(directory)
    manifest = directory.read_manifest()
    if "kfree_skb" in every.tables:
        sources = {ipv4_of(record.src_ip): record.src for record in manifest.flows}
        host_of = sources | {ipv4_of(record.dst_ip): record.dst for record in manifest.flows}
        drops = drop_table(every, host_of)
    else:
        packets = read_table(directory.path / "packets.parquet")
        drops = drops_of_packets(packets, manifest.traffic.t_start_ns)
    senders = every.of_senders(manifest)
    again = pl.concat(
        [retransmission_table(senders, drops), synack_rows(every)], how="diagonal_relaxed"
    ).sort("order")
    return Traced(every, senders, drops, again)


def write(directory: RunDirectory) -> None:
    """Makes all tables of a run's folder trace/, where packets.parquet is there.

    tcp, retransmissions and drops need OF_SENDERS. Raises as `write_events` and `read_traced`.
    """
    write_events(directory)
    if not recorded(directory):
        return
    traced = read_traced(directory)
    ports = {record.flow: record.sport for record in directory.read_manifest().flows}
    series = of_flows(series_table(traced.senders), ports)
    tables = {"tcp": series, "retransmissions": traced.again, "drops": traced.drops}
    for name, table in tables.items():
        write_sender_table(directory.trace, name, table)


def in_flight() -> pl.Expr:
    """tcp_packets_in_flight() of include/net/tcp.h, from the columns of a sender's state."""
    sacked_or_lost = pl.col("sacked_out").cast(pl.Int64) + pl.col("lost_out")
    return (pl.col("packets_out") + pl.col("retrans_out") - sacked_or_lost).clip(0).cast(pl.UInt32)


def series_table(senders: TcpEvents) -> pl.DataFrame:
    """A row per acknowledgement and per timeout, by flow and time (`sender_tables.TCP`).

    An acknowledgement's row is the state that tcp_ack() leaves, before anything is sent. A
    timeout's row is the state after it, because the window falls to one segment there.
    """
    columns = (*SOCKET, "order", "t_ns", "rto_us", "ca_state", "ssthresh", "srtt_us")
    values = {"cwnd": pl.col("snd_cwnd"), "in_flight": in_flight()}
    acknowledged = senders["tcp_ack_done"].select(*columns, **values)
    reduced = senders["tcp_cong_state_set"].select(*SOCKET, "order", "ssthresh").sort("order")
    timeouts = (
        senders["tcp_retransmit_skb"]
        .filter(pl.col("cause") == of.BY_RTO)
        .sort("order")
        .pipe(with_last, reduced, "order")
        .with_columns(srtt_us=pl.lit(None, acknowledged.schema["srtt_us"]))
        .select(*columns, **values)
    )
    return (
        pl.concat([acknowledged, timeouts], how="vertical_relaxed")
        .sort("flow", "order")
        .with_columns(pl.col("srtt_us").forward_fill().over(*SOCKET))
        .with_columns(
            ssthresh=pl.when(pl.col("ssthresh") < of.NO_THRESHOLD).then("ssthresh"),
            state=of.state_name("ca_state"),
        )
    )


def of_flows(series: pl.DataFrame, ports: Mapping[int, int]) -> pl.DataFrame:
    """The rows of each flow's own connection, by its port: several have no window together."""
    schema = {name: series.schema[name] for name in SOCKET}
    own = pl.DataFrame([*ports.items()], schema=schema, orient="row")
    return series.join(own, on=list(SOCKET), how="semi", maintain_order="left")
