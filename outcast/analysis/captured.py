"""The analysis of foreign captures: of joined ones, or of one alone.

Joined captures have most measures of a run. Hop counts, congestion controls, queues' settings and
kernels' counts are unknown. So are timeouts, which depend on the senders' least RTO.

A capture alone sees a flow at one point; docs/own-captures.md says what that shows. A segment is
*sent again* if its data had all passed before, and *late* if it has new data below the highest that
had passed. The round trip *beyond* goes from here to the receiver and back: from a segment to the
first acknowledgement of all of it (Karn's rule). The round trip *before* goes to the sender and
back: from the first packet with a TCP time stamp to the first that echoes it (RFC 7323; Nichols,
pping). It has the sender's wait in it, so it is an upper bound.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from outcast import __version__
from outcast.analysis import store
from outcast.analysis.capture.headers import HAS_TIMESTAMP, SYN, TCP, UDP, Columns, FlowKey
from outcast.analysis.capture.pcap import PortCapture, copies_in
from outcast.analysis.join.clocks import steps_back
from outcast.analysis.join.join import Joined, Verdict, count
from outcast.analysis.join.packets import grouped
from outcast.analysis.join.service import Whole
from outcast.analysis.machine_code import I64, Array
from outcast.analysis.measure.estimates import Found
from outcast.analysis.measure.flows import MOUSE_SHARE, mice_warnings
from outcast.analysis.measure.queue import Queue
from outcast.analysis.measure.segments import paint, unwrap
from outcast.analysis.measure.tcp import Acks, round_trips
from outcast.analysis.port_analysis import PortAnalysis, measured
from outcast.analysis.program_flows import LEAST_DATA_SHARE
from outcast.analysis.run_analysis import Analysis, Interval, when_all_active
from outcast.errors import InputError
from outcast.plan import grouping
from outcast.records.captures import CapturesManifest, JoinRequest
from outcast.records.counters import NO_COUNTERS, Rates
from outcast.records.flows import BottleneckRecord, FlowRecord, QueueRecord, TrafficRecord
from outcast.records.run_directory import RunDirectory

_BINS = 200
"""The approximate number of bins over time."""


def compute(directory: RunDirectory, name: str, request: JoinRequest, found: Found) -> Analysis:
    """Analyses joined captures like a run. Raises InputError if stamps are before 1970."""
    joined = found.joined
    traffic = _traffic(joined)
    numbers = store.flow_numbers(joined)
    flows, mice = _flows(joined, numbers, traffic.t_start_ns)
    parts = [_of_output(joined, output) for output in range(len(joined.outputs))]
    outputs = sorted(
        (part for part in parts if len(part.arrivals) or len(part.departures)),
        key=lambda part: (-part.counts.dropped, -int(part.departures.frame_bytes.sum())),
    )
    manifest = CapturesManifest(
        outcast=__version__,
        name=name,
        request=request,
        traffic=traffic,
        flows=flows,
        bottlenecks=[_bottleneck(part, request) for part in outputs],
        clocks=list(found.clocks),
        estimates=list(found.estimates),
        warnings=[*mice_warnings(mice), *found.remarks],
        bin_ns=_bin_ns(traffic.duration_ns),
    )
    ports = [
        _analyze(part, record, numbers, found)
        for part, record in zip(outputs, manifest.bottlenecks, strict=True)
    ]
    together = when_all_active(manifest, ports)
    return Analysis(
        directory=directory,
        manifest=manifest,
        counters=NO_COUNTERS,
        windows_ns=(),
        bin_ns=manifest.bin_ns,
        group_by=grouping.chosen(None, manifest.groups),
        ports=ports,
        interval=Interval(0, traffic.duration_ns),
        windows_from_ns=None if together is None else together.start_ns,
        rates=Rates(),
        whole=found,
    )


def _traffic(joined: Joined) -> TrafficRecord:
    """The span of packets with payload, or of all if none has any. Handshakes may be older."""
    sides = [side for side in (joined.arrivals, joined.departures) if len(side)]
    if not sides:
        raise InputError("nothing came in and nothing left, so there is nothing to analyse")
    stamps = [side.stamp_ns[side.payload_bytes > 0] for side in sides]
    stamps = [part for part in stamps if part.size] or [side.stamp_ns for side in sides]
    first = min(int(part.min()) for part in stamps)
    last = max(int(part.max()) for part in stamps)
    if not 0 <= first <= last <= 1 << 62:
        raise InputError(
            f"the captures' time stamps go from {first} to {last} ns; allowed are times since 1970"
        )
    return TrafficRecord(t_start_ns=first, t_end_ns=last + 1, duration_ns=last + 1 - first)


def _bin_ns(duration_ns: int) -> int:
    """A width of 1, 2 or 5 times a power of ten, for about _BINS bins."""
    widths = (factor * 10**power for power in itertools.count() for factor in (1, 2, 5))
    width: int = next(width for width in widths if width * _BINS >= duration_ns)
    return width


def _flows(joined: Joined, numbers: Sequence[int], start_ns: int) -> tuple[list[FlowRecord], ...]:
    """Every flow that carries data, and the mice, whose payload is far below the mean.

    A flow has at least a tenth of the payload of its opposite direction. A flow that lost packets
    is no mouse, because it may starve.
    """
    arrivals = joined.arrivals
    count, ports = len(joined.flows), len(joined.inputs)
    payload = np.bincount(arrivals.flow, arrivals.payload_bytes, count)
    rows = {key: row for row, key in enumerate(joined.flows)}
    opposite = [rows.get(key.reversed) for key in joined.flows]
    is_data = [
        payload[row] > 0 and (other is None or payload[row] >= LEAST_DATA_SHARE * payload[other])
        for row, other in enumerate(opposite)
    ]
    carrying = arrivals.payload_bytes > 0
    first = np.full(count, np.iinfo(np.int64).max, np.int64)
    last = np.full(count, -1, np.int64)
    np.minimum.at(first, arrivals.flow[carrying], arrivals.stamp_ns[carrying])
    np.maximum.at(last, arrivals.flow[carrying], arrivals.stamp_ns[carrying])
    at_port = arrivals.flow.astype(np.int64) * ports + arrivals.port
    usual = np.bincount(at_port, minlength=count * ports).reshape(count, ports).argmax(axis=1)
    records = [
        FlowRecord(
            flow=numbers[row],
            group=0,
            src=key.src,
            src_ip=key.src,
            sport=key.sport,
            dst=key.dst,
            dst_ip=key.dst,
            dport=key.dport,
            hops=None,
            path=[],
            ingress=joined.inputs[int(usual[row])],
            start_ns=int(first[row]) - start_ns,
            duration_ns=int(last[row] - first[row]),
            size_bytes=None,
            congestion_control=grouping.UNKNOWN if key.protocol == TCP else None,
            protocol="tcp" if key.protocol == TCP else "udp",
        )
        for row, key in enumerate(joined.flows)
        if is_data[row] and key.protocol in (TCP, UDP)
    ]
    records.sort(key=lambda record: record.flow)
    came = dict(zip(numbers, payload.tolist(), strict=True))
    least = MOUSE_SHARE * sum(came[record.flow] for record in records) / max(1, len(records))
    lost = np.bincount(arrivals.flow[joined.verdict == Verdict.DROPPED], minlength=count)
    small = {numbers[row] for row in np.flatnonzero((payload < least) & (lost == 0)).tolist()}
    flows = [record for record in records if record.flow not in small]
    return flows, [record for record in records if record.flow in small]


def _bottleneck(part: Joined, request: JoinRequest) -> BottleneckRecord:
    of_flows = np.union1d(np.unique(part.arrivals.flow), np.unique(part.departures.flow))
    frames = part.departures.frame_bytes
    return BottleneckRecord(
        switch=None,
        egress=part.outputs[0],
        ingress=list(part.inputs),
        destinations=sorted({part.flows[row].dst for row in of_flows.tolist()}),
        queue=QueueRecord(
            kind=grouping.UNKNOWN,
            rate_bps=request.rate_bps,
            limit_bytes=request.limit_bytes,
            limit_packets=None,
            frame_bytes=int(frames.max()) if frames.size else 1514,
        ),
    )


def _analyze(
    part: Joined, record: BottleneckRecord, numbers: list[int], found: Found
) -> PortAnalysis:
    output = found.joined.outputs.index(part.outputs[0])
    came = np.flatnonzero(found.joined.egress == output)
    queue = _queue_of(found.queue, output, came)
    reached_ns, sent_ns = part.arrivals.stamp_ns, part.all_left.departures.stamp_ns
    trips = round_trips(part.arrivals, ())
    return measured(record, [], part, queue, numbers, reached_ns, sent_ns, trips)


def _queue_of(queue: Queue, output: int, came: I64) -> Queue:
    """The queue of one output; `came` are the rows of its arrivals."""
    mine = queue.egress == output
    events = Queue(*queue[:2], *(column[mine] for column in queue[2:]))
    return events._replace(
        found_bytes=queue.found_bytes[came],
        found_packets=queue.found_packets[came],
        packet=_renumbered(events.packet, came),
        egress=np.zeros_like(events.egress),
    )


def _of_output(joined: Joined, output: int) -> Joined:
    """The part of a join that goes to one output, without unused inputs."""
    part = _part_of(joined, output)
    if joined.whole is None:
        return part
    full = _part_of(joined.whole.joined, output, part.inputs)
    own = np.flatnonzero(full.arrivals.flow < len(joined.flows))
    own_left = np.flatnonzero(full.departures.flow < len(joined.flows))
    parts = joined.whole.bytes_share, joined.whole.unseen_share, joined.whole.untold_share
    shares = (share[output : output + 1] for share in parts)
    return replace(part, whole=Whole(full, own, own_left, *shares))


def _part_of(joined: Joined, output: int, first: tuple[str, ...] = ()) -> Joined:
    """The packets to an output. Its inputs are `first`, then all others in use."""
    came = np.flatnonzero(joined.egress == output)
    left_rows = np.flatnonzero(joined.departures.port == output)
    ports = joined.arrivals.port[came]
    names = [*first, *(joined.inputs[row] for row in np.unique(ports).tolist())]
    inputs = [joined.inputs.index(name) for name in dict.fromkeys(names)]
    place = np.zeros(len(joined.inputs), np.int8)
    place[inputs] = np.arange(len(inputs))
    arrivals = replace(joined.arrivals.rows(came, port=0), port=place[ports])
    departures = joined.departures.rows(left_rows, port=0)
    verdict, note, stray = joined.verdict[came], joined.note[came], joined.stray[left_rows]
    return replace(
        joined,
        inputs=tuple(joined.inputs[row] for row in inputs),
        outputs=(joined.outputs[output],),
        arrivals=arrivals,
        departures=departures,
        left_as=_renumbered(joined.left_as[came], left_rows),
        came_as=_renumbered(joined.came_as[left_rows], came),
        verdict=verdict,
        note=note,
        egress=np.zeros(came.size, np.int8),
        stray=stray,
        fifo=tuple(joined.fifo[row] for row in inputs),
        counts=count(verdict, note, stray),
    )


def _renumbered(values: Array, kept: I64) -> Array:
    """Rows of the whole as rows of the kept part; -1 stays."""
    places = np.where(values >= 0, np.searchsorted(kept, values), -1)
    return places.astype(np.int32)


@dataclass(frozen=True, slots=True)
class SeenFlow:
    """A flow at the point of a capture. Numbers of TCP are None for other protocols.

    `new_bytes` counts data that passed for the first time. The module's docstring defines the
    segments `sent_again` and `late`, and the round trips `beyond_ns` and `before_ns`.
    """

    key: FlowKey
    packets: int
    payload_bytes: int
    first_ns: int
    last_ns: int
    new_bytes: int | None
    sent_again: int | None
    late: int | None
    beyond_ns: I64
    before_ns: I64

    @property
    def goodput_bps(self) -> float | None:
        """New data over the time from the first packet to the last; None without new data."""
        if self.new_bytes is None or self.last_ns <= self.first_ns:
            return None
        return self.new_bytes * 8e9 / (self.last_ns - self.first_ns)


def seen_flows(capture: PortCapture) -> tuple[list[SeenFlow], list[str]]:
    """The flows of a capture, those with most payload first, and remarks. Copies count once."""
    remarks, columns = [], _by_stamps(capture.columns)
    if steps := steps_back(capture):
        remarks.append(
            f"{capture.path}: its time stamps go back {steps:,} times, so the clock may have "
            "stepped: cut the file, `editcap -A START -B STOP FILE NEW`"
        )
    copies = copies_in(columns)
    if copies.any():
        remarks.append(
            f"{capture.path}: {int(copies.sum()):,} packets are there twice, as in a mirror of "
            "both directions of a port or of several ports. Each counts once"
        )
        columns = Columns.of(column[~copies] for column in columns)
    rows_of = {capture.flows[number]: rows for number, rows in grouped(columns.flow).items()}
    flows = [_seen(columns, key, rows, rows_of.get(key.reversed)) for key, rows in rows_of.items()]
    return sorted(flows, key=lambda flow: (-flow.payload_bytes, flow.first_ns, flow.key)), remarks


def _by_stamps(columns: Columns) -> Columns:
    order = np.argsort(columns.stamp_ns, kind="stable")
    if (np.diff(order) < 0).any():
        return Columns.of(column[order] for column in columns)
    return columns


def _seen(columns: Columns, key: FlowKey, rows: Array, back: Array | None) -> SeenFlow:
    stamps = columns.stamp_ns[rows]
    payload = columns.payload_bytes[rows]
    new_bytes = sent_again = late = None
    beyond = before = np.empty(0, np.int64)
    if key.protocol == TCP:
        low = unwrap(columns.seq[rows], columns.flags[rows])
        high = low + payload
        fresh = paint(low, high, np.ones(rows.size, np.bool_))
        highest = np.concatenate([low[:1], np.maximum.accumulate(high)[:-1]])
        below = (payload > 0) & (low < highest)
        new_bytes = int(fresh.sum())
        sent_again = int((below & (fresh == 0)).sum())
        late = int((below & (fresh > 0)).sum())
        if back is not None:
            data = rows[payload > 0]
            acks = back[(columns.flags[back] & SYN) == 0]
            heard = Acks(columns.ack[acks], columns.sacked[acks], columns.stamp_ns[acks])
            beyond = round_trips(columns, [(0, data, heard)]).rtt_ns
            before = _echoes(columns, data, back)
    return SeenFlow(
        key,
        rows.size,
        int(payload.sum()),
        int(stamps[0]),
        int(stamps[-1]),
        new_bytes,
        sent_again,
        late,
        beyond,
        before,
    )


def _echoes(columns: Columns, data: Array, back: Array) -> I64:
    """The time from the first packet back with each time stamp to its first echo in data."""
    heard = back[(columns.marks[back] & HAS_TIMESTAMP) != 0]
    echoing = data[(columns.marks[data] & HAS_TIMESTAMP) != 0]
    stamp, first = np.unique(columns.tsval[heard], return_index=True)
    echo, answer = np.unique(columns.tsecr[echoing], return_index=True)
    _, mine, its = np.intersect1d(stamp, echo, assume_unique=True, return_indices=True)
    answered = columns.stamp_ns[echoing[answer[its]]]
    trips: I64 = answered - columns.stamp_ns[heard[first[mine]]]
    return trips[(trips > 0) & (echo[its] > 0)]
