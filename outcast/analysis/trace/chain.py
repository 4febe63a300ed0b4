"""From a drop to its repair: drop, detection, state, and what was sent next."""

from __future__ import annotations

import polars as pl

from outcast.analysis.trace.events import SOCKET, TcpEvents


def chain_table(drops: pl.DataFrame, again: pl.DataFrame, senders: TcpEvents) -> pl.DataFrame:
    """A row per dropped data segment of the run's flows, in the order of the drops.

    Returns:
        - the drop: `t_drop_ns`, `flow`, `seq`, `host`, `port`, `qdisc`, `reason`, `where`,
          `packet`.
        - `t_detect_ns`, `detected_by`: when and by what the kernel took the segment for lost.
        - `state_before`, `state_after`: the congestion state before that, and when it was sent.
        - `t_again_ns`, `cause`, `timer`, `rto_ns`: when and why the segment was sent again.
        - `waited_ns`: from the drop to that.
        - `t_new_ns`: when the flow next sent new data after that.
        All after the drop are null where the segment was never sent again.
    """
    data = drops.filter(pl.col("flow").is_not_null() & (pl.col("payload") > 0))
    senders_of = again.select("flow", "sport").unique()
    of_flows = data.cast({"sport": again.schema["sport"]}).join(
        senders_of, on=["flow", "sport"], how="left", maintain_order="left"
    )
    repaired = again.filter(pl.col("t_drop_ns").is_not_null()).select(
        *(*SOCKET, "seq", "t_drop_ns", "t_detect_ns", "detected_by"),
        *("state_before", "state_after", "cause", "timer", "rto_ns"),
        t_again_ns="t_ns",
    )
    chains = of_flows.rename({"t_ns": "t_drop_ns"}).join(
        repaired.unique(["flow", "sport", "seq", "t_drop_ns"], keep="first", maintain_order=True),
        on=[*SOCKET, "seq", "t_drop_ns"],
        how="left",
        maintain_order="left",
    )
    grown = (
        senders["tcp_xmit_stop"]
        .sort("order")
        .with_columns(before=pl.col("snd_nxt").shift(1).over(*SOCKET))
        .filter(pl.col("snd_nxt") != pl.col("before"))
        .select(*SOCKET, t_new_ns="t_ns")
        .sort("t_new_ns")
    )
    return (
        chains.with_columns(since=pl.coalesce("t_again_ns", "t_drop_ns"))
        .sort("since", maintain_order=True)
        .join_asof(
            grown.with_columns(since="t_new_ns"),
            on="since",
            by=list(SOCKET),
            strategy="forward",
            check_sortedness=False,
        )
        .sort("t_drop_ns", "order")
        .select(
            "t_drop_ns",
            *("flow", "seq", "host", "port", "qdisc", "reason", "where", "packet"),
            *("t_detect_ns", "detected_by", "state_before", "state_after"),
            *("t_again_ns", "cause", "timer", "rto_ns"),
            waited_ns=pl.col("t_again_ns") - pl.col("t_drop_ns"),
            t_new_ns="t_new_ns",
        )
    )
