"""The measures of drops, of chains of them, and of the queue; see measures.py."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import polars as pl

from outcast.analysis.measure.blackout import chains, chains_by_lot, is_blackout, is_dense
from outcast.analysis.run_measures.kinds import NOT_NEGATIVE, SHARE, Measure, measure
from outcast.records.run import Run

_LOST = pl.col("verdict").cast(pl.String) == "dropped"


def _chains(run: Run, hops: int | None) -> dict[int, int]:
    """How many chains of drops of one flow there are of each length."""
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


def _long(chains: Mapping[int, int], measure: Measure) -> int:
    return sum(count for length, count in chains.items() if length >= (measure.length or 1))


def per_flow(run: Run, measure: Measure, count: float | None) -> float:
    """A count for each flow of a class; NaN if it or the class is not there."""
    of_class = run.summary.classes.get(str(measure.hops))
    return math.nan if count is None or of_class is None else count / of_class.flows


@measure(limits=SHARE)
def chain_share(run: Run, measure: Measure) -> float:
    """The share of a class's chains of consecutive drops that have exactly `length` drops."""
    chains = _chains(run, measure.hops)
    return chains.get(measure.length or 1, 0) / sum(chains.values()) if chains else math.nan


@measure(limits=SHARE)
def long_chain_share(run: Run, measure: Measure) -> float:
    """The share of a class's chains of consecutive drops that have `length` drops or more."""
    chains = _chains(run, measure.hops)
    return _long(chains, measure) / sum(chains.values()) if chains else math.nan


@measure(limits=NOT_NEGATIVE)
def long_chains_per_flow(run: Run, measure: Measure) -> float:
    """The number of chains of `length` drops or more, per flow of a class."""
    return per_flow(run, measure, _long(_chains(run, measure.hops), measure))


@measure(limits=NOT_NEGATIVE, is_logarithmic=True)
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
"""Within this number of packet times a lot decides which packets are dropped. It is some three
round trips of a flow whose packets find a queue of 16 KB full."""


@measure(limits=NOT_NEGATIVE, is_logarithmic=True)
def chains_over_chance(run: Run, measure: Measure) -> float:
    """The mean length of a class's chains of consecutive drops over that of chains by lot."""
    return chains_over_lots(run, measure.hops, LOT_PACKETS)


def chains_over_lots(run: Run, hops: int | None, lot_packets: int | None) -> float:
    """How much longer a class's chains of consecutive drops are than chains by lot.

    A chain is of one input port. The lot keeps how many packets the port loses in each
    `lot_packets` packet times, or in the whole run if that is None, and says which
    (outcast/analysis/measure/blackout.py). NaN if no packet of the class is dropped.
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
        observed += chains(lost)
        by_lot += chains_by_lot(lost, blocks, seed=0)
    # As many drops are in fewer chains if the chains are longer.
    return by_lot / observed if observed else math.nan


@measure(limits=NOT_NEGATIVE, is_logarithmic=True)
def loss_ratio(run: Run, _measure: Measure) -> float:
    """The loss rate of the port of the class with the fewest hops over that of the other ports.

    Where one side lost nothing, it counts as if it had lost half a packet.
    """
    drops = run.summary.drops
    least = min((port.hops for port in drops.values() if port.hops), default=None)
    nearest = [name for name, port in drops.items() if port.hops == least]
    packets = run.scan("packets")
    is_near = pl.col("ingress").cast(pl.String).is_in(nearest)
    counts = packets.group_by(is_near).agg(_LOST.sum().cast(pl.Float64), pl.len()).collect()
    rates = {side: max(lost, 0.5) / packets for side, lost, packets in counts.rows()}
    is_known = len(rates) == 2 and counts["verdict"].sum() > 0
    return rates[True] / rates[False] if is_known else math.nan


def dense_blackouts(run: Run) -> pl.DataFrame:
    """Chains of drops of one input while others got through, the most drops first.

    Only dense ones (outcast/analysis/measure/blackout.py).
    """
    return (
        run.table("blackouts")
        .filter(is_blackout(), is_dense(run.frame_ns))
        .with_columns(pl.col("ingress").cast(pl.String))
        .sort("drops", "t_start", descending=[True, False])
    )


@measure(limits=NOT_NEGATIVE)
def longest_blackout(run: Run, measure: Measure) -> float:
    """The drops of the longest dense blackout; only of a class's ports if a class is named."""
    blackouts = dense_blackouts(run)
    if measure.hops is not None:
        ports = [name for name, port in run.summary.drops.items() if measure.hops in port.hops]
        blackouts = blackouts.filter(pl.col("ingress").is_in(ports))
    return float(blackouts["drops"][0]) if blackouts.height else 0.0


@measure(limits=NOT_NEGATIVE)
def longest_chain(run: Run, _measure: Measure) -> float:
    """The most consecutive packets that one input port lost."""
    return float(max((port.longest_chain for port in run.summary.drops.values()), default=0))


@measure(limits=NOT_NEGATIVE)
def closest_drops(run: Run, _measure: Measure) -> float:
    """The fewest packets of one input port that got through between two of its drops."""
    packets = run.table("packets").sort("t_in")
    numbered = packets.with_columns(number=pl.col("t_in").cum_count().over("ingress"))
    drops = numbered.filter(verdict="dropped")
    least = drops.select(pl.col("number").diff().over("ingress").min()).item()
    return math.nan if least is None else float(least) - 1


@measure(limits=NOT_NEGATIVE)
def mean_queue_bytes(run: Run, _measure: Measure) -> float:
    """The mean of the queue that arrivals find, in bytes."""
    mean = run.table("packets")["queue_bytes"].mean()
    return float(mean) if isinstance(mean, float) else math.nan


@measure(limits=NOT_NEGATIVE)
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
