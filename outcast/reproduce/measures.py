"""Numbers taken from one run's directory, by name; what recipes' claims and figures refer to.

Every function takes the run and the measure's parameters and returns a float, or nan where the
run does not have it (a class without flows, a run too short for its window).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import polars as pl

from outcast.analysis.measure.blackout import is_dense
from outcast.errors import ConfigError
from outcast.records.run import Run
from outcast.records.summary import ClassSummary, Summary, Window
from outcast.reproduce import model
from outcast.reproduce.recipe import Measure
from outcast.units import parse_size_bytes

SEGMENT_BYTES = 1448


class ModelRun(Run):
    """A computation in place of a run (outcast/reproduce/model.py)."""

    def __init__(self, enqueued: model.Enqueued) -> None:
        self.enqueued = enqueued


def _enqueued(run: Run) -> model.Enqueued:
    if not isinstance(run, ModelRun):
        raise ConfigError("this measure is one of a computation: the point needs payload_min")
    return run.enqueued


def x2_queued(run: Run, _measure: Measure) -> float:
    """Share of cases in which the loser's next packet is queued (TCPRand, figure 5)."""
    return _enqueued(run).x2


def y2_queued(run: Run, _measure: Measure) -> float:
    """Share of cases in which the winner's next packet is queued."""
    return _enqueued(run).y2


def both_queued(run: Run, _measure: Measure) -> float:
    """Share of cases in which both are."""
    return _enqueued(run).both


def neither_queued(run: Run, _measure: Measure) -> float:
    """Share of cases in which neither is."""
    return _enqueued(run).neither


def _window(run: Run, measure: Measure) -> Summary | Window:
    """The whole run, or the measure's window of it."""
    return run.summary if measure.window is None else run.summary.windows[measure.window]


def _class(run: Run, measure: Measure) -> ClassSummary | None:
    return _window(run, measure).classes.get(str(measure.hops))


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _at_least(mean_bps: float, flows: int, seconds: float) -> float:
    """A mean goodput; that of flows that got nothing as if one segment of one had arrived.

    A run with such flows has the effect at its strongest, and is not to be left out of ratios.
    """
    return max(mean_bps, SEGMENT_BYTES * 8 / seconds / flows)


def _mean_bps(whole: Summary | Window, found: ClassSummary) -> float:
    return _at_least(found.mean_goodput_bps, found.flows, whole.end_s - whole.start_s)


def outcast_ratio(run: Run, measure: Measure) -> float:
    """Mean goodput of the class with the most hops over that with the fewest."""
    whole = _window(run, measure)
    if len(whole.classes) < 2:
        return math.nan
    nearest, furthest = (whole.classes[pick(whole.classes, key=int)] for pick in (min, max))
    return _mean_bps(whole, furthest) / _mean_bps(whole, nearest)


def late_outcast_ratio(run: Run, _measure: Measure) -> float:
    """outcast_ratio over the second half of the time in which all flows are active."""
    begin, end = run.summary.start_s * 1e9, run.summary.end_s * 1e9
    late = (
        run.table("throughput")
        .filter(pl.col("t").is_between((begin + end) / 2, end, closed="left"))
        .join(run.table("flows").select("flow", "hops"), on="flow")
    )
    means = (
        late.group_by("hops")
        .agg(pl.col("goodput_bps").mean(), pl.col("flow").n_unique())
        .sort("hops")
        .select("goodput_bps", "flow")
        .rows()
    )
    if len(means) < 2:
        return math.nan
    (least, flows), (most, others) = means[0], means[-1]
    seconds = (end - begin) / 2e9
    return _at_least(most, others, seconds) / _at_least(least, flows, seconds)


def class_goodput_bps(run: Run, measure: Measure) -> float:
    """Mean goodput of a class's flows."""
    found = _class(run, measure)
    return found.mean_goodput_bps if found else math.nan


def class_share(run: Run, measure: Measure) -> float:
    """Mean goodput of a class's flows in units of the fair share."""
    whole = _window(run, measure)
    found = _class(run, measure)
    count = sum(each.flows for each in whole.classes.values())
    if found is None or not whole.total_goodput_bps:
        return math.nan
    return _mean_bps(whole, found) * count / whole.total_goodput_bps


