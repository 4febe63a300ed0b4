"""The analysis of a run directory: from captures and counters to tables and the summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from outcast.analysis.machine_code import Array, Bool
from outcast.analysis.measure.blackout import flow_chains, port_chains
from outcast.analysis.measure.estimates import Found
from outcast.analysis.measure.samples import port_table, socket_table
from outcast.analysis.port_analysis import Joins, PortAnalysis, analyze_port, elsewhere, join_port
from outcast.analysis.program_flows import program_flows
from outcast.errors import InputError, NothingSentError
from outcast.experiment import GroupKind, Instant
from outcast.experiment.measure import Analysis as Settings
from outcast.plan import grouping
from outcast.plan.grouping import Comparison
from outcast.plan.model import Plan
from outcast.records.captures import AnyManifest
from outcast.records.counters import Counters, Rates
from outcast.records.flows import FlowRecord
from outcast.records.link_rate import LinkRate, link_rate
from outcast.records.run_directory import Manifest, RunDirectory
from outcast.records.samples import PORTS_FILE, SOCKETS_FILE
from outcast.units import format_time


@dataclass(frozen=True, slots=True)
class Interval:
    """A part of the run: [start_ns, end_ns) after the traffic's start."""

    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9

    def cut(self, whole: Interval) -> Interval:
        """Its part within another interval; of no length if they do not overlap."""
        start_ns = max(self.start_ns, whole.start_ns)
        return Interval(start_ns, max(start_ns, min(self.end_ns, whole.end_ns)))

    def has(self, at_ns: Array) -> Bool:
        return (at_ns >= self.start_ns) & (at_ns < self.end_ns)


