"""The measures of a run, by name. Claims and figures of recipes refer to these names.

Every function takes a run and the measure's parameters and returns a float. It returns NaN if the
run has no such number, for example if a class has no flows. Those of chains of drops and of the
queue are in drop_measures.py.
"""

from __future__ import annotations

import math

import polars as pl

from outcast.analysis.measure import spreads
from outcast.analysis.measure.kernel_counts import while_active
from outcast.analysis.run_measures import drop_measures, intervals
from outcast.analysis.run_measures.kinds import (
    MEASURES,
    NOT_NEGATIVE,
    SHARE,
    Measure,
    measure,
)
from outcast.errors import ConfigError
from outcast.records.run import Run
from outcast.records.summary import ClassSummary, GroupSummary, Summary, Window
from outcast.units import parse_size_bytes

__all__ = ["MEASURES"]

SEGMENT_BYTES = 1448


class NoValueError(Exception):
    """The run has no value of a measure."""


def window(run: Run, measure: Measure) -> Summary | Window:
    """The part of the run that the measure covers.

    Raises NoValueError if no bin of the run lies in it.
    """
    part = intervals.covered(run, measure.interval)
    if part is None:
        raise NoValueError
    return part


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _floor_bps(flows: int, seconds: float) -> float:
    return SEGMENT_BYTES * 8 / seconds / flows


def _mean_bps(whole: Summary | Window, part: ClassSummary) -> float:
    """The mean goodput of a part's flows for a ratio, at least as if one segment had arrived.

    A run with flows that got nothing shows the effect at its strongest, so a ratio must not leave
    it out.
    """
    return max(part.mean_goodput_bps, _floor_bps(part.flows, whole.end_s - whole.start_s))


@measure(limits=NOT_NEGATIVE, is_logarithmic=True, has_interval=True)
def outcast_ratio(run: Run, measure: Measure) -> float:
    """Mean goodput of the class with the most hops over that of the class with the fewest."""
    whole = window(run, measure)
    if len(whole.classes) < 2:
        return math.nan
    nearest, furthest = (whole.classes[pick(whole.classes, key=int)] for pick in (min, max))
    return _mean_bps(whole, furthest) / _mean_bps(whole, nearest)


@measure(limits=NOT_NEGATIVE, has_interval=True)
def class_goodput_bps(run: Run, measure: Measure) -> float:
    of_class = window(run, measure).classes.get(str(measure.hops))
    return of_class.mean_goodput_bps if of_class else math.nan


@measure(limits=NOT_NEGATIVE, is_logarithmic=True, has_interval=True)
def class_share(run: Run, measure: Measure) -> float:
    """Mean goodput of a class's flows over the fair share, which is the mean of all flows."""
    whole = window(run, measure)
    of_class = whole.classes.get(str(measure.hops))
    count = sum(other.flows for other in whole.classes.values())
    if of_class is None or not whole.total_goodput_bps:
        return math.nan
    return _mean_bps(whole, of_class) * count / whole.total_goodput_bps


@measure(limits=NOT_NEGATIVE, has_interval=True)
def group_goodput_bps(run: Run, measure: Measure) -> float:
    """Mean goodput of a group's flows, in bit/s; the group is named by `by` and `label`."""
    part = _group(run, measure, measure.label)
    return math.nan if part is None else part.mean_goodput_bps


@measure(limits=NOT_NEGATIVE, is_logarithmic=True, has_interval=True)
def compared_groups(run: Run, measure: Measure) -> float:
    """Mean goodput of the group `label` over that of the group `over`, both of the kind `by`."""
    whole = window(run, measure)
    first, second = (_group(run, measure, label) for label in (measure.label, measure.over))
    return _mean_bps(whole, first) / _mean_bps(whole, second) if first and second else math.nan


def _group(run: Run, measure: Measure, label: str | None) -> GroupSummary | None:
    groups = window(run, measure).grouped(measure.by or "hops")
    return None if label is None else groups.get(label)


@measure(limits=NOT_NEGATIVE, is_logarithmic=True, has_interval=True)
def group_ratio(run: Run, measure: Measure) -> float:
    """Mean goodput of all other groups' flows over that of one group's flows."""
    goodput, seconds = flow_goodput_bps(run, measure)
    means = []
    for flows in sides(run, measure, goodput):
        if not flows:
            return math.nan
        mean_bps = sum(goodput[flow] for flow in flows) / len(flows)
        means.append(max(mean_bps, _floor_bps(len(flows), seconds)))
    return means[0] / means[1]


def sides(run: Run, measure: Measure, goodput: dict[int, float]) -> tuple[set[int], set[int]]:
    """The flows outside a group and inside it."""
    inside = {flow.flow for flow in run.manifest.flows if flow.group == measure.group}
    return goodput.keys() - inside, goodput.keys() & inside


def flow_goodput_bps(run: Run, measure: Measure) -> tuple[dict[int, float], float]:
    """Each flow's goodput in the part of the run that the measure covers, and its length in s."""
    span = intervals.span_of(run, measure.interval)
    if span == intervals.span_of(run, "all_active"):
        return dict(run.table("flows").select("flow", "goodput_bps").iter_rows()), span.seconds
    rates = intervals.rates_in(run, span)
    if rates is None:
        raise NoValueError
    return intervals.goodput_bps(rates), rates.span.seconds


