"""Numbers taken from one run's directory, by name; what recipes' claims and figures refer to.

Every function takes the run and the measure's parameters and returns a float, or nan where the
run does not have it (a class without flows, a run too short for its window).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import polars as pl

from outcast.analysis.blackout import is_dense
from outcast.analysis.summary import ClassSummary, Summary, Window
from outcast.analysis.tables import read_summary
from outcast.errors import ConfigError
from outcast.experiment import MTU_FRAME_BYTES
from outcast.reproduce import model
from outcast.reproduce.recipe import Measure
from outcast.run import RunDirectory
from outcast.units import parse_size_bytes

SEGMENT_BYTES = 1448


class Run:
    """A finished run: its summary, and its tables when they are asked for."""

    def __init__(self, path: Path) -> None:
        self.directory = RunDirectory(path)

    @cached_property
    def summary(self) -> Summary:
        return read_summary(self.directory)

    @cached_property
    def flows(self) -> pl.DataFrame:
        return self.table("flows")

    def table(self, name: str) -> pl.DataFrame:
        """A table by its name without the ending."""
        return pl.read_parquet(self.directory.path / f"{name}.parquet")

    def window(self, name: str | None) -> Summary | Window:
        """The whole run, or one of its windows."""
        return self.summary if name is None else self.summary.windows[name]


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


def _class(run: Run, measure: Measure) -> ClassSummary | None:
    return run.window(measure.window).classes.get(str(measure.hops))


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else float(value)


def outcast_ratio(run: Run, measure: Measure) -> float:
    """Mean goodput of the class with the most hops over that with the fewest.

    A class that got nothing at all counts as if one segment of its flows had arrived: the run has
    the effect at its strongest, and is not to be left out.
    """
    whole = run.window(measure.window)
    if len(whole.classes) < 2:
        return math.nan
    nearest, furthest = (whole.classes[pick(whole.classes, key=int)] for pick in (min, max))
    least_bps = SEGMENT_BYTES * 8 / (whole.end_s - whole.start_s) / nearest.flows
    return furthest.mean_goodput_bps / max(nearest.mean_goodput_bps, least_bps)


def late_outcast_ratio(run: Run, _measure: Measure) -> float:
    """outcast_ratio over the second half of the time in which all flows are active."""
    begin, end = run.summary.start_s * 1e9, run.summary.end_s * 1e9
    late = (
        run.table("throughput")
        .filter(pl.col("t").is_between((begin + end) / 2, end, closed="left"))
        .join(run.flows.select("flow", "hops"), on="flow")
    )
    means = late.group_by("hops").agg(pl.col("goodput_bps").mean()).sort("hops")["goodput_bps"]
    if len(means) < 2:
        return math.nan
    return float(means[-1] / max(means[0], SEGMENT_BYTES * 16e9 / (end - begin)))


def class_goodput_bps(run: Run, measure: Measure) -> float:
    """Mean goodput of a class's flows."""
    found = _class(run, measure)
    return found.mean_goodput_bps if found else math.nan


def class_share(run: Run, measure: Measure) -> float:
    """Mean goodput of a class's flows in units of the fair share."""
    whole = run.window(measure.window)
    found = _class(run, measure)
    count = sum(each.flows for each in whole.classes.values())
    if found is None or not whole.total_goodput_bps:
        return math.nan
    return found.mean_goodput_bps * count / whole.total_goodput_bps


def group_goodput_bps(run: Run, measure: Measure) -> float:
    """Mean goodput of the flows of a group of the configuration."""
    numbers = {f.flow for f in run.directory.read_manifest().flows if f.group == measure.group}
    mean = run.flows.filter(pl.col("flow").is_in(list(numbers)))["goodput_bps"].mean()
    return _or_nan(mean if isinstance(mean, float) else None)


def group_ratio(run: Run, measure: Measure) -> float:
    """Mean goodput of all other groups' flows over that of a group's."""
    manifest = run.directory.read_manifest()
    numbers = [flow.flow for flow in manifest.flows if flow.group == measure.group]
    inside = pl.col("flow").is_in(numbers)
    mine = run.flows.filter(inside)["goodput_bps"].mean()
    others = run.flows.filter(~inside)["goodput_bps"].mean()
    if not isinstance(mine, float) or not isinstance(others, float) or not mine:
        return math.nan
    return others / mine


def jain_index(run: Run, measure: Measure) -> float:
    """Jain's index over all flows."""
    return _or_nan(run.window(measure.window).jain_index)


def sender_jain_index(run: Run, _measure: Measure) -> float:
    """Jain's index over the mean goodput of each sender's flows (TCPRand, equation 4)."""
    means = run.flows.group_by("src").agg(pl.col("goodput_bps").mean())["goodput_bps"]
    squares = float((means**2).sum())
    return float(means.sum()) ** 2 / (len(means) * squares) if squares else math.nan


def total_goodput_bps(run: Run, measure: Measure) -> float:
    """Of all flows."""
    return run.window(measure.window).total_goodput_bps


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


