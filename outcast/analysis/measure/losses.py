"""Where packets were lost, and what each link carried, by the kernel's own counters."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from math import sqrt
from typing import get_args

import numpy as np
import polars as pl

from controllers import routes
from outcast.analysis.join.join import Verdict
from outcast.analysis.machine_code import Bool
from outcast.analysis.measure.flows import flow_bytes
from outcast.analysis.port_analysis import PortAnalysis
from outcast.analysis.run_analysis import Analysis, Interval
from outcast.records.captures import AnyManifest
from outcast.records.counters import Cause, LinkRecord
from outcast.records.link_rate import down_spans_ns
from outcast.records.port_summaries import LossSummary, PortLosses

_OF_SOCKETS = ("UdpRcvbufErrors", "TcpExtTCPBacklogDrop", "TcpExtTCPRcvQDrop")
"""nstat(8)'s counters of packets that reached a host whose sockets' buffers were full."""
BEFORE_SENDING: tuple[Cause, ...] = ("queue", "delay", "failure", "interface")
"""The causes of losses that a port's counter of sent packets lacks."""
_SENT_BY_SOCKETS = ("TcpOutSegs", "TcpRetransSegs", "UdpOutDatagrams")
"""nstat(8)'s counters of packets that a host's sockets sent."""
_OF_THE_PORT: tuple[Cause, ...] = ("queue", "failure")
"""Causes that the join sees as drops, if the port is captured."""
_MOST_NAMED = 3
_FLOWS_IN_A_QUEUE = 100
"""The most flows that cannot fill a host's queue, because the queue has room for everything they
may queue."""


def loss_summary(analysis: Analysis) -> LossSummary | None:
    """Every port's losses within the duration; None if no kernel counted any."""
    if not analysis.counters.links:
        return None
    ports, at_bottleneck, failures = {}, 0, _failures(analysis)
    causes: Counter[Cause] = Counter()
    for whole in analysis.counters.links:
        link = whole.within
        lost = {**link.lost, **_at_far_end(analysis, link), "failure": failures[link.port]}
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
    if blackout and blackout.port == _facing(analysis, link):
        lost["blackout"] = blackout.dropped
    host = analysis.counters.hosts.get(link.neighbour)
    if host is not None:
        lost["host"] = sum(host.within(name) for name in _OF_SOCKETS)
    return lost


def _facing(analysis: Analysis, link: LinkRecord) -> str | None:
    ports = {(other.neighbour, other.node): other.port for other in analysis.counters.links}
    return ports.get((link.node, link.neighbour))


def _measured(analysis: Analysis, link: LinkRecord, cause: Cause) -> bool:
    """Whether a loss happened at a captured queue, so that the join sees it as a drop there."""
    records = analysis.manifest.bottlenecks
    if cause in _OF_THE_PORT:
        return link.port in {record.egress for record in records}
    if cause == "blackout":
        facing = _facing(analysis, link)
        return any(facing in record.ingress for record in records)
    return False


def loss_warnings(losses: LossSummary | None, bottleneck: str, when: str = "") -> list[str]:
    """A warning if more packets were lost elsewhere than at the ports that `bottleneck` names.

    `when` names the time of the counts if that is not the summary's interval.
    """
    if losses is None or losses.elsewhere <= losses.bottleneck:
        return []
    return [
        # The time and the first port come early, because a screen cuts the line.
        f"{losses.elsewhere:,} packets were lost{when} elsewhere: {where(losses)}. The queue of "
        f"{bottleneck} lost {losses.bottleneck:,}; drops, chains and blackouts are its alone "
        "(docs/analysis.md, losses)"
    ]


def lost_at_senders(analysis: Analysis) -> list[str]:
    """A line for each host whose own queue lost packets of planned flows.

    A real Linux host holds its TCP senders back before that (TCP small queues). With hundreds of
    flows its queue overflows too, and so may that of other programs.
    """
    manifest = analysis.manifest
    flows = Counter(record.src for record in manifest.planned_flows)
    others = {*manifest.generated_hosts, *(program.host for program in manifest.programs)}
    # A queue that the configuration has at a host's port drops by its settings.
    own = "queue" in str(manifest.requested.get("links.overrides", ""))
    lost = [(link.node, link.within.lost) for link in analysis.counters.links if not own]
    counts = [(host, by.get("queue", 0) + by.get("delay", 0)) for host, by in lost]
    return [
        f"{host}: its own queue lost {count:,} packets, which a real host's does not, "
        "because TCP holds back before"
        for host, count in counts
        if count and 0 < flows[host] <= _FLOWS_IN_A_QUEUE and host not in others
    ]


def where(losses: LossSummary) -> str:
    """The ports that lost most, the bottleneck's queue aside: `s2-eth1 51,406 (queue)`."""
    ordered = sorted(losses.ports.items(), key=lambda item: (-item[1].elsewhere, item[0]))
    others = [(port, part) for port, part in ordered if part.elsewhere]
    named = [
        f"{port} {part.elsewhere:,} ({', '.join(_unmeasured(part))})"
        for port, part in others[:_MOST_NAMED]
    ]
    more = len(others) - _MOST_NAMED
    if more > 0:
        rest = sum(part.elsewhere for _, part in others[_MOST_NAMED:])
        named.append(f"{more} more {'port' if more == 1 else 'ports'} {rest:,}")
    return ", ".join(named)


