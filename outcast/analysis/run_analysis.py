"""The analysis of a run directory: from captures and counters to tables and the summary."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from outcast.analysis import store
from outcast.analysis.blackout import Chains, flow_chains, length_counts, port_chains
from outcast.analysis.compiled import I32, I64, Array
from outcast.analysis.fairness import jain_index, outcast_ratio
from outcast.analysis.headers import ACK, FlowKey
from outcast.analysis.join import Joined, JoinOptions, Verdict, join
from outcast.analysis.pcap import PortCapture, read_capture, read_captures
from outcast.analysis.phase import packet_time_ns, phases
from outcast.analysis.queue import (
    Queue,
    Spread,
    capacity,
    length_spread,
    replay,
    sojourn_spread,
    switch_latency_ns,
)
from outcast.analysis.summary import (
    CapacitySummary,
    CaptureSummary,
    ClassSummary,
    PhaseSummary,
    PortDrops,
    QueueSummary,
    SpreadSummary,
    Summary,
    TcpSummary,
    Window,
)
from outcast.analysis.tcp import Resent, RoundTrips, resent, round_trips, rows_by_flow
from outcast.analysis.throughput import Series, bytes_between, fresh_bytes, series
from outcast.errors import InputError
from outcast.run import (
    BottleneckRecord,
    CaptureRecord,
    Counters,
    FlowRecord,
    Manifest,
    RunDirectory,
    write_text,
)
from outcast.units import format_time

DEFAULT_MIN_RTO_NS = 200_000_000
"""Linux's own, where the manifest does not name the effective one."""


@dataclass(frozen=True, slots=True)
class PortAnalysis:
    """One bottleneck port.

    Attributes:
        numbers: for each flow of the join the run's number for it; foreign flows follow on.
        rows: for each of these numbers its arrivals.
        fresh: for each departure the payload bytes of its flow that had not left before.
        round_trips: from the inputs to the receivers and back; none where the acknowledgements
            were not captured (`capture: {ports: all}`).
    """

    record: BottleneckRecord
    captures: list[PortCapture]
    joined: Joined
    queue: Queue
    chains: Chains
    flow_chains: Chains
    numbers: list[int]
    rows: dict[int, Array]
    fresh: I32
    resent: Resent
    round_trips: RoundTrips


@dataclass(frozen=True, slots=True)
class Interval:
    """A part of the run: [start_ns, end_ns) after the traffic's start."""

    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9


@dataclass(frozen=True, slots=True)
class Analysis:
    """Everything computed from a run, before it is stored."""

    manifest: Manifest
    counters: Counters
    windows_ns: tuple[int, ...]
    bin_ns: int
    ports: list[PortAnalysis]
    interval: Interval
    all_active: bool


def compute(directory: RunDirectory, windows_ns: Sequence[int], bin_ns: int) -> Analysis:
    """Reads a run's captures and joins them.

    Args:
        directory: what `outcast run` wrote.
        windows_ns: the sub-intervals to sum up, from the traffic's start.
        bin_ns: the width of the bins of throughput over time.

    Raises InputError where the manifest, the counters or a capture is missing or broken.
    """
    manifest = directory.read_manifest()
    counters = directory.read_counters()
    ports = [_analyze_port(directory, manifest, record) for record in manifest.bottlenecks]
    if not ports:
        raise InputError(f"{directory.manifest}: bottlenecks: none is named")
    interval, all_active = _main_interval(manifest, ports)
    return Analysis(manifest, counters, tuple(windows_ns), bin_ns, ports, interval, all_active)


def _analyze_port(
    directory: RunDirectory, manifest: Manifest, record: BottleneckRecord
) -> PortAnalysis:
    files = [
        (port, directory.path / _capture(directory, manifest, port, direction).file)
        for port, direction in [(name, "in") for name in record.ingress] + [(record.egress, "out")]
    ]
    captures = read_captures(files, frozenset(record.destinations))
    for capture in captures:
        if capture.cut_short:
            raise InputError(
                f"{capture.path}: cut off after {capture.records} packets, inside a record; "
                f"the capture of a run is needed whole"
            )
    traffic = manifest.traffic
    joined = join(
        captures[:-1],
        captures[-1:],
        JoinOptions(
            watched_ns=(traffic.t_start_ns, traffic.t_end_ns), one_clock=True, release=True
        ),
    )
    queue = replay(joined, record.queue.delay_ns)
    numbers = _numbers(joined.flows, manifest.flows)
    return PortAnalysis(
        record=record,
        captures=captures,
        joined=joined,
        queue=queue,
        chains=port_chains(joined),
        flow_chains=flow_chains(joined),
        numbers=numbers,
        rows=_rows_by_number(joined, numbers),
        fresh=fresh_bytes(joined.departures, joined.flows),
        round_trips=_round_trips(directory, manifest, record, joined),
        resent=resent(joined, int(manifest.effective.get("min_rto_ns", DEFAULT_MIN_RTO_NS))),
    )


