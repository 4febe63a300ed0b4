"""One bottleneck port of a run: the join of its captures, and what follows from it alone."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from pathlib import Path

import numpy as np

from controllers import routes
from controllers.hashing import FiveTuple
from outcast.analysis.capture.headers import ACK, Columns, FlowKey
from outcast.analysis.capture.pcap import PortCapture, read_capture, read_captures
from outcast.analysis.join.join import DEFAULT_MAX_SOJOURN_NS, Joined, JoinOptions, join
from outcast.analysis.join.packets import grouped
from outcast.analysis.machine_code import I32, I64, Array
from outcast.analysis.measure.blackout import Chains, flow_chains, port_chains
from outcast.analysis.measure.queue import Queue, first_bits_ns, of_own, on_wire
from outcast.analysis.measure.queue_levels import replay_behind
from outcast.analysis.measure.segments import fresh_bytes
from outcast.analysis.measure.tcp import Acks, Resent, RoundTrips, resent, round_trips
from outcast.experiment import MTU_FRAME_BYTES
from outcast.experiment.engine import properties
from outcast.experiment.queues import WITH_CLASSES
from outcast.plan.model import Plan
from outcast.plan.topology import port_name
from outcast.records.captures import AnyManifest
from outcast.records.counters import Counters
from outcast.records.effective import min_rto_ns_of, port_setting
from outcast.records.flows import BottleneckRecord, FlowRecord
from outcast.records.interventions import PacketFate
from outcast.records.link_rate import down_spans_ns, link_rate, steps_of
from outcast.records.run_directory import Manifest, RunDirectory

DEFAULT_MIN_RTO_NS = 200_000_000
"""Linux's default, for captures of others."""


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
        all_sent_ns: the same for each of `joined.all_left`.
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
    all_sent_ns: I64
    fresh: I32
    resent: Resent
    round_trips: RoundTrips


Joins = Sequence[tuple[BottleneckRecord, list[PortCapture], Joined]]
"""For each bottleneck its captures and their join."""


def join_port(
    directory: RunDirectory, manifest: Manifest, counters: Counters, record: BottleneckRecord
) -> tuple[list[PortCapture], Joined]:
    files: dict[tuple[str, str], str] = {(c.port, c.direction): c.file for c in manifest.captures}
    needed = [*((name, "in") for name in record.ingress), (record.egress, "out")]
    paths = [(port, directory.path / files[port, way]) for port, way in needed]
    captures = _read(paths, frozenset(record.destinations))
    if manifest.effective.get("routing.hash") is not None:
        plan = directory.read_plan()
        captures[:-1] = [_only_by(capture, plan, record.egress) for capture in captures[:-1]]
    traffic = manifest.traffic
    last_ns = max([traffic.t_end_ns, *(c.last_ns for c in captures if c.last_ns)])
    # A slow or paused link can hold a packet for as long as the run takes.
    longest_ns = max(DEFAULT_MAX_SOJOURN_NS, last_ns - traffic.t_start_ns)
    after = counters.ports[record.egress].after if record.egress in counters.ports else {}
    # What did not leave a queue that was empty after the captures is not under way.
    until_ns = last_ns + longest_ns if after.get("qlen") == 0 else traffic.t_end_ns
    options = JoinOptions(
        max_sojourn_ns=longest_ns,
        watched_ns=(traffic.t_start_ns, until_ns),
        one_clock=True,
        checksums=not manifest.requested.get("transport.offloads"),
        release=True,
        apart=record.queue.kind in WITH_CLASSES,
        routed=record.routed,
        # A program may send nothing in one direction, or nothing at all.
        may_be_empty=not any(flow.dst_ip in record.destinations for flow in manifest.planned_flows),
    )
    return captures, join(captures[:-1], captures[-1:], options)


def _read(paths: Sequence[tuple[str, Path]], destinations: frozenset[str]) -> list[PortCapture]:
    """The captures of a run's port; the output's is the last one.

    If other frames left too, they took room in the queue, and the inputs show when they came in.
    """
    *inputs, output = [path for _, path in paths]
    captures = read_captures(paths, destinations, foreign=False, keeping={output})
    if captures[-1].others.stamp_ns.size:
        captures[:-1] = read_captures(paths[:-1], destinations, foreign=False, keeping=inputs)
    return captures


def _only_by(capture: PortCapture, plan: Plan, egress: str) -> PortCapture:
    """The capture of an input without the packets that hashed routes send out by another port.

    A packet's addresses and ports decide by which port of a switch it leaves
    (controllers/hashing.py). A packet between addresses that the plan does not know stays.
    """
    # What is drawn for each packet leaves by a studied output whichever way it came (checks.py).
    if plan.per_packet or not plan.routes.choices:
        return capture
    hosts = plan.host_of

    def leaves(flow: FlowKey) -> bool:
        if flow.src not in hosts or flow.dst not in hosts:
            return True
        packet = FiveTuple(flow.src, flow.sport, flow.dst, flow.dport, flow.protocol)
        path = routes.path(plan.routes, plan.graph, hosts[flow.src], hosts[flow.dst], packet)
        return any(port_name(plan.graph, *hop) == egress for hop in pairwise(path[1:]))

    mine = np.array([leaves(flow) for flow in capture.flows], bool)
    kept = mine[capture.columns.flow]
    return replace(
        capture,
        columns=Columns.of(column[kept] for column in capture.columns),
        unwanted=capture.unwanted + int(np.count_nonzero(~kept)),
    )


