"""Chains of consecutive drops, and the blackouts among them (the paper's section 4.1, figure 11).

A chain is a maximal run of packets of one input port to one output that were all dropped, with no
packet of that port forwarded in between. It is a blackout of that port if packets of other ports
got through meanwhile. Packets that take no part in the join count too. An end of the interval
divides a chain into two.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from outcast.analysis.join.join import Joined
from outcast.analysis.machine_code import I8, I32, I64, Array, Bool, compiled

if TYPE_CHECKING:
    import polars as pl


DENSE_PACKETS = 4
"""A blackout is dense if its drops are on average at most this many packet times apart."""


def is_blackout() -> pl.Expr:
    """For rows of blackouts.parquet, whether packets of other ports got through meanwhile."""
    import polars as pl

    return pl.col("others_through") > 0


def is_dense(packet_ns: int) -> pl.Expr:
    """For rows of blackouts.parquet, whether the drops are at most DENSE_PACKETS apart on average.

    The timeouts of a lone flow leave chains of few drops that last for many round trips, which the
    papers do not call blackouts.
    """
    # A join does without polars.
    import polars as pl

    lasts_ns = pl.col("t_end") - pl.col("t_start")
    return lasts_ns <= (pl.col("drops") - 1) * DENSE_PACKETS * packet_ns


@dataclass(frozen=True, slots=True)
class Chains:
    """Chains of drops in the order of their beginning; arrays with one element per chain.

    `others_through` counts forwarded packets to the same output that arrived from t_start to t_end:
    of other ports, or for a flow's chain of other flows; -1 if unknown. `longest_gap_ns` is the
    longest time between two successive drops, and `before_gap` the number of drops before it; 0
    and 1 for a single drop. The gap shows where retransmissions after a timeout extend a chain.
    """

    ingress: I8
    egress: I8
    first: I32
    last: I32
    t_start_ns: I64
    t_end_ns: I64
    drops: I32
    flows: I32
    others_through: I32
    longest_gap_ns: I64
    before_gap: I32

    def __len__(self) -> int:
        return self.drops.size

    @property
    def is_blackout(self) -> Bool:
        return self.others_through > 0

    def only(self, mine: Bool) -> Chains:
        return Chains(*(getattr(self, field.name)[mine] for field in fields(self)))


@compiled
def _find(
    stamp_ns: I64,
    verdict: I8,
    group: I32,
    port: I8,
    egress: I8,
    flow: I32,
    groups: int,
    ports: int,
    outputs: int,
    flows: int,
) -> tuple[I32, I32, I32, I32, I32, I64, I32]:
    """The first and last packet of each chain of a group, and what follows `last` in Chains.

    During a chain no packet of its own group gets through, so packets that do belong to others.
    """
    dropped = (verdict == 1).sum()
    first, last = np.empty(dropped, np.int32), np.empty(dropped, np.int32)
    drops, distinct = np.empty(dropped, np.int32), np.empty(dropped, np.int32)
    through, before_gap = np.empty(dropped, np.int32), np.empty(dropped, np.int32)
    longest_gap = np.empty(dropped, np.int64)
    chains = 0
    current = np.full(groups, -1, np.int64)
    seen = np.full((ports, flows), -1, np.int32)
    passed = np.zeros(outputs, np.int64)
    at_start = np.zeros(groups, np.int64)
    for i in range(verdict.size):
        g = group[i]
        if g < 0:
            continue
        out = egress[i]
        if verdict[i] == 1:
            chain = current[g]
            if chain < 0:
                chain = chains
                current[g] = chain
                first[chain] = i
                drops[chain] = 0
                distinct[chain] = 0
                last[chain] = i
                longest_gap[chain], before_gap[chain] = 0, 1
                at_start[g] = passed[out]
                chains += 1
            gap = stamp_ns[i] - stamp_ns[last[chain]]
            if gap > longest_gap[chain]:
                longest_gap[chain], before_gap[chain] = gap, drops[chain]
            drops[chain] += 1
            last[chain] = i
            through[chain] = passed[out] - at_start[g]
            if seen[port[i], flow[i]] != chain:
                seen[port[i], flow[i]] = chain
                distinct[chain] += 1
        else:
            current[g] = -1
            if verdict[i] == 0:
                passed[out] += 1
    return (
        *(first[:chains], last[:chains], drops[:chains], distinct[:chains], through[:chains]),
        *(longest_gap[:chains], before_gap[:chains]),
    )


def _chains(joined: Joined, group: I32, groups: int, counts: Bool | None) -> Chains:
    """The chains, by the groups of all packets of `joined.all_left`."""
    own = None if joined.whole is None else joined.whole.own
    is_known = np.array([joined.shows_content(output) for output in range(len(joined.outputs))])
    joined = joined.all_left
    arrivals = joined.arrivals
    if counts is not None:
        parts = _parts(counts)
        if own is not None:
            parts = np.append(0, parts)[np.searchsorted(own, np.arange(group.size), "right")]
        group = np.where(group < 0, -1, 3 * group + parts).astype(np.int32)
        groups *= 3
    first, last, drops, distinct, through, longest_gap_ns, before_gap = _find(
        arrivals.stamp_ns,
        joined.verdict,
        group,
        arrivals.port,
        joined.egress,
        arrivals.flow,
        groups,
        len(joined.inputs),
        len(joined.outputs),
        len(joined.flows),
    )
    stamps = arrivals.stamp_ns
    through[(through == 0) & ~is_known[joined.egress[first]]] = -1
    return Chains(
        ingress=arrivals.port[first],
        egress=joined.egress[first],
        # Only packets that take part are known to be dropped.
        first=first if own is None else np.searchsorted(own, first).astype(np.int32),
        last=last if own is None else np.searchsorted(own, last).astype(np.int32),
        t_start_ns=stamps[first],
        t_end_ns=stamps[last],
        drops=drops,
        flows=distinct,
        others_through=through,
        longest_gap_ns=longest_gap_ns,
        before_gap=before_gap,
    )


def _parts(counts: Bool) -> Array:
    """For each arrival 0 before the interval, 1 in it and 2 after it."""
    before = np.arange(counts.size) < counts.argmax() if counts.any() else True
    return np.where(counts, 1, np.where(before, 0, 2))


def port_chains(joined: Joined, counts: Bool | None = None) -> Chains:
    """Chains per input port and output. A packet whose output is unknown is in no chain.

    `counts` says which arrivals lie in the interval; None takes all.
    """
    full, outputs = joined.all_left, len(joined.outputs)
    group = full.arrivals.port.astype(np.int32) * outputs + full.egress
    group[full.egress < 0] = -1
    return _chains(joined, group, len(full.inputs) * outputs, counts)


def flow_chains(joined: Joined, counts: Bool | None = None) -> Chains:
    """Chains per flow and output, of consecutive packets that were dropped; see `port_chains`."""
    full, outputs = joined.all_left, len(joined.outputs)
    group = full.arrivals.flow * outputs + full.egress
    group[full.egress < 0] = -1
    return _chains(joined, group, len(full.flows) * outputs, counts)


def length_counts(drops: Array) -> dict[str, int]:
    """How many chains there are of each length; only lengths that occur are keys, as text."""
    lengths, counts = np.unique(drops, return_counts=True)
    return {str(a): int(b) for a, b in zip(lengths, counts, strict=True)}


LOTS = 20
"""The number of random draws. Their mean is known to about a fifth of a draw's spread."""


def chains(lost: npt.NDArray[np.bool_]) -> int:
    """How many chains of consecutive drops a series of packets has."""
    return int(np.count_nonzero(lost[1:] & ~lost[:-1])) + int(lost[0]) if lost.size else 0


def chains_by_lot(lost: npt.NDArray[np.bool_], blocks: npt.NDArray[np.int64], seed: int) -> float:
    """The mean number of chains if the dropped packets of a block are drawn at random.

    Each block keeps its number of drops, so neither a high loss rate nor congestion that comes and
    goes makes the number differ from `chains(lost)`. Packets are of one input port, in the order of
    arrival; their blocks ascend.
    """
    generator = np.random.default_rng(seed)
    counts = [chains(lost[np.lexsort((generator.random(lost.size), blocks))]) for _ in range(LOTS)]
    return float(np.mean(counts))
