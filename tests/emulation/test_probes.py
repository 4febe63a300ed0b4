"""Probes on this kernel, in real time."""

import json
import subprocess
import sys
from pathlib import Path

from tests.deadlines import HANG_S

CONFIGS = Path(__file__).parents[2] / "configs"
PROBES = "[{from: h3, to: h1}, {from: h4, to: h1, kind: udp}]"


def test_probes_are_answered_beside_flows(tmp_path):
    target = tmp_path / "run"
    done = subprocess.run(
        [
            *(sys.executable, "-c", "from outcast.cli import main; main()", "run"),
            *(str(CONFIGS / "linear-12.yaml"), "-o", str(target), "--set", f"probes={PROBES}"),
            *("--set", "topology.rivals=3", "--set", "duration=1500ms", "--set", "analysis={}"),
            *("--set", "flows.1.hosts=2"),
        ],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads((target / "summary.json").read_text())
    assert summary["capture"]["trusted"] is True
    for part in summary["probes"].values():
        assert part["sent"] == 150
        assert part["lost"] < 150
        # No packet is faster than its frames at 100 Mbps, less the shapers' bursts.
        assert 0 < part["rtt_ms"]["p50"] <= part["rtt_ms"]["p99"] <= part["rtt_ms"]["max"]
