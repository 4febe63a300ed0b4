"""What a studied port's queue did: length, capacity, time full, classes of service and drops."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from outcast.analysis.join.join import Verdict
from outcast.analysis.measure import computed
from outcast.analysis.measure.bins import utilisation
from outcast.analysis.measure.blackout import length_counts
from outcast.analysis.measure.losses import lost_to_the_link
from outcast.analysis.measure.queue import (
    length_spread,
    of_own,
    queueing_ns,
    replay,
    sojourn_spread,
    switch_latency_ns,
)
from outcast.analysis.measure.queue_levels import capacity
from outcast.analysis.measure.spreads import in_ms, in_unit
from outcast.analysis.port_analysis import PortAnalysis
from outcast.analysis.run_analysis import Analysis
from outcast.records.effective import service_classes_of
from outcast.records.link_rate import steps_of
from outcast.records.port_summaries import (
    CapacitySummary,
    CountedOfClass,
    PortDrops,
    QueueSummary,
    ServiceClassSummary,
)


def queue_summary(analysis: Analysis, port: PortAnalysis) -> QueueSummary:
    # With a delay that changed there is no usual one.
    is_steady = not steps_of(analysis.manifest, port.record.egress, "delay_ns")
    latency = switch_latency_ns(port.joined, port.queue, 0) if is_steady else 0
    begin_ns, interval = analysis.manifest.traffic.t_start_ns, analysis.interval
    lengths = length_spread(port.queue, 0, begin_ns + interval.start_ns, begin_ns + interval.end_ns)
    counts = analysis.counts(port.reached_ns)
    return QueueSummary(
        counted="forwarded" if port.record.queue.drops == "later" else "all",
        length_bytes=in_unit(lengths, 1),
        sojourn_ms=in_unit(sojourn_spread(port.joined, 0, counts), 1e6),
        switch_latency_us=latency / 1e3,
        capacity=_capacity(analysis, port, latency),
        utilisation=utilisation(analysis, port),
        marks=_marks(analysis, port),
        classes=service_classes(analysis, port),
        **computed("output", analysis, port),
    )


def _capacity(analysis: Analysis, port: PortAnalysis, latency: int) -> CapacitySummary | None:
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
        full = of_own(port.joined, replay(port.joined.all_left, latency))
        estimates.append(capacity(port.joined, full, 0, lost))
    best = max((item for item in estimates if item), key=lambda item: item.confidence, default=None)
    if best is None:
        return None
    best, queue = best.raised(port.joined, 0), port.record.queue
    configured, packet = queue.limit_packets, 1
    if best.unit == "bytes":
        configured, packet = queue.limit_bytes, int(port.joined.arrivals.frame_bytes.max())
    return CapacitySummary(
        unit=best.unit,
        at_least=best.at_least,
        below=best.below,
        confidence=round(best.confidence, 4),
        configured=configured,
        agrees=None if configured is None else best.holds(configured, packet),
    )


def _marks(analysis: Analysis, port: PortAnalysis) -> int | None:
    samples = analysis.port_samples
    if samples is None or (samples := samples.filter(port=port.record.egress)).is_empty():
        return None
    t_ns, interval = samples["t"].to_numpy(), analysis.interval
    first, last = (np.abs(t_ns - at).argmin() for at in (interval.start_ns, interval.end_ns))
    return int(samples["marks"][int(last)] - samples["marks"][int(first)])


def full_s(analysis: Analysis, port: PortAnalysis) -> float | None:
    """Seconds of the interval in which a queue with a limit in bytes was full; else None.

    Both papers on the Outcast problem have port blackout begin with a full taildrop queue.
    """
    record, queue = port.record.queue, port.queue
    if record.limit_bytes is None:
        return None
    mine = queue.egress == 0
    begin = analysis.manifest.traffic.t_start_ns
    start, end = begin + analysis.interval.start_ns, begin + analysis.interval.end_ns
    edges = np.clip(np.append(queue.time_ns[mine], end), start, end)
    full = queue.bytes[mine] + record.frame_bytes > record.limit_bytes
    return round(float(np.diff(edges)[full].sum()) / 1e9, 9)


def service_classes(
    analysis: Analysis, port: PortAnalysis
) -> dict[str, ServiceClassSummary] | None:
    """A port's classes by name, in the order of the configuration; None without classes.

    A packet's class follows from its own DSCP, as by the port's filters.
    """
    classes = service_classes_of(analysis.manifest.effective, port.record.egress)
    if not classes:
        return None
    points = list(classes.values())
    number_of = np.full(64, points.index(None), np.uint8)
    for number, of_class in enumerate(points):
        number_of[list(of_class or ())] = number
    joined = port.joined
    lost = joined.verdict == Verdict.DROPPED
    found = {}
    for number, (name, of_class) in enumerate(classes.items()):
        came = number_of[joined.arrivals.tos >> 2] == number
        departed = number_of[joined.departures.tos >> 2] == number
        rows = np.flatnonzero(came & analysis.counts(port.reached_ns))
        sent_bytes = joined.departures.frame_bytes[departed & analysis.counts(port.sent_ns)].sum()
        found[name] = ServiceClassSummary(
            dscp=None if of_class is None else list(of_class),
            packets=rows.size,
            dropped=int(lost[rows].sum()),
            rate_bps=8 * float(sent_bytes) / analysis.interval.seconds,
            queueing_ms=in_ms(queueing_ns(joined, port.sent_ns, rows, port.reached_ns)),
            captured=CountedOfClass(sent=int(departed.sum()), dropped=int((lost & came).sum())),
            counted=_counted(analysis, port.record.egress, number),
        )
    return found


def _counted(analysis: Analysis, egress: str, number: int) -> CountedOfClass | None:
    """What the kernel counted of a class in the whole run; None where it was not recorded."""
    counters = analysis.counters.ports.get(egress)
    if counters is None or f"class_{number + 1}_packets" not in counters.after.get("own", {}):
        return None
    sent, dropped = (counters.own_delta(f"class_{number + 1}_{of}") for of in ("packets", "drops"))
    return CountedOfClass(sent=sent, dropped=dropped)


def port_drops(analysis: Analysis) -> dict[str, PortDrops]:
    """What each input port lost; of a port that feeds two bottlenecks, at each of them."""
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
            key = name if name not in drops else f"{name}>{port.record.egress}"
            drops[key] = PortDrops(
                packets=int(mine.sum()),
                dropped=int((mine & (joined.verdict == Verdict.DROPPED)).sum()),
                longest_chain=int(lengths.max(initial=0)),
                chains=length_counts(lengths),
                blackouts=int(chains.is_blackout[of_port].sum()),
                hops=sorted(hops[name]),
            )
    return drops
