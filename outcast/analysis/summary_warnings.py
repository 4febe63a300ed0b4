"""The lines of a summary that say what its reader should know."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from outcast.analysis.measure.flows import tcp_of_flow, unfinished_warnings
from outcast.analysis.measure.limits import (
    LEAST_FULL,
    MOST_IDLE,
    idle_warnings,
    limit_warnings,
    memory_warnings,
    slow_warnings,
)
from outcast.analysis.measure.links import utilisation
from outcast.analysis.measure.losses import loss_warnings
from outcast.analysis.measure.run_goodput import HELD_SHARE, flow_bytes, holder, mice_warnings
from outcast.analysis.measure.streams import copied_warnings
from outcast.analysis.run_analysis import Analysis, Interval, when_all_active
from outcast.experiment.measure import cut_windows
from outcast.plan.round_trips import base_rtt_ns
from outcast.records.port_summaries import LossSummary, NoiseSummary, QueueSummary
from outcast.records.summary import LimitSummary
from outcast.units import format_time, round_time

_FEW_ROUND_TRIPS = 10
_LEAST_TOGETHER = 0.9
"""For so much of a capture all flows are active, or a warning says for how much."""


def warnings(
    analysis: Analysis,
    losses: LossSummary | None,
    limited: Mapping[str, LimitSummary],
    queues: Mapping[str, QueueSummary],
    noises: Mapping[str, NoiseSummary],
) -> list[str]:
    """Every warning of a run; losses are of the whole duration, all else of the main interval."""
    measured = ", ".join(port.record.egress for port in analysis.ports)
    duration_s = analysis.manifest.traffic.duration_ns / 1e9
    is_whole = not (analysis.is_asked or analysis.all_active)
    return [
        *loss_warnings(losses, measured, "" if is_whole else f" from 0 to {duration_s:g} s"),
        *limit_warnings(limited),
        *memory_warnings(analysis.counters.hosts),
        *_other_limits(queues),
        *(
            line
            for port in analysis.ports
            for line in slow_warnings(port.record.egress, port.record.queue, noises)
        ),
        *_idle(analysis, queues, limited, losses),
        *unfinished_warnings(analysis),
        *mice_warnings(analysis),
        *copied_warnings(analysis),
        *_apart(analysis),
        *_of_windows(analysis),
        *analysis.remarks,
        *analysis.manifest.warnings,
        *(_held(analysis) if analysis.manifest.tells_senders else []),
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
    """A warning if all flows of a plan were active for a moment or never: shares say little."""
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
    rtt_ns = max(base_rtt_ns(plan, flow.path, flow.return_path) for flow in plan.flows)
    if lasts_ns >= _FEW_ROUND_TRIPS * rtt_ns:
        return []
    return [
        f"all flows were active for {round_time(lasts_ns)} only, less than {_FEW_ROUND_TRIPS} base "
        f"round trips of {round_time(rtt_ns)}, so shares, ratios and Jain's index say little; "
        "analysis.from and to choose another interval"
    ]


def _of_windows(analysis: Analysis) -> list[str]:
    """What keeps windows from being what their names say."""
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
        "timeouts (docs/limits.md)"
    ]
