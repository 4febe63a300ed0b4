"""Probes on this kernel, in real time."""

from tests import guest_runs


def test_probes_are_answered_beside_flows(tmp_path):
    summary = guest_runs.realtime(
        *("linear-12", tmp_path / "run", "duration=1500ms", "analysis={}", "topology.rivals=3"),
        *("flows.1.hosts=2", "probes=[{from: h3, to: h1}, {from: h4, to: h1, kind: udp}]"),
    )
    for part in summary["probes"].values():
        assert part["sent"] == 150
        assert part["lost"] < 150
        # No packet is faster than its frames at 100 Mbps, less the shapers' bursts.
        assert 0 < part["rtt_ms"]["p50"] <= part["rtt_ms"]["p99"] <= part["rtt_ms"]["max"]
