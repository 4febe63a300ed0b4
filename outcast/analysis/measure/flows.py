"""Goodput of flows, classes and groups, and what else each flow did in the main interval.

Every flow is read once. So a run of a thousand senders, each of them a group, takes no longer than
one of two classes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from outcast.analysis.compiled import I64
from outcast.analysis.join.join import Verdict
from outcast.analysis.measure.kernel_counts import counted
from outcast.analysis.measure.queue import queueing_ns
from outcast.analysis.measure.segments import bytes_between
from outcast.analysis.measure.tcp import untimed_ns
from outcast.analysis.run_analysis import Analysis, Interval, active
from outcast.errors import some_of
from outcast.plan.grouping import Comparison, controls
from outcast.records.captures import AnyManifest
from outcast.records.flows import FlowRecord
from outcast.records.port_summaries import TcpSummary
from outcast.records.summary import ClassSummary, CompareSummary, GroupSummary, Window

HELD_SHARE = 0.9
"""A flow with more of all goodput held the link. Measured: over 0.99 when held, else under 0.3."""
MOUSE_SHARE = 0.01
"""Of the mean flow's goodput. An unplanned flow with less carries no bulk of data."""


def jain_index(shares: Sequence[float]) -> float | None:
    """Jain's fairness index (DEC-TR-301): 1/n if one of n has everything; None if all are 0."""
    square = sum(shares) ** 2
    squares = sum(share * share for share in shares)
    return square / (len(shares) * squares) if squares else None


def outcast_ratio(mean_by_hops: Mapping[int, float]) -> float | None:
    """The mean of the class with the most hops over that of the class with the fewest.

    Returns None if there is only one class, or if the class with the fewest hops got nothing.
    """
    if len(mean_by_hops) < 2:
        return None
    nearest = mean_by_hops[min(mean_by_hops)]
    return mean_by_hops[max(mean_by_hops)] / nearest if nearest else None


def holder(goodput_bps: Mapping[int, float]) -> int | None:
    """The flow that had more than HELD_SHARE of all goodput, if there are three flows or more.

    If one of two flows has nearly everything, the queue may simply be unfair. If one of more flows
    has, its packets come in at each departure just before all others' (Floyd and Jacobson, "On
    Traffic Phase Effects in Packet-Switched Gateways", 1992).
    """
    if len(goodput_bps) < 3:
        return None
    flow = max(goodput_bps, key=lambda number: goodput_bps[number])
    return flow if goodput_bps[flow] > HELD_SHARE * sum(goodput_bps.values()) else None


def flow_bytes(analysis: Analysis, interval: Interval, of: str = "fresh") -> dict[int, int]:
    """Bytes of each flow of the run that left a bottleneck within an interval.

    `of` is `fresh` for payload bytes that had not left before, or `frames` for whole frames.
    """
    begin = analysis.manifest.traffic.t_start_ns
    total = {record.flow: 0 for record in analysis.manifest.flows}
    for port in analysis.ports:
        departures = port.joined.departures
        values = port.fresh if of == "fresh" else departures.frame_bytes
        sums = bytes_between(
            departures,
            values,
            len(port.joined.flows),
            begin + interval.start_ns,
            begin + interval.end_ns,
        )
        for number, value in zip(port.numbers, sums.tolist(), strict=True):
            if number in total:
                total[number] += value
    return total


def by_class(manifest: AnyManifest) -> dict[int, list[FlowRecord]]:
    """The compared flows of each hop count, the fewest hops first; none if that is unknown."""
    classes: dict[int, list[FlowRecord]] = defaultdict(list)
    for record in manifest.compared_flows:
        if record.hops is not None:
            classes[record.hops].append(record)
    return dict(sorted(classes.items()))


