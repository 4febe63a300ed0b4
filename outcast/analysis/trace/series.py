"""A sender's window, round trip, timeout, packets in flight and state over time, exactly."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from outcast.analysis.trace import events as of
from outcast.analysis.trace.events import SOCKET, TcpEvents
from outcast.records.sender_tables import STATES


def in_flight() -> pl.Expr:
    """tcp_packets_in_flight() of include/net/tcp.h, from the columns of a sender's state."""
    sacked_or_lost = pl.col("sacked_out").cast(pl.Int64) + pl.col("lost_out")
    return (pl.col("packets_out") + pl.col("retrans_out") - sacked_or_lost).clip(0).cast(pl.UInt32)


def series_table(senders: TcpEvents) -> pl.DataFrame:
    """A row per acknowledgement and per timeout, by flow and time (`sender_tables.TCP`).

    An acknowledgement's row is the state that tcp_ack() leaves, before anything is sent. A
    timeout's row is the state after it, because the window falls to one segment there.
    """
    acknowledged = senders["tcp_ack_done"].select(
        *SOCKET,
        "order",
        "t_ns",
        cwnd="snd_cwnd",
        ssthresh="ssthresh",
        srtt_us="srtt_us",
        rto_us="rto_us",
        in_flight=in_flight(),
        ca_state="ca_state",
    )
    reduced = senders["tcp_cong_state_set"].select(*SOCKET, "order", "ssthresh").sort("order")
    timeouts = (
        senders["tcp_retransmit_skb"]
        .filter(pl.col("cause") == of.BY_RTO)
        .sort("order")
        .join_asof(
            reduced, on="order", by=list(SOCKET), strategy="backward", check_sortedness=False
        )
        .select(
            *SOCKET,
            "order",
            "t_ns",
            cwnd="snd_cwnd",
            ssthresh="ssthresh",
            srtt_us=pl.lit(None, acknowledged.schema["srtt_us"]),
            rto_us="rto_us",
            in_flight=in_flight(),
            ca_state="ca_state",
        )
    )
    return (
        pl.concat([acknowledged, timeouts], how="vertical_relaxed")
        .sort("flow", "order")
        .with_columns(pl.col("srtt_us").forward_fill().over(*SOCKET))
        .with_columns(
            ssthresh=pl.when(pl.col("ssthresh") < of.NO_THRESHOLD).then("ssthresh"),
            state=pl.col("ca_state").replace_strict(
                dict(enumerate(STATES)), default=None, return_dtype=pl.String
            ),
        )
    )


def of_flows(series: pl.DataFrame, ports: Mapping[int, int]) -> pl.DataFrame:
    """The rows of each flow's own connection, given its source port.

    Windows of several connections of Multipath TCP, one after another, would be nobody's window.
    """
    own = pl.DataFrame(
        {"flow": list(ports), "sport": list(ports.values())},
        schema={name: series.schema[name] for name in SOCKET},
    )
    return series.join(own, on=list(SOCKET), how="semi", maintain_order="left")