def _unmeasured(part: PortLosses) -> list[Cause]:
    """The causes of a port's losses, without those that are drops of a captured port."""
    own = sum(part.lost.get(cause, 0) for cause in _OF_THE_PORT)
    is_measured = part.elsewhere + own == sum(part.lost.values())
    return [cause for cause in part.lost if cause not in _OF_THE_PORT or not is_measured]


def lost_to_the_link(analysis: Analysis, port: PortAnalysis) -> Bool | None:
    """For each arrival, whether it may be lost because the output's link was down; None if never.

    Such a packet came in while the link was down, or was in the queue when the link failed. The
    kernel empties the queue then and counts none of them as dropped.
    """
    spans_ns = down_spans_ns(analysis.manifest, port.record.egress)
    if not spans_ns:
        return None
    joined = port.joined
    start_ns = analysis.manifest.traffic.t_start_ns
    came_ns, reached_ns = joined.arrivals.stamp_ns - start_ns, port.reached_ns - start_ns
    sent = joined.left_as >= 0
    sojourn_ns = joined.departures.stamp_ns[joined.left_as[sent]] - joined.arrivals.stamp_ns[sent]
    longest_ns = int(sojourn_ns.max(initial=0))
    lost = np.zeros(len(joined.arrivals), bool)
    for from_ns, until_ns in spans_ns:
        lost |= (reached_ns >= from_ns - longest_ns) & (came_ns <= until_ns)
    return np.asarray(lost & (joined.verdict == Verdict.DROPPED), np.bool_)


def cut_off(analysis: Analysis, port: PortAnalysis) -> int:
    """The drops of a captured port that its queue did not count, because its link was down."""
    lost = lost_to_the_link(analysis, port)
    if lost is None or port.record.egress not in analysis.counters.ports:
        return 0
    counted = analysis.counters.ports[port.record.egress].delta("drops")
    blackout = analysis.manifest.blackout
    if blackout and blackout.port in port.record.ingress:
        counted += blackout.dropped
    missing = port.joined.counts.dropped - counted
    return missing if 0 <= missing <= int(lost.sum()) else 0


def _failures(analysis: Analysis) -> Counter[str]:
    """What each port lost because its link was down.

    No counter of the kernel has these packets. So they are what came into a node, less what it
    sent and lost otherwise. For a captured port, the join gives its losses. If several other
    ports of a node failed, the rest counts at the one that was down for longest.
    """
    failures: Counter[str] = Counter()
    by_node: dict[str, list[LinkRecord]] = defaultdict(list)
    for link in analysis.counters.links:
        by_node[link.node].append(link)
    captured = {port.record.egress: port for port in analysis.ports}
    down_ns = _down_ns(analysis.manifest, analysis.counters.links)
    for node, links in by_node.items():
        failed = [link.port for link in links if link.port in down_ns]
        came = _came(analysis, node) if failed else None
        if came is None:
            continue
        rest = came - sum(link.packets for link in links)
        lost = (item for link in links for item in link.lost.items())
        rest -= sum(count for cause, count in lost if cause in BEFORE_SENDING)
        for name in failed:
            if name in captured:
                failures[name] = cut_off(analysis, captured[name])
                rest -= failures[name]
        others = [name for name in failed if name not in captured]
        if others and rest > 0:
            failures[max(others, key=lambda name: down_ns[name])] = rest
    return failures


def _down_ns(manifest: AnyManifest, links: list[LinkRecord]) -> dict[str, int]:
    """How long the link of each port was down, of all links that failed."""
    of_ports = {
        change.port: sum(until - since for since, until in down_spans_ns(manifest, change.port))
        for change in manifest.changes
        if change.what == "up" and change.shown == 0
    }
    longest: Counter[frozenset[str]] = Counter()
    for link in links:
        if link.port in of_ports:
            both = frozenset((link.node, link.neighbour))
            longest[both] = max(longest[both], of_ports[link.port])
    return {
        link.port: longest[both]
        for link in links
        if (both := frozenset((link.node, link.neighbour))) in longest
    }


def _came(analysis: Analysis, node: str) -> int | None:
    """The packets that a node had to send; None if unknown.

    A host with offloads sends several segments as one packet. Programs and probes may send packets
    that these counters lack, as ICMP.
    """
    inputs = [link for link in analysis.counters.links if link.neighbour == node]
    if not any(
        link.node == node and link.port == f"{node}-eth0" for link in analysis.counters.links
    ):
        lost = [{**link.lost, **_at_far_end(analysis, link)} for link in inputs]
        on_the_way = sum(part.get("link", 0) + part.get("blackout", 0) for part in lost)
        return sum(link.packets for link in inputs) - on_the_way
    host = analysis.counters.hosts.get(node)
    manifest = analysis.manifest
    beside = {program.host for program in manifest.programs}
    beside |= {end for probe in manifest.probes for end in (probe.src, probe.dst)}
    if host is None or node in beside or manifest.requested.get("transport.offloads"):
        return None
    return sum(host.delta(name) for name in _SENT_BY_SOCKETS)


