"""Generated traffic on this kernel, in real time."""

import polars as pl

from tests import guest_runs


def test_poisson_flows_complete(tmp_path):
    target = tmp_path / "run"
    summary = guest_runs.realtime(
        *("linear-12", target, "duration=1500ms", "analysis={}", "topology.rivals=3", "flows=[]"),
        "workloads=[{kind: poisson, load: 0.3, sizes: data-mining, largest: 1MB}]",
    )
    found = summary["completions"]["0"]
    assert found["flows"] > 50
    assert found["failed"] == 0
    table = pl.read_parquet(target / "completions.parquet")
    ended = table["fct"].drop_nulls().len()
    assert 0 < ended == found["flows"] - found["unfinished"]
    # No flow is faster than the handshake and its bytes at 100 Mbps, less the shaper's burst.
    least = (pl.col("size_bytes") - 2 * 1600).clip(0) * 80
    assert table.filter(pl.col("fct") < least).is_empty()