def group_ratio(run: Run, measure: Measure) -> float:
    """Mean goodput of all other groups' flows over that of a group's."""
    manifest = run.manifest
    numbers = [flow.flow for flow in manifest.flows if flow.group == measure.group]
    inside = pl.col("flow").is_in(numbers)
    means = []
    for part in (run.table("flows").filter(~inside), run.table("flows").filter(inside)):
        mean = part["goodput_bps"].mean()
        if not isinstance(mean, float):
            return math.nan
        means.append(_at_least(mean, part.height, run.summary.end_s - run.summary.start_s))
    return means[0] / means[1]


def jain_index(run: Run, measure: Measure) -> float:
    """Jain's index over all flows."""
    return _or_nan(_window(run, measure).jain_index)


def sender_jain_index(run: Run, _measure: Measure) -> float:
    """Jain's index over the mean goodput of each sender's flows (TCPRand, equation 4)."""
    means = run.table("flows").group_by("src").agg(pl.col("goodput_bps").mean())["goodput_bps"]
    squares = float((means**2).sum())
    return float(means.sum()) ** 2 / (len(means) * squares) if squares else math.nan


def total_goodput_bps(run: Run, measure: Measure) -> float:
    """Of all flows."""
    return _window(run, measure).total_goodput_bps


def _chains(run: Run, hops: int | None) -> dict[int, int]:
    return {int(k): n for k, n in run.summary.flow_chains.get(str(hops), {}).items()}


def chain_share(run: Run, measure: Measure) -> float:
    """Of a class's chains of consecutive drops, the share with exactly `length` drops."""
    chains = _chains(run, measure.hops)
    total = sum(chains.values())
    return chains.get(measure.length or 1, 0) / total if total else math.nan


def long_chain_share(run: Run, measure: Measure) -> float:
    """Of a class's chains, the share with `length` drops or more."""
    chains = _chains(run, measure.hops)
    total = sum(chains.values())
    some = sum(n for k, n in chains.items() if k >= (measure.length or 1))
    return some / total if total else math.nan


def long_chains_per_flow(run: Run, measure: Measure) -> float:
    """Chains of `length` drops or more, for each flow of a class."""
    found = run.summary.classes.get(str(measure.hops))
    some = sum(n for k, n in _chains(run, measure.hops).items() if k >= (measure.length or 1))
    return some / found.flows if found else math.nan


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


def longest_blackout(run: Run, measure: Measure) -> float:
    """The drops of the longest dense blackout; of the ports of a class, if one is named."""
    found = dense_blackouts(run)
    if measure.hops is not None:
        ports = [name for name, port in run.summary.drops.items() if measure.hops in port.hops]
        found = found.filter(pl.col("ingress").is_in(ports))
    return float(found["drops"][0]) if found.height else 0.0


def queue_span_in_longest_blackout(run: Run, _measure: Measure) -> float:
    """By how many packets the queue varies from the longest blackout's first drop to its last."""
    found = dense_blackouts(run)
    if not found.height:
        return math.nan
    begin, end = found["t_start"][0], found["t_end"][0]
    queue = run.scan("queue").filter(pl.col("t").is_between(begin, end))
    lengths = queue.select("queue_packets").collect()["queue_packets"]
    least, most = lengths.min(), lengths.max()
    return float(most - least) if isinstance(least, int) and isinstance(most, int) else math.nan


def class_ratio(run: Run, measure: Measure) -> float:
    """Mean goodput of the class with the most hops over that of another."""
    whole = _window(run, measure)
    mine = whole.classes.get(str(measure.hops))
    if mine is None:
        return math.nan
    furthest = whole.classes[max(whole.classes, key=int)]
    return _mean_bps(whole, furthest) / _mean_bps(whole, mine)


def least_of_far(run: Run, _measure: Measure) -> float:
    """The least goodput among the flows with the most hops, over their mean."""
    far = run.table("flows").filter(pl.col("hops") == pl.col("hops").max())["goodput_bps"]
    mean, least = far.mean(), far.min()
    if not isinstance(mean, float) or not isinstance(least, float) or not mean:
        return math.nan
    return least / mean


