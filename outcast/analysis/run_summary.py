"""The summary of a run's analysis.

To add a key, add a field to `Summary` and a line to `summarize`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Literal

import numpy as np
import polars as pl

from outcast.analysis.compiled import I64, Array
from outcast.analysis.join.join import Verdict
from outcast.analysis.measure.bins import throughput_table, utilisation
from outcast.analysis.measure.blackout import length_counts, within
from outcast.analysis.measure.completions import completion_summary
from outcast.analysis.measure.fairness import HELD_SHARE, holder
from outcast.analysis.measure.fairness_windows import changes, fairness_table
from outcast.analysis.measure.groups import more_of
from outcast.analysis.measure.kernel_counts import counted, synchronisation
from outcast.analysis.measure.limits import (
    MOST_IDLE,
    FlowSpan,
    idle_warnings,
    limit_warnings,
    limits,
    memory_warnings,
)
from outcast.analysis.measure.links import utilisation as link_utilisation
from outcast.analysis.measure.losses import loss_summary, loss_warnings, lost_to_the_link
from outcast.analysis.measure.noise import noise as measure_noise
from outcast.analysis.measure.noise import regime_of
from outcast.analysis.measure.phase import packet_time_ns, phases
from outcast.analysis.measure.probes import probe_summary
from outcast.analysis.measure.program_runs import program_summary
from outcast.analysis.measure.queue import (
    Spread,
    capacity,
    length_spread,
    replay,
    sojourn_spread,
    switch_latency_ns,
)
from outcast.analysis.measure.run_goodput import by_class, flow_bytes, mice_warnings, window
from outcast.analysis.measure.service_classes import service_classes
from outcast.analysis.measure.sized_flows import unfinished_warnings
from outcast.analysis.measure.stationarity import is_stationary, rates_in
from outcast.analysis.measure.streams import copied_warnings
from outcast.analysis.run_analysis import Analysis, Interval, PortAnalysis, active
from outcast.analysis.trust import capture_summary
from outcast.experiment.engine import EngineName, properties
from outcast.experiment.measure import cut_windows
from outcast.experiment.queues import WITH_CLASSES
from outcast.plan import grouping
from outcast.plan.round_trips import base_rtt_ns
from outcast.records import effective
from outcast.records.captures import CapturesManifest
from outcast.records.link_rate import steps_of
from outcast.records.summary import (
    CapacitySummary,
    ChangeSummary,
    ClassSummary,
    FairnessSummary,
    Groups,
    LimitSummary,
    LossSummary,
    NoiseInput,
    NoiseSummary,
    PhaseSummary,
    PortDrops,
    QueueSummary,
    SamplesSummary,
    SpreadSummary,
    Summary,
    SynchronisationSummary,
    TcpSummary,
)
from outcast.units import format_time, round_time

LEAST_EXPLAINED = 0.95
"""Of the packets, so that a queue that nobody told of counts as drop-tail."""


def summarize(analysis: Analysis, wall_s: Mapping[str, float]) -> Summary:
    """Returns the summary of an analysis. `wall_s` comes from the manifest."""
    main = window(analysis, analysis.interval)
    fairness = fairness_table(analysis)
    losses = loss_summary(analysis)
    is_captured = isinstance(analysis.manifest, CapturesManifest)
    more = more_of(analysis, lambda flow: tcp_of_flow(analysis, flow), _spread)
    groups: Groups = {
        kind: {
            label: main.groups[kind][label].model_copy(update=more(records))
            for label, records in by_label.items()
        }
        for kind, by_label in analysis.manifest.groups.items()
    }
    of_classes = {str(hops): more(records) for hops, records in by_class(analysis.manifest).items()}
    measured = ", ".join(port.record.egress for port in analysis.ports)
    duration_s = analysis.manifest.traffic.duration_ns / 1e9
    when = "" if _covered(analysis) == "whole" else f" from 0 to {duration_s:g} s"
    noises = {port.record.egress: _noise_summary(analysis, port) for port in analysis.ports}
    limited = _limited(analysis)
    queues = {port.record.egress: _queue_summary(analysis, port) for port in analysis.ports}
    return Summary(
        name=analysis.manifest.name,
        engine=_engine(analysis),
        duration_s=duration_s,
        interval=_covered(analysis),
        start_s=main.start_s,
        end_s=main.end_s,
        jain_index=main.jain_index,
        stationary=None if is_captured else _stationary(analysis),
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
            for part in _windows(analysis)
        },
        drops=_port_drops(analysis),
        losses=losses,
        flow_chains={hops: part["chains"] for hops, part in of_classes.items()},
        tcp=_tcp(analysis),
        queue=queues,
        phase={port.record.egress: _phase_summary(analysis, port) for port in analysis.ports},
        noise=noises,
        fairness=_fairness(analysis, fairness),
        convergence=[
            ChangeSummary(
                t_s=change.t_ns / 1e9,
                flows=change.flows,
                fair_after_s=None if change.fair_after_ns is None else change.fair_after_ns / 1e9,
            )
            # A flow of joined captures joins with its first packet, which is no event of its own.
            for change in ([] if is_captured else changes(analysis, fairness))
            if not analysis.is_asked or _inside(analysis.interval, change.t_ns)
        ],
        synchronisation=_synchronisation(analysis),
        limited=limited,
        samples=_samples(analysis),
        completions=completion_summary(analysis),
        programs=program_summary(analysis),
        probes=probe_summary(analysis),
        warnings=[
            *loss_warnings(losses, measured, when),
            *limit_warnings(limited),
            *memory_warnings(analysis.counters.hosts),
            *_idle(analysis, queues, limited, losses),
            *unfinished_warnings(analysis),
            *mice_warnings(analysis),
            *copied_warnings(analysis),
            *_apart(analysis),
            *_window_warnings(analysis),
            *analysis.remarks,
            *analysis.manifest.warnings,
            *([] if is_captured else _held(analysis)),
            *(
                f"phases at {egress}: {noise.sentence}"
                for egress, noise in noises.items()
                if noise.sentence.startswith(("phase-locked", "unknown, perhaps"))
            ),
        ],
        capture=capture_summary(analysis),
        wall_s=dict(wall_s),
        group_by=analysis.group_by,
        groups=_without_timeouts(groups) if is_captured else groups,
        compare=main.compare,
    )


def _idle(
    analysis: Analysis,
    queues: Mapping[str, QueueSummary],
    limited: Mapping[str, LimitSummary],
    losses: LossSummary | None,
) -> list[str]:
    """A line on each port that was idle though flows had data, and crossed no busy port."""
    links = {link.port: link.within for link in analysis.counters.links}
    used = {port: part.utilisation or 0.0 for port, part in queues.items() if port in links}
    busy = {
        flow for port, share in used.items() if share > 1 - MOST_IDLE for flow in links[port].flows
    }
    lines: list[str] = []
    for egress in used:
        mine = {*links[egress].flows} - busy
        wanting = {flow: part for flow, part in limited.items() if int(flow) in mine}
        answers = {
            port: used.get(port, link_utilisation(analysis, link))
            for port, link in links.items()
            if not mine.isdisjoint(link.acknowledged)
        }
        told, share = analysis.manifest.warnings, queues[egress].utilisation
        lines += idle_warnings(egress, share, wanting, losses, told, answers)
    return lines


def _covered(analysis: Analysis) -> Literal["whole", "all active", "asked"]:
    if analysis.is_asked:
        return "asked"
    return "all active" if analysis.all_active else "whole"


def _inside(interval: Interval, t_ns: int) -> bool:
    return interval.start_ns <= t_ns < interval.end_ns


def _stationary(analysis: Analysis) -> bool | None:
    records = analysis.manifest.compared_flows
    if not records:
        return None
    duration_ns = analysis.manifest.traffic.duration_ns
    rates = rates_in(throughput_table(analysis), duration_ns, analysis.interval)
    return is_stationary(rates, records)


def _limited(analysis: Analysis) -> dict[str, LimitSummary]:
    """What limited each planned flow while it was active within the interval."""
    if analysis.sockets is None:
        return {}
    within = analysis.interval
    spans = [
        FlowSpan(
            record,
            max(span.start_ns, within.start_ns),
            min(span.end_ns, within.end_ns),
            tcp_of_flow(analysis, record.flow).halted_s,
        )
        for record in analysis.manifest.planned_flows
        for span in [active(analysis, record)]
    ]
    return limits(analysis.sockets, [span for span in spans if span.start_ns < span.end_ns])


def _engine(analysis: Analysis) -> EngineName | None:
    manifest = analysis.manifest
    return None if isinstance(manifest, CapturesManifest) else manifest.engine


def _without_timeouts(groups: Groups) -> Groups:
    """The groups of joined captures, whose senders' least RTO nobody told us."""
    unknown = {"timeouts_seen": None, "halted_s": None}
    return {
        kind: {label: part.model_copy(update=unknown) for label, part in labels.items()}
        for kind, labels in groups.items()
    }


