"""The senders' congestion windows and round trips, from samples of their sockets."""

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
    """How much congestion windows move together: Pearson's correlation of each two flows' windows.

    A correlation is 1 if they grow and shrink together, and 0 if they are independent.
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
    """Correlates windows over the times at which all flows were sampled.

    Returns None if there are fewer than LEAST_SAMPLES such times, or if fewer than two flows'
    windows ever changed.
    """
    wide = samples.pivot("flow", index="t", values="cwnd").drop_nulls()
    if wide.height < LEAST_SAMPLES:
        return None
    windows = wide.drop("t").to_numpy().astype(float)
    windows = windows[:, windows.std(axis=0) > 0]
    if windows.shape[1] < 2:
        return None
    correlations = np.corrcoef(windows, rowvar=False)[np.triu_indices(windows.shape[1], 1)]
    return Synchronisation(
        flows=windows.shape[1],
        samples=wide.height,
        mean=round(float(correlations.mean()), 6),
        min=round(float(correlations.min()), 6),
        max=round(float(correlations.max()), 6),
    )


def sampled_spread(samples: pl.DataFrame, flows: Collection[int], column: str) -> Spread | None:
    """The distribution of a column over these flows' samples; None without a positive value."""
    values = samples.filter(pl.col("flow").is_in(list(flows)) & (pl.col(column) > 0))[column]
    if not len(values):
        return None
    return spread(values.to_numpy().astype(np.int64), np.ones(len(values), np.int64))


def last_total(sockets: pl.DataFrame, flows: Collection[int], column: str) -> int | None:
    """The sum over these flows of a counter's last value; None if the kernel lacks the counter."""
    last = sockets.filter(pl.col("flow").is_in(list(flows))).group_by("flow").agg(pl.last(column))
    if not last.height or last[column].null_count():
        return None
    return int(last[column].sum())
