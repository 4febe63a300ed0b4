"""A run's summary in words and numbers, for the terminal, the report and the figures."""

import re
from collections.abc import Mapping
from typing import Any

from outcast.analysis.measure.fairness import change, fairness_change, rates_in
from outcast.analysis.measure.losses import BEFORE_SENDING, where
from outcast.analysis.run_analysis import Interval
from outcast.plan.grouping import GROUPINGS
from outcast.quantities import format_ms
from outcast.records.captures import CapturesManifest
from outcast.records.port_summaries import LossSummary, PortLosses
from outcast.records.run import Run
from outcast.records.summary import ClassSummary, CompletionSummary, Summary, Window
from outcast.units import counted, format_bps
from outcast.view.events import rates_within


def noun(run: Run) -> str:
    return GROUPINGS[run.summary.group_by].noun


def ratio_name(summary: Summary) -> str:
    """The name of the run's main ratio: `outcast ratio`, or `bbr over cubic` of named groups."""
    compare = summary.compare
    if compare is None or compare.groups == _outcast_classes(summary):
        return "outcast ratio"
    return " over ".join(compare.groups)


def main_ratio(summary: Summary | Window) -> float | None:
    return summary.outcast_ratio if summary.compare is None else summary.compare.ratio


def has_ratio(summary: Summary) -> bool:
    """Whether the headline has a ratio: not of one class, or of groups that are not compared."""
    return summary.compare is not None or (summary.group_by == "hops" and len(summary.classes) > 1)


def _outcast_classes(summary: Summary) -> tuple[str, str] | None:
    """The labels of the classes that the outcast ratio compares; None if there is only one."""
    classes = [*summary.classes]
    return (f"{classes[-1]}-hop", f"{classes[0]}-hop") if len(classes) > 1 else None


def draw_sentence(run: Run) -> str:
    """Says that one run is one draw; empty for joined captures, which no seed decided."""
    if isinstance(manifest := run.manifest, CapturesManifest):
        return ""
    return (
        f"one draw of seed {manifest.seed}: `outcast sweep` over seeds shows how much runs differ"
    )


_MOST_RESULTS = 2
"""The most workloads and programs in the headline."""


def headline(run: Run) -> str:
    """The result in a few phrases: a comparison, totals, workloads, programs, or a probe."""
    summary, parts = run.summary, []
    if run.manifest.flows:
        total = format_bps(summary.total_goodput_bps)
        is_lone = summary.jain_index is None or len(run.manifest.flows) < 2
        fair = "" if is_lone else f"Jain {summary.jain_index:.3f}"
        if compared := _comparison(summary):
            parts += [compared, fair, f"{total} in all"]
        else:
            counts = sum(group.summary.flows for group in run.groups)
            parts += [f"{counted(counts, 'flow')} got {total} in all", fair]
    results = [workload_result(part) for part in (summary.completions or {}).values()]
    results += [
        f"{name}: {counted(part.executions, 'execution')}, {part.failures} failed"
        for name, part in (summary.programs or {}).items()
        if not part.server
    ]
    more = f"and {len(results) - _MOST_RESULTS} more results" * (len(results) > _MOST_RESULTS)
    parts += [*results[:_MOST_RESULTS], more]
    for probe in [*(summary.probes or {}).values()][: 0 if any(parts) else 1]:
        took = "no answer" if probe.rtt_ms is None else f"median {format_ms(probe.rtt_ms.p50)}"
        parts.append(f"{probe.title}: {took}, {format_ms(probe.base_rtt_ms)} without queues")
    return "; ".join(part for part in parts if part) or "nothing was sent that is measured here"


def _comparison(summary: Summary) -> str:
    """The goodput of a flow of one group over that of the other group, in words."""
    if (compare := summary.compare) is None or None in compare.mean_goodput_bps:
        return ""
    sizes = {name: part.flows for name, part in summary.grouped(compare.by).items()}
    (first, second), (got, least) = (
        [_a_flow(compare.by, label, sizes.get(label, 2)) for label in compare.groups],
        compare.mean_goodput_bps,
    )
    if compare.ratio is None:
        return f"{begun(first)} got {format_bps(got or 0)}, {second} {format_bps(least or 0)}"
    times = f"{compare.ratio:.1f} times" if compare.ratio >= 1 else f"{compare.ratio:.2f} of"
    return f"{begun(first)} got {times} what {second} got"


