"""Whether a run's captures and counters agree; if not, every reason in a line."""

from __future__ import annotations

from outcast.analysis.measure import links
from outcast.analysis.measure.losses import cut_off, lost_at_senders, lost_to_the_link
from outcast.analysis.run_analysis import Analysis, elsewhere
from outcast.records.captures import CapturesManifest
from outcast.records.run_directory import CaptureRecord
from outcast.records.summary import CaptureSummary


def capture_summary(analysis: Analysis) -> CaptureSummary:
    """Checks the captures against each other, tcpdump's counters and the queue's counters."""
    if isinstance(analysis.manifest, CapturesManifest):
        return _of_captures(analysis, analysis.manifest)
    records = {(record.port, record.direction): record for record in analysis.manifest.captures}
    reasons = list(analysis.manifest.distrust)
    used: dict[tuple[str, str], CaptureRecord] = {}
    inferred = counted = blacked_out = link_down = unmatched = in_flight = 0
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
            blackout = analysis.manifest.blackout
            if blackout and blackout.port in port.record.ingress:
                drops += blackout.dropped
                blacked_out += blackout.dropped
            lost = lost_to_the_link(analysis, port)
            missing = cut_off(analysis, port)
            drops += missing
            link_down += missing
            if drops != counts.dropped:
                reasons.append(
                    f"{egress}: {counts.dropped} drops inferred, its queue counted {drops}"
                    + (", with the blackout's" if blacked_out else "")
                    + ("" if lost is None else f", and at most {lost.sum()} were lost by its link")
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
        strangers = elsewhere(analysis.manifest, analysis.counters, port.record)
        for flow in analysis.manifest.flows:
            expected = (
                flow.ingress in port.record.ingress
                and flow.dst_ip in port.record.destinations
                and flow.flow not in strangers
            )
            if expected and flow.flow not in present:
                reasons.append(f"{egress}: no packet of flow {flow.flow} ({flow.src}) was seen")
    seen = {number for port in analysis.ports for number in port.numbers}
    reasons += [
        f"flow {flow.flow} ({flow.src} to {flow.dst}) crosses no captured queue: "
        f"its goodput is not known"
        for flow in analysis.manifest.flows
        if flow.flow not in seen and flow.ingress is None
    ]
    kernel_drops = sum(record.dropped_by_kernel for record in used.values())
    if kernel_drops:
        reasons.append(f"tcpdump lost {kernel_drops} packets in the kernel")
    reasons += lost_at_senders(analysis)
    reasons += links.distrust(analysis)
    return CaptureSummary(
        tcpdump_kernel_drops=kernel_drops,
        inferred_drops=inferred,
        qdisc_drops=counted,
        blackout_drops=blacked_out,
        link_down_drops=link_down,
        unmatched=unmatched,
        in_flight=in_flight,
        trusted=not reasons,
        reasons=reasons,
    )


def _of_captures(analysis: Analysis, manifest: CapturesManifest) -> CaptureSummary:
    """Whether joined captures agree with one another. There are no counters to compare with."""
    assert analysis.whole is not None
    counts = analysis.whole.joined.counts
    return CaptureSummary(
        tcpdump_kernel_drops=None,
        inferred_drops=counts.dropped,
        qdisc_drops=None,
        unmatched=counts.early + counts.duplicates + counts.unexplained,
        in_flight=counts.in_flight + counts.before_output,
        trusted=not manifest.refusals,
        reasons=list(manifest.refusals),
    )
