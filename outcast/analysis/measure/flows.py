"""Goodput of flows, classes and groups, and what else each flow did in the main interval.

Every flow is read once. So a run of a thousand senders, each of them a group, takes no longer than
one of two classes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from outcast.analysis.join.join import Verdict
from outcast.analysis.machine_code import I64
from outcast.analysis.measure.bins import bytes_between
from outcast.analysis.measure.blackout import length_counts
from outcast.analysis.measure.kernel_counts import KernelCounts, counted
from outcast.analysis.measure.queue import queueing_ns
from outcast.analysis.measure.spreads import in_unit, jain_index, spread_of, times_summary
from outcast.analysis.measure.tcp import untimed_ns
from outcast.analysis.run_analysis import Analysis, Interval, active
from outcast.errors import some_of
from outcast.plan.grouping import Comparison, controls
from outcast.records.captures import AnyManifest
from outcast.records.flows import FlowRecord
from outcast.records.port_summaries import SpreadSummary, TcpSummary
from outcast.records.summary import ClassSummary, CompareSummary, GroupSummary, Window

HELD_SHARE = 0.9
"""A flow with more of all goodput held the link. Measured: over 0.99 when held, else under 0.3."""
MOUSE_SHARE = 0.01
"""Of the mean flow's goodput. An unplanned flow with less carries no bulk of data."""


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
    if not flows:
        return []
    ends = [f"{flow.src}:{flow.sport} to {flow.dst}:{flow.dport}" for flow in flows]
    rule = f"less than {MOUSE_SHARE:.0%} of the mean flow's bytes"
    return [f"left out are mice, with {rule}: {some_of(ends)}"]


def _goodput_of(records: Sequence[FlowRecord], goodput_bps: Mapping[int, float]) -> dict[str, Any]:
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


_NO_VALUES: I64 = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class FlowMeasures:
    """What one flow did in the main interval. Arrays have a value for each sample or segment.

    `active` is the part of the interval in which it was active. `untimed_ns` is for how long of
    that no segment of `rtt_ns` was under way. `chains` are the lengths of its chains of drops.
    """

    tcp: TcpSummary
    active: Interval
    packets: int
    dropped: int
    chains: list[int]
    rtt_ns: I64
    srtt_us: I64
    cwnd: I64
    queueing_ns: I64
    completion_ns: int | None
    untimed_ns: int

    @property
    def rtt_p50_ns(self) -> int | None:
        return int(np.median(self.rtt_ns)) if self.rtt_ns.size else None


def flow_measures(analysis: Analysis) -> dict[int, FlowMeasures]:
    chains, times_ns = _chains_by_flow(analysis), _completions_ns(analysis)
    round_trips, samples = _round_trips(analysis), _samples(analysis)
    measures = {}
    for record in analysis.manifest.flows:
        flow = record.flow
        span = active(analysis, record).cut(analysis.interval)
        sent_ns, rtt_ns = round_trips[flow]
        parts = [(port, port.rows[flow]) for port in analysis.ports if flow in port.rows]
        verdicts = [port.joined.verdict[rows] for port, rows in parts]
        waits_ns = [
            queueing_ns(port.joined, port.sent_ns, rows, port.reached_ns) for port, rows in parts
        ]
        measures[flow] = FlowMeasures(
            tcp=tcp_of_flow(analysis, flow),
            active=span,
            packets=sum(part.size for part in verdicts),
            dropped=sum(int((part == Verdict.DROPPED).sum()) for part in verdicts),
            chains=chains[flow],
            rtt_ns=rtt_ns[analysis.interval.has(sent_ns)],
            srtt_us=samples["srtt_us"].get(flow, _NO_VALUES),
            cwnd=samples["cwnd"].get(flow, _NO_VALUES),
            queueing_ns=np.concatenate([_NO_VALUES, *waits_ns]),
            completion_ns=times_ns.get(flow),
            untimed_ns=untimed_ns(sent_ns, rtt_ns, span.start_ns, span.end_ns),
        )
    return measures


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


def summed_tcp(flows: Sequence[FlowMeasures]) -> TcpSummary:
    sums = {
        name: sum(getattr(flow.tcp, name) for flow in flows) for name in TcpSummary.model_fields
    }
    return TcpSummary(**sums | {"halted_s": round(sums["halted_s"], 9)})


