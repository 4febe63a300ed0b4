"""The analysis of a run directory: from captures and counters to tables and the summary."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile

import numpy as np
import polars as pl

from outcast.analysis.capture.headers import ACK, FlowKey
from outcast.analysis.capture.pcap import PortCapture, read_capture, read_captures
from outcast.analysis.compiled import I32, I64, Array, Bool
from outcast.analysis.hashed import only_by
from outcast.analysis.join.join import DEFAULT_MAX_SOJOURN_NS, Joined, JoinOptions, join
from outcast.analysis.join.pairs import grouped
from outcast.analysis.measure.blackout import Chains, flow_chains, port_chains, within
from outcast.analysis.measure.port_samples import port_table
from outcast.analysis.measure.program_flows import program_flows
from outcast.analysis.measure.queue import Queue, first_bits_ns, on_wire
from outcast.analysis.measure.queue_entry import replay_behind
from outcast.analysis.measure.socket_samples import socket_table
from outcast.analysis.measure.tcp import Acks, Resent, RoundTrips, resent, round_trips
from outcast.analysis.measure.throughput import fresh_bytes
from outcast.errors import InputError, NothingSentError
from outcast.experiment import MTU_FRAME_BYTES, GroupKind, Instant
from outcast.experiment.engine import properties
from outcast.experiment.queues import WITH_CLASSES
from outcast.plan import grouping
from outcast.plan.grouping import Comparison
from outcast.records.captures import AnyManifest
from outcast.records.effective import min_rto_ns_of, port_setting
from outcast.records.interventions import PacketFate
from outcast.records.link_rate import LinkRate, down_spans_ns, link_rate, steps_of
from outcast.records.run_directory import (
    BottleneckRecord,
    CaptureRecord,
    Counters,
    FlowRecord,
    Manifest,
    Rates,
    RunDirectory,
)
from outcast.records.samples import PORTS_FILE, SOCKETS_FILE
from outcast.units import format_time

DEFAULT_MIN_RTO_NS = 200_000_000
"""Linux's default, used if the manifest does not name the effective one."""


@dataclass(frozen=True, slots=True)
class PortAnalysis:
    """One bottleneck port.

    Attributes:
        reached_ns: for each arrival, when it reached the queue, or was lost with the link.
        numbers: for each flow of the join, its number in the run; foreign flows follow on.
        rows: for each of these numbers, the rows of its arrivals that reached the queue in the main
            interval.
        spans: when its first and its last packet came in within the duration.
        sent_ns: for each departure, when its first bit went on the link.
        fresh: for each departure, the payload bytes of its flow that had not left before.
        round_trips: from the inputs to the receivers and back. Empty unless the acknowledgements
            were captured (`capture: {ports: all}`).
    """

    record: BottleneckRecord
    captures: list[PortCapture]
    joined: Joined
    queue: Queue
    reached_ns: I64
    chains: Chains
    flow_chains: Chains
    numbers: list[int]
    rows: dict[int, Array]
    spans: dict[int, tuple[int, int]]
    sent_ns: I64
    fresh: I32
    resent: Resent
    round_trips: RoundTrips


@dataclass(frozen=True, slots=True)
class Whole:
    """Captures that were joined together, whatever output the packets left by.

    Attributes:
        numbers: for each flow of the join, its number in the tables.
    """

    joined: Joined
    queue: Queue
    chains: Chains
    numbers: list[int]


@dataclass(frozen=True, slots=True)
class Interval:
    """A part of the run: [start_ns, end_ns) after the traffic's start."""

    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9

    def cut(self, whole: Interval) -> Interval:
        """The part of it that lies in another one, which may be of no length."""
        start_ns = max(self.start_ns, whole.start_ns)
        return Interval(start_ns, max(start_ns, min(self.end_ns, whole.end_ns)))

    def has(self, at_ns: Array) -> Bool:
        """Which of these times after the traffic's start lie in it."""
        return (at_ns >= self.start_ns) & (at_ns < self.end_ns)


