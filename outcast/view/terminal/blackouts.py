"""Lists blackouts as text, each with the number that other options and the report use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from outcast.analysis import selection
from outcast.analysis.export import with_drops
from outcast.analysis.selection import Selection, Source
from outcast.analysis.trace.causes import POLICED, losing_ways
from outcast.errors import ConfigError
from outcast.experiment.queues.custom import Custom
from outcast.plan.links import Direction
from outcast.plan.ports import asked_of_switch
from outcast.records.run import Run
from outcast.view.terminal import forms
from outcast.view.terminal.listing import milliseconds

_HEADS = {
    "blackout": "blackout",
    "ingress": "ingress",
    "egress": "egress",
    "from_ms": "from (ms)",
    "lasts_us": "lasts (us)",
    "drops": "drops",
    "flows": "flows",
    "others_through": "others through",
    "longest_gap_us": "longest gap (us)",
    "before_gap": "drops before it",
}


def lines(source: Source, wanted: Selection, form: str) -> Iterator[str]:
    """Gives the blackouts with a dropped packet that fits the filters, in the order of time.

    Raises ConfigError if a filter names something absent, or no blackout fits.
    """
    rows = [_row(source, row) for row in _chosen(source, wanted).iter_rows(named=True)]
    if form == "json":
        rows = [row | {"from_ms": float(row["from_ms"])} for row in rows]
    if form != "table":
        yield from forms.records(rows, [*_HEADS], form)
    elif not rows:
        yield "there was no blackout: no chain of drops while packets of other ports got through"
    else:
        cells = ([str(row[name]) for name in _HEADS] for row in rows)
        yield from forms.aligned([[*_HEADS.values()], *cells], left=(1, 2))


def _chosen(source: Source, wanted: Selection) -> pl.DataFrame:
    if source.run is None:
        selection.blackout(source, 0)  # which says that a table alone has none
    assert source.run is not None
    every = selection.blackouts(source.run, wanted.whole)
    if replace(wanted, whole=False) == Selection() or every.is_empty():
        return every
    selection.condition(source, wanted)  # which refuses a port that is not there
    fits = selection.condition(source, replace(wanted, port=None))
    with selection.refusing_table(source.path):
        dropped = (
            source.table.with_row_index("packet")
            .filter(fits & (pl.col("verdict").cast(pl.String) == "dropped"))
            .select("packet", "t_in", "verdict", "ingress", "egress")
            .collect()
        )
    numbers = with_drops(source, dropped)["blackout"].drop_nulls().unique().implode()
    chosen = every.filter(pl.col("blackout").is_in(numbers))
    if wanted.port is not None:
        ports = (pl.col(name).cast(pl.String) for name in ("ingress", "egress"))
        chosen = chosen.filter(pl.any_horizontal(port == wanted.port for port in ports))
    if chosen.is_empty():
        raise ConfigError(f"--blackouts: none of {every.height} fits all filters")
    return chosen


def _row(source: Source, row: dict[str, Any]) -> dict[str, Any]:
    values = {
        **row,
        "from_ms": milliseconds(row["t_start"] - source.start_ns),
        "lasts_us": round((row["t_end"] - row["t_start"]) / 1e3, 3),
        "longest_gap_us": round(row["longest_gap_ns"] / 1e3, 3),
    }
    return {name: values[name] for name in _HEADS}


_FULL = "OVERLIMIT"
_GENERIC = "GENERIC"
REASONS = {
    _FULL: "the queue was full",
    "CONGESTED": "the queue's AQM dropped it, to signal congestion",
    _GENERIC: "the queue dropped it",
    "MAXFLOWS": "the queue had room for no further flow",
    "FLOOD_PROTECTION": "the queue held its flow for unresponsive",
    "BAND_LIMIT": "its band of the queue was full",
    "HORIZON_LIMIT": "it was to be sent too far in the future",
    "FLOW_LIMIT": "its flow had no more room in the queue",
    "L4S_STEP_NON_ECN": "the low-latency queue was above its threshold, and it could not be marked",
}
"""Why a queue drops a packet: enum qdisc_drop_reason in include/net/dropreason-qdisc.h."""
_SHAPERS = ("tbf", "htb", None)
"""What the kernel names in the place of the queue below; nothing where packets are taken out."""
_WITHOUT_REASON = ("cake", "custom", "dualpi2")
"""Kinds whose drops may have no reason but the general one (`qdisc_drop` in their sources)."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A drop in words; `queue` is empty if no queue did it."""

    place: str
    queue: str
    why: str


@dataclass(frozen=True, slots=True)
class Words:
    """What the words on a run's drops need.

    Attributes:
        limits: the limits of the measured queues in words, by their ports.
        queues: the kind of the queue that was requested, by the port of a switch.
        unreasoned: the ports whose queues may drop for no reason but the general one.
        links: see `losing_ways`.
        wires: the interfaces within links that lose packets, in words.
    """

    limits: Mapping[str, str] = field(default_factory=dict)
    queues: Mapping[str, str] = field(default_factory=dict)
    unreasoned: Set[str] = frozenset()
    links: Mapping[tuple[str, str], Direction] = field(default_factory=dict)
    wires: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Run) -> Words:
        """Those of a run; without a plan, those of its measured queues."""
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

    def told(
        self, place: str | None, qdisc: str | None, reason: str | None, where: str | None
    ) -> Dropped:
        """Says where, by which queue and why: in the kernel's words if no queue did it."""
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
