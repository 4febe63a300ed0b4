"""Drops by place and reason, and from each drop to its repair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import polars as pl

from outcast.analysis.trace.causes import QUEUE_REASONS
from outcast.analysis.trace.events import SOCKET, TcpEvents, with_last
from outcast.plan.links import Direction
from outcast.records.counters import LinkRecord


def reason_table(
    drops: pl.DataFrame,
    links: Iterable[LinkRecord] = (),
    ways: Mapping[tuple[str, str], Direction] | None = None,
) -> pl.DataFrame:
    """Drops by place, queue, reason and function, with the counter of the same queue or link.

    `links` are those whose counters the events are held against. `counter` is what the queue of
    that port, or the link in that direction, counted from before the flows until after them, in
    the first of its rows. `note` says where it differs from the events.
    """
    grouped = (
        drops.with_columns(place=pl.coalesce("port", "host"))
        .group_by("place", "qdisc", "reason", "where")
        .agg(events=pl.len())
        .sort(
            *("place", "qdisc", "events", "reason", "where"),
            descending=[False, False, True, False, False],
        )
    )
    counted: dict[tuple[str | None, str], int] = {}
    ports = {}
    for link in links:
        ports[link.node, link.neighbour] = link.port
        lost = link.lost or {}
        counted |= {(link.port, cause): lost[cause] for cause in ("queue", "link") if cause in lost}
    rows = grouped.to_dicts()
    found: Counter[tuple[str | None, str]] = Counter()
    for row in rows:
        way = (ways or {}).get((row["place"], row["qdisc"] or row["reason"]))
        of_queue = row["qdisc"] is not None or row["reason"] in QUEUE_REASONS
        row["key"] = (ports.get(way), "link") if way else (row["place"], "queue" * of_queue)
        found[row["key"]] += row["events"]
    for row in rows:
        key, note = row.pop("key"), ""
        if (counter := counted.pop(key, None)) is not None:
            note = "equal" if counter == found[key] else f"differs: {found[key]} events"
        row |= {"counter": counter, "note": note}
    rows += [
        {"place": port, "events": 0, "counter": count, "note": f"differs: no events of its {cause}"}
        for (port, cause), count in counted.items()
        if count
    ]
    texts = dict.fromkeys(("place", "qdisc", "reason", "where"), pl.String)
    numbers = dict.fromkeys(("events", "counter"), pl.Int64)
    return pl.DataFrame(rows, schema={**texts, **numbers, "note": pl.String})


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
        .pipe(with_last, grown.with_columns(since="t_new_ns"), "since", strategy="forward")
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
