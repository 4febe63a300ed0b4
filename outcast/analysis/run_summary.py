"""The summary of a run's analysis.

To add a key, add a field to `Summary` and a line to `summarize`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import polars as pl

from outcast.analysis.join.join import Verdict
from outcast.analysis.measure.bins import throughput_table
from outcast.analysis.measure.blackout import length_counts
from outcast.analysis.measure.completions import completion_summary
from outcast.analysis.measure.fairness_windows import changes, fairness_table, more_of
from outcast.analysis.measure.flows import FlowMeasures, flow_measures
from outcast.analysis.measure.kernel_counts import counted, synchronisation
from outcast.analysis.measure.limits import FlowSpan, limits
from outcast.analysis.measure.losses import loss_summary
from outcast.analysis.measure.port_summary import noise_summary, phase_summary, queue_summary
from outcast.analysis.measure.probes import probe_summary
from outcast.analysis.measure.program_runs import program_summary
from outcast.analysis.measure.run_goodput import by_class, window
from outcast.analysis.measure.stationarity import is_stationary, rates_in
from outcast.analysis.run_analysis import Analysis
from outcast.analysis.summary_warnings import warnings, windows
from outcast.analysis.trust import capture_summary
from outcast.records import effective
from outcast.records.flows import FlowRecord
from outcast.records.port_summaries import PortDrops, TcpSummary
from outcast.records.summary import (
    ChangeSummary,
    ClassSummary,
    FairnessSummary,
    Groups,
    LimitSummary,
    SamplesSummary,
    Summary,
    SynchronisationSummary,
)
from outcast.units import format_time


def summarize(analysis: Analysis, wall_s: Mapping[str, float]) -> Summary:
    """Returns the summary of an analysis. `wall_s` comes from the manifest."""
    main = window(analysis, analysis.interval)
    fairness = fairness_table(analysis)
    flows = flow_measures(analysis)
    losses, limited = loss_summary(analysis), _limited(analysis, flows)
    groups, of_classes = _groups(analysis, main.groups, more_of(analysis, flows))
    ports = {port.record.egress: port for port in analysis.ports}
    noises = {egress: noise_summary(analysis, port) for egress, port in ports.items()}
    queues = {egress: queue_summary(analysis, port) for egress, port in ports.items()}
    return Summary(
        name=analysis.manifest.name,
        engine=analysis.manifest.engine,
        duration_s=analysis.manifest.traffic.duration_ns / 1e9,
        interval=_covered(analysis),
        start_s=main.start_s,
        end_s=main.end_s,
        jain_index=main.jain_index,
        stationary=_stationary(analysis),
        total_goodput_bps=main.total_goodput_bps,
        classes={
            hops: part.model_copy(
                update={k: v for k, v in of_classes[hops].items() if k in ClassSummary.model_fields}
            )
            for hops, part in main.classes.items()
        },
        outcast_ratio=main.outcast_ratio,
        windows_from="start" if analysis.windows_from_ns is None else "all active",
        windows={
            format_time(part.end_ns - part.start_ns): window(analysis, part)
            for part in windows(analysis)
        },
        drops=_port_drops(analysis),
        losses=losses,
        flow_chains={hops: part["chains"] for hops, part in of_classes.items()},
        tcp=_tcp(analysis, flows),
        queue=queues,
        phase={egress: phase_summary(analysis, port) for egress, port in ports.items()},
        noise=noises,
        fairness=_fairness(analysis, fairness),
        convergence=_convergence(analysis, fairness),
        synchronisation=_synchronisation(analysis),
        limited=limited,
        samples=_samples(analysis),
        completions=completion_summary(analysis),
        programs=program_summary(analysis),
        probes=probe_summary(analysis),
        warnings=warnings(analysis, losses, limited, queues, noises),
        capture=capture_summary(analysis),
        wall_s=dict(wall_s),
        group_by=analysis.group_by,
        groups=groups,
        compare=main.compare,
    )


def _groups(
    analysis: Analysis, goodput: Groups, more: Callable[[Sequence[FlowRecord]], dict[str, Any]]
) -> tuple[Groups, dict[str, dict[str, Any]]]:
    """Every group with what it did besides goodput; and what each class did, by its hops."""
    # The least RTO of captures' senders is not known.
    told = analysis.manifest.tells_senders
    unknown = {} if told else dict.fromkeys(("timeouts_seen", "halted_s"))
    groups: Groups = {
        kind: {
            label: goodput[kind][label].model_copy(update=more(records) | unknown)
            for label, records in by_label.items()
        }
        for kind, by_label in analysis.manifest.groups.items()
    }
    return groups, {
        str(hops): more(records) for hops, records in by_class(analysis.manifest).items()
    }


def _covered(analysis: Analysis) -> Literal["whole", "all active", "asked"]:
    if analysis.is_asked:
        return "asked"
    return "all active" if analysis.all_active else "whole"


def _convergence(analysis: Analysis, fairness: pl.DataFrame | None) -> list[ChangeSummary]:
    # A flow of joined captures joins with its first packet, which is no event of its own.
    found = changes(analysis, fairness) if analysis.manifest.tells_senders else []
    start_ns, end_ns = analysis.interval.start_ns, analysis.interval.end_ns
    return [
        ChangeSummary(
            t_s=change.t_ns / 1e9,
            flows=change.flows,
            fair_after_s=None if change.fair_after_ns is None else change.fair_after_ns / 1e9,
        )
        for change in found
        if not analysis.is_asked or start_ns <= change.t_ns < end_ns
    ]


def _stationary(analysis: Analysis) -> bool | None:
    records = analysis.manifest.compared_flows
    if not records or not analysis.manifest.tells_senders:
        return None
    duration_ns = analysis.manifest.traffic.duration_ns
    rates = rates_in(throughput_table(analysis), duration_ns, analysis.interval)
    return is_stationary(rates, records)


def _limited(analysis: Analysis, flows: Mapping[int, FlowMeasures]) -> dict[str, LimitSummary]:
    """What limited each planned flow while it was active within the interval."""
    if analysis.sockets is None:
        return {}
    spans = [
        FlowSpan(record, did.active.start_ns, did.active.end_ns, did.tcp.halted_s)
        for record in analysis.manifest.planned_flows
        for did in [flows[record.flow]]
        if did.active.seconds
    ]
    return limits(analysis.sockets, spans)


def _port_drops(analysis: Analysis) -> dict[str, PortDrops]:
    hops = defaultdict(set)
    for record in analysis.manifest.flows:
        if record.ingress is not None and record.hops is not None:
            hops[record.ingress].add(record.hops)
    drops = {}
    for port in analysis.ports:
        joined = port.joined
        counts = analysis.counts(port.reached_ns)
        chains = port.chains.only(counts[port.chains.first])
        for index, name in enumerate(joined.inputs):
            mine = counts & (joined.arrivals.port == index)
            of_port = chains.ingress == index
            lengths = chains.drops[of_port]
            # If a port feeds two bottlenecks, the output's name is a part of its entries' names.
            key = name if name not in drops else f"{name}>{port.record.egress}"
            drops[key] = PortDrops(
                packets=int(mine.sum()),
                dropped=int((mine & (joined.verdict == Verdict.DROPPED)).sum()),
                longest_chain=int(lengths.max()) if lengths.size else 0,
                chains=length_counts(lengths),
                blackouts=int((chains.others_through[of_port] > 0).sum()),
                hops=sorted(hops[name]),
            )
    return drops


def _tcp(analysis: Analysis, flows: Mapping[int, FlowMeasures]) -> dict[str, TcpSummary]:
    classes = {}
    for hops, records in by_class(analysis.manifest).items():
        parts = [flows[record.flow].tcp for record in records]
        sums = {
            name: sum(getattr(part, name) for part in parts) for name in TcpSummary.model_fields
        }
        classes[str(hops)] = TcpSummary(**sums | {"halted_s": round(sums["halted_s"], 9)})
    return classes


def _fairness(analysis: Analysis, table: pl.DataFrame | None) -> dict[str, FairnessSummary]:
    if table is None:
        return {}
    start_ns, end_ns = analysis.interval.start_ns, analysis.interval.end_ns
    table = table.filter((pl.col("t_start") >= start_ns) & (pl.col("t_end") <= end_ns))
    widths = table.group_by((pl.col("t_end") - pl.col("t_start")).alias("width")).agg(
        pl.len().alias("windows"), pl.mean("jain").alias("mean"), pl.min("jain").alias("min")
    )
    return {
        format_time(row.pop("width")): FairnessSummary(**row)
        for row in widths.sort("width").iter_rows(named=True)
    }


def _synchronisation(analysis: Analysis) -> SynchronisationSummary | None:
    return None if analysis.sockets is None else synchronisation(counted(analysis))


def _samples(analysis: Analysis) -> SamplesSummary | None:
    sampling = effective.sampling_of(analysis.manifest.effective)
    if sampling is None:
        return None
    return SamplesSummary(
        every_s=sampling.every_ns / 1e9,
        taken=sampling.taken,
        missed=sampling.missed,
        longest_ms=sampling.longest_ns / 1e6,
    )