def _a_flow(kind: str, label: str, flows: int) -> str:
    before, after = {"port": ("", f" by {label}"), "sender": ("", f" from {label}")}.get(
        kind, (f"{label} ", "")
    )
    article = "the" if flows == 1 else "an" if before[:1] in {*"aeiou8"} else "a"
    return f"{article} {before}flow{after}"


def checks(run: Run) -> list[tuple[str, str, str]]:
    """Each check's mark, name and number. ✓ holds, ✗ does not hold, ? is not known."""
    capture = run.summary.capture
    drops = counted(capture.inferred_drops, "drop")
    if not capture.trusted:
        agreed = ("✗", "captures and counters do not agree", "")
    elif capture.qdisc_drops is None:
        agreed = ("?", "no counter of the queue to compare with", f"{drops} inferred")
    else:
        agreed = ("✓", "captures and counters agree", f"{drops} in the whole capture")
    found = [agreed, *([(*_steady(run)[:2], "")] if run.summary.classes else [])]
    losses = run.summary.losses
    if losses and losses.elsewhere and not _mostly_elsewhere(losses):
        lost = f"{counted(losses.elsewhere, 'packet')} lost elsewhere{run.summary.whole_run}"
        found.append(("?", lost, ""))
    return found


def _mostly_elsewhere(losses: LossSummary) -> bool:
    return losses.elsewhere > losses.bottleneck


def doubts(run: Run) -> list[str]:
    """How sure the result is, in sentences: steadiness, losses that tables lack, one draw."""
    losses = run.summary.losses
    return [
        *([stationarity_sentence(run)] if run.summary.classes else []),
        *([loss_sentence(run.summary, losses)] if losses and not _mostly_elsewhere(losses) else []),
        *([draw] if (draw := draw_sentence(run)) else []),
    ]


def stationarity_sentence(run: Run) -> str:
    """Whether flows' shares changed, in words, with the rates of links that changed meanwhile."""
    summary = run.summary
    _, steady, found = _steady(run)
    is_whole = summary.stationary is False and summary.interval != "asked"
    more = "; analysis.from cuts a start" * is_whole
    return (
        f"{steady} from {summary.start_s:g} to {summary.end_s:g} s: {found} "
        f"(docs/steady-state.md{more})"
    )


def _steady(run: Run) -> tuple[str, str, str]:
    """Whether a run was in steady state: a mark, words, and why."""
    summary = run.summary
    if summary.stationary is None:
        why = "the test needs ten bins (analysis.bin) and goodput in each tenth"
        return "?", "steady state not known", why
    span = Interval(round(summary.start_s * 1e9), round(summary.end_s * 1e9))
    rates = rates_in(run.table("throughput"), round(summary.duration_s * 1e9), span)
    if not summary.stationary:
        found = change(rates, run.manifest.compared_flows) or "the division of the link changes"
        steady = ("✗", "not in steady state", found)
    elif found := fairness_change(rates):
        steady = ("?", "steady state doubtful", found)
    else:
        steady = ("✓", "no trend found", "in the goodput and each flow's share of it")
    if changed := rates_within(run):
        why = f"{steady[2]}; but rates changed meanwhile, so means mix several: {changed}"
        return "?" if steady[0] == "✓" else steady[0], steady[1], why
    return steady


def workload_result(part: CompletionSummary, when: str = "") -> str:
    """A workload's result in a phrase. `when` stands beside numbers of the whole run."""
    flows = counted(part.flows, "flow")
    streams = part.streams
    if streams is None:
        unfinished = f", {part.unfinished:,} unfinished" if part.unfinished else ""
        return f"{flows} ({part.kind}) at {format_bps(part.goodput_bps)}{unfinished}{when}"
    lost = "" if streams.loss_share is None else f", {streams.loss_share:.2%} lost{when}"
    return (
        f"{flows} (UDP) sent {format_bps(streams.sent_bps)} and received "
        f"{format_bps(streams.received_bps)} while sending{lost}"
    )


