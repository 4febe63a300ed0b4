"""The summary of an analysis, and the warnings for its reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import polars as pl

from outcast.analysis.measure import computed
from outcast.analysis.measure.bins import throughput_table
from outcast.analysis.measure.completions import completion_summary, probe_summary, program_summary
from outcast.analysis.measure.fairness import (
    changes,
    fairness_table,
    is_stationary,
    rates_in,
)
from outcast.analysis.measure.flows import (
    HELD_SHARE,
    FlowMeasures,
    by_class,
    flow_bytes,
    flow_measures,
    group_measures,
    holder,
    mice,
    mice_warnings,
    summed_tcp,
    unfinished_warnings,
    window,
)
from outcast.analysis.measure.kernel_counts import (
    MOST_ELSEWHERE,
    KernelCounts,
    counted,
    limit_warnings,
    limits,
    memory_warnings,
    slow_warnings,
    synchronisation,
)
from outcast.analysis.measure.losses import loss_summary, loss_warnings, utilisation, where
from outcast.analysis.measure.noise import noise_summary, phase_summary
from outcast.analysis.measure.port_summary import port_drops, queue_summary
from outcast.analysis.measure.streams import copied_warnings
from outcast.analysis.run_analysis import Analysis, Interval, when_all_active
from outcast.analysis.trust import capture_summary
from outcast.experiment.measure import cut_windows
from outcast.records import effective
from outcast.records.flows import FlowRecord
from outcast.records.port_summaries import (
    LossSummary,
    NoiseSummary,
    QueueSummary,
)
from outcast.records.summary import (
    ChangeSummary,
    ClassSummary,
    FairnessSummary,
    Groups,
    GroupSummary,
    LimitSummary,
    SamplesSummary,
    Summary,
)
from outcast.units import format_time, round_time

MOST_IDLE = 0.5
"""A run warns of a bottleneck that was idle for a larger share, though its flows had data."""
LEAST_FULL = 0.9
"""At a port that is busy for this share of the time packets wait."""
_FEW_ROUND_TRIPS = 10
_LEAST_TOGETHER = 0.9
"""Of a capture; a warning says where all flows are active for a smaller share."""


def warnings(
    analysis: Analysis,
    flows: Mapping[int, FlowMeasures],
    losses: LossSummary | None,
    limited: Mapping[str, LimitSummary],
    queues: Mapping[str, QueueSummary],
    noises: Mapping[str, NoiseSummary],
) -> list[str]:
    """Every warning of a run; losses are of the whole duration, all else of the main interval."""
    measured = ", ".join(port.record.egress for port in analysis.ports)
    duration_s = analysis.manifest.traffic.duration_ns / 1e9
    is_whole = not (analysis.is_asked or analysis.all_active)
    small = mice(analysis)
    lines = [
        *loss_warnings(losses, measured, "" if is_whole else f" from 0 to {duration_s:g} s"),
        *limit_warnings(limited),
        *memory_warnings(analysis.counters.hosts),
        *_other_limits(queues),
    ]
    for port in analysis.ports:
        lines += slow_warnings(port.record.egress, port.record.queue, noises)
    return [
        *lines,
        *_idle(analysis, queues, limited, losses),
        *unfinished_warnings(analysis),
        *mice_warnings([flow for flow in analysis.manifest.flows if flow.flow in small]),
        *copied_warnings(analysis),
        *_apart(analysis),
        *_of_windows(analysis),
        *analysis.remarks,
        *analysis.manifest.warnings,
        *(_held(analysis, flows) if analysis.manifest.tells_senders else []),
    ]


def _other_limits(queues: Mapping[str, QueueSummary]) -> list[str]:
    """A line on each port whose drops show another limit than the configured one."""
    lines = []
    for egress, queue in queues.items():
        if (capacity := queue.capacity) is None or capacity.agrees is not False:
            continue
        below = "" if capacity.below is None else f" and less than {capacity.below:,}"
        lines.append(
            f"{egress}: its drops show room for at least {capacity.at_least:,}{below} "
            f"{capacity.unit}, and its limit is {capacity.configured:,}; something else drops, or "
            "frames are larger than they should be"
        )
    return lines


def _idle(
    analysis: Analysis,
    queues: Mapping[str, QueueSummary],
    limited: Mapping[str, LimitSummary],
    losses: LossSummary | None,
) -> list[str]:
    """A line on each port that was idle, or whose queue was, though flows had data.

    Those count that cross no busy port, and no other port whose queue was used.
    """
    links = {link.port: link.within for link in analysis.counters.links}
    used = {port: part.utilisation or 0.0 for port, part in queues.items() if port in links}
    busy = {
        flow for port, share in used.items() if share > 1 - MOST_IDLE for flow in links[port].flows
    }
    frames = {port.record.egress: port.record.queue.frame_bytes for port in analysis.ports}
    lengths = {port: part.length_bytes for port, part in queues.items()}
    queued = {port for port, part in lengths.items() if part is None or part.p99 > frames[port]}
    waited = {flow for port in queued if port in links for flow in links[port].flows}
    lines: list[str] = []
    for egress in used:
        is_unused, share = egress not in queued, queues[egress].utilisation
        mine = {*links[egress].flows} - (waited if is_unused else set())
        mine -= busy if used[egress] < 1 - MOST_IDLE else set()
        wanting = {flow: part for flow, part in limited.items() if int(flow) in mine}
        answers = {
            port: used.get(port, utilisation(analysis, link))
            for port, link in links.items()
            if not mine.isdisjoint(link.acknowledged)
        }
        before = _busy_before(analysis, egress, mine)
        lines += idle_warnings(egress, share, is_unused, wanting, losses, before, answers)
    return lines


def idle_warnings(
    egress: str,
    utilisation: float | None,
    is_unused: bool,
    limited: Mapping[str, LimitSummary],
    losses: LossSummary | None,
    before: tuple[str, float] | None,
    answers: Mapping[str, float],
) -> list[str]:
    """A line if a bottleneck or its queue (`is_unused`) had little to do though flows had data.

    `before` is another busy port on the flows' path, with its utilisation. `answers` has the
    utilisation of each port that acknowledgements leave by.
    """
    if utilisation is None or not limited:
        return []
    is_idle = 1 - utilisation > MOST_IDLE
    if not (is_idle or is_unused):
        return []
    wanting = [part.network + part.timeout for part in limited.values()]
    if max(wanting) < 1 - MOST_ELSEWHERE:
        return []
    waited = sum(part.timeout for part in limited.values()) / len(limited)
    share, fullest = max(((share, port) for port, share in answers.items()), default=(0.0, ""))
    if share >= LEAST_FULL:
        why = f"acknowledgements waited at {fullest}, which was busy for {share:.0%} of the time"
    elif before is not None:
        why = f"packets waited at {before[0]}, which was busy for {before[1]:.0%} of the time"
    elif losses is not None and 2 * losses.causes.get("link", 0) > losses.total:
        why = (
            f"links lost packets by their own settings, which keeps windows small: {where(losses)}"
        )
    elif losses is not None and losses.elsewhere > losses.bottleneck:
        why = f"packets waited and were lost elsewhere: {where(losses)}"
    elif is_idle and 2 * waited >= 1 - utilisation:
        why = f"a flow waited for timeouts for {waited:.0%} of its time on average"
    else:
        why = "small congestion windows, or a queue elsewhere, held them back"
    what = f"{egress} was idle for {1 - utilisation:.0%} of the time"
    if not is_idle:
        what = f"the queue of {egress} was hardly used (one packet at most for 99% of the time)"
    return [f"{what}, though flows had data to send; {why}"]


def _busy_before(analysis: Analysis, egress: str, flows: set[int]) -> tuple[str, float] | None:
    """The first other busy port on the way of one of these flows, with its utilisation."""
    links = {(link.node, link.neighbour): link.within for link in analysis.counters.links}
    for record in analysis.manifest.planned_flows:
        for hop in pairwise(record.path if record.flow in flows else ()):
            link = links.get(hop)
            share = 0.0 if link is None else utilisation(analysis, link)
            if link is not None and link.port != egress and share >= LEAST_FULL:
                return link.port, share
    return None


def windows(analysis: Analysis) -> list[Interval]:
    """The configured windows that end within the duration; one that is longer is cut to its end.

    They count from when all flows are active; from the traffic's start if there is no such time.
    """
    begin, end = analysis.windows_from_ns or 0, analysis.manifest.traffic.duration_ns
    ends = [end if width > end else begin + width for width in analysis.windows_ns]
    return [Interval(begin, until) for until in dict.fromkeys(ends) if begin < until <= end]


def _apart(analysis: Analysis) -> list[str]:
    """A warning if all planned flows were active for a moment or never, so shares say little."""
    if len(analysis.manifest.planned_flows) < 2:
        return []
    if analysis.windows_from_ns is None:
        return [
            "shares, ratios and Jain's index compare flows that sent at different times, because "
            "at no time all were active"
        ]
    lasts_ns = analysis.interval.end_ns - analysis.interval.start_ns
    if not (analysis.is_asked or analysis.all_active):
        together = when_all_active(analysis.manifest, analysis.ports)
        active_ns = 0 if together is None else together.end_ns - together.start_ns
        if active_ns < _LEAST_TOGETHER * lasts_ns:
            return [
                "shares, ratios and Jain's index count over the whole capture, but all flows were "
                f"active for {round_time(active_ns)} of its {round_time(lasts_ns)} only"
            ]
    if not analysis.all_active or (plan := analysis.plan) is None:
        return []
    rtt_ns = max(plan.base_rtt_ns(flow.path, flow.return_path) for flow in plan.flows)
    if lasts_ns >= _FEW_ROUND_TRIPS * rtt_ns:
        return []
    return [
        f"all flows were active for {round_time(lasts_ns)} only, less than {_FEW_ROUND_TRIPS} base "
        f"round trips of {round_time(rtt_ns)}, so shares, ratios and Jain's index say little; "
        "analysis.from and to choose another interval"
    ]


def _of_windows(analysis: Analysis) -> list[str]:
    """A line on each reason why windows are not of all flows, are cut or left out."""
    if not analysis.windows_ns:
        return []
    warnings = []
    parts = windows(analysis)
    if analysis.windows_from_ns is None and analysis.manifest.planned_flows:
        warnings.append(
            "windows count from the traffic's start, because at no time all flows were active"
        )
    elif not analysis.is_asked and any(part.end_ns > analysis.interval.end_ns for part in parts):
        warnings.append(
            f"windows that end after {format_time(analysis.interval.end_ns)} are not of all flows, "
            "because the first one ended then"
        )
    duration_ns = analysis.manifest.traffic.duration_ns
    warnings += cut_windows(analysis.windows_ns, duration_ns)
    kept = {part.end_ns - part.start_ns for part in parts}
    missing = [width for width in analysis.windows_ns if width <= duration_ns and width not in kept]
    if missing:
        begin = format_time(analysis.windows_from_ns or 0)
        names = ", ".join(map(format_time, missing))
        warnings.append(
            f"windows {names} are left out, because all flows are active only from {begin} on, and "
            "they would end after the duration"
        )
    return warnings


def _held(analysis: Analysis, flows: Mapping[int, FlowMeasures]) -> list[str]:
    """A warning if one flow held the link while all others ran into timeouts."""
    goodput = flow_bytes(analysis, analysis.interval)
    compared = {record.flow: record for record in analysis.manifest.compared_flows}
    held_by = holder({flow: goodput[flow] for flow in compared})
    others = compared.keys() - {held_by}
    if held_by is None or not all(flows[flow].tcp.timeouts for flow in others):
        return []
    return [
        f"flow {held_by} from {compared[held_by].src} ({compared[held_by].hops} hops) held the "
        f"link: more than {HELD_SHARE:.0%} of the goodput, while each of the {len(others)} others "
        "ran into timeouts (docs/limits.md)"
    ]


def summarize(analysis: Analysis, wall_s: Mapping[str, float]) -> Summary:
    """The summary of an analysis. `wall_s` comes from the manifest."""
    manifest = analysis.manifest
    main = window(analysis, analysis.interval)
    fairness = fairness_table(analysis)
    flows, kernel = flow_measures(analysis), KernelCounts(analysis)

    def did(records: Sequence[FlowRecord]) -> dict[str, Any]:
        return group_measures(flows, kernel, records) | computed("class", analysis, records)

    # The least RTO of captures' senders is not known.
    unknown = {} if manifest.tells_senders else dict.fromkeys(("timeouts_seen", "halted_s"))
    groups: Groups = {
        kind: {
            label: main.groups[kind][label].model_copy(update=did(records) | unknown)
            for label, records in by_label.items()
        }
        for kind, by_label in manifest.groups.items()
    }
    by_hops = {str(hops): records for hops, records in by_class(manifest).items()}
    of_classes = {hops: did(records) for hops, records in by_hops.items()}
    of_groups_alone = GroupSummary.model_fields.keys() - ClassSummary.model_fields.keys()
    losses, limited = loss_summary(analysis), _limited(analysis, flows)
    ports = {port.record.egress: port for port in analysis.ports}
    noises = {egress: noise_summary(analysis, port) for egress, port in ports.items()}
    queues = {egress: queue_summary(analysis, port) for egress, port in ports.items()}
    return Summary(
        name=manifest.name,
        engine=manifest.engine,
        duration_s=manifest.traffic.duration_ns / 1e9,
        interval="asked"
        if analysis.is_asked
        else ("all active" if analysis.all_active else "whole"),
        start_s=main.start_s,
        end_s=main.end_s,
        jain_index=main.jain_index,
        stationary=_stationary(analysis),
        total_goodput_bps=main.total_goodput_bps,
        classes={
            hops: part.model_copy(
                update={k: v for k, v in of_classes[hops].items() if k not in of_groups_alone}
            )
            for hops, part in main.classes.items()
        },
        outcast_ratio=main.outcast_ratio,
        windows_from="start" if analysis.windows_from_ns is None else "all active",
        windows={
            format_time(part.end_ns - part.start_ns): window(analysis, part)
            for part in windows(analysis)
        },
        drops=port_drops(analysis),
        losses=losses,
        flow_chains={hops: part["chains"] for hops, part in of_classes.items()},
        tcp={
            hops: summed_tcp([flows[record.flow] for record in records])
            for hops, records in by_hops.items()
        },
        queue=queues,
        phase={egress: phase_summary(analysis, port) for egress, port in ports.items()},
        noise=noises,
        fairness=_fairness(analysis, fairness),
        convergence=_convergence(analysis, fairness),
        synchronisation=None if analysis.sockets is None else synchronisation(counted(analysis)),
        limited=limited,
        samples=_samples(analysis),
        completions=completion_summary(analysis),
        programs=program_summary(analysis),
        probes=probe_summary(analysis),
        warnings=warnings(analysis, flows, losses, limited, queues, noises),
        capture=capture_summary(analysis),
        wall_s=dict(wall_s),
        group_by=analysis.group_by,
        groups=groups,
        compare=main.compare,
        **computed("run", analysis),
    )


def _convergence(analysis: Analysis, fairness: pl.DataFrame | None) -> list[ChangeSummary]:
    # A flow of joined captures joins with its first packet, which is no event of its own.
    found = changes(analysis, fairness) if analysis.manifest.tells_senders else []
    start_s, end_s = analysis.interval.start_ns / 1e9, analysis.interval.end_ns / 1e9
    return [change for change in found if not analysis.is_asked or start_s <= change.t_s < end_s]


def _stationary(analysis: Analysis) -> bool | None:
    records = analysis.manifest.compared_flows
    if not records or not analysis.manifest.tells_senders:
        return None
    duration_ns = analysis.manifest.traffic.duration_ns
    rates = rates_in(throughput_table(analysis), duration_ns, analysis.interval)
    return is_stationary(rates, records)


def _limited(analysis: Analysis, flows: Mapping[int, FlowMeasures]) -> dict[str, LimitSummary]:
    if analysis.sockets is None:
        return {}
    return limits(
        analysis.sockets,
        [
            (record, flows[record.flow].active, flows[record.flow].tcp.halted_s)
            for record in analysis.manifest.planned_flows
            if flows[record.flow].active.seconds
        ],
    )


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
