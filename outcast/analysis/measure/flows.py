"""What each flow did in the main interval, besides goodput: losses, timeouts, waits, round trips.

Every flow is read once. So a run of a thousand senders, each of them a group, takes no longer than
one of two classes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from outcast.analysis.compiled import I64
from outcast.analysis.join.join import Verdict
from outcast.analysis.measure.kernel_counts import counted
from outcast.analysis.measure.queue import queueing_ns
from outcast.analysis.measure.run_goodput import flow_bytes
from outcast.analysis.measure.tcp import untimed_ns
from outcast.analysis.run_analysis import Analysis, Interval, active
from outcast.records.flows import FlowRecord
from outcast.records.port_summaries import TcpSummary

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