def mice(analysis: Analysis) -> frozenset[int]:
    """The flows that nobody planned and that got less than MOUSE_SHARE of their group's mean.

    Such are control connections, as iperf3's. A program's flows are its group. Planned flows always
    count, because one that gets nothing is what a run looks for.
    """
    total = flow_bytes(analysis, analysis.interval)
    groups: dict[str | None, list[int]] = defaultdict(list)
    for record in analysis.manifest.unplanned_flows:
        groups[record.name].append(record.flow)
    return frozenset(
        flow
        for flows in groups.values()
        for flow in flows
        if total[flow] < MOUSE_SHARE * sum(total[member] for member in flows) / len(flows)
    )


def active_seconds(analysis: Analysis, record: FlowRecord, interval: Interval) -> float:
    """The time over which a flow's goodput counts: the interval.

    Of a program's flow it is the part of the interval in which the flow was active, because nobody
    planned how long that is.
    """
    if not record.of_program:
        return interval.seconds
    return active(analysis, record).cut(interval).seconds or interval.seconds


def mice_warnings(flows: Sequence[FlowRecord]) -> list[str]:
    """A line on the mice, with the rule; empty without mice."""
    if not flows:
        return []
    ends = [f"{flow.src}:{flow.sport} to {flow.dst}:{flow.dport}" for flow in flows]
    rule = f"less than {MOUSE_SHARE:.0%} of the mean flow's bytes"
    return [f"left out are mice, with {rule}: {some_of(ends)}"]


def _goodput_of(records: Sequence[FlowRecord], goodput_bps: Mapping[int, float]) -> dict[str, Any]:
    """What a class and a group say of their flows' goodput."""
    shares = [goodput_bps[record.flow] for record in records]
    return {
        "flows": len(shares),
        "mean_goodput_bps": sum(shares) / len(shares),
        "min_goodput_bps": min(shares),
        "timeouts": None,
        "retransmits": None,
    }


def _compared(
    manifest: AnyManifest, comparison: Comparison | None, goodput_bps: Mapping[int, float]
) -> CompareSummary | None:
    """The two groups of the headline, and the ratio of their mean goodput."""
    if comparison is None:
        return None
    groups = manifest.groups.get(comparison.kind, {})
    first, second = (
        _goodput_of(groups[label], goodput_bps)["mean_goodput_bps"] if label in groups else None
        for label in comparison.groups
    )
    return CompareSummary(
        by=comparison.kind,
        groups=comparison.groups,
        mean_goodput_bps=(first, second),
        ratio=first / second if second and first is not None else None,
    )


def window(analysis: Analysis, interval: Interval) -> Window:
    """Goodput over an interval. Means leave out mice, and directions that carry no data."""
    manifest, total = analysis.manifest, flow_bytes(analysis, interval)
    goodput_bps = {
        record.flow: 8 * total[record.flow] / active_seconds(analysis, record, interval)
        for record in manifest.flows
    }
    left_out = mice(analysis) | {flow.flow for flow in manifest.flows if not flow.carries_data}
    whole = summed_up(manifest, goodput_bps, interval, analysis.comparison, left_out)
    total_bps = 8 * sum(total.values()) / interval.seconds
    return whole.model_copy(update={"total_goodput_bps": total_bps})


def summed_up(
    manifest: AnyManifest,
    goodput_bps: Mapping[int, float],
    interval: Interval,
    comparison: Comparison | None,
    left_out: frozenset[int] = frozenset(),
) -> Window:
    """Goodput of classes and groups by that of flows; groups and Jain's index drop `left_out`."""
    classes = {
        hops: ClassSummary(**_goodput_of(records, goodput_bps))
        for hops, records in by_class(manifest).items()
    }

    def group(records: Sequence[FlowRecord]) -> GroupSummary:
        # A group of mice alone still has a mean.
        counting = [record for record in records if record.flow not in left_out] or records
        named = list(controls(counting))
        return GroupSummary(**_goodput_of(counting, goodput_bps), congestion_controls=named)

    compared = [flow.flow for flow in manifest.compared_flows if flow.flow not in left_out]
    return Window(
        start_s=interval.start_ns / 1e9,
        end_s=interval.end_ns / 1e9,
        jain_index=jain_index([goodput_bps[flow] for flow in compared]),
        total_goodput_bps=sum(goodput_bps.values()),
        classes={str(hops): part for hops, part in classes.items()},
        outcast_ratio=outcast_ratio({h: part.mean_goodput_bps for h, part in classes.items()}),
        groups={
            kind: {label: group(records) for label, records in labels.items()}
            for kind, labels in manifest.groups.items()
        },
        compare=_compared(manifest, comparison, goodput_bps),
    )