def halted_s_per_flow(run: Run, measure: Measure) -> float:
    """Time halted before timeouts, for each flow of a class."""
    tcp = run.summary.tcp.get(str(measure.hops))
    found = run.summary.classes.get(str(measure.hops))
    return tcp.halted_s / found.flows if tcp and found else math.nan


def timeouts_per_flow(run: Run, measure: Measure) -> float:
    """The kernel's count of timeouts, for each flow of a class."""
    found = run.summary.classes.get(str(measure.hops))
    return found.timeouts / found.flows if found and found.timeouts is not None else math.nan


def rtt_ms(run: Run, measure: Measure) -> float:
    """Mean of the smoothed round-trip time that a class's sockets showed while all flows ran."""
    flows = run.table("flows").filter(pl.col("hops") == measure.hops)["flow"]
    whole = run.summary
    mine = run.table("sockets").filter(
        pl.col("flow").is_in(flows.implode()),
        pl.col("t").is_between(int(whole.start_s * 1e9), int(whole.end_s * 1e9)),
    )["srtt_us"]
    mean = mine.mean()
    return mean / 1e3 if isinstance(mean, float) else math.nan


def window_correlation(run: Run, _measure: Measure) -> float:
    """Pearson's correlation of two flows' congestion windows over time; their mean over pairs."""
    found = run.summary.synchronisation
    return found.mean if found else math.nan


def completion_ms(run: Run, measure: Measure) -> float:
    """Mean completion time of the generated flows of a size, as far as the experiment lasted.

    One that has not finished at its end counts with the time that it had until then: those that
    wait longest would be left out else, and the mean be lower the more of them there are. The same
    seed plans the same flows whatever the transport, so that all are cut off alike.
    """
    duration_ns = round(run.summary.duration_s * 1e9)
    had = (duration_ns - pl.col("t_start") + pl.col("late")).clip(0)
    transfers = run.table("completions").filter(pl.col("size_bytes").is_not_null())
    table = transfers.with_columns(pl.coalesce("fct", had).alias("fct"))
    if measure.below is not None:
        table = table.filter(pl.col("size_bytes") < parse_size_bytes(measure.below))
    if measure.above is not None:
        table = table.filter(pl.col("size_bytes") > parse_size_bytes(measure.above))
    mean = table["fct"].mean()
    return mean / 1e6 if isinstance(mean, float) else math.nan


def workload_goodput_bps(run: Run, _measure: Measure) -> float:
    """Goodput of the first workload until its last flow has ended, or else the experiment."""
    found = (run.summary.completions or {}).get("0")
    return found.goodput_bps if found else math.nan


MEASURES: dict[str, tuple[Callable[[Run, Measure], float], bool]] = {
    function.__name__: (function, logarithmic)
    for function, logarithmic in (
        (outcast_ratio, True),
        (late_outcast_ratio, True),
        (class_goodput_bps, False),
        (class_share, True),
        (group_ratio, True),
        (jain_index, False),
        (sender_jain_index, False),
        (total_goodput_bps, False),
        (chain_share, False),
        (long_chain_share, False),
        (long_chains_per_flow, False),
        (longest_blackout, False),
        (queue_span_in_longest_blackout, False),
        (class_ratio, True),
        (least_of_far, False),
        (halted_s_per_flow, False),
        (timeouts_per_flow, False),
        (rtt_ms, False),
        (completion_ms, False),
        (workload_goodput_bps, False),
        (window_correlation, False),
        (x2_queued, False),
        (y2_queued, False),
        (both_queued, False),
        (neither_queued, False),
    )
}
"""By name: the function, and whether it is a ratio, of which the logarithm is averaged."""


def take(run: Run, measure: Measure) -> float:
    """The measure of a run. Raises ConfigError where there is none of its name."""
    if measure.kind not in MEASURES:
        raise ConfigError(f"measure {measure.kind}: allowed are {', '.join(MEASURES)}")
    return MEASURES[measure.kind][0](run, measure)


def is_logarithmic(measure: Measure) -> bool:
    """Whether the measure is a ratio."""
    return MEASURES[measure.kind][1]
