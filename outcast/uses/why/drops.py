"""Drops by place and reason, and from each drop to its repair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

import polars as pl

from outcast.api import asked_of_switch
from outcast.experiment import Custom
from outcast.records import LinkRecord, Run
from outcast.uses.why.causes import POLICED, QUEUE_REASONS, losing_ways
from outcast.uses.why.recorded_events import SOCKET, TcpEvents, with_last


def reason_table(
    drops: pl.DataFrame,
    links: Iterable[LinkRecord] = (),
    ways: Mapping[tuple[str, str], tuple[str, str]] | None = None,
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


_FULL = "OVERLIMIT"
_GENERIC = "GENERIC"
REASONS = {
    _FULL: "the queue was full",
    "CONGESTED": "the queue's AQM dropped it, to signal congestion",
    _GENERIC: "the queue dropped it",
    "MAXFLOWS": "the queue could hold no further flow",
    "FLOOD_PROTECTION": "the queue held its flow for unresponsive",
    "BAND_LIMIT": "its band of the queue was full",
    "HORIZON_LIMIT": "it was to be sent too far in the future",
    "FLOW_LIMIT": "its flow had its share of the queue",
    "L4S_STEP_NON_ECN": "the low-latency queue was above its threshold, and it could not be marked",
}
"""Why a queue drops a packet: enum qdisc_drop_reason in include/net/dropreason-qdisc.h."""
_SHAPERS = ("tbf", "htb", None)
"""The kernel names these, or nothing, in place of the queue below them."""
_WITHOUT_REASON = ("cake", "custom", "dualpi2")
"""Kinds whose drops may have the general reason alone (`qdisc_drop` in their sources)."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A drop in words; `queue` is empty if no queue dropped the packet."""

    place: str
    queue: str
    why: str


@dataclass(frozen=True, slots=True)
class Words:
    """What is known of a run's queues and links, to put drops into words.

    Attributes:
        limits: the limits of the measured queues in words, by their ports.
        queues: the kind of the requested queue, by the port of a switch.
        unreasoned: the ports whose queues may drop for the general reason.
        links: see `losing_ways`.
        wires: the interfaces within links that lose packets, in words.
    """

    limits: Mapping[str, str] = field(default_factory=dict)
    queues: Mapping[str, str] = field(default_factory=dict)
    unreasoned: Set[str] = frozenset()
    links: Mapping[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    wires: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Run) -> Words:
        """Without a plan, only the measured queues are known."""
        measured = {port.egress: port.queue for port in run.manifest.bottlenecks}
        limits = {
            port: f"{of.limit_packets:,} packets"
            for port, of in measured.items()
            if of.limit_packets
        } | {port: f"{of.limit_bytes:,} bytes" for port, of in measured.items() if of.limit_bytes}
        queues = {port: of.kind for port, of in measured.items()}
        unreasoned = {port for port, kind in queues.items() if kind in _WITHOUT_REASON}
        if (plan := run.plan) is None:
            return cls(limits, queues, unreasoned)
        for port in plan.switch_ports():
            queue = asked_of_switch(run.experiment, plan, port)[1]
            queues[port] = queue.qdisc if isinstance(queue, Custom) else queue.kind
            if queue.kind in _WITHOUT_REASON:
                unreasoned.add(port)
        wires = {
            wire.facing(near): f"link between {far} and {near}"
            for wire in plan.wires.values()
            for near, far in (wire.nodes, wire.nodes[::-1])
        }
        return cls(limits, queues, unreasoned, losing_ways(plan), wires)

    def place(self, place: str | None, qdisc: str | None, reason: str | None) -> str:
        """A port, a host, or a direction of a link; empty where it is not known."""
        if way := self.links.get((place or "", qdisc or reason or "")):
            return f"link {way[0]} to {way[1]}"
        return self.wires.get(place or "", place or "")

    def put(
        self, place: str | None, qdisc: str | None, reason: str | None, where: str | None
    ) -> Dropped:
        """Where, by which queue and why; in the kernel's words if no queue dropped it."""
        at = self.place(place, qdisc, reason)
        if (place, qdisc or reason) in self.links:
            policed = reason == POLICED and place in self.wires
            return Dropped(at, "", "above the policer's rate" if policed else "lost on the link")
        if where == "ping_rcv":
            return Dropped(at, "", "it arrived: ping's own socket has a copy (ping_rcv)")
        if reason not in REASONS:
            return Dropped(at, qdisc or "", " in ".join(part for part in (reason, where) if part))
        limit = self.limits.get(place or "")
        known = f" (limit {limit})" if reason == _FULL and limit is not None else ""
        # A shaper itself has no reason but the general one.
        is_below = qdisc in _SHAPERS and (reason != _GENERIC or place in self.unreasoned)
        queue = self.queues.get(place or "", qdisc) if is_below else qdisc
        return Dropped(at, queue or "", REASONS[reason] + known)
