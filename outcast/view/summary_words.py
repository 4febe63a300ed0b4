"""A run's summary in words and numbers, as the terminal, the page and the figures say them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from outcast.analysis.measure.losses import BEFORE_SENDING, where
from outcast.analysis.measure.stationarity import change, fairness_change, rates_in
from outcast.analysis.run_analysis import Interval
from outcast.plan.grouping import GROUPINGS
from outcast.records.captures import CapturesManifest
from outcast.records.port_summaries import LossSummary, PortLosses
from outcast.records.run import Run
from outcast.records.summary import ClassSummary, CompletionSummary, LimitSummary, Summary, Window
from outcast.units import counted, format_bps
from outcast.view.events import rates_within


def format_ratio(value: float | None) -> str:
    """Writes a ratio or an index: `0.123`, `7.042`, `98.7`."""
    return "-" if value is None else f"{value:.3f}" if value < 10 else f"{value:.1f}"


def noun(run: Run) -> str:
    """What one of the groups shown is called: class, group, input port ..."""
    return GROUPINGS[run.summary.group_by].noun


def ratio_name(summary: Summary) -> str:
    """What the run's main ratio is: `outcast ratio`, or `bbr over cubic` where groups are named."""
    compare = summary.compare
    if compare is None or compare.groups == _outcast_classes(summary):
        return "outcast ratio"
    return " over ".join(compare.groups)


def main_ratio(summary: Summary | Window) -> float | None:
    """The ratio of the two groups compared, in a run or window of any version."""
    return summary.outcast_ratio if summary.compare is None else summary.compare.ratio


def has_ratio(summary: Summary) -> bool:
    """Whether the headline has a ratio: not of one class, or of groups that are not compared."""
    return summary.compare is not None or (summary.group_by == "hops" and len(summary.classes) > 1)


def _outcast_classes(summary: Summary) -> tuple[str, str] | None:
    """The labels of the classes that the outcast ratio compares; None if there is only one."""
    classes = [*summary.classes]
    return (f"{classes[-1]}-hop", f"{classes[0]}-hop") if len(classes) > 1 else None


def draw_sentence(run: Run) -> str:
    """That one run is one draw; empty for joined captures, whose draw was nobody's."""
    if isinstance(manifest := run.manifest, CapturesManifest):
        return ""
    return (
        f"one draw, of seed {manifest.seed}; `outcast sweep` over seeds shows how much runs differ"
    )


PHASE_KEPT = (
    "phase kept: the share of its place between two departures that an input has 64 to 256 packet "
    "times later"
)
"""What `noise.PORT.inputs.PORT.kept` is."""


def stationarity_sentence(run: Run) -> str:
    """Whether the division of the link changed, in words, and the rates that changed meanwhile."""
    summary = run.summary
    interval = f"from {summary.start_s:g} to {summary.end_s:g} s"
    if summary.stationary is None:
        return (
            f"steady state {interval}: not known, because the test needs ten bins (analysis.bin) "
            "and goodput in each tenth"
        )
    span = Interval(round(summary.start_s * 1e9), round(summary.end_s * 1e9))
    rates = rates_in(run.table("throughput"), round(summary.duration_s * 1e9), span)
    if not summary.stationary:
        steady = "not in steady state"
        found = change(rates, run.manifest.compared_flows) or "the division of the link changes"
    elif found := fairness_change(rates):
        steady = "steady state doubtful"
    else:
        steady, found = "steady state", _no_trend(run)
    more = (
        "" if summary.stationary or summary.interval == "asked" else "; analysis.from cuts a start"
    )
    changed = rates_within(run)
    mixed = f"; but rates changed meanwhile, so means mix several: {changed}" if changed else ""
    return f"{steady} {interval}: {found} (docs/steady-state.md{more}){mixed}"


def _no_trend(run: Run) -> str:
    if len(run.manifest.compared_flows) == 1:
        return "no trend found in the goodput"
    if len(run.summary.classes) > 1:
        return "no trend found in any flow's share of the goodput"
    return "no trend found in the goodput or in any flow's share of it"


