"""The measures of a run, by name. Claims and figures of recipes refer to these names.

Every function takes a run and the measure's parameters and returns a float. It returns NaN if the
run has no such number, for example if a class has no flows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from outcast.analysis import statistics
from outcast.analysis.measure import chance, fairness
from outcast.analysis.measure.blackout import is_dense
from outcast.analysis.statistics import UNLIMITED, Limits
from outcast.errors import ConfigError
from outcast.records.run import Run
from outcast.records.socket_samples import while_active
from outcast.records.summary import ClassSummary, GroupSummary, Summary, Window
from outcast.reproduce import intervals, model
from outcast.reproduce.effects import EffectsRun, mean_of
from outcast.reproduce.recipe import Measure
from outcast.units import parse_size_bytes

SEGMENT_BYTES = 1448
_SHARE = (0.0, 1.0)
_Function = Callable[[Run, Measure], float]
_LOST = pl.col("verdict").cast(pl.String) == "dropped"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of measure.

    Attributes:
        is_logarithmic: whether it is a ratio, so that its logarithm is averaged.
        has_interval: whether it covers the measure's interval. Others count in the whole captures.
        has_floor: whether flows that got nothing count as if one segment had arrived.
        limits: the least and the greatest value; rates and counts start at 0.
    """

    function: _Function
    is_logarithmic: bool = False
    has_interval: bool = False
    has_floor: bool = False
    limits: Limits = (0.0, math.inf)


MEASURES: dict[str, Kind] = {}
"""Every kind of measure, by its name."""


def _measure(
    *,
    is_logarithmic: bool = False,
    has_interval: bool = False,
    has_floor: bool = False,
    limits: Limits = (0.0, math.inf),
) -> Callable[[_Function], _Function]:
    """Adds a function to the measures, under its own name."""

    def add(function: _Function) -> _Function:
        MEASURES[function.__name__] = Kind(
            function, is_logarithmic, has_interval, has_floor, limits
        )
        return function

    return add


class ModelRun(Run):
    """A computation instead of a run (outcast/reproduce/model.py)."""

    def __init__(self, enqueued: model.Enqueued) -> None:
        self.enqueued = enqueued


def _enqueued(run: Run) -> model.Enqueued:
    if not isinstance(run, ModelRun):
        raise ConfigError("this measure needs a computation: the point must have payload_min")
    return run.enqueued


def _of_model(name: str) -> Kind:
    return Kind(lambda run, _: float(getattr(_enqueued(run), name)), limits=_SHARE)


def _window(run: Run, measure: Measure) -> Summary | Window:
    """The part of the run that the measure covers.

    Raises NoValueError if no bin of the run lies in it.
    """
    part = intervals.covered(run, measure.interval)
    if part is None:
        raise NoValueError
    return part


class NoValueError(Exception):
    """The run has no value of a measure."""


def _class(run: Run, measure: Measure) -> ClassSummary | None:
    return _window(run, measure).classes.get(str(measure.hops))


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _at_least(mean_bps: float, flows: int, seconds: float) -> float:
    """A mean goodput for a ratio. If flows got nothing, it counts as if one segment had arrived.

    A run with such flows shows the effect at its strongest, so a ratio must not leave it out.
    """
    return max(mean_bps, _floor_bps(flows, seconds))


def _floor_bps(flows: int, seconds: float) -> float:
    return SEGMENT_BYTES * 8 / seconds / flows


def _mean_bps(whole: Summary | Window, of_class: ClassSummary) -> float:
    return _at_least(of_class.mean_goodput_bps, of_class.flows, whole.end_s - whole.start_s)


@_measure(is_logarithmic=True, has_interval=True, has_floor=True)
def outcast_ratio(run: Run, measure: Measure) -> float:
    """Mean goodput of the class with the most hops over that of the class with the fewest."""
    whole = _window(run, measure)
    if len(whole.classes) < 2:
        return math.nan
    nearest, furthest = (whole.classes[pick(whole.classes, key=int)] for pick in (min, max))
    return _mean_bps(whole, furthest) / _mean_bps(whole, nearest)


