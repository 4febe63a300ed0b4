"""Round trips of probes: latency under load, as a host sees it."""

from __future__ import annotations

import numpy as np
import polars as pl

from outcast.analysis.measure.spreads import in_ms
from outcast.analysis.run_analysis import Analysis
from outcast.records.probes import read_times
from outcast.records.summary import ProbeSummary


def probe_table(analysis: Analysis) -> pl.DataFrame | None:
    """One row per packet of a probe, in the order of sending; None without probes.

    `t` is when it was sent. `rtt_ns` is null where no answer came. Raises InputError.
    """
    manifest = analysis.manifest
    if not manifest.probes:
        return None
    t_start_ns = manifest.traffic.t_start_ns
    frames = []
    for record in manifest.probes:
        times = [*read_times(analysis.directory.flows, record)]
        frames.append(
            pl.DataFrame(
                {
                    "packet": np.arange(len(times), dtype=np.int32),
                    "t": [sent_ns - t_start_ns for sent_ns, _ in times],
                    "rtt_ns": [end_ns and end_ns - sent_ns for sent_ns, end_ns in times],
                },
                schema={"packet": pl.Int32, "t": pl.Int64, "rtt_ns": pl.Int64},
            ).select(
                pl.lit(record.probe, pl.Int32).alias("probe"),
                *(pl.lit(getattr(record, name)).alias(name) for name in ("kind", "src", "dst")),
                pl.all(),
            )
        )
    return pl.concat(frames)


def probe_summary(analysis: Analysis) -> dict[str, ProbeSummary] | None:
    """Every probe's percentiles in the main interval, by its number; None without probes."""
    table = probe_table(analysis)
    if table is None:
        return None
    if not analysis.is_whole:
        table = table.filter(analysis.interval.has(table["t"].to_numpy()))
    return {
        str(record.probe): ProbeSummary(
            kind=record.kind,
            src=record.src,
            dst=record.dst,
            dscp=record.dscp,
            payload_bytes=record.payload_bytes,
            every_ms=record.every_ns / 1e6,
            sent=mine.len(),
            lost=mine.null_count(),
            base_rtt_ms=record.base_rtt_ns / 1e6,
            rtt_ms=in_ms(mine.drop_nulls().to_numpy()),
        )
        for record in analysis.manifest.probes
        for mine in [table.filter(pl.col("probe") == record.probe)["rtt_ns"]]
    }