def _windows(analysis: Analysis) -> list[Interval]:
    """The configured windows that end within the duration; one that is longer is cut to its end.

    They count from when all flows are active; from the traffic's start if there is no such time.
    """
    begin, end = analysis.windows_from_ns or 0, analysis.manifest.traffic.duration_ns
    ends = [end if width > end else begin + width for width in analysis.windows_ns]
    return [Interval(begin, until) for until in dict.fromkeys(ends) if begin < until <= end]


_FEW_ROUND_TRIPS = 10


def _apart(analysis: Analysis) -> list[str]:
    """A warning if all flows of a plan were active for a moment or never: shares say little."""
    if len(analysis.manifest.planned_flows) < 2:
        return []
    if analysis.windows_from_ns is not None:
        if not analysis.all_active or not analysis.directory.plan.exists():
            return []
        plan = analysis.directory.read_plan()
        rtt_ns = max(base_rtt_ns(plan, flow.path, flow.return_path) for flow in plan.flows)
        lasts_ns = analysis.interval.end_ns - analysis.interval.start_ns
        if lasts_ns >= _FEW_ROUND_TRIPS * rtt_ns:
            return []
        return [
            f"all flows were active for {round_time(lasts_ns)} only, less than "
            f"{_FEW_ROUND_TRIPS} base round trips of {round_time(rtt_ns)}, so shares, ratios and "
            "Jain's index say little; analysis.from and to choose another interval"
        ]
    return [
        "shares, ratios and Jain's index compare flows that sent at different times, because at no "
        "time all were active"
    ]


