"""Every packet that the kernel dropped: where, by which function, and why.

A queue that drops a packet says so by qdisc:qdisc_drop. The next event is skb:kfree_skb of the
same buffer, whose reason is then only QDISC_DROP (__tcf_kfree_skb_list in net/sched/sch_generic.c).
So both are one drop, and the queue's own reason is taken. A queue below a shaper that drops a
packet when it takes it out frees it itself, by its own reason, and there is no qdisc_drop
(qdisc_dequeue_drop in include/net/sch_generic.h).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from outcast.analysis.trace.events import TcpEvents, named
from outcast.plan.links import Direction
from outcast.plan.model import Plan
from outcast.plan.noise import CARD_ENDS
from outcast.records.counters import LinkRecord
from outcast.records.sender_tables import DROPS

_ALSO: dict[str, type[pl.DataType]] = {"sport": pl.UInt16, "payload": pl.UInt32, "order": pl.Int64}
QUEUE_REASONS = (
    *("GENERIC", "OVERLIMIT", "CONGESTED", "MAXFLOWS", "FLOOD_PROTECTION", "BAND_LIMIT"),
    *("HORIZON_LIMIT", "FLOW_LIMIT", "L4S_STEP_NON_ECN"),
)
"""enum qdisc_drop_reason in include/net/dropreason-qdisc.h, from 1."""
POLICED = "TC_INGRESS"
UNTOLD = "QDISC_DROP"
"""The reason of a queue's drop where qdisc:qdisc_drop was not recorded."""
_HAD_ALREADY = ("TCP_OLD_DATA", "TCP_OLD_SEQUENCE", "TCP_OFOMERGE")
"""Why a receiver throws a copy away: it has the data (tcp_data_queue and others in tcp_input.c)."""
_OF_QUEUES = 3 << 16
"""What kfree_skb adds to them: SKB_DROP_REASON_SUBSYS_QDISC. It has no names for them."""


def drop_table(events: TcpEvents, host_of: Mapping[str, str]) -> pl.DataFrame:
    """A row per dropped IPv4 packet, in the kernel's order: DROPS' columns and _ALSO's.

    What a receiver had already is no loss, so it has no row. Nor is there any if the run did not
    record skb:kfree_skb. `host_of` has the host of each address:
    a packet that a socket dropped was at the host that it was sent to.
    """
    freed = events.tables.get("kfree_skb")
    if freed is None or not freed.height:
        return pl.DataFrame(schema={**DROPS, **_ALSO})
    # A host's card of noise begins its pause by a copy of a packet, and drops the copy behind it
    # (outcast/emulation/network/arrivals.py).
    of_queues = {_OF_QUEUES + at: name for at, name in enumerate(QUEUE_REASONS, 1)}
    reason = pl.coalesce(pl.col("reason_name").cast(pl.String), named("reason", of_queues))
    is_copy = (pl.col("port") == CARD_ENDS[1]) & (reason == POLICED)
    is_copy |= reason.is_in(_HAD_ALREADY)
    freed = freed.filter(pl.col("saddr").is_not_null() & is_copy.not_().fill_null(True))
    queues = events.tables.get("qdisc_drop")
    if queues is None:
        names = ("kind", "own", "queue_port", "queue_host")
        queued = freed.select("order", "skbaddr", **dict.fromkeys(names, pl.lit(None, pl.String)))
        queued = queued.clear()
    else:
        queued = queues.select(
            *("skbaddr", "kind"),
            order=pl.col("order") + 1,
            own=pl.col("reason_name").cast(pl.String),
            queue_port="port",
            queue_host="host",
        )
    told = freed.join(queued, on=["order", "skbaddr"], how="left", maintain_order="left")
    return told.select(
        "t_ns",
        host=pl.coalesce("queue_host", "host", named("daddr", host_of)),
        port=pl.coalesce("queue_port", "port"),
        flow="flow",
        seq=pl.when(pl.col("sport") > 0).then("seq"),
        reason=pl.coalesce("own", reason),
        where=pl.col("location_name").cast(pl.String),
        qdisc="kind",
        packet="packet",
        **{name: pl.col(name) for name in _ALSO},
    )


def drops_of_packets(packets: pl.DataFrame, t_start_ns: int) -> pl.DataFrame:
    """What the captures say was dropped at a bottleneck, for runs without skb:kfree_skb."""
    types: dict[str, Any] = {**DROPS, **_ALSO}
    return (
        packets.with_row_index("packet")
        .filter(pl.col("verdict").cast(pl.String) == "dropped")
        .select(
            *("flow", "seq", "packet", "sport", "payload"),
            t_ns=pl.col("t_in").cast(pl.Int64) - t_start_ns,
            port=pl.col("ingress").cast(pl.String),
            order="packet",
            **dict.fromkeys(("host", "reason", "where", "qdisc"), pl.lit(None, pl.String)),
        )
        .select(pl.col(name).cast(kind) for name, kind in types.items())
    )


def losing_ways(plan: Plan) -> dict[tuple[str, str], Direction]:
    """The direction of a link that lost a packet, by the place and the qdisc, or else the reason.

    Netem drops what its interface is to send, and a policer what it gets. What a what-if has a
    link lose is dropped where it comes in (outcast/emulation/network/lost.py).
    """
    ways: dict[tuple[str, str], Direction] = {
        (port, POLICED): (neighbour, node) for port, (node, neighbour) in plan.ends.items()
    }
    for wire in plan.wires.values():
        for near, far in (wire.nodes, wire.nodes[::-1]):
            ways[wire.facing(far), "netem"] = ways[wire.facing(far), UNTOLD] = (near, far)
            if plan.links[near, far].policer is not None:
                ways[wire.facing(near), POLICED] = (near, far)
    return ways


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
