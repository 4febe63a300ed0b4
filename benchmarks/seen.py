"""Timeouts as the captures of a run alone show them, and what came after those of the kernel."""

from __future__ import annotations

import numpy as np
import polars as pl

from outcast import analysis
from outcast.records.run_directory import RunDirectory
from outcast.uses.why import recorded_events as of
from outcast.uses.why.recorded_events import SOCKET, TcpEvents
from outcast.uses.why.senders import Traced


def held_against(directory: RunDirectory, traced: Traced) -> pl.DataFrame:
    """A row for each retransmission that came in at a bottleneck, and for each other timeout.

    Args:
        directory: the run.
        traced: its events.

    Returns:
        - `flow`, `cause` (one of `causes.CAUSES`, null if the kernel sent no such segment again).
        - `timeout`: whether the kernel's retransmission timer sent it.
        - `came_in`: whether it came in at a bottleneck, where the captures are.
        - `inferred`: whether the captures alone take it for a timeout.
        - `halted_ns`: the idle time before it, as the captures show it.

    Raises InputError if the run's captures cannot be read.
    """
    computed = analysis.compute(directory)
    t_start_ns = computed.manifest.traffic.t_start_ns
    parts = []
    for port in computed.ports:
        rows = np.flatnonzero(port.resent.retransmission)
        arrivals = port.joined.arrivals
        parts.append(
            pl.DataFrame(
                {
                    "flow": np.array(port.numbers, np.int64)[arrivals.flow[rows]],
                    "seq": arrivals.seq[rows].astype(np.uint32),
                    "t_ns": arrivals.stamp_ns[rows] - t_start_ns,
                    "inferred": port.resent.timeout[rows],
                    "halted_ns": port.resent.halted_ns[rows],
                }
            )
        )
    sent = traced.again.filter(pl.col("segments") > 0, pl.col("seq").is_not_null()).select(
        "flow", "seq", "t_ns", "order", "cause"
    )
    came_in = (
        pl.concat(parts)
        .sort("t_ns")
        .join_asof(
            sent.sort("t_ns", "order"),
            on="t_ns",
            by=["flow", "seq"],
            strategy="backward",
            check_sortedness=False,
        )
        .with_columns(came_in=pl.lit(True))
    )
    lost_before = (
        sent.filter(pl.col("cause").is_in(["rto", "syn"]))
        .join(came_in.drop_nulls("order").select("order"), on="order", how="anti")
        .with_columns(
            came_in=pl.lit(False),
            inferred=pl.lit(False),
            halted_ns=pl.lit(0, pl.Int64),
        )
    )
    columns = ("flow", "cause", "t_ns", "came_in", "inferred", "halted_ns")
    return pl.concat([came_in.select(columns), lost_before.select(columns)]).with_columns(
        timeout=pl.col("cause").is_in(["rto", "syn"]).fill_null(False)
    )


def after_timeouts(every: TcpEvents, senders: TcpEvents) -> pl.DataFrame:
    """What came after each timeout of a sender, in the order of time.

    Returns:
        - `flow`, `t_ns`: the flow, and when its retransmission timer went off.
        - `heard_ns`: how long it took until an acknowledgement came; null if none did.
        - `delayed`: whether the receiver's timer of delayed acknowledgements went off within this
          time. One segment alone is acknowledged late (RFC 5681, section 4.2).
    """
    timeouts = senders["tcp_timeout"].select(*SOCKET, "t_ns").sort("t_ns")
    heard = senders["tcp_ack_done"].select(*SOCKET, "t_ns", heard="t_ns").sort("t_ns")
    late = (
        every["tcp_timer"]
        .filter(pl.col("action") == of.FIRED, pl.col("kind") == of.TIME_DACK)
        .select("flow", "t_ns", late="t_ns")
        .drop_nulls("flow")
        .sort("t_ns")
    )
    return (
        timeouts.join_asof(
            heard, on="t_ns", by=list(SOCKET), strategy="forward", check_sortedness=False
        )
        .join_asof(late, on="t_ns", by="flow", strategy="forward", check_sortedness=False)
        .select(
            "flow",
            "t_ns",
            (pl.col("heard") - pl.col("t_ns")).alias("heard_ns"),
            (pl.col("late") <= pl.col("heard")).fill_null(False).alias("delayed"),
        )
    )