_MOST_NAMED = 3


def _none() -> I64:
    return np.empty(0, np.int64)


@dataclass
class FlowMeasures:
    """What one flow did. Arrays have a value for each sample or segment."""

    tcp: TcpSummary
    active: Interval
    packets: int = 0
    dropped: int = 0
    chains: list[int] = field(default_factory=list)
    rtt_ns: I64 = field(default_factory=_none)
    srtt_us: I64 = field(default_factory=_none)
    cwnd: I64 = field(default_factory=_none)
    queueing_ns: I64 = field(default_factory=_none)
    completion_ns: int | None = None
    untimed_ns: int = 0

    @property
    def rtt_p50_ns(self) -> int | None:
        """The median of its round trips; None if none was captured."""
        return int(np.median(self.rtt_ns)) if self.rtt_ns.size else None


def flow_measures(analysis: Analysis) -> dict[int, FlowMeasures]:
    """What each flow of the run did, by its number."""
    flows = {
        record.flow: FlowMeasures(
            tcp_of_flow(analysis, record.flow), active(analysis, record).cut(analysis.interval)
        )
        for record in analysis.manifest.flows
    }
    for port in analysis.ports:
        joined = port.joined
        for number, rows in port.rows.items():
            if number in flows:
                flow = flows[number]
                flow.packets += rows.size
                flow.dropped += int((joined.verdict[rows] == Verdict.DROPPED).sum())
                waits_ns = queueing_ns(joined, port.sent_ns, rows, port.reached_ns)
                flow.queueing_ns = np.concatenate([flow.queueing_ns, waits_ns])
    lengths = _chains_by_flow(analysis)
    times_ns = _completions_ns(analysis)
    for number, flow in flows.items():
        flow.chains = lengths.get(number, [])
        flow.completion_ns = times_ns.get(number)
    _add_round_trips(analysis, flows)
    _add_samples(analysis, flows)
    return flows


def tcp_of_flow(analysis: Analysis, flow: int) -> TcpSummary:
    """What TCP did for one flow, as the bottleneck saw it."""
    begin_ns = analysis.manifest.traffic.t_start_ns + analysis.interval.start_ns
    parts = [(port, port.rows[flow]) for port in analysis.ports if flow in port.rows]
    retransmissions, spurious, timeouts = (
        sum(int(getattr(port.resent, name)[rows].sum()) for port, rows in parts)
        for name in ("retransmission", "spurious", "timeout")
    )
    # Of idle time before a timeout, the part within the interval counts.
    halted_ns = sum(
        int(np.minimum(port.resent.halted_ns[rows], port.reached_ns[rows] - begin_ns).sum())
        for port, rows in parts
    )
    return TcpSummary(
        retransmissions=retransmissions,
        spurious=spurious,
        timeouts=timeouts,
        halted_s=halted_ns / 1e9,
    )


def _chains_by_flow(analysis: Analysis) -> dict[int, list[int]]:
    """The lengths of the chains of drops in the interval, by the flow's number."""
    lengths: dict[int, list[int]] = defaultdict(list)
    for port in analysis.ports:
        flow = port.joined.arrivals.flow
        counts = analysis.counts(port.reached_ns)
        chains = port.flow_chains.only(counts[port.flow_chains.first])
        for number, drops in zip(flow[chains.first].tolist(), chains.drops.tolist(), strict=True):
            lengths[port.numbers[number]].append(drops)
    return lengths


