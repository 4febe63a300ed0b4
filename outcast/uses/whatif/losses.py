"""Packets that a link is to lose: read, and found in a run's captures."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import pairwise

import polars as pl

from outcast.api import Plan
from outcast.errors import ConfigError, RunError, did_you_mean
from outcast.records import LostPacket, Run

ALLOWED = "allowed is 'packet 1234, link a-b' or 'flow 0, segment 17, link a-b'"
_WORDS = re.compile(
    r"(?:packet (\d{1,9})|flow (\d{1,9}), *segment (\d{1,9})), *link (\S{1,129})", re.ASCII
)


@dataclass(frozen=True, slots=True)
class WantedLoss:
    """A loss that somebody asks for. Errors begin with `where`.

    Attributes:
        packet: its row of packets.parquet; None where `flow` and `segment` name it.
        segment: of the flow's data segments that cross the link in this direction, from 0.
        link: two neighbours, as `a-b`; the segment leaves a and does not reach b.
    """

    packet: int | None
    flow: int
    segment: int
    link: str
    where: str


def parse_loss(words: str) -> WantedLoss:
    """Reads a loss as `flow 0, segment 17, link a-b`, or by a packet. Raises ConfigError."""
    where = f"--lose {words!a}"
    match = _WORDS.fullmatch(words.strip())
    if match is None:
        raise ConfigError(f"{where}: {ALLOWED}")
    packet = None if match[1] is None else int(match[1])
    return WantedLoss(packet, int(match[2] or 0), int(match[3] or 0), match[4], where)


def find(run: Run, wanted: WantedLoss) -> LostPacket:
    """The packet of a run that is to be lost.

    Captures have to show which segments cross the link: of the port that they leave by, or of the
    one that they come in by.

    Raises ConfigError if the run has no such flow, link or segment, or no capture shows it.
    """
    plan = run.directory.read_plan()
    node, neighbour = _ends(plan, wanted)
    if wanted.packet is not None:
        wanted = _of_packet(run, plan, wanted, wanted.packet)
    path = next((flow.path for flow in plan.flows if flow.flow == wanted.flow), None)
    if path is None:
        raise ConfigError(
            f"{wanted.where}: the run has no flow {wanted.flow}; allowed are 0 to "
            f"{len(plan.flows) - 1}"
        )
    ways = [*pairwise(path)]
    if (node, neighbour) not in ways:
        known = ", ".join(f"{a}-{b}" for a, b in ways)
        raise ConfigError(
            f"{wanted.where}: the data of flow {wanted.flow} does not cross it in this direction; "
            f"allowed are {known}"
        )
    segments = _crossing(run, wanted, plan.port(node, neighbour), plan.port(neighbour, node))
    if wanted.segment >= segments.height:
        raise ConfigError(
            f"{wanted.where}: {segments.height} data segments of flow {wanted.flow} crossed it; "
            f"allowed are 0 to {segments.height - 1}"
        )
    row = segments.row(wanted.segment, named=True)
    start_ns = run.manifest.traffic.t_start_ns
    if row["t"] < start_ns:
        first = segments.filter(pl.col("t") < start_ns).height
        raise ConfigError(
            f"{wanted.where}: was sent before the traffic's start, when no link loses packets yet; "
            f"allowed are {first} to {segments.height - 1}"
        )
    if ":" in row["src"]:
        raise ConfigError(f"{wanted.where}: is a packet of IPv6; allowed are packets of IPv4")
    if not row["flags"]:
        raise ConfigError(f"{wanted.where}: is a datagram of UDP; allowed are segments of TCP")
    return LostPacket(
        flow=wanted.flow,
        segment=wanted.segment,
        node=node,
        neighbour=neighbour,
        t_ns=row["t"] - start_ns,
        **{name: row[name] for name in ("src", "sport", "dst", "dport", "ip_id", "seq")},
    )


def _of_packet(run: Run, plan: Plan, wanted: WantedLoss, packet: int) -> WantedLoss:
    """The same loss by its flow and segment. Raises ConfigError as `find`."""
    packets = run.table("packets", whole=True)
    if packet >= packets.height:
        raise ConfigError(
            f"{wanted.where}: the run has no packet {packet}; allowed are 0 to {packets.height - 1}"
        )
    row = packets.row(packet, named=True)
    ends = _ends(plan, wanted)
    wanted = replace(wanted, flow=row["flow"])
    segments = _crossing(run, wanted, plan.port(*ends), plan.port(*ends[::-1]))
    numbers = segments.with_row_index().filter(ip_id=row["ip_id"], seq=row["seq"])["index"]
    if numbers.len() != 1:
        raise ConfigError(f"{wanted.where}: is no data segment that crosses this link")
    return replace(wanted, segment=numbers.item())


def _ends(plan: Plan, wanted: WantedLoss) -> tuple[str, str]:
    """The two nodes of `a-b`, whose names may have dashes too."""
    places = [place for place, letter in enumerate(wanted.link) if letter == "-"]
    pairs = [(wanted.link[:place], wanted.link[place + 1 :]) for place in places]
    for pair in pairs:
        if pair in plan.links:
            return pair
    known = [f"{a}-{b}" for a, b in plan.links]
    raise ConfigError(
        f"{wanted.where}: the run has no link {wanted.link}{did_you_mean(wanted.link, known)}"
    )


def _crossing(run: Run, wanted: WantedLoss, leaves: str, comes: str) -> pl.DataFrame:
    """A flow's data segments on a link in the order in which a capture saw them, with `t`."""
    with run.reading():
        packets = run.table("packets", whole=True)
    packets = packets.with_columns(pl.col("ingress", "egress").cast(pl.String))
    data = packets.filter(pl.col("flow") == wanted.flow, pl.col("payload") > 0)
    for port, column, time in ((leaves, "egress", "t_out"), (comes, "ingress", "t_in")):
        seen = data.filter(pl.col(column) == port, pl.col(time).is_not_null())
        if seen.height:
            return seen.with_columns(pl.col(time).alias("t")).sort("t")
    raise ConfigError(
        f"{wanted.where}: packets.parquet does not show what crosses it; allowed are links behind "
        "a studied queue or at an input of one"
    )


def require_lost(run: Run, lost: LostPacket) -> None:
    """Raises RunError if the captures of a run still show a packet behind the link that lost it."""
    plan = run.directory.read_plan()
    comes = plan.port(lost.neighbour, lost.node)
    with run.reading():
        packets = run.table("packets", whole=True)
    packets = packets.with_columns(pl.col("ingress").cast(pl.String))
    seen = packets.filter(
        ingress=comes,
        src=str(lost.src),
        sport=lost.sport,
        dport=lost.dport,
        ip_id=lost.ip_id,
        seq=lost.seq,
    )
    if seen.height:
        raise RunError(f"{lost.name}: was to be lost, and is in the captures")