def _window_warnings(analysis: Analysis) -> list[str]:
    """What keeps windows from being what their names say."""
    if not analysis.windows_ns:
        return []
    warnings = []
    parts = _windows(analysis)
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


def _held(analysis: Analysis) -> list[str]:
    """A warning if one flow held the link while all others ran into timeouts."""
    goodput = flow_bytes(analysis, analysis.interval)
    goodput_bps = {
        record.flow: 8 * goodput[record.flow] / analysis.interval.seconds
        for record in analysis.manifest.compared_flows
    }
    held_by = holder(goodput_bps)
    others = goodput_bps.keys() - {held_by}
    if held_by is None or not all(tcp_of_flow(analysis, flow).timeouts for flow in others):
        return []
    record = next(flow for flow in analysis.manifest.flows if flow.flow == held_by)
    return [
        f"flow {held_by} from {record.src} ({record.hops} hops) held the link: more than "
        f"{HELD_SHARE:.0%} of the goodput, while each of the {len(others)} others ran into "
        "timeouts. This is a phase that the flows locked into; another run can show the "
        "opposite, so conclude from several (docs/limits.md)"
    ]


def _port_drops(analysis: Analysis) -> dict[str, PortDrops]:
    hops = defaultdict(set)
    for record in analysis.manifest.flows:
        if record.ingress is not None and record.hops is not None:
            hops[record.ingress].add(record.hops)
    drops = {}
    for port in analysis.ports:
        joined = port.joined
        counts = analysis.counts(port.reached_ns)
        chains = within(port.chains, joined, joined.arrivals.port, counts)
        for index, name in enumerate(joined.inputs):
            mine = counts & (joined.arrivals.port == index)
            of_port = chains.ingress == index
            lengths = chains.drops[of_port]
            # If a port feeds two bottlenecks, the output's name tells its entries apart.
            key = name if name not in drops else f"{name}>{port.record.egress}"
            drops[key] = PortDrops(
                packets=int(mine.sum()),
                dropped=int((mine & (joined.verdict == Verdict.DROPPED)).sum()),
                longest_chain=int(lengths.max()) if lengths.size else 0,
                chains={str(k): v for k, v in length_counts(lengths).items()},
                blackouts=int((chains.others_through[of_port] > 0).sum()),
                hops=sorted(hops[name]),
            )
    return drops


