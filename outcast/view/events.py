"""Changes of links and queues during a run, in words for figures, the report, the terminal."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass

from outcast.plan.traces import lasting_bps
from outcast.records.effective import AppliedChange
from outcast.records.flows import BottleneckRecord
from outcast.records.link_rate import down_spans_ns
from outcast.records.run import Run
from outcast.units import format_size, format_time, round_rate


@dataclass(frozen=True)
class Moment:
    """One event of a run as it happened.

    Attributes:
        t_s: its time after the traffic's start; the planned time if it was made within 10 us.
        text: place and change, as `s1-s2: rate 20 Mbps`.
    """

    t_s: float
    text: str
    down_until_s: float | None = None


ON_TIME_NS = 10_000
"""Making a change takes a system call's time."""
MOST_NAMED = 3
"""The most changes of a rate that a sentence names."""


_FORMS: Mapping[str, tuple[str, Callable[[int], str]]] = {
    "rate_bps": ("rate", round_rate),
    "delay_ns": ("delay", format_time),
    "limit_bytes": ("limit", format_size),
    "limit_packets": ("limit", "{} packets".format),
}


def moments(run: Run, only: Collection[str] = (), ports: Set[str] = frozenset()) -> list[Moment]:
    """Every event that was made within the duration, in the order of time.

    The changes of both directions of a link are one moment. `only` chooses changes by
    `AppliedChange.what`, and `ports` links with one of these ports.
    """
    duration_ns = run.manifest.traffic.duration_ns
    by_event: dict[tuple[int, int], list[AppliedChange]] = defaultdict(list)
    for change in run.manifest.changes:
        if (not only or change.what in only) and change.applied_ns is not None:
            by_event[change.at_ns, change.event].append(change)
    texts = []
    for (at_ns, _), changes in sorted(by_event.items()):
        if at_ns >= duration_ns or (ports and ports.isdisjoint(c.port for c in changes)):
            continue
        first = changes[0]
        is_both_ways = len({change.node for change in changes}) > 1 or first.what == "up"
        where = f"{first.node}{'-' if is_both_ways else ' to '}{first.neighbour}"
        what = ", ".join(_words(run, change) for change in changes if change.node == first.node)
        until_s = None
        if first.what == "up" and not first.shown:
            spans = dict(down_spans_ns(run.manifest, first.port))
            until_s = min(spans[first.applied_ns or 0], duration_ns) / 1e9
        applied_ns = first.applied_ns or 0
        t_ns = first.at_ns if abs(applied_ns - first.at_ns) < ON_TIME_NS else applied_ns
        texts.append(Moment(t_ns / 1e9, f"{where}: {what}", until_s))
    return texts


def _words(run: Run, change: AppliedChange) -> str:
    value = change.shown or 0
    if change.what == "policer_bps":
        event = dict(enumerate(run.experiment.events)).get(change.event)
        given = event and event.policer
        burst = f", burst {format_size(given.burst_bytes)}" if given else ""
        return f"policer {round_rate(value)}{burst}"
    if change.what.endswith("_ppm"):
        return f"{change.what.removesuffix('_ppm').replace('_', ' ')} {value / 10**4:g}%"
    if change.what in _FORMS:
        name, form = _FORMS[change.what]
        return f"{name} {form(value)}"
    return "back" if value else "down"


def rates_within(run: Run) -> str:
    """The changes of used links' rates inside the summary's interval, in words."""
    start_s, end_s = run.summary.start_s, run.summary.end_s
    links = run.counters.links
    crossed = {link.port for link in links if link.flows or link.acknowledged or link.other}
    found = [
        f"at {moment.t_s:.7g} s {moment.text}"
        for moment in moments(run, ("rate_bps", "policer_bps", "up"), crossed)
        if start_s < moment.t_s < end_s
    ]
    found += [
        f"{trace.port} followed {trace.trace}"
        for trace in run.rates.ports
        if (not crossed or trace.port in crossed)
        and any(start_s < t_ns / 1e9 < end_s for t_ns in trace.t_ns)
    ]
    more = f", and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return ", ".join(found[:MOST_NAMED]) + more


def trace_sentences(run: Run) -> list[str]:
    """A sentence for each port whose rate followed a trace."""
    return [
        f"{trace.port} followed {trace.trace}: {len(trace.t_ns)} rates from "
        f"{round_rate(min(lasting_bps(trace.t_ns, trace.rate_bps)))} to "
        f"{round_rate(max(lasting_bps(trace.t_ns, trace.rate_bps)))}"
        + (f", {trace.skipped} left out because they came too late" if trace.skipped else "")
        for trace in run.rates.ports
        if trace.rate_bps
    ]


def behind_the_capture(run: Run) -> str:
    """The delays behind a queue's capture, for the end of a sentence; empty if there are none."""
    plan = run.plan
    if plan is None:
        return ""
    studied = {port.egress for port in (plan.bottleneck, *plan.others)}
    links = [plan.links[plan.ends[port]] for port in studied]
    changed = {change.what for change in run.manifest.changes if change.port in studied}
    named = {
        "random_delay": any(link.random_delay for link in links),
        "late": "late_ppm" in changed or any(link.late for link in links),
    }
    of = " and ".join(key for key, is_there in named.items() if is_there)
    return f", without its {of}, which lies behind the capture" if of else ""


def doubt_bytes(run: Run, record: BottleneckRecord) -> float:
    """The uncertainty of a queue's length: a frame, and the frames that its link sends in jitter.

    Captures do not show when a packet came into the queue, only when it came to the switch.
    """
    return record.queue.frame_bytes * (1 + (record.queue.jitter_ns or 0) / run.frame_ns_at(record))