def _round_trips(
    directory: RunDirectory, manifest: Manifest, record: BottleneckRecord, joined: Joined
) -> RoundTrips:
    """Round trips by the acknowledgements that left by the input ports, where captured."""
    flows = []
    captured = {(c.port, c.direction): c.file for c in manifest.captures}
    for port in record.ingress:
        file = captured.get((port, "out"))
        if file is None:
            continue
        senders = frozenset(flow.src_ip for flow in manifest.flows if flow.ingress == port)
        back = read_capture(port, directory.path / file, senders)
        numbers = {flow: number for number, flow in enumerate(joined.flows)}
        for row, flow in enumerate(back.flows):
            data = FlowKey(flow.dst, flow.dport, flow.src, flow.sport, flow.protocol)
            if data not in numbers:
                continue
            mine = (back.columns.flow == row) & ((back.columns.flags & ACK) != 0)
            rows = np.flatnonzero(joined.arrivals.flow == numbers[data])
            flows.append((numbers[data], rows, back.columns.ack[mine], back.columns.stamp_ns[mine]))
    return round_trips(joined.arrivals, tuple(flows))


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


def _numbers(flows: Sequence[FlowKey], records: Sequence[FlowRecord]) -> list[int]:
    """The run's number of each flow, by addresses and ports; foreign flows follow on."""
    known = {
        (record.src_ip, record.sport, record.dst_ip, record.dport): record.flow
        for record in records
    }
    foreign = max((record.flow for record in records), default=-1)
    numbers = []
    for flow in flows:
        number = known.get((flow.src, flow.sport, flow.dst, flow.dport))
        if number is None:
            foreign += 1
            number = foreign
        numbers.append(number)
    return numbers


def _rows_by_number(joined: Joined, numbers: Sequence[int]) -> dict[int, Array]:
    grouped: dict[int, list[Array]] = defaultdict(list)
    for flow, rows in rows_by_flow(joined.arrivals, len(joined.flows)):
        grouped[numbers[flow]].append(rows)
    return {number: np.sort(np.concatenate(parts)) for number, parts in grouped.items()}


def _main_interval(manifest: Manifest, ports: Sequence[PortAnalysis]) -> tuple[Interval, bool]:
    """The whole duration; or, where flows start or end apart, while all are active.

    A flow of so many bytes is active until its last new byte left the bottleneck. Where there is
    no time at which all are active, the whole duration counts.
    """
    whole = Interval(0, manifest.traffic.duration_ns)
    begin, end = 0, whole.end_ns
    for record in manifest.flows:
        begin = max(begin, record.start_ns)
        if record.duration_ns is not None:
            end = min(end, record.start_ns + record.duration_ns)
        else:
            end = min(end, _last_progress_ns(record, ports) - manifest.traffic.t_start_ns)
    if (begin, end) == (0, whole.end_ns) or end <= begin:
        return whole, False
    return Interval(begin, end), True


def _last_progress_ns(record: FlowRecord, ports: Sequence[PortAnalysis]) -> int:
    last = 0
    for port in ports:
        for number, flow in enumerate(port.numbers):
            if flow == record.flow:
                of_flow = (port.joined.departures.flow == number) & (port.fresh > 0)
                stamps = port.joined.departures.stamp_ns[of_flow]
                last = max(last, int(stamps[-1]) if stamps.size else 0)
    return last


# --- goodput


def _flow_bytes(analysis: Analysis, interval: Interval, of: str = "fresh") -> dict[int, int]:
    """Bytes per flow of the run that left a bottleneck within an interval."""
    begin = analysis.manifest.traffic.t_start_ns
    total = {record.flow: 0 for record in analysis.manifest.flows}
    for port in analysis.ports:
        departures = port.joined.departures
        values = port.fresh if of == "fresh" else departures.frame_bytes
        sums = bytes_between(
            departures,
            values,
            len(port.joined.flows),
            begin + interval.start_ns,
            begin + interval.end_ns,
        )
        for number, value in zip(port.numbers, sums.tolist(), strict=True):
            if number in total:
                total[number] += value
    return total