@_measure(has_interval=True)
def class_goodput_bps(run: Run, measure: Measure) -> float:
    """Mean goodput of a class's flows, in bit/s."""
    of_class = _class(run, measure)
    return of_class.mean_goodput_bps if of_class else math.nan


@_measure(is_logarithmic=True, has_interval=True, has_floor=True)
def class_share(run: Run, measure: Measure) -> float:
    """Mean goodput of a class's flows over the fair share, which is the mean of all flows."""
    whole = _window(run, measure)
    of_class = _class(run, measure)
    count = sum(other.flows for other in whole.classes.values())
    if of_class is None or not whole.total_goodput_bps:
        return math.nan
    return _mean_bps(whole, of_class) * count / whole.total_goodput_bps


@_measure(has_interval=True)
def group_goodput_bps(run: Run, measure: Measure) -> float:
    """Mean goodput of a group's flows, in bit/s; the group is named by `by` and `label`."""
    part = _group(run, measure, measure.label)
    return math.nan if part is None else part.mean_goodput_bps


@_measure(is_logarithmic=True, has_interval=True, has_floor=True)
def compared_groups(run: Run, measure: Measure) -> float:
    """Mean goodput of the group `label` over that of the group `over`, both of the kind `by`."""
    whole = _window(run, measure)
    first, second = (_group(run, measure, label) for label in (measure.label, measure.over))
    return _mean_bps(whole, first) / _mean_bps(whole, second) if first and second else math.nan


def _group(run: Run, measure: Measure, label: str | None) -> GroupSummary | None:
    groups = _window(run, measure).grouped(measure.by or "hops")
    return None if label is None else groups.get(label)


@_measure(is_logarithmic=True, has_interval=True, has_floor=True)
def group_ratio(run: Run, measure: Measure) -> float:
    """Mean goodput of all other groups' flows over that of one group's flows."""
    goodput, seconds = _flow_goodput_bps(run, measure)
    means = []
    for flows in _sides(run, measure, goodput):
        if not flows:
            return math.nan
        mean_bps = sum(goodput[flow] for flow in flows) / len(flows)
        means.append(_at_least(mean_bps, len(flows), seconds))
    return means[0] / means[1]


def _sides(run: Run, measure: Measure, goodput: dict[int, float]) -> tuple[set[int], set[int]]:
    """The flows outside a group and inside it."""
    inside = {flow.flow for flow in run.manifest.flows if flow.group == measure.group}
    return goodput.keys() - inside, goodput.keys() & inside


def _flow_goodput_bps(run: Run, measure: Measure) -> tuple[dict[int, float], float]:
    """Each flow's goodput in the part of the run that the measure covers, and its length in s."""
    span = intervals.span_of(run, measure.interval)
    if span == intervals.span_of(run, "all_active"):
        return dict(run.table("flows").select("flow", "goodput_bps").iter_rows()), span.seconds
    rates = intervals.rates_in(run, span)
    if rates is None:
        raise NoValueError
    seconds = rates.span.seconds
    totals = rates.goodput_bytes.sum(axis=1).tolist()
    return {f: 8 * total / seconds for f, total in zip(rates.flows, totals, strict=True)}, seconds


@_measure(has_interval=True, limits=_SHARE)
def jain_index(run: Run, measure: Measure) -> float:
    """Jain's fairness index over all flows."""
    return _or_nan(_window(run, measure).jain_index)


@_measure(has_interval=True, limits=_SHARE)
def sender_jain_index(run: Run, measure: Measure) -> float:
    """Jain's fairness index over the mean goodput of each sender's flows (TCPRand, equation 4)."""
    goodput, _ = _flow_goodput_bps(run, measure)
    of_sender: dict[str, list[float]] = {}
    for record in run.manifest.flows:
        of_sender.setdefault(record.src, []).append(goodput[record.flow])
    means = [sum(flows) / len(flows) for flows in of_sender.values()]
    return _or_nan(fairness.jain_index(means))