def elsewhere(
    manifest: AnyManifest, counters: Counters, record: BottleneckRecord
) -> frozenset[int]:
    """The numbers of the flows that do not count at a port; empty where no links were recorded.

    They leave by another output, or they count at an earlier port of the manifest. Subflows may
    take other paths than their flow.
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


def analyze_port(
    directory: RunDirectory,
    manifest: Manifest,
    record: BottleneckRecord,
    captures: list[PortCapture],
    joined: Joined,
    strangers: frozenset[int],
) -> PortAnalysis:
    """Computes what a bottleneck's packets did. Flows in `strangers` do not count there."""
    t_start_ns = manifest.traffic.t_start_ns
    full = joined.all_left
    queue, reached_ns = replay_behind(
        full,
        record.queue,
        [(t_start_ns + at, delay) for at, delay in _delays_ns(directory, manifest, record)],
        [(t_start_ns + a, t_start_ns + b) for a, b in down_spans_ns(manifest, record.egress)],
        [
            (t_start_ns + at, limit)
            for what in ("limit_bytes", "limit_packets")
            for at, limit in steps_of(manifest, record.egress, what)
        ],
        [*_held(manifest, record.egress)],
    )
    return measured(
        record,
        captures,
        joined,
        of_own(joined, queue),
        _numbers(joined.flows, manifest.flows, strangers),
        reached_ns if joined.whole is None else reached_ns[joined.whole.own],
        _sent_ns(directory, manifest, record, full),
        _round_trips(directory, manifest, record, joined),
        min_rto_ns_of(manifest.effective) or DEFAULT_MIN_RTO_NS,
        manifest.effective.get("ipv4.tcp_sack") != "0",
        (t_start_ns, t_start_ns + manifest.traffic.duration_ns),
    )


def measured(
    record: BottleneckRecord,
    captures: list[PortCapture],
    joined: Joined,
    queue: Queue,
    numbers: list[int],
    reached_ns: I64,
    all_sent_ns: I64,
    trips: RoundTrips,
    min_rto_ns: int = DEFAULT_MIN_RTO_NS,
    sack: bool = True,
    within_ns: tuple[int, int] | None = None,
) -> PortAnalysis:
    """What follows from a port's join and its queue; see `PortAnalysis`, `resent` and `_spans`."""
    rows = _rows_by_number(joined, numbers)
    return PortAnalysis(
        record=record,
        captures=captures,
        joined=joined,
        queue=queue,
        reached_ns=reached_ns,
        chains=port_chains(joined),
        flow_chains=flow_chains(joined),
        numbers=numbers,
        rows=rows,
        spans=_spans(joined, rows, within_ns),
        sent_ns=all_sent_ns if joined.whole is None else all_sent_ns[joined.whole.own_left],
        all_sent_ns=all_sent_ns,
        fresh=fresh_bytes(joined.departures, joined.flows),
        round_trips=trips,
        resent=resent(joined, min_rto_ns, sack),
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
"""By rounding the kernel's time of a frame may be this much shorter, which would add up."""


def _sent_ns(
    directory: RunDirectory, manifest: Manifest, record: BottleneckRecord, joined: Joined
) -> I64:
    """When the first bit of each departure went on the link.

    In real time, and behind a bucket of two full frames or more, frames go at once (patch 0018).
    Where the rate changes, a frame let go before would take its time at another rate.
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
            number = numbers.get(flow.reversed)
            if number is None:
                continue
            seen = back.columns
            mine = (seen.flow == row) & ((seen.flags & ACK) != 0)
            rows = np.flatnonzero(joined.arrivals.flow == number)
            acks = Acks(seen.ack[mine], seen.sacked[mine], seen.stamp_ns[mine])
            flows.append((number, rows, acks))
    return round_trips(joined.arrivals, flows)


def _numbers(
    flows: Sequence[FlowKey], records: Sequence[FlowRecord], strangers: frozenset[int]
) -> list[int]:
    """Each flow's number in the run, by addresses and ports; foreign flows and strangers follow."""
    own = [record for record in records if record.flow not in strangers]
    known = {ends: record.flow for record in own for ends in record.connections}
    foreign = itertools.count(1 + max((record.flow for record in records), default=-1))
    found = (known.get((flow.src, flow.sport, flow.dst, flow.dport)) for flow in flows)
    return [next(foreign) if number is None else number for number in found]


def _rows_by_number(joined: Joined, numbers: Sequence[int]) -> dict[int, Array]:
    of_number: dict[int, list[Array]] = defaultdict(list)
    for flow, rows in grouped(joined.arrivals.flow).items():
        of_number[numbers[flow]].append(rows)
    return {number: np.sort(np.concatenate(parts)) for number, parts in of_number.items()}


def _spans(
    joined: Joined, rows: dict[int, Array], within_ns: tuple[int, int] | None = None
) -> dict[int, tuple[int, int]]:
    """When the first and the last of each flow's packets came in; no entry without any.

    `within_ns` is the duration: before it flows connect, and after it they may send what is left.
    """
    found = {}
    for number, mine in rows.items():
        came_ns = joined.arrivals.stamp_ns[mine]
        if within_ns is not None:
            came_ns = came_ns[slice(*np.searchsorted(came_ns, within_ns))]
        if came_ns.size:
            found[number] = int(came_ns[0]), int(came_ns[-1])
    return found