def rows_of_flow(port: PortAnalysis, flow: int) -> Array:
    """Rows of the arrivals of a flow of the run."""
    return port.rows.get(flow, np.empty(0, np.int64))


def tcp_of_flow(analysis: Analysis, flow: int) -> TcpSummary:
    """What TCP did for one flow, as the bottleneck saw it."""
    parts = [(port.resent, rows_of_flow(port, flow)) for port in analysis.ports]
    return TcpSummary(
        retransmissions=sum(int(resent.retransmission[rows].sum()) for resent, rows in parts),
        spurious=sum(int(resent.spurious[rows].sum()) for resent, rows in parts),
        timeouts=sum(int(resent.timeout[rows].sum()) for resent, rows in parts),
        halted_s=sum(_halted_ns(analysis, port, flow) for port in analysis.ports) / 1e9,
    )


def _halted_ns(analysis: Analysis, port: PortAnalysis, flow: int) -> int:
    """A flow's idle time before its timeouts, as far as it lies within the interval."""
    rows = rows_of_flow(port, flow)
    begin_ns = analysis.manifest.traffic.t_start_ns + analysis.interval.start_ns
    since_ns = port.reached_ns[rows] - begin_ns
    return int(np.minimum(port.resent.halted_ns[rows], since_ns).sum())


def _rtt_ns(analysis: Analysis, flows: Collection[int]) -> I64:
    parts = [
        port.round_trips.rtt_ns[
            np.isin(port.round_trips.flow, numbers) & analysis.counts(port.round_trips.sent_ns)
        ]
        for port in analysis.ports
        if (numbers := [n for n, number in enumerate(port.numbers) if number in flows])
    ]
    return np.concatenate([*parts, np.empty(0, np.int64)])


def median_rtt_ns(analysis: Analysis, flow: int) -> int | None:
    """The median of a flow's round trips; None if none was captured."""
    rtt_ns = _rtt_ns(analysis, {flow})
    return int(np.median(rtt_ns)) if rtt_ns.size else None


def _tcp(analysis: Analysis) -> dict[str, TcpSummary]:
    classes = {}
    for hops, records in by_class(analysis.manifest).items():
        parts = [tcp_of_flow(analysis, record.flow) for record in records]
        classes[str(hops)] = TcpSummary(
            retransmissions=sum(part.retransmissions for part in parts),
            spurious=sum(part.spurious for part in parts),
            timeouts=sum(part.timeouts for part in parts),
            halted_s=round(sum(part.halted_s for part in parts), 9),
        )
    return classes