def _by_class(manifest: Manifest) -> dict[int, list[FlowRecord]]:
    classes: dict[int, list[FlowRecord]] = defaultdict(list)
    for record in manifest.flows:
        classes[record.hops].append(record)
    return dict(sorted(classes.items()))


def _host_counts(analysis: Analysis, records: Iterable[FlowRecord], counter: str) -> int | None:
    """A counter's growth at the hosts that send these flows; None if they send others too."""
    hosts = {record.src for record in records}
    flows = {record.flow for record in records}
    if any(record.src in hosts and record.flow not in flows for record in analysis.manifest.flows):
        return None
    if not hosts <= analysis.counters.hosts.keys():
        return None
    return sum(analysis.counters.hosts[host].delta(counter) for host in hosts)


def _window(analysis: Analysis, interval: Interval, with_counts: bool) -> Window:
    total = _flow_bytes(analysis, interval)
    goodput = {flow: 8 * value / interval.seconds for flow, value in total.items()}
    classes = {}
    means = {}
    for hops, records in _by_class(analysis.manifest).items():
        shares = [goodput[record.flow] for record in records]
        means[hops] = sum(shares) / len(shares)
        classes[str(hops)] = ClassSummary(
            flows=len(shares),
            mean_goodput_bps=means[hops],
            min_goodput_bps=min(shares),
            timeouts=_host_counts(analysis, records, "TcpExtTCPTimeouts") if with_counts else None,
            retransmits=_host_counts(analysis, records, "TcpRetransSegs") if with_counts else None,
        )
    return Window(
        start_s=interval.start_ns / 1e9,
        end_s=interval.end_ns / 1e9,
        jain_index=jain_index(list(goodput.values())),
        total_goodput_bps=sum(goodput.values()),
        classes=classes,
        outcast_ratio=outcast_ratio(means),
    )


# --- drops


def _port_drops(analysis: Analysis) -> dict[str, PortDrops]:
    hops = defaultdict(set)
    for record in analysis.manifest.flows:
        if record.ingress is not None:
            hops[record.ingress].add(record.hops)
    drops = {}
    for port in analysis.ports:
        joined = port.joined
        for index, name in enumerate(joined.inputs):
            mine = joined.arrivals.port == index
            of_port = port.chains.ingress == index
            lengths = port.chains.drops[of_port]
            # A port that feeds two bottlenecks is told apart by the output's name.
            key = name if name not in drops else f"{name}>{port.record.egress}"
            drops[key] = PortDrops(
                packets=int(mine.sum()),
                dropped=int((mine & (joined.verdict == Verdict.DROPPED)).sum()),
                longest_chain=int(lengths.max()) if lengths.size else 0,
                chains={str(k): v for k, v in length_counts(lengths).items()},
                blackouts=int((port.chains.others_through[of_port] > 0).sum()),
                hops=sorted(hops[name]),
            )
    return drops


def _class_chains(analysis: Analysis) -> dict[str, dict[str, int]]:
    """By hop count, how many chains of drops of one flow there are of each length."""
    by_flow = {record.flow: record.hops for record in analysis.manifest.flows}
    lengths: dict[int, list[int]] = {hops: [] for hops in _by_class(analysis.manifest)}
    for port in analysis.ports:
        flows = port.joined.arrivals.flow[port.flow_chains.first].tolist()
        for flow, drops in zip(flows, port.flow_chains.drops.tolist(), strict=True):
            hops = by_flow.get(port.numbers[flow])
            if hops is not None:
                lengths[hops].append(drops)
    return {
        str(hops): {str(k): v for k, v in length_counts(np.array(values, int)).items()}
        for hops, values in lengths.items()
    }


# --- TCP, the queue and the phase


def _rows_of_flow(port: PortAnalysis, flow: int) -> Array:
    """The arrivals of a flow of the run."""
    return port.rows.get(flow, np.empty(0, np.int64))


def _tcp_of_flow(analysis: Analysis, flow: int) -> TcpSummary:
    parts = [(port.resent, _rows_of_flow(port, flow)) for port in analysis.ports]
    return TcpSummary(
        retransmissions=sum(int(found.retransmission[rows].sum()) for found, rows in parts),
        spurious=sum(int(found.spurious[rows].sum()) for found, rows in parts),
        timeouts=sum(int((found.halted_ns[rows] > 0).sum()) for found, rows in parts),
        halted_s=sum(int(found.halted_ns[rows].sum()) for found, rows in parts) / 1e9,
    )