def drop_rate(run: Run, measure: Measure) -> float:
    """Drops among a class's packets at the bottleneck."""
    mine = run.flows.filter(pl.col("hops") == measure.hops)
    packets = int(mine["packets"].sum())
    return int(mine["dropped"].sum()) / packets if packets else math.nan


def blackouts(run: Run, _measure: Measure) -> float:
    """Chains of drops of one input during which packets of others got through."""
    return float(sum(port.blackouts for port in run.summary.drops.values()))


def packet_ns(run: Run) -> int:
    """How long a full frame takes at the bottleneck."""
    rate_bps = run.directory.read_manifest().bottlenecks[0].queue.rate_bps or 10**9
    return MTU_FRAME_BYTES * 8 * 10**9 // rate_bps


def dense_blackouts(run: Run) -> pl.DataFrame:
    """Chains of drops of one input while others got through, the most drops first.

    Only dense ones (outcast/analysis/blackout.py).
    """
    return (
        run.table("blackouts")
        .filter(pl.col("others_through") > 0, is_dense(packet_ns(run)))
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
    lengths = run.table("queue").filter(pl.col("t").is_between(begin, end))["queue_packets"]
    least, most = lengths.min(), lengths.max()
    return float(most - least) if isinstance(least, int) and isinstance(most, int) else math.nan


def class_ratio(run: Run, measure: Measure) -> float:
    """Mean goodput of the class with the most hops over that of another."""
    classes = run.window(measure.window).classes
    mine = classes.get(str(measure.hops))
    furthest = classes[max(classes, key=int)]
    if mine is None or not mine.mean_goodput_bps:
        return math.nan
    return furthest.mean_goodput_bps / mine.mean_goodput_bps


def least_of_far(run: Run, _measure: Measure) -> float:
    """The least goodput among the flows with the most hops, over their mean."""
    far = run.flows.filter(pl.col("hops") == pl.col("hops").max())["goodput_bps"]
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


def retransmits_per_flow(run: Run, measure: Measure) -> float:
    """The kernel's count of retransmitted segments, for each flow of a class."""
    found = run.summary.classes.get(str(measure.hops))
    return found.retransmits / found.flows if found and found.retransmits is not None else math.nan


def rtt_ms(run: Run, measure: Measure) -> float:
    """Mean of the smoothed round-trip time that a class's sockets showed while all flows ran."""
    flows = run.flows.filter(pl.col("hops") == measure.hops)["flow"]
    whole = run.summary
    mine = run.table("sockets").filter(
        pl.col("flow").is_in(flows.implode()),
        pl.col("t").is_between(int(whole.start_s * 1e9), int(whole.end_s * 1e9)),
    )["srtt_us"]
    mean = mine.mean()
    return mean / 1e3 if isinstance(mean, float) else math.nan


def window_correlation(run: Run, _measure: Measure) -> float:
    """Pearson's correlation of two flows' congestion windows over time; their mean over pairs."""
    table = run.table("sockets").pivot(on="flow", index="t", values="cwnd").drop("t").drop_nulls()
    columns = table.columns
    pairs = [
        table.select(pl.corr(one, other)).item()
        for index, one in enumerate(columns)
        for other in columns[index + 1 :]
    ]
    known = [value for value in pairs if value is not None and math.isfinite(value)]
    return sum(known) / len(known) if known else math.nan


def completion_ms(run: Run, measure: Measure) -> float:
    """Mean completion time of the generated flows of a size; unfinished ones are left out."""
    table = run.table("completions").filter(pl.col("fct").is_not_null())
    if measure.below is not None:
        table = table.filter(pl.col("size_bytes") < parse_size_bytes(measure.below))
    if measure.above is not None:
        table = table.filter(pl.col("size_bytes") > parse_size_bytes(measure.above))
    mean = table["fct"].mean()
    return mean / 1e6 if isinstance(mean, float) else math.nan


def completed_goodput_bps(run: Run, _measure: Measure) -> float:
    """Bytes of the generated flows that were completed, over the time from first start to last
    end.
    """
    table = run.table("completions").filter(pl.col("fct").is_not_null())
    begin, end = table["t_start"].min(), table["t_end"].max()
    if not isinstance(begin, int) or not isinstance(end, int) or end <= begin:
        return math.nan
    return 8e9 * int(table["size_bytes"].sum()) / (end - begin)


MEASURES: dict[str, tuple[Callable[[Run, Measure], float], bool]] = {
    function.__name__: (function, logarithmic)
    for function, logarithmic in (
        (outcast_ratio, True),
        (late_outcast_ratio, True),
        (class_goodput_bps, False),
        (class_share, True),
        (group_goodput_bps, False),
        (group_ratio, True),
        (jain_index, False),
        (sender_jain_index, False),
        (total_goodput_bps, False),
        (chain_share, False),
        (long_chain_share, False),
        (long_chains_per_flow, False),
        (drop_rate, False),
        (blackouts, False),
        (longest_blackout, False),
        (queue_span_in_longest_blackout, False),
        (class_ratio, True),
        (least_of_far, False),
        (halted_s_per_flow, False),
        (timeouts_per_flow, False),
        (retransmits_per_flow, False),
        (rtt_ms, False),
        (completion_ms, False),
        (completed_goodput_bps, False),
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