def _queue_summary(analysis: Analysis, port: PortAnalysis) -> QueueSummary:
    # With a delay that changed there is no usual one.
    is_steady = not steps_of(analysis.manifest, port.record.egress, "delay_ns")
    latency = switch_latency_ns(port.joined, port.queue, 0) if is_steady else 0
    begin, end = (
        analysis.manifest.traffic.t_start_ns + at_ns
        for at_ns in (analysis.interval.start_ns, analysis.interval.end_ns)
    )
    counts = analysis.counts(port.reached_ns)
    return QueueSummary(
        counted="forwarded" if port.record.queue.drops == "later" else "all",
        length_bytes=_spread(length_spread(port.queue, 0, begin, end), 1),
        sojourn_ms=_spread(sojourn_spread(port.joined, 0, counts), 1e6),
        switch_latency_us=latency / 1e3,
        capacity=_capacity_summary(analysis, port, latency),
        utilisation=utilisation(analysis, port),
        marks=_marks(analysis, port),
        classes=service_classes(analysis, port),
    )


def _capacity_summary(
    analysis: Analysis, port: PortAnalysis, latency: int
) -> CapacitySummary | None:
    egress = port.record.egress
    of_port = [change.what for change in analysis.manifest.changes if change.port == egress]
    # With a limit that changed, no one level explains what was dropped.
    if port.record.queue.drops != "at_limit" or any(what.startswith("limit") for what in of_port):
        return None
    lost = lost_to_the_link(analysis, port)
    # The time that the switch takes to queue a packet blurs the level, so the capacity is also
    # estimated with that delay, and the better estimate counts.
    estimates = [capacity(port.joined, port.queue, 0, lost)]
    if latency and estimates[0] is not None:
        estimates.append(capacity(port.joined, replay(port.joined, latency), 0, lost))
    best = max((item for item in estimates if item), key=lambda item: item.confidence, default=None)
    if best is None:
        return None
    queue = port.record.queue
    configured = queue.limit_bytes if best.unit == "bytes" else queue.limit_packets
    return CapacitySummary(
        unit=best.unit,
        at_least=best.at_least,
        below=best.below,
        confidence=round(best.confidence, 4),
        configured=configured,
        agrees=None if configured is None else best.holds(configured),
    )


def _marks(analysis: Analysis, port: PortAnalysis) -> int | None:
    if analysis.port_samples is None:
        return None
    samples = analysis.port_samples.filter(port=port.record.egress)
    if samples.is_empty():
        return None
    t_ns, interval = samples["t"].to_numpy(), analysis.interval
    first, last = (np.abs(t_ns - at).argmin() for at in (interval.start_ns, interval.end_ns))
    return int(samples["marks"][int(last)] - samples["marks"][int(first)])


def _fairness(analysis: Analysis, table: pl.DataFrame | None) -> dict[str, FairnessSummary]:
    if table is None:
        return {}
    start_ns, end_ns = analysis.interval.start_ns, analysis.interval.end_ns
    table = table.filter((pl.col("t_start") >= start_ns) & (pl.col("t_end") <= end_ns))
    widths = table.group_by((pl.col("t_end") - pl.col("t_start")).alias("width")).agg(
        pl.len().alias("windows"), pl.mean("jain").alias("mean"), pl.min("jain").alias("min")
    )
    return {
        format_time(row["width"]): FairnessSummary(
            windows=row["windows"], mean=row["mean"], min=row["min"]
        )
        for row in widths.sort("width").iter_rows(named=True)
    }


def _synchronisation(analysis: Analysis) -> SynchronisationSummary | None:
    if analysis.sockets is None:
        return None
    return synchronisation(counted(analysis))


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


def _spread(distribution: Spread | None, unit: float) -> SpreadSummary | None:
    if distribution is None:
        return None
    return SpreadSummary(
        mean=round(distribution.mean / unit, 6),
        p50=distribution.p50 / unit,
        p90=distribution.p90 / unit,
        p99=distribution.p99 / unit,
        max=distribution.max / unit,
    )