@measure(has_interval=True, limits=SHARE)
def jain_index(run: Run, measure: Measure) -> float:
    return _or_nan(window(run, measure).jain_index)


@measure(has_interval=True, limits=SHARE)
def sender_jain_index(run: Run, measure: Measure) -> float:
    """Jain's fairness index over the mean goodput of each sender's flows (TCPRand, equation 4)."""
    goodput, _ = flow_goodput_bps(run, measure)
    of_sender: dict[str, list[float]] = {}
    for record in run.manifest.flows:
        of_sender.setdefault(record.src, []).append(goodput[record.flow])
    means = [sum(flows) / len(flows) for flows in of_sender.values()]
    return _or_nan(spreads.jain_index(means))


@measure(limits=NOT_NEGATIVE, has_interval=True)
def total_goodput_bps(run: Run, measure: Measure) -> float:
    return window(run, measure).total_goodput_bps


@measure(limits=NOT_NEGATIVE, has_interval=True)
def least_goodput_bps(run: Run, measure: Measure) -> float:
    """Goodput of the flow that gets least, in bit/s.

    It rises only if no flow is starved, so exchanging who is starved does not raise it.
    """
    classes = window(run, measure).classes.values()
    return min((of_class.min_goodput_bps for of_class in classes), default=math.nan)


@measure(has_interval=True, limits=SHARE)
def least_of_far(run: Run, measure: Measure) -> float:
    """The least goodput of the flows with the most hops, over the mean of these flows."""
    goodput, _ = flow_goodput_bps(run, measure)
    most = max(run.hops, default=None)
    far = [goodput[flow.flow] for flow in run.manifest.flows if flow.hops == most]
    return min(far) * len(far) / sum(far) if any(far) else math.nan


@measure(limits=NOT_NEGATIVE)
def halted_s_per_flow(run: Run, measure: Measure) -> float:
    """The time that flows of a class stood still before timeouts, in seconds per flow."""
    tcp = run.summary.tcp.get(str(measure.hops))
    return drop_measures.per_flow(run, measure, tcp.halted_s if tcp else None)


@measure(limits=NOT_NEGATIVE)
def timeouts_per_flow(run: Run, measure: Measure) -> float:
    """The retransmission timeouts that the kernel counted, per flow of a class."""
    of_class = run.summary.classes.get(str(measure.hops))
    return drop_measures.per_flow(run, measure, of_class.timeouts if of_class else None)


@measure(limits=NOT_NEGATIVE, has_interval=True)
def median_rtt_ms(run: Run, measure: Measure) -> float:
    """The median over the samples of the smoothed round-trip time of a class's sockets, in ms.

    Not the mean: after a timeout a lone segment's acknowledgement can wait for a second segment,
    and such round trips are no property of the path.
    """
    flows = run.table("flows").filter(pl.col("hops") == measure.hops)["flow"]
    span = intervals.span_of(run, measure.interval)
    median = (
        while_active(run.table("sockets"), run.manifest.flows)
        .filter(
            pl.col("flow").is_in(flows.implode()),
            pl.col("t").is_between(span.start_ns, span.end_ns),
        )["srtt_us"]
        .median()
    )
    return median / 1e3 if isinstance(median, float) else math.nan


@measure(limits=(-1.0, 1.0))
def window_correlation(run: Run, _measure: Measure) -> float:
    """Pearson's correlation of two flows' cwnd over time, averaged over all pairs of flows."""
    synchronisation = run.summary.synchronisation
    return synchronisation.mean if synchronisation else math.nan


@measure(limits=NOT_NEGATIVE)
def completion_ms(run: Run, measure: Measure) -> float:
    """The mean flow completion time of generated flows of a size, in ms.

    A flow that has not finished when the experiment ends counts with the time it had until then.
    Otherwise the mean would leave out the flows that wait longest, and would fall the more of them
    there are. The same seed plans the same flows for every transport, so all are cut off alike.
    """
    duration_ns = round(run.summary.duration_s * 1e9)
    until_end = (duration_ns - pl.col("t_start") + pl.col("late")).clip(0)
    transfers = run.table("completions").filter(pl.col("size_bytes").is_not_null())
    table = transfers.with_columns(pl.coalesce("fct", until_end).alias("fct"))
    if measure.below is not None:
        table = table.filter(pl.col("size_bytes") < parse_size_bytes(measure.below))
    if measure.above is not None:
        table = table.filter(pl.col("size_bytes") > parse_size_bytes(measure.above))
    mean = table["fct"].mean()
    return mean / 1e6 if isinstance(mean, float) else math.nan


@measure(limits=NOT_NEGATIVE)
def workload_goodput_bps(run: Run, _measure: Measure) -> float:
    """Goodput of the first workload until its last flow, or else the experiment, has ended."""
    workload = (run.summary.completions or {}).get("0")
    return workload.goodput_bps if workload else math.nan


def take(run: Run, measure: Measure) -> float:
    """Takes a measure of a run; NaN if the run has no such number.

    Raises ConfigError if there is no measure of that name.
    """
    if measure.kind not in MEASURES:
        raise ConfigError(f"measure {measure.kind}: allowed are {', '.join(MEASURES)}")
    try:
        return MEASURES[measure.kind].function(run, measure)
    except NoValueError:
        return math.nan


def is_logarithmic(measure: Measure) -> bool:
    """Whether the measure is a ratio."""
    return MEASURES[measure.kind].is_logarithmic