def _median_rtt_ns(analysis: Analysis, flow: int) -> int | None:
    parts = [
        port.round_trips.rtt_ns[np.isin(port.round_trips.flow, numbers)]
        for port in analysis.ports
        if (numbers := [n for n, number in enumerate(port.numbers) if number == flow])
    ]
    known = np.concatenate([*parts, np.empty(0, np.int64)])
    return int(np.median(known)) if known.size else None


def _tcp(analysis: Analysis) -> dict[str, TcpSummary]:
    classes = {}
    for hops, records in _by_class(analysis.manifest).items():
        parts = [_tcp_of_flow(analysis, record.flow) for record in records]
        classes[str(hops)] = TcpSummary(
            retransmissions=sum(part.retransmissions for part in parts),
            spurious=sum(part.spurious for part in parts),
            timeouts=sum(part.timeouts for part in parts),
            halted_s=round(sum(part.halted_s for part in parts), 9),
        )
    return classes


def _queue_summary(analysis: Analysis, port: PortAnalysis) -> QueueSummary:
    latency = switch_latency_ns(port.joined, port.queue, 0)
    # What the switch takes until it queues a packet blurs the level; the better of both counts.
    found = [capacity(port.joined, port.queue, 0)]
    if latency and found[0] is not None:
        found.append(capacity(port.joined, replay(port.joined, latency), 0))
    best = max((item for item in found if item), key=lambda item: item.confidence, default=None)
    level = None
    if best is not None:
        queue = port.record.queue
        configured = queue.limit_bytes if best.unit == "bytes" else queue.limit_packets
        level = CapacitySummary(
            unit=best.unit,
            at_least=best.at_least,
            below=best.below,
            confidence=round(best.confidence, 4),
            configured=configured,
            agrees=None if configured is None else best.holds(configured),
        )
    traffic = analysis.manifest.traffic
    end = traffic.t_start_ns + traffic.duration_ns
    return QueueSummary(
        length_bytes=_spread(length_spread(port.queue, 0, traffic.t_start_ns, end), 1),
        sojourn_ms=_spread(sojourn_spread(port.joined, 0), 1e6),
        switch_latency_us=latency / 1e3,
        capacity=level,
    )


def _spread(spread: Spread | None, unit: float) -> SpreadSummary | None:
    if spread is None:
        return None
    return SpreadSummary(
        mean=round(spread.mean / unit, 6),
        p50=spread.p50 / unit,
        p90=spread.p90 / unit,
        p99=spread.p99 / unit,
        max=spread.max / unit,
    )


def _phase_summary(port: PortAnalysis) -> PhaseSummary:
    packet_ns = packet_time_ns(port.joined, 0, port.record.queue.rate_bps)
    found = phases(port.joined, port.chains, 0, packet_ns)
    return PhaseSummary(
        packet_time_us=packet_ns / 1e3,
        blackouts=int(np.unique(found.chain).size),
        during_lost=found.share(lost=True, during=True),
        during_others=found.share(lost=False, during=True),
        before_lost=found.share(lost=True, during=False),
        before_others=found.share(lost=False, during=False),
    )


# --- trust


