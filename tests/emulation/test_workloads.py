"""Generated traffic on this kernel, in real time."""

import json
import subprocess
import sys
from pathlib import Path

import polars as pl

from tests.deadlines import HANG_S

CONFIGS = Path(__file__).parents[2] / "configs"


def test_poisson_flows_complete(tmp_path):
    target = tmp_path / "run"
    done = subprocess.run(
        [
            *(sys.executable, "-c", "from outcast.cli import main; main()", "run"),
            *(str(CONFIGS / "linear-12.yaml"), "-o", str(target), "--set", "flows=[]"),
            *("--set", "topology.rivals=3", "--set", "duration=1500ms", "--set", "analysis={}"),
            *("--set", "workloads=[{kind: poisson, load: 0.3, sizes: data-mining, largest: 1MB}]"),
        ],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads((target / "summary.json").read_text())
    assert summary["capture"]["trusted"] is True
    found = summary["completions"]["0"]
    assert found["flows"] > 50
    assert found["failed"] == 0
    table = pl.read_parquet(target / "completions.parquet")
    ended = table["fct"].drop_nulls().len()
    assert 0 < ended == found["flows"] - found["unfinished"]
    # No flow is faster than the handshake and its bytes at 100 Mbps, less the shaper's burst.
    least = (pl.col("size_bytes") - 2 * 1600).clip(0) * 80
    assert table.filter(pl.col("fct") < least).is_empty()