@_measure(has_interval=True)
def total_goodput_bps(run: Run, measure: Measure) -> float:
    """The goodput of all flows together, in bit/s."""
    return _window(run, measure).total_goodput_bps


@_measure(has_interval=True)
def least_goodput_bps(run: Run, measure: Measure) -> float:
    """Goodput of the flow that gets least, in bit/s.

    It rises only if no flow is starved, so exchanging who is starved does not raise it.
    """
    classes = _window(run, measure).classes.values()
    return min((of_class.min_goodput_bps for of_class in classes), default=math.nan)


def _chains(run: Run, hops: int | None) -> dict[int, int]:
    """How many chains of drops of one flow there are of each length, in the whole captures."""
    flows = [flow.flow for flow in run.manifest.compared_flows if flow.hops == hops]
    lengths = (
        run.scan("packets")
        .filter(pl.col("flow").is_in(flows), pl.col("egress").is_not_null())
        .select("flow", lost=_LOST, chain=_LOST.rle_id().over("flow"))
        .filter("lost")
        .group_by("flow", "chain")
        .len()
    )
    return dict(lengths.group_by("len").agg(pl.len().alias("chains")).sort("len").collect().rows())


@_measure(limits=_SHARE)
def chain_share(run: Run, measure: Measure) -> float:
    """The share of a class's chains of consecutive drops that have exactly `length` drops."""
    chains = _chains(run, measure.hops)
    total = sum(chains.values())
    return chains.get(measure.length or 1, 0) / total if total else math.nan


@_measure(limits=_SHARE)
def long_chain_share(run: Run, measure: Measure) -> float:
    """The share of a class's chains of consecutive drops that have `length` drops or more."""
    chains = _chains(run, measure.hops)
    total = sum(chains.values())
    long = sum(count for length, count in chains.items() if length >= (measure.length or 1))
    return long / total if total else math.nan


@_measure()
def long_chains_per_flow(run: Run, measure: Measure) -> float:
    """The number of chains of `length` drops or more, per flow of a class."""
    of_class = run.summary.classes.get(str(measure.hops))
    chains = _chains(run, measure.hops)
    long = sum(count for length, count in chains.items() if length >= (measure.length or 1))
    return long / of_class.flows if of_class else math.nan


@_measure(is_logarithmic=True)
def burst_ratio(run: Run, measure: Measure) -> float:
    """How much longer a class's chains of consecutive drops are than chance makes them.

    The mean length of a flow's chains times the share of packets that got through. If drops have no
    memory, chains have 1 / (1 - loss) drops on average, and the ratio is 1 (McGowan, Burst Ratio: A
    Measure of Bursty Loss on Packet-Based Networks, US patent 6,931,017, 2005; ITU-T G.107, 3.1).
    """
    chains = _chains(run, measure.hops)
    of_class = run.table("flows").filter(pl.col("hops") == measure.hops)["flow"]
    entered = (
        run.scan("packets").filter(pl.col("flow").is_in(of_class.implode())).select(pl.len())
    ).collect()
    drops, packets = sum(length * count for length, count in chains.items()), int(entered.item())
    if not drops or drops >= packets:
        return math.nan
    return drops / sum(chains.values()) * (1 - drops / packets)


LOT_PACKETS = 64
"""Within so many packet times a lot decides which packets are dropped. It is some three round trips
of a flow whose packets find a queue of 16 KB full."""


@_measure(is_logarithmic=True)
def chains_over_chance(run: Run, measure: Measure) -> float:
    """The mean length of a class's chains of consecutive drops over that of chains by lot."""
    return chains_over_lots(run, measure.hops, LOT_PACKETS)