def _noise_summary(analysis: Analysis, port: PortAnalysis) -> NoiseSummary:
    queue = port.record.queue
    # Nodes of the virtual engine take no time, so what was set is all that varies.
    is_virtual = properties(_engine(analysis)).virtual_clock
    measured = measure_noise(
        port.joined,
        port.queue,
        0,
        delay_ns=_greatest_delay_ns(port),
        jitter_ns=queue.jitter_ns if is_virtual else None,
    )
    gaps, latency = measured.gaps, measured.latency
    of_nominal = None
    if gaps is not None and queue.rate_bps:
        rate = analysis.link_rate(port.record.egress, queue.rate_bps)
        nominal_ns = packet_time_ns(port.joined, 0, queue.rate_bps, queue.framing)
        # Captures do not tell what a frame takes on their link besides its bytes.
        if rate.is_constant and _engine(analysis) is not None:
            of_nominal = round(gaps.packet_ns / nominal_ns, 4)
    dropped = bool((port.joined.verdict == Verdict.DROPPED).any())
    has_classes = port.record.queue.kind in WITH_CLASSES
    regime, sentence = regime_of(measured, _is_drop_tail(port), dropped, has_classes)
    return NoiseSummary(
        regime=regime,
        sentence=sentence,
        kept=_rounded(measured.kept),
        kept_by_arrivals=_rounded(measured.kept_by_arrivals),
        back_to_back=0 if gaps is None else gaps.count,
        packet_time_us=None if gaps is None else round(gaps.packet_ns / 1e3, 4),
        of_nominal=of_nominal,
        gap_spread=None if gaps is None else round(gaps.spread, 4),
        latency_kept=None if latency is None else round(latency.kept, 4),
        latency_told_by=None if latency is None else latency.told_by,
        inputs={
            port.joined.inputs[index]: NoiseInput(
                arrivals=phase.arrivals,
                spread=_rounded(phase.spread),
                kept=_rounded(phase.kept),
                lasts=None if phase.lasts is None else round(phase.lasts, 1),
                lasts_bound=phase.bound,
            )
            for index, phase in measured.phases.items()
        },
    )


def _greatest_delay_ns(port: PortAnalysis) -> int:
    """The greatest delay of the link of packets that left."""
    left = port.joined.left_as >= 0
    delays = port.reached_ns[left] - port.joined.arrivals.stamp_ns[left]
    return int(delays.max(initial=0))


def _is_drop_tail(port: PortAnalysis) -> bool | None:
    """Whether a queue drops exactly what finds it full. Of captures, their drops tell."""
    if port.record.queue.kind != grouping.UNKNOWN:
        return port.record.queue.drops == "at_limit"
    latency_ns = switch_latency_ns(port.joined, port.queue, 0)
    levels = (
        capacity(port.joined, queue, 0) for queue in (port.queue, replay(port.joined, latency_ns))
    )
    explained = any(level.confidence >= LEAST_EXPLAINED for level in levels if level is not None)
    return True if explained else None


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)


def _phase_summary(analysis: Analysis, port: PortAnalysis) -> PhaseSummary:
    first_bps, framing = port.record.queue.rate_bps, port.record.queue.framing
    packet_ns = packet_time_ns(port.joined, 0, first_bps, framing)
    packet_times: int | I64 = packet_ns
    rate = analysis.link_rate(port.record.egress, first_bps) if first_bps else None
    if rate is not None and first_bps and not rate.is_constant:
        traffic = analysis.manifest.traffic
        in_force_bps = rate.at(port.reached_ns - traffic.t_start_ns)
        with np.errstate(divide="ignore"):
            times = np.where(in_force_bps > 0, packet_ns * (first_bps / in_force_bps), 0.0)
        packet_times = times.astype(np.int64)
        whole = np.array([0, traffic.duration_ns], np.int64)
        packet_ns = packet_time_ns(port.joined, 0, float(rate.mean_bps(whole)[0]) or None, framing)
    chains = port.chains.only(analysis.counts(port.reached_ns[port.chains.first]))
    arrivals = phases(port.joined, chains, 0, packet_times, port.reached_ns)
    return PhaseSummary(
        packet_time_us=packet_ns / 1e3,
        blackouts=int(np.unique(arrivals.chain).size),
        during_lost=arrivals.share(lost=True, during=True),
        during_others=arrivals.share(lost=False, during=True),
        before_lost=arrivals.share(lost=True, during=False),
        before_others=arrivals.share(lost=False, during=False),
    )
