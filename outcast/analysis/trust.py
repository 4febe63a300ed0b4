"""Whether a run's captures and counters agree; if not, every reason in a line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from outcast.analysis.capture.pcap import PortCapture
from outcast.analysis.measure.losses import cut_off, distrust, lost_at_senders, lost_to_the_link
from outcast.analysis.port_analysis import PortAnalysis, elsewhere
from outcast.analysis.run_analysis import Analysis
from outcast.records.captures import AnyManifest
from outcast.records.counters import CaptureRecord
from outcast.records.port_summaries import CaptureSummary

VLAN_TAG_BYTES = 4
"""What a tag adds to a full frame (IEEE 802.1Q)."""


def capture_summary(analysis: Analysis) -> CaptureSummary:
    """Checks the captures against each other, tcpdump's counters and the queue's counters."""
    manifest = analysis.manifest
    if analysis.whole is not None:
        # No counters belong to joined captures.
        counts = analysis.whole.joined.counts
        return CaptureSummary(
            tcpdump_kernel_drops=None,
            inferred_drops=counts.dropped,
            qdisc_drops=None,
            unmatched=counts.early + counts.duplicates + counts.unexplained,
            in_flight=counts.in_flight + counts.before_output,
            trusted=True,
            reasons=[],
        )
    reasons = list(manifest.distrust)
    sums: Counter[str] = Counter()
    for port in analysis.ports:
        reasons += _of_drops(analysis, port, sums)
        reasons += _of_packets(port, sums)
        reasons += _of_files(manifest, port)
        reasons += _of_flows(analysis, port)
    seen = {number for port in analysis.ports for number in port.numbers}
    reasons += [
        f"flow {flow.flow} ({flow.src} to {flow.dst}) crosses no captured queue: "
        f"its goodput is not known"
        for flow in manifest.flows
        if flow.flow not in seen and flow.ingress is None
    ]
    used = {record.file: record for port in analysis.ports for record, _ in _files(manifest, port)}
    kernel_drops = sum(record.dropped_by_kernel for record in used.values())
    if kernel_drops:
        reasons.append(f"tcpdump lost {kernel_drops} packets in the kernel")
    reasons += lost_at_senders(analysis)
    reasons += distrust(analysis)
    return CaptureSummary(
        tcpdump_kernel_drops=kernel_drops,
        inferred_drops=sums["inferred"],
        qdisc_drops=sums["counted"],
        blackout_drops=sums["blackout"],
        link_down_drops=sums["link down"],
        unmatched=sums["unmatched"],
        in_flight=sums["in flight"],
        trusted=not reasons,
        reasons=reasons,
    )


def _of_drops(analysis: Analysis, port: PortAnalysis, sums: Counter[str]) -> list[str]:
    """Why inferred drops are not those that a port's queue counted. Adds both to `sums`."""
    counts, egress = port.joined.counts, port.record.egress
    sums["inferred"] += counts.dropped
    if egress not in analysis.counters.ports:
        return [f"{egress}: counters.json has no counters of its queue"]
    drops = analysis.counters.ports[egress].delta("drops")
    sums["counted"] += drops
    blackout = analysis.manifest.blackout
    if blackout and blackout.port in port.record.ingress:
        drops += blackout.dropped
        sums["blackout"] += blackout.dropped
    missing = cut_off(analysis, port)
    drops += missing
    sums["link down"] += missing
    if drops != counts.dropped:
        lost = lost_to_the_link(analysis, port)
        return [
            f"{egress}: {counts.dropped} drops inferred, its queue counted {drops}"
            + (", with the blackout's" if sums["blackout"] else "")
            + ("" if lost is None else f", and at most {lost.sum()} were lost by its link")
        ]
    return []


def _of_packets(port: PortAnalysis, sums: Counter[str]) -> Iterator[str]:
    """Why a port's captures do not fit each other. Adds their counts to `sums`."""
    counts, egress = port.joined.counts, port.record.egress
    strays = counts.early + counts.duplicates + counts.unexplained
    sums.update({"unmatched": strays, "in flight": counts.in_flight})
    if strays:
        yield f"{egress}: {strays} packets left without having been seen coming in"
    if counts.before_output:
        yield f"{egress}: {counts.before_output} packets came in before its capture began"
    frame_bytes = port.joined.departures.frame_bytes
    large = frame_bytes > port.record.queue.frame_bytes + VLAN_TAG_BYTES
    if large.any():
        yield (
            f"{egress}: {large.sum()} frames left that are larger than its link takes, up to "
            f"{frame_bytes.max()} of {port.record.queue.frame_bytes} bytes: segments that a host "
            "hands over as one unit were not cut"
        )


def _files(
    manifest: AnyManifest, port: PortAnalysis
) -> Iterator[tuple[CaptureRecord, PortCapture]]:
    """The record of each capture of a port; its output's is the last one."""
    records = {(record.port, record.direction): record for record in manifest.captures}
    for capture in port.captures:
        yield records[capture.port, "out" if capture is port.captures[-1] else "in"], capture


def _of_files(manifest: AnyManifest, port: PortAnalysis) -> Iterator[str]:
    """Why the files of a port's captures cannot be whole."""
    for record, capture in _files(manifest, port):
        if capture.records != record.captured:
            yield (
                f"{record.file}: holds {capture.records} packets, tcpdump captured "
                f"{record.captured}"
            )
        if capture.cut:
            yield f"{record.file}: {capture.cut} packets too short for their headers"
        if capture.steps_back:
            yield f"{record.file}: its clock went back {capture.steps_back} times"


def _of_flows(analysis: Analysis, port: PortAnalysis) -> Iterator[str]:
    """A line on each flow whose packets should have come to a port, and did not."""
    present = set(port.numbers)
    strangers = elsewhere(analysis.manifest, analysis.counters, port.record)
    for flow in analysis.manifest.flows:
        expected = (
            flow.ingress in port.record.ingress
            and flow.dst_ip in port.record.destinations
            and flow.flow not in strangers
        )
        if expected and flow.flow not in present:
            yield f"{port.record.egress}: no packet of flow {flow.flow} ({flow.src}) was seen"
