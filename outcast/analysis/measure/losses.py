"""Where packets were lost in the whole network, by the kernel's own counters."""

from __future__ import annotations

from collections import Counter

from outcast.analysis.run_analysis import Analysis
from outcast.records.run_directory import Cause, LinkRecord
from outcast.records.summary import LossSummary, PortLosses

_OF_SOCKETS = ("UdpRcvbufErrors", "TcpExtTCPBacklogDrop", "TcpExtTCPRcvQDrop")
"""nstat(8)'s counters of packets that reached a host whose sockets had no room for them."""
BEFORE_SENDING: tuple[Cause, ...] = ("queue", "delay", "failure", "interface")
"""Causes that lose a packet before the sending interface counts it as sent."""
_MOST_NAMED = 3


def loss_summary(analysis: Analysis) -> LossSummary | None:
    """Every port's losses over the whole run; None if the run did not record them."""
    ports = {}
    causes: Counter[Cause] = Counter()
    at_bottleneck = 0
    for link in analysis.counters.links:
        of_port = link.lost
        if of_port is None:
            return None
        lost = {**of_port, **_at_far_end(analysis, link)}
        lost = {cause: count for cause, count in lost.items() if count}
        measured = sum(count for cause, count in lost.items() if _measured(analysis, link, cause))
        causes.update(lost)
        at_bottleneck += measured
        if link.packets or lost:
            ports[link.port] = PortLosses(
                node=link.node,
                neighbour=link.neighbour,
                packets=link.packets,
                lost=lost,
                elsewhere=sum(lost.values()) - measured,
            )
    if not analysis.counters.links:
        return None
    total = causes.total()
    return LossSummary(
        total=total,
        bottleneck=at_bottleneck,
        elsewhere=total - at_bottleneck,
        causes=dict(sorted(causes.items())),
        ports=ports,
    )


def _at_far_end(analysis: Analysis, link: LinkRecord) -> dict[Cause, int]:
    """What was lost behind the link: in front of a blackout's port, or at the receiving host."""
    lost: dict[Cause, int] = {}
    blackout = analysis.manifest.blackout
    if blackout is not None and blackout.port == _facing(analysis, link):
        lost["blackout"] = blackout.dropped
    host = analysis.counters.hosts.get(link.neighbour)
    if host is not None:
        lost["host"] = sum(host.delta(name) for name in _OF_SOCKETS)
    return lost


def _facing(analysis: Analysis, link: LinkRecord) -> str | None:
    """The port at the link's far end."""
    ends = (link.neighbour, link.node)
    return next(
        (other.port for other in analysis.counters.links if (other.node, other.neighbour) == ends),
        None,
    )


def _measured(analysis: Analysis, link: LinkRecord, cause: Cause) -> bool:
    """Whether a loss happened at a captured queue, so that the join sees it as a drop there."""
    records = analysis.manifest.bottlenecks
    if cause == "queue":
        return link.port in {record.egress for record in records}
    if cause == "blackout":
        facing = _facing(analysis, link)
        return any(facing in record.ingress for record in records)
    return False


def loss_warnings(losses: LossSummary | None, bottleneck: str) -> list[str]:
    """A warning if more packets were lost elsewhere than at the ports that `bottleneck` names."""
    if losses is None or losses.elsewhere <= losses.bottleneck:
        return []
    return [
        f"{losses.elsewhere:,} packets were lost elsewhere than at {bottleneck}, which lost "
        f"{losses.bottleneck:,}: {where(losses)}. Drops, chains and blackouts are those of "
        f"{bottleneck} alone (docs/analysis.md, losses)"
    ]


def where(losses: LossSummary) -> str:
    """The ports that lost most, the bottleneck's queue aside: `s2-eth1 51,406 (queue)`."""
    ordered = sorted(losses.ports.items(), key=lambda item: (-item[1].elsewhere, item[0]))
    others = [(port, part) for port, part in ordered if part.elsewhere]
    named = [
        f"{port} {part.elsewhere:,} ({', '.join(_unmeasured(part))})"
        for port, part in others[:_MOST_NAMED]
    ]
    rest = sum(part.elsewhere for _, part in others[_MOST_NAMED:])
    if rest:
        named.append(f"{len(others) - _MOST_NAMED} more ports {rest:,}")
    return ", ".join(named)


def _unmeasured(part: PortLosses) -> list[Cause]:
    """The causes of a port's losses, without its queue where the queue is measured."""
    queue_is_measured = part.elsewhere + part.lost.get("queue", 0) == sum(part.lost.values())
    return [cause for cause in part.lost if cause != "queue" or not queue_is_measured]