MOST_BINS = 200_000_000
"""For all flows together. Tables of more bins would not fit into memory."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """Everything computed from a run or from joined captures, before it is stored.

    Attributes:
        comparison: the groups that the headline compares; None if there is only one hop class.
        interval: what the summary covers: goodput, packets, drops and what TCP did.
        all_active: whether the interval is shorter than the duration, because flows start or end
            within the duration.
        is_asked: whether `analysis.from` or `analysis.to` requests the interval.
        remarks: why the interval is not the requested one.
        windows_from_ns: from when all flows are active and windows count; None if they never are.
        sockets, port_samples: samples taken while the flows ran; None without any.
        whole: joined captures before they were parted by outputs; None for a run.
    """

    directory: RunDirectory
    manifest: AnyManifest
    counters: Counters
    windows_ns: tuple[int, ...]
    bin_ns: int
    group_by: GroupKind
    ports: list[PortAnalysis]
    interval: Interval
    rates: Rates
    comparison: Comparison | None = None
    all_active: bool = False
    windows_from_ns: int | None = None
    sockets: pl.DataFrame | None = None
    port_samples: pl.DataFrame | None = None
    whole: Found | None = None
    is_asked: bool = False
    remarks: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        return self.interval == Interval(0, self.manifest.traffic.duration_ns)

    def counts(self, stamps_ns: Array) -> Bool:
        """Which of these instants, by the captures' clock, lie in the interval.

        Joined captures are of one interval alone, and their clocks may have been corrected.
        """
        if self.whole is not None:
            return np.ones(stamps_ns.size, np.bool_)
        return self.interval.has(stamps_ns - self.manifest.traffic.t_start_ns)

    @property
    def plan(self) -> Plan | None:
        """The plan of the run; None for joined captures, which do not show it."""
        return self.directory.read_plan() if self.directory.plan.exists() else None

    def link_rate(self, port: str, first_bps: int) -> LinkRate:
        """The rate at which a port sent over time; it was set up with `first_bps`."""
        return link_rate(self.manifest, self.rates, port, first_bps)


def compute(directory: RunDirectory, settings: Settings) -> Analysis:
    """Reads a run's captures and joins them.

    Raises InputError if the manifest, the counters or a capture is missing or broken, or if the
    flows do not form the groups to compare.
    """
    manifest = directory.read_manifest()
    counters = directory.read_counters()
    joins = _join(directory, manifest, counters)
    of_programs = program_flows(manifest, [(record, joined) for record, _, joined in joins])
    manifest = manifest.model_copy(update={"flows": [*manifest.planned_flows, *of_programs]})
    _require_few_bins(directory, manifest, settings.bin_ns)
    groups = manifest.groups
    named = [program.name for program in manifest.programs]
    try:
        comparison = grouping.comparison(settings.group_by, settings.compare, groups, named)
    except ValueError as error:
        raise InputError(f"{directory.config}: analysis.compare: {error}") from None
    ports = [
        analyze_port(directory, manifest, *part, elsewhere(manifest, counters, part[0]))
        for part in joins
    ]
    together = when_all_active(manifest, ports)
    whole = Interval(0, manifest.traffic.duration_ns)
    requested, remarks = _requested_interval(settings.since, settings.until, together, whole)
    interval = requested or together or whole
    t_start_ns = manifest.traffic.t_start_ns
    sockets, queues = directory.samples / SOCKETS_FILE, directory.samples / PORTS_FILE
    return Analysis(
        directory=directory,
        manifest=manifest,
        counters=counters,
        windows_ns=settings.windows_ns,
        bin_ns=settings.bin_ns,
        group_by=grouping.chosen(settings.group_by, groups),
        comparison=comparison,
        ports=[_counting_in(interval, port, t_start_ns) for port in ports],
        interval=interval,
        all_active=requested is None and interval != whole,
        windows_from_ns=None if together is None else together.start_ns,
        sockets=socket_table(sockets, manifest.flows, t_start_ns) if sockets.exists() else None,
        port_samples=port_table(queues, t_start_ns) if queues.exists() else None,
        rates=directory.read_rates(),
        is_asked=requested is not None,
        remarks=remarks,
    )


def _join(directory: RunDirectory, manifest: Manifest, counters: Counters) -> Joins:
    """Joins the captures of every bottleneck. Raises InputError if nothing left by any."""
    joins = [
        (record, *join_port(directory, manifest, counters, record))
        for record in manifest.bottlenecks
    ]
    if not any(len(joined.departures) for _, _, joined in joins):
        egress = ", ".join(record.egress for record in manifest.bottlenecks)
        failed = "".join(
            f"; program {program.name}: {program.failures} of {len(program.executions)} failed"
            for program in manifest.programs
            if program.failures
        )
        raise NothingSentError(
            f"{directory.captures}: no IP packets; nothing left by {egress}{failed}"
        )
    return joins


def _requested_interval(
    since: Instant | None, until: Instant | None, together: Interval | None, whole: Interval
) -> tuple[Interval | None, tuple[str, ...]]:
    """The requested interval, cut to the duration, and why it is another one."""
    if since is None and until is None:
        return None, ()
    remarks = []
    if together is None and any(at and at.after_all_active for at in (since, until)):
        remarks.append(
            "analysis.from and analysis.to count from the traffic's start, because at no time all "
            "flows were active"
        )
    active_ns = 0 if together is None else together.start_ns
    start_ns = 0 if since is None else since.at_ns(active_ns)
    end_ns = whole.end_ns if until is None else until.at_ns(active_ns)
    if end_ns > whole.end_ns:
        end_ns = whole.end_ns
        remarks.append(
            f"analysis.to: {until} is after the end of the duration, so the interval ends there, "
            f"at {format_time(end_ns)}"
        )
    if start_ns >= end_ns:
        return None, (
            *remarks,
            f"analysis.from: {since} leaves nothing of the run, so the interval is the usual one",
        )
    return Interval(start_ns, end_ns), tuple(remarks)


def _counting_in(interval: Interval, port: PortAnalysis, t_start_ns: int) -> PortAnalysis:
    """The port with only those rows that reached the queue within an interval, and its chains."""
    counts = interval.has(port.reached_ns - t_start_ns)
    return replace(
        port,
        rows={number: rows[counts[rows]] for number, rows in port.rows.items()},
        chains=port_chains(port.joined, counts),
        flow_chains=flow_chains(port.joined, counts),
    )


def _require_few_bins(directory: RunDirectory, manifest: Manifest, bin_ns: int) -> None:
    bins = -(-manifest.traffic.duration_ns // bin_ns)
    if bins * max(1, len(manifest.flows)) > MOST_BINS:
        raise InputError(
            f"{directory.manifest}: traffic.duration_ns: {bins} bins of {bin_ns} ns for each flow, "
            f"which are more than {MOST_BINS}"
        )


def when_all_active(manifest: AnyManifest, ports: Sequence[PortAnalysis]) -> Interval | None:
    """When all flows are active: from the last one's start to the first one's end.

    A flow of a given size is active until its last new byte left the bottleneck. Only planned flows
    count. None if there is no such time, or no flow.
    """
    begin, end = 0, manifest.traffic.duration_ns
    for record in manifest.planned_flows:
        span = _active(manifest, ports, record)
        begin, end = max(begin, span.start_ns), min(end, span.end_ns)
    return Interval(begin, end) if manifest.planned_flows and begin < end else None


def active(analysis: Analysis, record: FlowRecord) -> Interval:
    """When a flow was active: as planned, or until its last new byte if it has a size."""
    return _active(analysis.manifest, analysis.ports, record)


def _active(manifest: AnyManifest, ports: Sequence[PortAnalysis], record: FlowRecord) -> Interval:
    if record.duration_ns is not None:
        return Interval(record.start_ns, record.start_ns + record.duration_ns)
    # An interval ends before its end, and the last byte belongs to it.
    last_ns = _last_progress_ns(record, ports) - manifest.traffic.t_start_ns + 1
    return Interval(record.start_ns, max(record.start_ns, last_ns))


def _last_progress_ns(record: FlowRecord, ports: Sequence[PortAnalysis]) -> int:
    last = 0
    for port in ports:
        for number, flow in enumerate(port.numbers):
            if flow == record.flow:
                of_flow = (port.joined.departures.flow == number) & (port.fresh > 0)
                stamps = port.joined.departures.stamp_ns[of_flow]
                last = max(last, int(stamps[-1]) if stamps.size else 0)
    return last