def workload_result(part: CompletionSummary, when: str = "") -> str:
    """What a workload reached, in a phrase. `when` stands beside what is of the whole run."""
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
    """Returns how many packets the whole network lost, and where if not at the bottleneck.

    Kernels count for the whole duration, so it is named where all else is of an interval of it.
    """
    when = summary.whole_run
    if summary.capture.qdisc_drops != losses.bottleneck:
        # Queues drop before the interval and after it too, and the line of trust counts that.
        when = f" from 0 to {summary.duration_s:g} s"
    if not losses.total:
        return f"no packet was lost in the whole network{when}"
    count = f"lost in the whole network{when}: {losses.total:,} packets"
    several = len(summary.queue) > 1
    if any(part.counted == "forwarded" for part in summary.queue.values()):
        count += ", by the kernel's counters (tables count a drop at its packet's arrival)"
    if not losses.elsewhere:
        where_all = (
            f"in the queues of {', '.join(summary.queue)}" if several else "at the bottleneck"
        )
        return f"{count}, all {where_all}"
    queues = f"the {len(summary.queue)} queues studied" if several else "the bottleneck's queue"
    return f"{count}, {losses.elsewhere:,} of them elsewhere than in {queues}: {where(losses)}"


def marks_sentence(summary: Summary) -> str:
    """Returns how many packets each output marked with ECN; empty if none was marked."""
    marked = [f"{port} {part.marks:,}" for port, part in summary.queue.items() if part.marks]
    return f"marked with ECN: {', '.join(marked)} packets" if marked else ""


def utilisation_sentence(summary: Summary) -> str:
    """How much of the rate each studied output used in the interval; empty without a rate."""
    when = f"from {summary.start_s:g} to {summary.end_s:g} s"
    used = [
        f"{part.utilisation:.1%} of {port}'s rate"
        for port, part in summary.queue.items()
        if part.utilisation is not None
    ]
    return f"used {when}: {', '.join(used)}" if used else ""


def counted_at(run: Run) -> str:
    """Which of several studied ports the numbers of a flow are of; empty if it crosses one only."""
    ports = [record.egress for record in run.manifest.bottlenecks]
    if run.manifest.has_all_outputs or len(ports) < 2:
        return ""
    first = ", ".join(ports[:4]) + (" and so on" if len(ports) > 4 else "")
    return (
        f"drops, chains and queueing of a flow are those at the first of {first} that it crosses; "
        "outcast inspect DIR --losses has its drops at each"
    )


def loss_rate(part: PortLosses) -> str:
    """The share that a port lost of all packets that it sent or that its queue refused."""
    before = sum(part.lost.get(cause, 0) for cause in BEFORE_SENDING)
    offered = part.packets + before
    return share(sum(part.lost.values()), offered)


def shares_of(part: LimitSummary) -> dict[str, str]:
    """What limited a flow, by cause, as people read it."""
    at_least = ">= " if part.at_least else ""
    return {
        cause: "not told"
        if share is None
        else f"{at_least if cause == 'send_buffer' else ''}{share:.1%}"
        for cause, share in part.model_dump(exclude={"at_least"}).items()
    }


def awaiting_rto(summary: Summary, part: ClassSummary) -> str:
    """Returns the share of a flow's time that it spent waiting for timeouts."""
    share = rto_share(summary, part)
    return "-" if share is None else f"{share:.1%}"


def rto_share(summary: Summary, part: ClassSummary) -> float | None:
    """The share of the time in which flows were active that they spent waiting for timeouts."""
    if part.halted_s is None:
        return None
    whole_s = part.flows * (summary.end_s - summary.start_s)
    return min(1.0, part.halted_s / (part.active_s or whole_s))


def sending(row: Mapping[str, Any]) -> str:
    """From when to when in seconds a UDP flow was to send, which its rates are over."""
    start_ns = row.get("start_ns")
    if start_ns is None:
        return "-"
    start_s, end_s = start_ns / 1e9, (start_ns + row["sending_ns"]) / 1e9
    return f"{round(start_s, 2):g} to {round(end_s, 2):g}"


def number(value: float | None, form: str = "g") -> str:
    """Writes a number; `-` for None."""
    return "-" if value is None else format(value, form)


def share(part: float, whole: float) -> str:
    """Writes a part of a whole in percent; `-` where there is nothing."""
    return f"{part / whole:.2%}" if whole else "-"


def spread(
    values: object, names: Iterable[str], write: Callable[[float], str] | None = None
) -> list[str]:
    """Writes the named values of a distribution, as `format_ms` does; `-` for each that lacks."""
    found = [getattr(values, name, None) for name in names]
    return ["-" if value is None else (write or format_ms)(value) for value in found]


def begun(text: str) -> str:
    """Writes a text as the beginning of a sentence."""
    return f"{text[0].upper()}{text[1:]}"


def format_ns(time_ns: float | None) -> str:
    """Writes a time with three digits in milliseconds, or in seconds from one on; `-` for None."""
    return "-" if time_ns is None else format_ms(time_ns / 1e6)


def format_ms(time_ms: float) -> str:
    """Writes a time with three digits in milliseconds, or in seconds from one on."""
    return f"{time_ms:.3g} ms" if abs(time_ms) < 999.5 else f"{time_ms / 1000:#.3g} s"