def _add_round_trips(analysis: Analysis, flows: Mapping[int, FlowMeasures]) -> None:
    """Adds round trips of segments that came in within the main interval, by the captures."""
    interval, t_start_ns = analysis.interval, analysis.manifest.traffic.t_start_ns
    ports = [port for port in analysis.ports if port.round_trips.flow.size]
    if not ports:
        return
    numbers = np.concatenate([np.array(port.numbers)[port.round_trips.flow] for port in ports])
    sent_ns = np.concatenate([port.round_trips.sent_ns for port in ports]) - t_start_ns
    rtt_ns = np.concatenate([port.round_trips.rtt_ns for port in ports])
    order = np.lexsort((sent_ns, numbers))
    numbers, sent_ns, rtt_ns = numbers[order], sent_ns[order], rtt_ns[order]
    for number, flow in flows.items():
        mine = slice(*np.searchsorted(numbers, [number, number + 1]))
        flow.rtt_ns = rtt_ns[mine][interval.has(sent_ns[mine])]
        flow.untimed_ns = untimed_ns(
            sent_ns[mine], rtt_ns[mine], flow.active.start_ns, flow.active.end_ns
        )


def _add_samples(analysis: Analysis, flows: Mapping[int, FlowMeasures]) -> None:
    """Adds what sockets showed in the main interval while their flows were active."""
    if analysis.sockets is None:
        return
    samples = counted(analysis)
    for column in ("srtt_us", "cwnd"):
        values = samples.filter(pl.col(column) > 0).select("flow", column)
        for (number,), part in values.partition_by("flow", as_dict=True).items():
            setattr(flows[number], column, part[column].to_numpy().astype(np.int64))


def packet_span_ns(analysis: Analysis, flow: int) -> tuple[int, int] | None:
    """When a flow's first and last packet came in within the duration; None without any."""
    spans = [port.spans[flow] for port in analysis.ports if flow in port.spans]
    if not spans:
        return None
    start_ns = analysis.manifest.traffic.t_start_ns
    return min(first for first, _ in spans) - start_ns, max(last for _, last in spans) - start_ns


def _completions_ns(analysis: Analysis) -> dict[int, int]:
    """How long each flow took that ended within the duration, by its number.

    A flow of a given size takes from its planned start until its last new byte left the bottleneck.
    A program's flow, which nobody planned, takes from its first packet to its last one.
    """
    unfinished = {record.flow for record, _ in _unfinished(analysis)}
    times_ns = {}
    for record in analysis.manifest.flows:
        if record.of_program:
            seen = packet_span_ns(analysis, record.flow)
            if seen is not None:
                times_ns[record.flow] = seen[1] - seen[0]
        elif record.size_bytes is not None and record.flow not in unfinished:
            span = active(analysis, record)
            times_ns[record.flow] = span.end_ns - span.start_ns
    return times_ns


def unfinished_warnings(analysis: Analysis) -> list[str]:
    """A line on the flows of a given size that did not end within the duration."""
    parts = [
        f"flow {record.name or record.flow} had sent {sent:,} of {record.size_bytes:,} bytes"
        for record, sent in _unfinished(analysis)
    ]
    if not parts:
        return []
    more = f", and {len(parts) - _MOST_NAMED} more were not done" * (len(parts) > _MOST_NAMED)
    return [
        f"{', '.join(parts[:_MOST_NAMED])}{more} when the duration ended; what does not end has no "
        "completion time"
    ]


def _unfinished(analysis: Analysis) -> list[tuple[FlowRecord, int]]:
    """The flows of a given size of which less left the bottleneck within the duration, and that."""
    flows = analysis.manifest.flows
    sized = [(record, size) for record in flows if (size := record.size_bytes) is not None]
    if not sized:
        return []
    traffic = analysis.manifest.traffic
    # The first of a flow's bytes may leave before its start, with those that connect.
    sent = flow_bytes(analysis, Interval(-traffic.t_start_ns, traffic.duration_ns))
    return [(record, sent[record.flow]) for record, size in sized if sent[record.flow] < size]
