"""Topologies in the guest, at 1 Gbps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.virtual.test_run import manifest_of, run

SHORT = ("duration=100ms", "analysis.windows=[100ms]")


@pytest.mark.parametrize(
    ("config", "classes", "inputs"),
    [
        ("p-ports-vl2", {"2": 3, "4": 4, "6": 8}, 4),
        ("t12-2-4-26", {"2": 2, "4": 4, "6": 26}, 2),
    ],
)
def test_many_to_one(config: str, classes: dict[str, int], inputs: int, tmp_path: Path) -> None:
    summary = run(config, tmp_path / "run", *SHORT)
    assert {hops: each["flows"] for hops, each in summary["classes"].items()} == classes
    assert summary["total_goodput_bps"] > 0.8e9
    (bottleneck,) = manifest_of(tmp_path / "run")["bottlenecks"]
    assert len(bottleneck["ingress"]) == inputs


def test_flows_of_several_receivers_are_each_measured_once(tmp_path: Path) -> None:
    """Two flows with links of their own: each has one to itself, beside the studied queue."""
    summary = run(
        *("fig3c", tmp_path / "run", *SHORT, "topology={kind: vl2}"),
        "flows=[{from: 4-hop}, {from: [h0_3, h1_3], to: [h3_3, h2_5]}]",
        "links={rate: 1gbit, delay: 5us, layers: {edge-aggregation: {rate: 10gbit}}}",
    )
    manifest = manifest_of(tmp_path / "run")
    assert len(manifest["bottlenecks"]) == 3
    assert summary["classes"]["6"]["min_goodput_bps"] > 0.8e9
    assert 0.8e9 < 4 * summary["classes"]["4"]["mean_goodput_bps"] < 1e9
