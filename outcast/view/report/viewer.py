"""The blackout viewer's values: what its page holds, and the list of the longest blackouts."""

import polars as pl

from outcast.analysis import selection
from outcast.experiment.engine import properties
from outcast.records.run import Run
from outcast.view.report import timeline
from outcast.view.report.page import Table
from outcast.view.report.timeline import Timeline

LISTED = 10
_HEAD = (
    *("came in at", "number", "port", "drops", "lasts (ms)", "longest gap (ms)"),
    *("drops before it", "flows", "others through"),
)


def values(run: Run, packed: Timeline) -> dict[str, object]:
    """Returns what viewer.html shows."""
    return {
        "packed": packed,
        "near_packets": timeline.NEAR_PACKETS,
        "can_trace": properties(run.summary.engine).own_kernel,
        "longest": _longest(run),
    }


def _longest(run: Run) -> Table:
    """The longest blackouts. A row's first cell is when it came in and its number, for a link."""
    chains = selection.blackouts(run)
    lasts = pl.col("t_end") - pl.col("t_start")
    chains = chains.sort("drops", lasts, "t_start", descending=[True, False, False]).head(LISTED)
    start_ns = run.manifest.traffic.t_start_ns
    rows = [
        (
            (f"{(row['t_start'] - start_ns) / 1e6:.4f} ms", row["blackout"]),
            row["blackout"],
            run.port_label(row["ingress"]),
            row["drops"],
            f"{(row['t_end'] - row['t_start']) / 1e6:,.4f}",
            f"{row['longest_gap_ns'] / 1e6:,.4f}",
            row["before_gap"],
            row["flows"],
            f"{row['others_through']:,}",
        )
        for row in chains.iter_rows(named=True)
    ]
    return Table("The longest blackouts, by drops", _HEAD, rows, 3)
