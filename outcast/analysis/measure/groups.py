"""What the groups of flows did: losses, timeouts, round trips, completion times.

Every flow is read once, and every group of every grouping adds up its flows. So a run of a thousand
senders, each of them a group, takes no longer than one of two classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from outcast.analysis.compiled import I64
from outcast.analysis.join.join import Verdict
from outcast.analysis.measure.blackout import length_counts
from outcast.analysis.measure.completions import times_summary
from outcast.analysis.measure.kernel_counts import KernelCounts, counted
from outcast.analysis.measure.queue import Spread, queueing_ns, spread_of
from outcast.analysis.measure.sized_flows import completions_ns
from outcast.analysis.measure.tcp import untimed_ns
from outcast.analysis.run_analysis import Analysis, Interval, active, chains_by_flow
from outcast.records.run_directory import FlowRecord
from outcast.records.summary import SpreadSummary, TcpSummary, TimesSummary

TcpOfFlow = Callable[[int], TcpSummary]
"""What TCP did for a flow, by the flow's number."""


@dataclass
class _Flow:
    """What a group adds up of one flow. Arrays have a value for each sample or segment."""

    tcp: TcpSummary
    active: Interval
    packets: int = 0
    dropped: int = 0
    chains: list[int] = field(default_factory=list)
    rtt_ns: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    srtt_us: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    cwnd: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    queueing_ns: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    completion_ns: int | None = None
    untimed_ns: int = 0


def more_of(
    analysis: Analysis,
    tcp_of_flow: TcpOfFlow,
    told: Callable[[Spread | None, float], SpreadSummary | None],
) -> Callable[[Sequence[FlowRecord]], dict[str, Any]]:
    """A function that says what flows together did besides goodput, as fields of GroupSummary."""
    flows, kernel = _flows(analysis, tcp_of_flow), KernelCounts(analysis)
    return lambda records: kernel.of(records) | _added(records, flows, told)


def _added(
    records: Sequence[FlowRecord],
    every: Mapping[int, _Flow],
    told: Callable[[Spread | None, float], SpreadSummary | None],
) -> dict[str, Any]:
    flows = [every[record.flow] for record in records]
    carrying = [record for record in records if record.carries_data] or records
    of_data = [every[record.flow] for record in carrying]

    def distribution(
        name: str, unit: float, flows: Sequence[_Flow] = flows
    ) -> SpreadSummary | None:
        return told(spread_of(np.concatenate([getattr(flow, name) for flow in flows])), unit)

    return {
        "halted_s": round(sum(flow.tcp.halted_s for flow in flows), 9),
        "active_s": sum(flow.active.seconds for flow in flows),
        "rtt_ms": distribution("rtt_ns", 1e6),
        "rtt_untimed": _untimed(flows),
        "srtt_ms": distribution("srtt_us", 1e3),
        "cwnd": distribution("cwnd", 1),
        "queueing_ms": distribution("queueing_ns", 1e6, of_data),
        "packets": sum(flow.packets for flow in flows),
        "dropped": sum(flow.dropped for flow in flows),
        "retransmissions_seen": sum(flow.tcp.retransmissions for flow in flows),
        "timeouts_seen": sum(flow.tcp.timeouts for flow in flows),
        "chains": {
            str(length): count
            for length, count in length_counts(
                np.array([drops for flow in flows for drops in flow.chains], int)
            ).items()
        },
        "times": _times(carrying, of_data),
    }


def _untimed(flows: Sequence[_Flow]) -> float | None:
    active_s = sum(flow.active.seconds for flow in flows)
    if not active_s or not any(flow.rtt_ns.size for flow in flows):
        return None
    return round(sum(flow.untimed_ns for flow in flows) / 1e9 / active_s, 6)


def _times(records: Sequence[FlowRecord], flows: Sequence[_Flow]) -> TimesSummary | None:
    sized = sum(record.size_bytes is not None or record.of_program for record in records)
    times_ns = [flow.completion_ns for flow in flows if flow.completion_ns is not None]
    return times_summary(sized, times_ns) if sized else None


def _flows(analysis: Analysis, tcp_of_flow: TcpOfFlow) -> dict[int, _Flow]:
    flows = {
        number: _Flow(tcp_of_flow(number), active(analysis, record).cut(analysis.interval))
        for number, record in ((record.flow, record) for record in analysis.manifest.flows)
    }
    for port in analysis.ports:
        joined = port.joined
        for number, rows in port.rows.items():
            if number in flows:
                flows[number].packets += rows.size
                flow = flows[number]
                waits_ns = queueing_ns(joined, port.sent_ns, rows, port.reached_ns)
                flow.dropped += int((joined.verdict[rows] == Verdict.DROPPED).sum())
                flow.queueing_ns = np.concatenate([flow.queueing_ns, waits_ns])
    lengths = chains_by_flow(analysis)
    times_ns = completions_ns(analysis)
    for number, flow in flows.items():
        flow.chains = lengths.get(number, [])
        flow.completion_ns = times_ns.get(number)
    _add_round_trips(analysis, flows)
    _add_samples(analysis, flows)
    return flows


def _add_round_trips(analysis: Analysis, flows: Mapping[int, _Flow]) -> None:
    """Adds round trips of segments that came in within the main interval, by the captures."""
    interval, t_start_ns = analysis.interval, analysis.manifest.traffic.t_start_ns
    trips = [port.round_trips for port in analysis.ports]
    if not any(of_port.flow.size for of_port in trips):
        return
    numbers, sent_ns, rtt_ns = (
        np.concatenate(parts)
        for parts in (
            [np.array(port.numbers)[port.round_trips.flow] for port in analysis.ports],
            [of_port.sent_ns - t_start_ns for of_port in trips],
            [of_port.rtt_ns for of_port in trips],
        )
    )
    order = np.lexsort((sent_ns, numbers))
    numbers, sent_ns, rtt_ns = numbers[order], sent_ns[order], rtt_ns[order]
    for number, flow in flows.items():
        mine = slice(*np.searchsorted(numbers, [number, number + 1]))
        flow.rtt_ns = rtt_ns[mine][interval.has(sent_ns[mine])]
        flow.untimed_ns = untimed_ns(
            sent_ns[mine], rtt_ns[mine], flow.active.start_ns, flow.active.end_ns
        )


def _add_samples(analysis: Analysis, flows: Mapping[int, _Flow]) -> None:
    """Adds what sockets showed in the main interval while their flows were active."""
    if analysis.sockets is None:
        return
    samples = counted(analysis)
    for column in ("srtt_us", "cwnd"):
        values = samples.filter(pl.col(column) > 0).select("flow", column)
        for (number,), part in values.partition_by("flow", as_dict=True).items():
            setattr(flows[number], column, part[column].to_numpy().astype(np.int64))