MOST_DEVIATIONS = 5
"""How many standard deviations a port's packets may be from its share, if it is drawn for each."""


def link_table(analysis: Analysis) -> pl.DataFrame | None:
    """One row per direction of a link; None if links were not counted.

    `port` sends from `node` to `neighbour`. `flows` and `acknowledged` count the flows whose data
    and acknowledgements are planned to cross it. `packets` and `bytes` (with Ethernet headers) left
    within the duration, and `utilisation` is their share of the link's capacity. `lost` and
    `lost_CAUSE` are packets.
    """
    losses = loss_summary(analysis)
    if losses is None:
        return None
    rows = []
    for link in (whole_run.within for whole_run in analysis.counters.links):
        lost = losses.ports[link.port].lost if link.port in losses.ports else {}
        rows.append(
            {
                **{name: getattr(link, name) for name in ("port", "node", "neighbour")},
                "flows": len(link.flows),
                "acknowledged": len(link.acknowledged),
                **{name: getattr(link, name) for name in ("other", "packets", "bytes")},
                "utilisation": utilisation(analysis, link),
                "lost": sum(lost.values()),
                **{f"lost_{cause}": lost.get(cause, 0) for cause in get_args(Cause)},
            }
        )
    return pl.DataFrame(rows)


def utilisation(analysis: Analysis, link: LinkRecord) -> float:
    traffic = analysis.manifest.traffic
    # Either all links have it or none.
    at_end = analysis.counters.links[0].at_end is not None
    span_ns = traffic.duration_ns if at_end else traffic.t_end_ns - traffic.t_start_ns
    rate = analysis.link_rate(link.port, link.rate_bps)
    rate_bps = float(rate.mean_bps(np.array([0, span_ns], np.int64))[0])
    # TCP sends frames too short for Ethernet only without timestamps. The counters do not count
    # such frames, so their padding is left out.
    wire_bytes = link.bytes + link.overhead_bytes * link.packets
    return wire_bytes * 8 / (rate_bps * span_ns / 1e9) if rate_bps else 0.0


def distrust(analysis: Analysis) -> list[str]:
    """Why the counters of links do not fit the planned paths; empty if they fit.

    A link that no path crosses must have sent nothing. Any other link must have sent at least the
    payload that later left the bottleneck and belongs to flows that crossed the link before.
    """
    needed = _least_bytes(analysis)
    reasons = [*_uneven(analysis)]
    for link in analysis.counters.links:
        idle = not (link.flows or link.acknowledged or link.other)
        if idle and link.packets:
            reasons.append(f"{link.port}: sent {link.packets} packets, though no path crosses it")
        least = needed[link.node, link.neighbour]
        if link.bytes < least:
            reasons.append(
                f"{link.port}: sent {link.bytes} bytes, though {least} bytes came to the "
                f"bottleneck of flows whose path crosses it"
            )
    return reasons


def _uneven(analysis: Analysis) -> Iterator[str]:
    """A line on each port drawn too often or rarely by a switch that draws for each packet."""
    effective = analysis.manifest.effective
    if effective.get("routing.kind") not in routes.PER_PACKET:
        return
    links = {link.port: link for link in analysis.counters.links}
    for ports in effective["routing.split"].values():
        sent = {
            port: links[port].packets
            + sum(links[port].lost.get(cause, 0) for cause in BEFORE_SENDING)
            for port in ports
        }
        packets, share = sum(sent.values()), 1 / len(ports)
        most = MOST_DEVIATIONS * sqrt(packets * share * (1 - share))
        yield from (
            f"{port}: was drawn for {drawn:,} of {packets:,} packets, where {share * packets:,.0f} "
            f"+- {most:,.0f} are allowed"
            for port, drawn in sent.items()
            if abs(drawn - share * packets) > most
        )


def _least_bytes(analysis: Analysis) -> Counter[tuple[str, str]]:
    interval = Interval(0, analysis.manifest.traffic.duration_ns)
    delivered = flow_bytes(analysis, interval)
    ends = {link.port: (link.node, link.neighbour) for link in analysis.counters.links}
    egresses = [ends[port.egress] for port in analysis.manifest.bottlenecks if port.egress in ends]
    is_drawn = analysis.manifest.effective.get("routing.kind") in routes.PER_PACKET
    needed: Counter[tuple[str, str]] = Counter()
    for flow in analysis.manifest.flows:
        # Further subflows of Multipath TCP may take other paths than the first one.
        directions = [] if flow.subflows else list(pairwise(flow.path))
        # A flow counts at the first of the studied ports that it crosses.
        counts_at = next((egress for egress in egresses if egress in directions), None)
        last = -1 if counts_at is None else directions.index(counts_at)
        crossed = directions[: last + 1]
        if crossed and is_drawn:  # Each path has different hops in between.
            crossed = [crossed[0], crossed[-1]]
        for direction in crossed:
            needed[direction] += delivered[flow.flow]
    return needed