def _capture_summary(analysis: Analysis) -> CaptureSummary:
    records = {(c.port, c.direction): c for c in analysis.manifest.captures}
    reasons = []
    used: dict[tuple[str, str], CaptureRecord] = {}
    inferred = counted = unmatched = in_flight = 0
    for port in analysis.ports:
        counts = port.joined.counts
        egress = port.record.egress
        inferred += counts.dropped
        in_flight += counts.in_flight
        strays = counts.early + counts.duplicates + counts.unexplained
        unmatched += strays
        if egress not in analysis.counters.ports:
            reasons.append(f"{egress}: counters.json has no counters of its queue")
        else:
            drops = analysis.counters.ports[egress].delta("drops")
            counted += drops
            if drops != counts.dropped:
                reasons.append(
                    f"{egress}: {counts.dropped} drops inferred, its queue counted {drops}"
                )
        if strays:
            reasons.append(f"{egress}: {strays} packets left without having been seen coming in")
        if counts.before_output:
            reasons.append(
                f"{egress}: {counts.before_output} packets came in before its capture began"
            )
        for index, capture in enumerate(port.captures):
            record = records[capture.port, "out" if index == len(port.captures) - 1 else "in"]
            used[record.port, record.direction] = record
            if capture.records != record.captured:
                reasons.append(
                    f"{record.file}: holds {capture.records} packets, tcpdump captured "
                    f"{record.captured}"
                )
            if capture.cut:
                reasons.append(f"{record.file}: {capture.cut} packets too short for their headers")
            if capture.steps_back:
                reasons.append(f"{record.file}: its clock went back {capture.steps_back} times")
        present = set(port.numbers)
        for flow in analysis.manifest.flows:
            if flow.dst_ip in port.record.destinations and flow.flow not in present:
                reasons.append(f"{egress}: no packet of flow {flow.flow} ({flow.src}) was seen")
    kernel_drops = sum(record.dropped_by_kernel for record in used.values())
    if kernel_drops:
        reasons.append(f"tcpdump lost {kernel_drops} packets in the kernel")
    return CaptureSummary(
        tcpdump_kernel_drops=kernel_drops,
        inferred_drops=inferred,
        qdisc_drops=counted,
        unmatched=unmatched,
        in_flight=in_flight,
        trusted=not reasons,
        reasons=reasons,
    )


# --- storing


def summarize(analysis: Analysis, wall_s: Mapping[str, float]) -> Summary:
    """The summary of an analysis; `wall_s` is the manifest's."""
    main = _window(analysis, analysis.interval, with_counts=True)
    return Summary(
        name=analysis.manifest.name,
        engine=analysis.manifest.engine,
        duration_s=analysis.manifest.traffic.duration_ns / 1e9,
        interval="all active" if analysis.all_active else "whole",
        start_s=main.start_s,
        end_s=main.end_s,
        jain_index=main.jain_index,
        total_goodput_bps=main.total_goodput_bps,
        classes=main.classes,
        outcast_ratio=main.outcast_ratio,
        windows={
            format_time(width): _window(analysis, Interval(0, width), with_counts=False)
            for width in analysis.windows_ns
        },
        drops=_port_drops(analysis),
        flow_chains=_class_chains(analysis),
        tcp=_tcp(analysis),
        queue={port.record.egress: _queue_summary(analysis, port) for port in analysis.ports},
        phase={port.record.egress: _phase_summary(port) for port in analysis.ports},
        capture=_capture_summary(analysis),
        wall_s=dict(wall_s),
    )


def write(directory: RunDirectory, analysis: Analysis) -> Summary:
    """Stores the tables and the summary. The manifest is read again: its `wall_s` may have grown
    since `compute`.
    """
    summary = summarize(analysis, directory.read_manifest().wall_s)
    packets: list[pl.DataFrame] = []
    queues: list[pl.DataFrame] = []
    chains: list[pl.DataFrame] = []
    for port in analysis.ports:
        offset = sum(frame.height for frame in packets)
        packets.append(store.packet_table(port.joined, port.queue, port.numbers))
        queues.append(
            store.queue_table(port.joined, port.queue).with_columns(pl.col("packet") + offset)
        )
        chains.append(store.chain_table(port.joined, port.chains))
    store.write(_stack(packets), directory.path / "packets.parquet")
    store.write(_stack(queues), directory.path / "queue.parquet")
    store.write(_stack(chains), directory.path / "blackouts.parquet")
    store.write(_throughput_table(analysis), directory.path / "throughput.parquet")
    store.write(_flow_table(analysis), directory.path / "flows.parquet")
    if any(port.round_trips.flow.size for port in analysis.ports):
        store.write(_round_trip_table(analysis), directory.path / "rtt.parquet")
    write_text(directory.summary, summary.model_dump_json(indent=1) + "\n")
    return summary


