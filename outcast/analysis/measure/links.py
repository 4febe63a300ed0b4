"""Where packets went: every link's counters compared with the planned paths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from math import sqrt
from typing import get_args

import numpy as np
import polars as pl

from controllers import routes
from outcast.analysis.measure.losses import loss_summary
from outcast.analysis.measure.run_goodput import flow_bytes
from outcast.analysis.run_analysis import Analysis, Interval
from outcast.records.captures import AnyManifest
from outcast.records.counters import Cause, LinkRecord
from outcast.records.port_summaries import LossSummary

MOST_DEVIATIONS = 5
"""How many standard deviations a port's packets may be from its share, if it is drawn for each."""
_NOT_SENT: tuple[Cause, ...] = ("queue", "delay", "failure", "interface")
"""The causes of losses that a port's counter of sent packets lacks."""


def link_table(analysis: Analysis) -> pl.DataFrame | None:
    """One row per direction of a link; None if links were not counted.

    `port` sends from `node` to `neighbour`. `flows` and `acknowledged` say of how many flows data
    and acknowledgements are planned to cross it. `packets` and `bytes` (with Ethernet headers) are
    what it sent within the duration, `utilisation` the share of what it could carry then. `lost`
    and `lost_CAUSE` are packets.
    """
    losses = loss_summary(analysis)
    if losses is None:
        return None
    return pl.DataFrame(
        [
            {
                "port": link.port,
                "node": link.node,
                "neighbour": link.neighbour,
                "flows": len(link.flows),
                "acknowledged": len(link.acknowledged),
                "other": link.other,
                "packets": link.packets,
                "bytes": link.bytes,
                "utilisation": utilisation(analysis, link),
                **_lost(losses, link.port),
            }
            for link in (whole_run.within for whole_run in analysis.counters.links)
        ]
    )


def utilisation(analysis: Analysis, link: LinkRecord) -> float:
    """The share of what a direction of a link could carry that it sent; see `link_table`."""
    traffic = analysis.manifest.traffic
    at_end = all(link.at_end is not None for link in analysis.counters.links)
    span_ns = traffic.duration_ns if at_end else traffic.t_end_ns - traffic.t_start_ns
    rate = analysis.link_rate(link.port, link.rate_bps)
    rate_bps = float(rate.mean_bps(np.array([0, span_ns], np.int64))[0])
    # Of frames too short for Ethernet, which TCP sends only without timestamps, the counters
    # do not have the number, so what fills them up is not counted.
    wire_bytes = link.bytes + link.overhead_bytes * link.packets
    return wire_bytes * 8 / (rate_bps * span_ns / 1e9) if rate_bps else 0.0


def _lost(losses: LossSummary, port: str) -> dict[str, int]:
    lost = losses.ports[port].lost if port in losses.ports else {}
    of_causes = {f"lost_{cause}": lost.get(cause, 0) for cause in get_args(Cause)}
    return {"lost": sum(lost.values()), **of_causes}


def distrust(analysis: Analysis) -> list[str]:
    """Why the counters of links do not fit the planned paths; empty if they fit.

    A link that no path crosses must have sent nothing. Any other link must have sent at least the
    payload that later left the bottleneck, of the flows that crossed it on their way there.
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
    """A line on each port that a switch that draws one for each packet took too often or seldom."""
    effective = analysis.manifest.effective
    if effective.get("routing.kind") not in routes.PER_PACKET:
        return
    links = {link.port: link for link in analysis.counters.links}
    for ports in effective["routing.split"].values():
        sent = {
            port: links[port].packets + sum(links[port].lost.get(cause, 0) for cause in _NOT_SENT)
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
    egresses = _egress_directions(analysis.manifest, analysis.counters.links)
    is_drawn = analysis.manifest.effective.get("routing.kind") in routes.PER_PACKET
    needed: Counter[tuple[str, str]] = Counter()
    for flow in analysis.manifest.flows:
        # Further subflows of Multipath TCP may take other paths than the first one.
        directions = [] if flow.subflows else list(pairwise(flow.path))
        # A flow counts at the first of the studied ports that it crosses.
        counts_at = next((egress for egress in egresses if egress in directions), None)
        last = -1 if counts_at is None else directions.index(counts_at)
        crossed = directions[: last + 1]
        if crossed and is_drawn:  # Of its hops between, any way has others.
            crossed = [crossed[0], crossed[-1]]
        for direction in crossed:
            needed[direction] += delivered[flow.flow]
    return needed


def _egress_directions(manifest: AnyManifest, links: list[LinkRecord]) -> list[tuple[str, str]]:
    """The directions that the studied ports send in, in the manifest's order."""
    ends = {link.port: (link.node, link.neighbour) for link in links}
    return [ends[record.egress] for record in manifest.bottlenecks if record.egress in ends]
