"""The senders' congestion windows and round trips, from the samples of their sockets."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import polars as pl

from outcast.analysis.measure.queue import Spread, spread
from outcast.analysis.run_analysis import Interval

LEAST_SAMPLES = 10


@dataclass(frozen=True, slots=True)
class Synchronisation:
    """How alike congestion windows move: Pearson's correlation of each two flows' windows.

    1: all grow and shrink together; 0: independently of each other.
    """

    flows: int
    samples: int
    mean: float
    min: float
    max: float


def during(sockets: pl.DataFrame, interval: Interval) -> pl.DataFrame:
    """The samples of an interval of the run."""
    return sockets.filter(pl.col("t").is_between(interval.start_ns, interval.end_ns, closed="left"))


def synchronisation(samples: pl.DataFrame) -> Synchronisation | None:
    """Over the times at which all flows were sampled; None where these are fewer than
    LEAST_SAMPLES, or where fewer than two flows' windows ever changed.
    """
    wide = samples.pivot("flow", index="t", values="cwnd").drop_nulls()
    if wide.height < LEAST_SAMPLES:
        return None
    windows = wide.drop("t").to_numpy().astype(float)
    windows = windows[:, windows.std(axis=0) > 0]
    if windows.shape[1] < 2:
        return None
    each = np.corrcoef(windows, rowvar=False)[np.triu_indices(windows.shape[1], 1)]
    return Synchronisation(
        flows=windows.shape[1],
        samples=wide.height,
        mean=round(float(each.mean()), 6),
        min=round(float(each.min()), 6),
        max=round(float(each.max()), 6),
    )


def sampled_spread(samples: pl.DataFrame, flows: Collection[int], column: str) -> Spread | None:
    """The distribution of a column over the samples of these flows; None where there is none."""
    values = samples.filter(pl.col("flow").is_in(list(flows)) & (pl.col(column) > 0))[column]
    if not len(values):
        return None
    return spread(values.to_numpy().astype(np.int64), np.ones(len(values), np.int64))


def last_total(sockets: pl.DataFrame, flows: Collection[int], column: str) -> int | None:
    """The sum over these flows of what a counter last showed; None where the kernel has none."""
    last = sockets.filter(pl.col("flow").is_in(list(flows))).group_by("flow").agg(pl.last(column))
    if not last.height or last[column].null_count():
        return None
    return int(last[column].sum())