def chains_over_lots(run: Run, hops: int | None, lot_packets: int | None) -> float:
    """How much longer a class's chains of consecutive drops are than chains by lot.

    A chain is of one input port. The lot keeps how many packets the port loses in each
    `lot_packets` packet times, or in the whole run if that is None, and says which
    (outcast/analysis/measure/chance.py). NaN if no packet of the class is dropped.
    """
    ports = [name for name, port in run.summary.drops.items() if port.hops == [hops]]
    packets = run.scan("packets").select(
        "t_in", ingress=pl.col("ingress").cast(pl.String), lost=_LOST
    )
    observed, by_lot = 0, 0.0
    for port in ports:
        of_port = packets.filter(pl.col("ingress") == port).sort("t_in").collect()
        lost = of_port["lost"].to_numpy()
        t_in_ns = of_port["t_in"].to_numpy()
        if lot_packets is None:
            blocks = np.zeros_like(t_in_ns)
        else:
            blocks = t_in_ns // (lot_packets * run.frame_ns)
        observed += chance.chains(lost)
        by_lot += chance.chains_by_lot(lost, blocks, seed=0)
    # As many drops are in fewer chains if the chains are longer.
    return by_lot / observed if observed else math.nan


@_measure(is_logarithmic=True)
def loss_ratio(run: Run, _measure: Measure) -> float:
    """The loss rate of the port of the class with the fewest hops over that of the other ports."""
    drops, traffic = run.summary.drops, run.manifest.traffic
    least = min((port.hops for port in drops.values() if port.hops), default=None)
    nearest = [name for name, port in drops.items() if port.hops == least]
    packets = run.scan("packets").filter(pl.col("t_in") < traffic.t_start_ns + traffic.duration_ns)
    is_near = pl.col("ingress").cast(pl.String).is_in(nearest)
    rates = dict(packets.group_by(is_near).agg(_LOST.mean()).collect().rows())
    return rates.get(True, math.nan) / rates[False] if rates.get(False) else math.nan


def dense_blackouts(run: Run) -> pl.DataFrame:
    """Chains of drops of one input while others got through, the most drops first.

    Only dense ones (outcast/analysis/measure/blackout.py).
    """
    return (
        run.table("blackouts")
        .filter(pl.col("others_through") > 0, is_dense(run.frame_ns))
        .with_columns(pl.col("ingress").cast(pl.String))
        .sort("drops", "t_start", descending=[True, False])
    )


@_measure()
def longest_blackout(run: Run, measure: Measure) -> float:
    """The drops of the longest dense blackout; only of a class's ports if a class is named."""
    blackouts = dense_blackouts(run)
    if measure.hops is not None:
        ports = [name for name, port in run.summary.drops.items() if measure.hops in port.hops]
        blackouts = blackouts.filter(pl.col("ingress").is_in(ports))
    return float(blackouts["drops"][0]) if blackouts.height else 0.0


@_measure()
def longest_chain(run: Run, _measure: Measure) -> float:
    """The most consecutive packets that one input port lost."""
    return float(max((port.longest_chain for port in run.summary.drops.values()), default=0))


@_measure()
def closest_drops(run: Run, _measure: Measure) -> float:
    """The fewest packets of one input port that got through between two of its drops."""
    packets = run.table("packets").sort("t_in")
    numbered = packets.with_columns(number=pl.col("t_in").cum_count().over("ingress"))
    drops = numbered.filter(verdict="dropped")
    least = drops.select(pl.col("number").diff().over("ingress").min()).item()
    return math.nan if least is None else float(least) - 1


@_measure()
def mean_queue_bytes(run: Run, _measure: Measure) -> float:
    """The mean of the queue that arrivals find, in bytes."""
    mean = run.table("packets")["queue_bytes"].mean()
    return float(mean) if isinstance(mean, float) else math.nan


@_measure()
def queue_span_in_longest_blackout(run: Run, _measure: Measure) -> float:
    """The queue's span in packets between the first and last drop of the longest blackout."""
    blackouts = dense_blackouts(run)
    if not blackouts.height:
        return math.nan
    begin, end = blackouts["t_start"][0], blackouts["t_end"][0]
    queue = run.scan("queue").filter(pl.col("t").is_between(begin, end))
    lengths = queue.select("queue_packets").collect()["queue_packets"]
    least, most = lengths.min(), lengths.max()
    return float(most - least) if isinstance(least, int) and isinstance(most, int) else math.nan