MOST_BINS = 200_000_000
"""For all flows together. Tables of more bins would not fit into memory."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """Everything computed from a run or from joined captures, before it is stored.

    Attributes:
        comparison: the groups that the headline compares; None if there is only one hop class.
        interval: what the summary covers: goodput, packets, drops and what TCP did.
        all_active: whether that is shorter than the duration, because flows start or end within it.
        is_asked: whether `analysis.from` or `analysis.to` asks for that interval.
        remarks: why the interval is not what was asked for.
        windows_from_ns: the instant from which all flows are active, from which windows count; None
            if there is none.
        sockets, port_samples: what was sampled while the flows ran; None without samples.
        whole: joined captures before they were parted by outputs; None for a run.
    """

    directory: RunDirectory
    manifest: AnyManifest
    counters: Counters
    windows_ns: tuple[int, ...]
    bin_ns: int
    group_by: GroupKind
    comparison: Comparison | None
    ports: list[PortAnalysis]
    interval: Interval
    all_active: bool
    windows_from_ns: int | None
    sockets: pl.DataFrame | None
    port_samples: pl.DataFrame | None
    rates: Rates
    whole: Whole | None = None
    is_asked: bool = False
    remarks: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether the interval is the whole duration."""
        return self.interval == Interval(0, self.manifest.traffic.duration_ns)

    def counts(self, stamps_ns: Array) -> Bool:
        """Which of these instants, by the captures' clock, lie in the interval.

        Joined captures are of one interval alone, and their clocks may have been corrected.
        """
        if self.whole is not None:
            return np.ones(stamps_ns.size, np.bool_)
        return self.interval.has(stamps_ns - self.manifest.traffic.t_start_ns)

    def link_rate(self, port: str, first_bps: int) -> LinkRate:
        """The rate at which a port sent over time; it was set up with `first_bps`."""
        return link_rate(self.manifest, self.rates, port, first_bps)


def compute(
    directory: RunDirectory,
    windows_ns: Sequence[int],
    bin_ns: int,
    group_by: GroupKind | None = None,
    compare: tuple[str, str] | None = None,
    since: Instant | None = None,
    until: Instant | None = None,
) -> Analysis:
    """Reads a run's captures and joins them.

    None stands for the defaults of what is grouped, compared and covered.

    Raises InputError if the manifest, the counters or a capture is missing or broken, or if the
    flows do not form the groups to compare.
    """
    manifest = directory.read_manifest()
    counters = directory.read_counters()
    _require_few_bins(directory, manifest, bin_ns)
    if not manifest.bottlenecks:
        raise InputError(f"{directory.manifest}: bottlenecks: none is named")
    joins = [
        (record, _join(directory, manifest, counters, record)) for record in manifest.bottlenecks
    ]
    if not any(len(part.joined.departures) for _, part in joins):
        egress = ", ".join(record.egress for record, _ in joins)
        failed = "".join(
            f"; program {program.name}: {program.failures} of {len(program.executions)} failed"
            for program in manifest.programs
            if program.failures
        )
        raise NothingSentError(
            f"{directory.captures}: no IP packets; nothing left by {egress}{failed}"
        )
    of_programs = program_flows(manifest, [(record, part.joined) for record, part in joins])
    manifest = manifest.model_copy(update={"flows": [*manifest.planned_flows, *of_programs]})
    _require_few_bins(directory, manifest, bin_ns)
    groups = manifest.groups
    named = [program.name for program in manifest.programs]
    try:
        comparison = grouping.comparison(group_by, compare, groups, named)
    except ValueError as error:
        raise InputError(f"{directory.config}: analysis.compare: {error}") from None
    ports = [
        _analyze_port(directory, manifest, record, part, elsewhere(manifest, counters, record))
        for record, part in joins
    ]
    together = _all_active(manifest, ports)
    whole = Interval(0, manifest.traffic.duration_ns)
    interval = together or whole
    asked, remarks = _asked(since, until, together, whole)
    if asked is not None:
        interval = asked
    t_start_ns = manifest.traffic.t_start_ns
    ports = [_counting_in(interval, port, t_start_ns) for port in ports]
    sockets, queues = directory.samples / SOCKETS_FILE, directory.samples / PORTS_FILE
    return Analysis(
        directory=directory,
        manifest=manifest,
        counters=counters,
        windows_ns=tuple(windows_ns),
        bin_ns=bin_ns,
        group_by=grouping.chosen(group_by, groups),
        comparison=comparison,
        ports=ports,
        interval=interval,
        all_active=asked is None and interval != whole,
        windows_from_ns=None if together is None else together.start_ns,
        sockets=socket_table(sockets, manifest.flows, t_start_ns) if sockets.exists() else None,
        port_samples=port_table(queues, t_start_ns) if queues.exists() else None,
        rates=directory.read_rates(),
        is_asked=asked is not None,
        remarks=remarks,
    )


