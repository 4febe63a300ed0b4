"""Flows that end by themselves: how long each took, and which had not ended with the duration."""

from __future__ import annotations

from outcast.analysis.measure.run_goodput import flow_bytes
from outcast.analysis.run_analysis import Analysis, Interval, active
from outcast.records.run_directory import FlowRecord

_MOST_NAMED = 3


def packet_span_ns(analysis: Analysis, flow: int) -> tuple[int, int] | None:
    """When a flow's first and last packet came in within the duration; None without any.

    Times are after the traffic's start, so packets of connecting before it do not count.
    """
    spans = [port.spans[flow] for port in analysis.ports if flow in port.spans]
    if not spans:
        return None
    start_ns = analysis.manifest.traffic.t_start_ns
    return min(first for first, _ in spans) - start_ns, max(last for _, last in spans) - start_ns


def completions_ns(analysis: Analysis) -> dict[int, int]:
    """How long each flow took that ended within the duration, by its number.

    A flow of a given size takes from its planned start until its last new byte left the bottleneck.
    A program's flow, which nobody planned, takes from its first packet to its last one.
    """
    unfinished = {record.flow for record, _ in _unfinished(analysis)}
    times_ns = {}
    for record in analysis.manifest.flows:
        if record.of_program:
            seen = packet_span_ns(analysis, record.flow)
            if seen is not None:
                times_ns[record.flow] = seen[1] - seen[0]
        elif record.size_bytes is not None and record.flow not in unfinished:
            span = active(analysis, record)
            times_ns[record.flow] = span.end_ns - span.start_ns
    return times_ns


def unfinished_warnings(analysis: Analysis) -> list[str]:
    """A line on the flows of a given size that did not end within the duration; none if all did."""
    parts = [
        f"flow {record.name or record.flow} had sent {sent:,} of {record.size_bytes:,} bytes"
        for record, sent in _unfinished(analysis)
    ]
    if not parts:
        return []
    more = f", and {len(parts) - _MOST_NAMED} more were not done" * (len(parts) > _MOST_NAMED)
    return [
        f"{', '.join(parts[:_MOST_NAMED])}{more} when the duration ended; what does not end has no "
        "completion time"
    ]


def _unfinished(analysis: Analysis) -> list[tuple[FlowRecord, int]]:
    """The flows of a given size of which less left the bottleneck within the duration, and that."""
    sized = [
        (record, record.size_bytes)
        for record in analysis.manifest.flows
        if record.size_bytes is not None
    ]
    if not sized:
        return []
    traffic = analysis.manifest.traffic
    # The first of a flow's bytes may leave before its start, with those that connect.
    sent = flow_bytes(analysis, Interval(-traffic.t_start_ns, traffic.duration_ns))
    return [(record, sent[record.flow]) for record, size in sized if sent[record.flow] < size]