def _stack(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    if len(frames) == 1:
        return frames[0]
    return pl.concat([frame.with_columns(pl.col(pl.Enum).cast(pl.String)) for frame in frames])


def _series(analysis: Analysis) -> Iterable[tuple[PortAnalysis, Series]]:
    bins = -(-analysis.manifest.traffic.duration_ns // analysis.bin_ns)
    for port in analysis.ports:
        yield (
            port,
            series(
                port.joined.departures,
                port.fresh,
                len(port.joined.flows),
                analysis.manifest.traffic.t_start_ns,
                analysis.bin_ns,
                bins,
            ),
        )


def _throughput_table(analysis: Analysis) -> pl.DataFrame:
    """A row per flow of the run and bin: `t` is the bin's start after the traffic's start."""
    bins = -(-analysis.manifest.traffic.duration_ns // analysis.bin_ns)
    flows = [record.flow for record in analysis.manifest.flows]
    total: dict[str, I64] = {
        what: np.zeros((len(flows), bins), np.int64) for what in ("goodput", "frames", "packets")
    }
    for port, data in _series(analysis):
        for row, flow in enumerate(flows):
            for number, mine in enumerate(port.numbers):
                if mine == flow:
                    total["goodput"][row] += data.goodput_bytes[number]
                    total["frames"][row] += data.frame_bytes[number]
                    total["packets"][row] += data.packets[number]
    start = np.arange(bins, dtype=np.int64) * analysis.bin_ns
    # The last bin may be cut by the end of the run.
    width = np.minimum(start + analysis.bin_ns, analysis.manifest.traffic.duration_ns) - start
    return pl.DataFrame(
        {
            "flow": np.repeat(np.array(flows, np.int32), bins),
            "t": np.tile(start, len(flows)),
            "goodput_bps": (total["goodput"] * 8e9 / width).ravel(),
            "throughput_bps": (total["frames"] * 8e9 / width).ravel(),
            "packets": total["packets"].ravel(),
        }
    )


def _longest_chains(port: PortAnalysis) -> dict[int, int]:
    """The longest chain of drops of each flow that lost packets."""
    longest: dict[int, int] = {}
    flows = port.joined.arrivals.flow[port.flow_chains.first].tolist()
    for flow, drops in zip(flows, port.flow_chains.drops.tolist(), strict=True):
        number = port.numbers[flow]
        longest[number] = max(longest.get(number, 0), drops)
    return longest


def _round_trip_table(analysis: Analysis) -> pl.DataFrame:
    """A row per segment whose acknowledgement was seen: `t` is when it came in."""
    return pl.concat(
        pl.DataFrame(
            {
                "flow": np.array(port.numbers, np.int32)[port.round_trips.flow],
                "t": port.round_trips.sent_ns,
                "rtt_ns": port.round_trips.rtt_ns,
            }
        )
        for port in analysis.ports
    )


def _flow_table(analysis: Analysis) -> pl.DataFrame:
    """A row per flow of the run, over the main interval but for the counts of packets."""
    interval = analysis.interval
    goodput = _flow_bytes(analysis, interval)
    frames = _flow_bytes(analysis, interval, of="frames")
    total = sum(goodput.values())
    longest_by_port = [_longest_chains(port) for port in analysis.ports]
    rows = []
    for record in analysis.manifest.flows:
        packets = dropped = longest = 0
        for number, port in enumerate(analysis.ports):
            mine = _rows_of_flow(port, record.flow)
            packets += mine.size
            dropped += int((port.joined.verdict[mine] == Verdict.DROPPED).sum())
            longest = max(longest, longest_by_port[number].get(record.flow, 0))
        tcp = _tcp_of_flow(analysis, record.flow)
        of_host = [other for other in analysis.manifest.flows if other.src == record.src]
        alone = of_host if len(of_host) == 1 else None
        rows.append(
            {
                "flow": record.flow,
                "src": record.src,
                "src_ip": record.src_ip,
                "sport": record.sport,
                "dst": record.dst,
                "dst_ip": record.dst_ip,
                "dport": record.dport,
                "hops": record.hops,
                "ingress": record.ingress,
                "start_ns": record.start_ns,
                "congestion_control": record.congestion_control,
                "goodput_bytes": goodput[record.flow],
                "goodput_bps": 8 * goodput[record.flow] / interval.seconds,
                "throughput_bps": 8 * frames[record.flow] / interval.seconds,
                "share": goodput[record.flow] / total if total else None,
                "packets": packets,
                "dropped": dropped,
                "longest_chain": longest,
                "retransmits": alone and _host_counts(analysis, alone, "TcpRetransSegs"),
                "timeouts": alone and _host_counts(analysis, alone, "TcpExtTCPTimeouts"),
                "retransmissions_seen": tcp.retransmissions,
                "spurious_seen": tcp.spurious,
                "timeouts_seen": tcp.timeouts,
                "halted_s": tcp.halted_s,
                "rtt_p50_ns": _median_rtt_ns(analysis, record.flow),
            }
        )
    return pl.DataFrame(rows, infer_schema_length=None)