def _asked(
    since: Instant | None, until: Instant | None, together: Interval | None, whole: Interval
) -> tuple[Interval | None, tuple[str, ...]]:
    """The interval that is asked for, cut to the duration, and why it is another one."""
    given = [instant for instant in (since, until) if instant is not None]
    if not given:
        return None, ()
    remarks = []
    if together is None and any(instant.after_all_active for instant in given):
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
    """The port with only those rows of its flows that reached the queue within an interval."""
    at_ns = port.reached_ns - t_start_ns
    rows = {number: rows[interval.has(at_ns[rows])] for number, rows in port.rows.items()}
    return replace(port, rows=rows)


def _require_few_bins(directory: RunDirectory, manifest: Manifest, bin_ns: int) -> None:
    bins = -(-manifest.traffic.duration_ns // bin_ns)
    if bins * max(1, len(manifest.flows)) > MOST_BINS:
        raise InputError(
            f"{directory.manifest}: traffic.duration_ns: {bins} bins of {bin_ns} ns for each flow, "
            f"which are more than {MOST_BINS}"
        )


@dataclass(frozen=True, slots=True)
class _Join:
    captures: list[PortCapture]
    joined: Joined


def _join(
    directory: RunDirectory, manifest: Manifest, counters: Counters, record: BottleneckRecord
) -> _Join:
    """Joins the captures of a bottleneck."""
    files = [
        (port, directory.path / _capture(directory, manifest, port, direction).file)
        for port, direction in [(name, "in") for name in record.ingress] + [(record.egress, "out")]
    ]
    captures = read_captures(files, frozenset(record.destinations), foreign=False)
    for capture in captures:
        if capture.cut_short:
            raise InputError(
                f"{capture.path}: cut off after {capture.records} packets, inside a record; "
                f"the capture of a run is needed whole"
            )
    if manifest.effective.get("routing.hash") is not None:
        plan = directory.read_plan()
        captures[:-1] = [only_by(capture, plan, record.egress) for capture in captures[:-1]]
    traffic = manifest.traffic
    last_ns = max([traffic.t_end_ns, *(c.last_ns for c in captures if c.last_ns)])
    # A slow or paused link can hold a packet for as long as the run takes.
    longest_ns = max(DEFAULT_MAX_SOJOURN_NS, last_ns - traffic.t_start_ns)
    after = counters.ports[record.egress].after if record.egress in counters.ports else {}
    # What did not leave a queue that was empty after the captures is not under way.
    is_empty = after.get("qlen") == 0
    joined = join(
        captures[:-1],
        captures[-1:],
        JoinOptions(
            max_sojourn_ns=longest_ns,
            watched_ns=(
                traffic.t_start_ns,
                last_ns + longest_ns if is_empty else traffic.t_end_ns,
            ),
            one_clock=True,
            checksums=not manifest.requested.get("transport.offloads"),
            release=True,
            apart=record.queue.kind in WITH_CLASSES,
            routed=record.routed,
            # A program may send nothing in one direction, or nothing at all.
            may_be_empty=not any(
                flow.dst_ip in record.destinations for flow in manifest.planned_flows
            ),
        ),
    )
    return _Join(captures, joined)


def elsewhere(
    manifest: AnyManifest, counters: Counters, record: BottleneckRecord
) -> frozenset[int]:
    """The flows that do not count at a port, by their numbers.

    They leave by another output, or they count at an earlier port of the manifest. There are none
    where no links were recorded. Subflows may take other paths than the flow that has them.
    """
    ends = {link.port: (link.node, link.neighbour) for link in counters.links}
    if record.egress not in ends:
        return frozenset()
    earlier = list(takewhile(lambda other: other != record, manifest.bottlenecks))
    before = {ends[other.egress] for other in earlier if other.egress in ends}
    port = ends[record.egress]
    ways = [(flow, set(pairwise(flow.path))) for flow in manifest.planned_flows]
    return frozenset(
        flow.flow for flow, path in ways if (path & before if port in path else not flow.subflows)
    )


def _held(manifest: Manifest, port: str) -> Iterator[PacketFate]:
    """The packets that an intervention held before the queue of a port, with epoch times."""
    for fate in manifest.interventions.fates if manifest.interventions else ():
        if fate.port == port and fate.fate == "delay" and fate.queued_ns is not None:
            start_ns = manifest.traffic.t_start_ns
            times = {name: getattr(fate, name) + start_ns for name in ("t_in_ns", "queued_ns")}
            yield fate.model_copy(update=times)


def _analyze_port(
    directory: RunDirectory,
    manifest: Manifest,
    record: BottleneckRecord,
    part: _Join,
    strangers: frozenset[int],
) -> PortAnalysis:
    joined, t_start_ns = part.joined, manifest.traffic.t_start_ns
    queue, reached_ns = replay_behind(
        *(joined, record.queue),
        [(t_start_ns + at, delay) for at, delay in _delays_ns(directory, manifest, record)],
        [(t_start_ns + a, t_start_ns + b) for a, b in down_spans_ns(manifest, record.egress)],
        [
            (t_start_ns + at, limit)
            for what in ("limit_bytes", "limit_packets")
            for at, limit in steps_of(manifest, record.egress, what)
        ],
        [*_held(manifest, record.egress)],
    )
    numbers = _numbers(joined.flows, manifest.flows, strangers)
    rows = rows_by_number(joined, numbers)
    duration_ns = (t_start_ns, t_start_ns + manifest.traffic.duration_ns)
    return PortAnalysis(
        record=record,
        captures=part.captures,
        joined=joined,
        queue=queue,
        reached_ns=reached_ns,
        chains=port_chains(joined),
        flow_chains=flow_chains(joined),
        numbers=numbers,
        rows=rows,
        spans=spans(joined, rows, duration_ns),
        sent_ns=_sent_ns(directory, manifest, record, joined),
        fresh=fresh_bytes(joined.departures, joined.flows),
        round_trips=_round_trips(directory, manifest, record, joined),
        resent=resent(
            joined,
            min_rto_ns_of(manifest.effective) or DEFAULT_MIN_RTO_NS,
            sack=manifest.effective.get("ipv4.tcp_sack") != "0",
        ),
    )


def _delays_ns(
    directory: RunDirectory, manifest: Manifest, record: BottleneckRecord
) -> list[tuple[int, int]]:
    """From when after the traffic's start events gave the port's link another delay, and which."""
    steps = steps_of(manifest, record.egress, "delay_ns")
    if not steps:
        return []
    plan = directory.read_plan()
    added_ns = record.queue.delay_ns - (plan.links[plan.ends[record.egress]].delay_ns or 0)
    return [(at_ns, delay_ns + added_ns) for at_ns, delay_ns in steps]


_ROUNDED_NS = 2
"""The kernel's time of a frame may be so much shorter than ours, which would add up."""


def _sent_ns(
    directory: RunDirectory, manifest: Manifest, record: BottleneckRecord, joined: Joined
) -> I64:
    """When the first bit of each departure went on the link.

    In real time, and behind a bucket of two full frames or more, frames go at once (patch 0018).
    Where the rate changes, a frame that was let go before would take its time at another rate.
    """
    departed_ns, queue = joined.departures.stamp_ns, record.queue
    burst_bytes = port_setting(manifest.effective, record.egress, "burst_bytes")
    if not properties(manifest.engine).own_kernel or not queue.rate_bps or not burst_bytes:
        return departed_ns
    rate = link_rate(manifest, directory.read_rates(), record.egress, queue.rate_bps)
    if burst_bytes >= 2 * max(queue.frame_bytes, MTU_FRAME_BYTES) or not rate.is_constant:
        return departed_ns
    wire_bits = 8 * on_wire(joined.departures.frame_bytes, queue.framing)
    took_ns = (wire_bits * 1e9 / queue.rate_bps).astype(np.int64)
    return first_bits_ns(departed_ns, np.maximum(took_ns - _ROUNDED_NS, 0))


def _round_trips(
    directory: RunDirectory, manifest: Manifest, record: BottleneckRecord, joined: Joined
) -> RoundTrips:
    """Round trips, from acknowledgements that were captured as they left by the input ports."""
    flows = []
    captured = {(c.port, c.direction): c.file for c in manifest.captures}
    for port in record.ingress:
        file = captured.get((port, "out"))
        if file is None:
            continue
        senders = frozenset(flow.src_ip for flow in manifest.flows if flow.ingress == port)
        back = read_capture(port, directory.path / file, senders, foreign=False)
        numbers = {flow: number for number, flow in enumerate(joined.flows)}
        for row, flow in enumerate(back.flows):
            data = flow.reversed
            if data not in numbers:
                continue
            mine = (back.columns.flow == row) & ((back.columns.flags & ACK) != 0)
            rows = np.flatnonzero(joined.arrivals.flow == numbers[data])
            told = back.columns
            acks = Acks(told.ack[mine], told.sacked[mine], told.stamp_ns[mine])
            flows.append((numbers[data], rows, acks))
    return round_trips(joined.arrivals, flows)


def _capture(
    directory: RunDirectory, manifest: Manifest, port: str, direction: str
) -> CaptureRecord:
    for capture in manifest.captures:
        if (capture.port, capture.direction) == (port, direction):
            return capture
    raise InputError(
        f"{directory.manifest}: captures: none of port {port} ({direction}); "
        f"the bottleneck's output and all its inputs are needed"
    )


def _numbers(
    flows: Sequence[FlowKey], records: Sequence[FlowRecord], strangers: frozenset[int]
) -> list[int]:
    """Each flow's number in the run, by addresses and ports; foreign flows follow on.

    Those of the run that count at another port are foreign too (`strangers`).
    """
    own = [record for record in records if record.flow not in strangers]
    known = {ends: record.flow for record in own for ends in record.connections}
    foreign = max((record.flow for record in records), default=-1)
    numbers = []
    for flow in flows:
        number = known.get((flow.src, flow.sport, flow.dst, flow.dport))
        if number is None:
            foreign += 1
            number = foreign
        numbers.append(number)
    return numbers


def rows_by_number(joined: Joined, numbers: Sequence[int]) -> dict[int, Array]:
    """For each flow's number, the rows of its arrivals."""
    of_number: dict[int, list[Array]] = defaultdict(list)
    for flow, rows in grouped(joined.arrivals.flow).items():
        of_number[numbers[flow]].append(rows)
    return {number: np.sort(np.concatenate(parts)) for number, parts in of_number.items()}


def spans(
    joined: Joined, rows: dict[int, Array], within_ns: tuple[int, int] | None = None
) -> dict[int, tuple[int, int]]:
    """When the first and the last of each flow's packets came in; no entry without any.

    With `within_ns`, only those count that came in from the first of these two times on, and before
    the second. Before the duration flows connect, and after it they may send what is left.
    """
    found = {}
    for number, mine in rows.items():
        came_ns = joined.arrivals.stamp_ns[mine]
        if within_ns is not None:
            came_ns = came_ns[slice(*np.searchsorted(came_ns, within_ns))]
        if came_ns.size:
            found[number] = int(came_ns[0]), int(came_ns[-1])
    return found


def _all_active(manifest: Manifest, ports: Sequence[PortAnalysis]) -> Interval | None:
    """When all flows are active: from the last one's start to the first one's end.

    A flow of a given size is active until its last new byte left the bottleneck. Flows of programs
    and generated ones do not count, because nobody plans that they are there at one time.

    Returns None if there is no such time, or no flow.
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


def chains_by_flow(analysis: Analysis) -> dict[int, list[int]]:
    """The lengths of the chains of drops in the interval, by the flow's number."""
    lengths: dict[int, list[int]] = defaultdict(list)
    for port in analysis.ports:
        joined = port.joined
        chains = within(
            port.flow_chains, joined, joined.arrivals.flow, analysis.counts(port.reached_ns)
        )
        flows = joined.arrivals.flow[chains.first]
        for flow, drops in zip(flows.tolist(), chains.drops.tolist(), strict=True):
            lengths[port.numbers[flow]].append(drops)
    return lengths


def _last_progress_ns(record: FlowRecord, ports: Sequence[PortAnalysis]) -> int:
    last = 0
    for port in ports:
        for number, flow in enumerate(port.numbers):
            if flow == record.flow:
                of_flow = (port.joined.departures.flow == number) & (port.fresh > 0)
                stamps = port.joined.departures.stamp_ns[of_flow]
                last = max(last, int(stamps[-1]) if stamps.size else 0)
    return last