@_measure(is_logarithmic=True, has_interval=True, has_floor=True)
def class_ratio(run: Run, measure: Measure) -> float:
    """Mean goodput of the class with the most hops over that of another class."""
    whole = _window(run, measure)
    other = whole.classes.get(str(measure.hops))
    furthest = whole.classes[max(whole.classes, key=int)]
    return _mean_bps(whole, furthest) / _mean_bps(whole, other) if other else math.nan


@_measure(has_interval=True, limits=_SHARE)
def least_of_far(run: Run, measure: Measure) -> float:
    """The least goodput of the flows with the most hops, over the mean of these flows."""
    goodput, _ = _flow_goodput_bps(run, measure)
    most = max(run.hops, default=None)
    far = [goodput[flow.flow] for flow in run.manifest.flows if flow.hops == most]
    return min(far) * len(far) / sum(far) if any(far) else math.nan


@_measure()
def halted_s_per_flow(run: Run, measure: Measure) -> float:
    """The time that flows of a class stood still before timeouts, in seconds per flow."""
    tcp = run.summary.tcp.get(str(measure.hops))
    of_class = run.summary.classes.get(str(measure.hops))
    return tcp.halted_s / of_class.flows if tcp and of_class else math.nan


@_measure()
def timeouts_per_flow(run: Run, measure: Measure) -> float:
    """The retransmission timeouts that the kernel counted, per flow of a class."""
    of_class = run.summary.classes.get(str(measure.hops))
    if of_class is None or of_class.timeouts is None:
        return math.nan
    return of_class.timeouts / of_class.flows


@_measure(has_interval=True)
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


@_measure(limits=(-1.0, 1.0))
def window_correlation(run: Run, _measure: Measure) -> float:
    """Pearson's correlation of two flows' cwnd over time, averaged over all pairs of flows."""
    synchronisation = run.summary.synchronisation
    return synchronisation.mean if synchronisation else math.nan


@_measure()
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


@_measure()
def workload_goodput_bps(run: Run, _measure: Measure) -> float:
    """Goodput of the first workload until its last flow, or else the experiment, has ended."""
    workload = (run.summary.completions or {}).get("0")
    return workload.goodput_bps if workload else math.nan


def _effects(run: Run) -> pl.DataFrame:
    if not isinstance(run, EffectsRun):
        raise ConfigError("this measure needs other fates: the point must have fates")
    return run.effects


def _of_effects(column: str) -> Kind:
    return Kind(lambda run, _: mean_of(_effects(run), column), limits=_SHARE)


MEASURES.update(
    # After so many of the fates a packet of another flow has another fate too.
    fates_that_spread=_of_effects("spread"),
    # The mean share of a run's packets that have another fate, or are in one of the runs alone.
    fates_changed=_of_effects("changed"),
    # After so many of the fates other flows get less than half of the mean.
    fates_that_starve_others=_of_effects("other_starved"),
    # After so many of the fates it is the other side of the ratio that gets less.
    fates_that_swap_sides=_of_effects("other_side"),
)


@_measure(limits=UNLIMITED)
def undone_together_bps(run: Run, measure: Measure) -> float:
    """The gain of a blackout's flows if all its drops are undone: the mean, in bit/s."""
    effects = _effects(run).filter(pl.col("undone").is_null())
    return mean_of(effects, f"gain_{measure.within_ms}ms_bps")


@_measure(limits=UNLIMITED)
def undone_apart_bps(run: Run, measure: Measure) -> float:
    """The same for its drops undone one by one: what they give together, without one another."""
    gain = f"gain_{measure.within_ms}ms_bps"
    singles = _effects(run).filter(pl.col("undone").is_not_null())
    return mean_of(singles.group_by("group").agg(pl.col(gain).sum()), gain)


