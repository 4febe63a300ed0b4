"""The senders' congestion windows and round trips, from samples of their sockets."""

from __future__ import annotations

import numpy as np
import polars as pl

from outcast.analysis.run_analysis import Analysis
from outcast.records.socket_samples import while_active
from outcast.records.summary import SynchronisationSummary

LEAST_SAMPLES = 10


def counted(analysis: Analysis) -> pl.DataFrame:
    """The samples of the main interval, each while its flow was active; the run has samples."""
    assert analysis.sockets is not None
    samples = while_active(analysis.sockets, analysis.manifest.flows)
    return samples.filter(analysis.interval.has(samples["t"].to_numpy()))


def synchronisation(samples: pl.DataFrame) -> SynchronisationSummary | None:
    """Pearson's correlation of each two flows' windows, over the times at which all were sampled.

    It is 1 if windows grow and shrink together, and 0 if they are independent.

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
    return SynchronisationSummary(
        flows=windows.shape[1],
        samples=wide.height,
        mean=round(float(correlations.mean()), 6),
        min=round(float(correlations.min()), 6),
        max=round(float(correlations.max()), 6),
    )