def group_measures(
    measures: Mapping[int, FlowMeasures], kernel: KernelCounts, records: Sequence[FlowRecord]
) -> dict[str, Any]:
    """What flows together did besides goodput, as fields of GroupSummary."""
    carrying = [record for record in records if record.carries_data] or records
    flows, of_data = ([measures[record.flow] for record in part] for part in (records, carrying))
    tcp = summed_tcp(flows)
    active_s = sum(flow.active.seconds for flow in flows)
    untimed_s = sum(flow.untimed_ns for flow in flows) / 1e9
    has_round_trips = active_s and any(flow.rtt_ns.size for flow in flows)
    sized = sum(record.size_bytes is not None or record.of_program for record in carrying)
    times_ns = [flow.completion_ns for flow in of_data if flow.completion_ns is not None]
    return kernel.of(records) | {
        "halted_s": tcp.halted_s,
        "active_s": active_s,
        "rtt_ms": _spread(flows, "rtt_ns", 1e6),
        "rtt_untimed": round(untimed_s / active_s, 6) if has_round_trips else None,
        "srtt_ms": _spread(flows, "srtt_us", 1e3),
        "cwnd": _spread(flows, "cwnd", 1),
        "queueing_ms": _spread(of_data, "queueing_ns", 1e6),
        "packets": sum(flow.packets for flow in flows),
        "dropped": sum(flow.dropped for flow in flows),
        "retransmissions_seen": tcp.retransmissions,
        "timeouts_seen": tcp.timeouts,
        "chains": length_counts(np.array([drops for flow in flows for drops in flow.chains], int)),
        "times": times_summary(sized, times_ns) if sized else None,
    }


def _spread(flows: Sequence[FlowMeasures], name: str, unit: float) -> SpreadSummary | None:
    return in_unit(spread_of(np.concatenate([getattr(flow, name) for flow in flows])), unit)


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


def _round_trips(analysis: Analysis) -> dict[int, tuple[I64, I64]]:
    """For each flow, when its segments came in after the traffic's start, and their RTTs."""
    trips = [(np.array(port.numbers, int), port.round_trips) for port in analysis.ports]
    numbers = np.concatenate([numbers[part.flow] for numbers, part in trips])
    sent_ns = np.concatenate([part.sent_ns for _, part in trips])
    order = np.lexsort((sent_ns, numbers))
    numbers, sent_ns = numbers[order], sent_ns[order] - analysis.manifest.traffic.t_start_ns
    rtt_ns = np.concatenate([part.rtt_ns for _, part in trips])[order]
    found = {}
    for record in analysis.manifest.flows:
        mine = slice(*np.searchsorted(numbers, [record.flow, record.flow + 1]))
        found[record.flow] = sent_ns[mine], rtt_ns[mine]
    return found


def _samples(analysis: Analysis) -> dict[str, dict[int, I64]]:
    """What sockets showed in the main interval while their flows were active, by flow."""
    found: dict[str, dict[int, I64]] = {"srtt_us": {}, "cwnd": {}}
    if analysis.sockets is not None:
        samples = counted(analysis)
        for column, by_flow in found.items():
            known = samples.filter(pl.col(column) > 0).select("flow", column)
            for (flow,), part in known.partition_by("flow", as_dict=True).items():
                by_flow[flow] = part[column].to_numpy().astype(np.int64)
    return found


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
    parts = [
        f"flow {record.name or record.flow} had sent {sent:,} of {record.size_bytes:,} bytes"
        for record, sent in _unfinished(analysis)
    ]
    ended = "when the duration ended; what does not end has no completion time"
    return [f"{some_of(parts, 3)} {ended}"] if parts else []


def _unfinished(analysis: Analysis) -> list[tuple[FlowRecord, int]]:
    """Flows of a given size that did not send it within the duration, and the bytes they sent."""
    traffic = analysis.manifest.traffic
    # The first of a flow's bytes may leave before its start, with those that connect.
    sent = flow_bytes(analysis, Interval(-traffic.t_start_ns, traffic.duration_ns))
    return [
        (record, sent[record.flow])
        for record in analysis.manifest.flows
        if record.size_bytes is not None and sent[record.flow] < record.size_bytes
    ]