@_measure(limits=UNLIMITED)
def undone_last_bps(run: Run, measure: Measure) -> float:
    """The same for its last drop alone, of blackouts that a timeout follows."""
    last = _effects(run).filter("is_last", "timeout")
    return mean_of(last, f"gain_{measure.within_ms}ms_bps")


@_measure(limits=UNLIMITED)
def undone_before_timeout_bps(run: Run, measure: Measure) -> float:
    """The same for all drops together, of blackouts that a timeout follows."""
    every = _effects(run).filter(pl.col("undone").is_null(), "timeout")
    return mean_of(every, f"gain_{measure.within_ms}ms_bps")


# The shares of cases in which the loser's next packet, X2, is queued; the winner's, Y2; both; and
# neither (TCPRand, figure 5).
MEASURES.update(
    x2_queued=_of_model("x2"),
    y2_queued=_of_model("y2"),
    both_queued=_of_model("both"),
    neither_queued=_of_model("neither"),
)


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


def rivals(run: Run, measure: Measure) -> float | None:
    """Counts a ratio's flows of the first side for each of the other; None if it is no ratio."""
    if isinstance(run, ModelRun) or measure.kind not in ("outcast_ratio", "group_ratio"):
        return None
    flows = run.manifest.compared_flows
    if measure.kind == "group_ratio":
        inside = sum(flow.group == measure.group for flow in flows)
        return (len(flows) - inside) / inside if inside else None
    hops = [flow.hops for flow in flows if flow.hops is not None]
    return hops.count(max(hops)) / hops.count(min(hops)) if hops else None


def as_means(
    values: Sequence[float], measure: Measure, rivals_of: Mapping[str, float]
) -> list[float]:
    """The values so that a geometric mean of them is the source's own: a ratio of means.

    `rivals_of` has what `rivals` gave, by the measure's kind. Without it the values stay.
    """
    if measure.kind == "class_share":
        return statistics.as_ratio_of_means(values, None)
    known = rivals_of.get(measure.kind)
    return list(values) if known is None else statistics.as_ratio_of_means(values, known)


def is_at_floor(run: Run, measure: Measure) -> bool:
    """Whether a ratio counts flows that got less than a segment as if one had arrived.

    Such a value says that the ratio is at least, or at most, so much. It is no measured size.
    """
    if isinstance(run, ModelRun) or not MEASURES[measure.kind].has_floor:
        return False
    try:
        whole = _window(run, measure)
        seconds = whole.end_s - whole.start_s
        if measure.group is None and measure.by is None:
            parts = [(of.mean_goodput_bps, of.flows) for of in whole.classes.values()]
        elif measure.by is not None:
            groups = (_group(run, measure, label) for label in (measure.label, measure.over))
            parts = [(of.mean_goodput_bps, of.flows) for of in groups if of is not None]
        else:
            goodput, seconds = _flow_goodput_bps(run, measure)
            sides = ([goodput[flow] for flow in side] for side in _sides(run, measure, goodput))
            parts = [(sum(side) / len(side), len(side)) for side in sides if side]
    except NoValueError:
        return False
    return any(mean_bps < _floor_bps(flows, seconds) for mean_bps, flows in parts if flows)


def limits(measure: Measure) -> Limits:
    """The least and the greatest value that a measure can have; rates and counts start at 0."""
    return MEASURES[measure.kind].limits


def is_logarithmic(measure: Measure) -> bool:
    """Whether the measure is a ratio."""
    return MEASURES[measure.kind].is_logarithmic


def is_stationary(run: Run, measure: Measure) -> bool | None:
    """Whether the run shows no trend over the part that the measure covers.

    None if it cannot be told: for a computation, for a run of few bins, or for a measure that
    counts over the whole run. See intervals.is_stationary.
    """
    if isinstance(run, ModelRun) or not MEASURES[measure.kind].has_interval:
        return None
    return intervals.is_stationary(run, measure.interval)
