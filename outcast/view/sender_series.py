"""The senders' series from the kernel's events, thinned and averaged for figures and the report.

A value holds from its row to the flow's next one, because a sender changes it only there.
"""

import numpy as np
import polars as pl

from outcast.analysis.machine_code import Array, Bool
from outcast.records.run import Run
from outcast.records.trace import FOLDER

TABLE = f"{FOLDER}/tcp"
"""`outcast trace` makes it."""


def exact(run: Run) -> bool:
    """Whether the run has its senders' series at every acknowledgement."""
    return TABLE in run.tables


def numbers(column: pl.Series) -> Array:
    """Whole numbers, with -1 where a value is missing."""
    return column.cast(pl.Int64).fill_null(-1).to_numpy()


def thin(series: pl.DataFrame, most: int) -> tuple[Bool, int]:
    """Chooses which points of the series to keep.

    Changes of the state and of ssthresh are always kept. Of n consecutive points of a flow, those
    with the least and the greatest window and number in flight are kept.

    Returns:
        For each point whether to keep it, and n; 1 if all are kept.
    """
    if series.height <= most:
        return np.ones(series.height, np.bool_), 1
    flow = series["flow"].to_numpy()
    keep = np.zeros(flow.size, np.bool_)
    for name in ("flow", "ssthresh"):
        values = numbers(series[name])
        keep[1:] |= values[1:] != values[:-1]
    keep |= series["state"].ne_missing(series["state"].shift(1)).to_numpy()
    every = max(4, -(-4 * flow.size // most))
    in_flow = np.arange(flow.size) - np.searchsorted(flow, flow)
    block = np.cumsum(in_flow % every == 0)
    for name in ("cwnd", "in_flight"):
        order = np.lexsort((numbers(series[name]), block))
        ends = np.flatnonzero(np.diff(block[order], append=-1))
        keep[order[ends]] = True
        keep[order[np.concatenate([[0], ends[:-1] + 1])]] = True
    return keep, every


def means(run: Run, column: str, bins: int) -> pl.DataFrame:
    """A column's mean over time in each bin of the run, for each flow.

    The columns are `flow`, `t` (the bin's middle in ns after the traffic's start) and `column`. A
    bin is left out if it begins before the flow's planned start or its first value then, or after
    both its planned end and its last value.
    """
    records = {record.flow: record for record in run.manifest.flows}
    series = (
        run.scan(TABLE)
        .select("flow", "t_ns", pl.col(column).cast(pl.Float64))
        .drop_nulls()
        .sort("flow", "t_ns", maintain_order=True)
        .collect()
    )
    edges = np.linspace(0, run.manifest.traffic.duration_ns, bins + 1)
    parts = []
    middle_ns = ((edges[1:] + edges[:-1]) / 2).astype(np.int64)
    for (flow,), rows in series.group_by(["flow"], maintain_order=True):
        record = records[flow]
        part = rows.filter(pl.col("t_ns") >= record.start_ns)
        if part.height:
            end_ns = record.start_ns + (record.duration_ns or 0)
            held = _means(part["t_ns"].to_numpy(), part[column].to_numpy(), edges, end_ns)
            flows = np.full(bins, flow, np.int32)
            parts.append(pl.DataFrame({"flow": flows, "t": middle_ns, column: held}))
    empty = pl.DataFrame(schema={"flow": pl.Int32, "t": pl.Int64, column: pl.Float64})
    return pl.concat([empty, *parts]).filter(pl.col(column).is_not_nan())


def _means(t: Array, value: Array, edges: Array, end: int) -> Array:
    """The mean of a step function between consecutive edges.

    It is NaN before the first step, and after both the last step and `end`.
    """
    area = np.concatenate([[0.0], np.cumsum(value[:-1] * np.diff(t))])
    until = np.interp(edges, t, area) + value[-1] * np.maximum(0, edges - t[-1])
    until[edges < t[0]] = np.nan
    means = np.diff(until) / np.diff(edges)
    means[edges[:-1] >= max(t[-1], end)] = np.nan
    return np.asarray(means)