def loss_sentence(summary: Summary, losses: LossSummary) -> str:
    """The packets that the whole network lost, and where if not at the bottleneck.

    Kernels count for the whole duration, and a drop when it happens; tables count it at its
    packet's arrival.
    """
    when = f" from 0 to {summary.duration_s:g} s"
    if not losses.total:
        return f"no packet was lost in the whole network{when}"
    count = f"lost in the whole network{when}, as kernels count: {losses.total:,} packets"
    queues = f"the queues of {', '.join(summary.queue)}"
    if not losses.elsewhere:
        return f"{count}, all in {queues}"
    return f"{count}, {losses.elsewhere:,} of them elsewhere than in {queues}: {where(losses)}"


def counted_by_class(summary: Summary) -> str:
    """Where the counts of classes by captures and by the kernel differ; empty if nowhere."""
    differ = [
        f"{name} of {port}: {part.captured.sent:,} sent and {part.captured.dropped:,} dropped by "
        f"the captures, {part.counted.sent:,} and {part.counted.dropped:,} by the kernel"
        for port, queue in summary.queue.items()
        for name, part in (queue.classes or {}).items()
        if part.counted is not None and part.captured != part.counted
    ]
    return f"in the whole run {'; '.join(differ)}" if differ else ""


def counted_at(run: Run) -> str:
    """Names the studied port of a flow's numbers; empty if only one port is studied."""
    ports = [record.egress for record in run.manifest.bottlenecks]
    if run.manifest.has_all_outputs or len(ports) < 2:
        return ""
    first = ", ".join(ports[:4]) + (" and so on" if len(ports) > 4 else "")
    return (
        f"drops, chains and queueing of a flow are those at the first of {first} that it crosses; "
        "outcast show DIR --losses has the drops at each"
    )


def loss_rate(part: PortLosses) -> float | None:
    """A port's losses over the packets that it sent or that its queue refused."""
    before = sum(part.lost.get(cause, 0) for cause in BEFORE_SENDING)
    offered = part.packets + before
    return sum(part.lost.values()) / offered if offered else None


def rto_share(summary: Summary, part: ClassSummary) -> float | None:
    """The share of the flows' active time that they waited for timeouts."""
    if part.halted_s is None:
        return None
    whole_s = part.flows * (summary.end_s - summary.start_s)
    return min(1.0, part.halted_s / (part.active_s or whole_s))


def sending(row: Mapping[str, Any]) -> str:
    """The planned time of a UDP flow in seconds, over which its rates are."""
    start_ns = row.get("start_ns")
    if start_ns is None:
        return "-"
    start_s, end_s = start_ns / 1e9, (start_ns + row["sending_ns"]) / 1e9
    return f"{round(start_s, 2):g} to {round(end_s, 2):g}"


def number(value: float | None, form: str = "g") -> str:
    return "-" if value is None else format(value, form)


def begun(text: str) -> str:
    """Writes a text as the beginning of a sentence."""
    return f"{text[0].upper()}{text[1:]}"


_WORDS = {
    "idle": "was idle for|was hardly used",
    "elsewhere": "lost( from .*)? elsewhere:",
    "host-queue": "its own queue lost",
    "limited": "limited for .* of the time",
    "memory": "TCP lacked memory",
    "slow-port": "while packets waited, it sent",
    "other-limit": "its drops show room",
    "unfinished": "when the duration ended",
    "mice": "^left out are mice",
    "copies": "deliver packets of .* twice",
    "apart": "shares, ratios and Jain's index",
    "windows": r"^(analysis\.)?windows",
    "interval": r"^analysis\.(from|to)",
    "held": "held the link",
    "senders": "packets wait at senders' own ports",
    "buffers": "(send|receive)_buffer",
    "marks": "never marks",
    "envelope": "outside the tested envelope|faster than what two free cores",
    "host-delays": "delays of hosts' links come before",
    "late": "after (it|their time)|keep the schedule",
    "busy": "waited for the CPU",
    "failed": "failed",
    "program": "^program ",
}
"""The words under which docs/warnings.md explains warnings, by a pattern of their text."""


def word_of(warning: str) -> str:
    return next((word for word, has in _WORDS.items() if re.search(has, warning)), "other")
