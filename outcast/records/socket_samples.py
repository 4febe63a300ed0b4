"""Which samples of sockets count where samples are averaged."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from outcast.records.flows import FlowRecord


def while_active(samples: pl.DataFrame, flows: Sequence[FlowRecord]) -> pl.DataFrame:
    """The samples of each flow from its planned start until its last one with data.

    A socket is there before its flow starts, since it connects early, and may stay after it. Then
    it shows its last values, which are those of the handshake before the start.
    """
    starts_ns = {flow.flow: flow.start_ns for flow in flows}
    start_ns = pl.col("flow").replace_strict(starts_ns, default=None, return_dtype=pl.Int64)
    has_data = (pl.col("unacked") > 0) | (pl.col("notsent_bytes").fill_null(0) > 0)
    last_ns = pl.when(has_data).then("t").max().over("flow")
    return samples.filter(pl.col("t").is_between(start_ns, last_ns))
