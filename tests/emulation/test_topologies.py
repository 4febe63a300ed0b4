"""Topologies, links by layer and queues by port, on this kernel."""

from pathlib import Path
from typing import Any

from tests import guest_runs

EXAMPLES = Path(__file__).parents[2] / "configs" / "examples"


def run(config: str | Path, target: Path, *settings: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A run's summary, which has to be trusted, and its manifest."""
    summary = guest_runs.realtime(config, target, *settings)
    return summary, guest_runs.manifest_of(target)


def settings_of(manifest: dict[str, Any], port: str) -> dict[str, Any]:
    """The settings that were read back from one port."""
    effective = manifest["effective"]
    (group,) = [
        name
        for name, ports in effective.items()
        if name.startswith("ports.") and name.count(".") == 1 and port in ports.split()
    ]
    return {
        name.removeprefix(f"{group}."): value
        for name, value in effective.items()
        if name.startswith(f"{group}.")
    }


def test_over_subscription_limits_and_every_port_is_read_back(tmp_path):
    """Twelve flows share one link of 20 Mbps. Payload is 1448 of 1538 bytes."""
    summary, manifest = run(
        *("fattree-12", tmp_path / "run", "duration=2s", "analysis.windows=[1s]"),
        *("links.layers={edge-aggregation: {rate: 20mbit}}", "flows=[{from: 6-hop}]"),
        "queues=[{at: aggregation, queue: {kind: pfifo, limit: 20 packets}}]",
    )
    limit_bps = 20e6 * 1448 / 1538
    assert 0 < summary["total_goodput_bps"] <= 1.01 * limit_bps
    assert manifest["bottlenecks"][0]["switch"].startswith("a0_")
    assert manifest["bottlenecks"][0]["queue"]["limit_packets"] == 20
    down = settings_of(manifest, manifest["bottlenecks"][0]["egress"])
    assert (down["rate_bps"], down["qdisc 3:"]) == (20_000_000, "pfifo")
    receivers = settings_of(manifest, "e0_0-eth1")
    assert (down["overhead_bytes"], down["least_bytes"]) == (24, 84)
    assert (receivers["rate_bps"], receivers["qdisc 3:"]) == (100_000_000, "bfifo")
    uplink = settings_of(manifest, "e1_0-eth3")
    assert (uplink["rate_bps"], uplink["qdisc 3:"]) == (20_000_000, "bfifo")
    host = settings_of(manifest, "h3_1_3-eth0")
    assert (host["rate_bps"], host["limit_packets"]) == (100_000_000, 1000)


def test_a_host_with_two_links_sends_by_both(tmp_path):
    config = Path(__file__).parents[2] / "configs" / "examples" / "two-links.yaml"
    summary, _ = run(
        *(config, tmp_path / "run", "duration=2s"),
        "flows=[{name: one, from: phone, to: server}, {name: two, from: cell, to: server}]",
        "links={rate: 100mbit, overrides: [{between: [s1, s3], rate: 20mbit}, "
        "{between: [s2, s3], rate: 10mbit}]}",
    )
    groups = summary["groups"]["name"]
    for name, rate_bps in (("one", 20e6), ("two", 10e6)):
        limit_bps = rate_bps * 1448 / 1538
        assert 0.5 * limit_bps < groups[name]["mean_goodput_bps"] <= 1.01 * limit_bps


def test_routers_forward_between_subnets(tmp_path):
    """Also with IPv6, and what is for h1 comes back by another router."""
    more = ["duration=500ms", "analysis.windows=[]", "topology.args={delay: null, bw: 10}"]
    more += ["addressing=both", "probes=[]", "capture.ports=all"]
    summary, manifest = run(EXAMPLES / "routed.yaml", tmp_path / "run", *more)
    assert manifest["bottlenecks"][0]["egress"] == "r1-eth1"
    assert settings_of(manifest, "r1-eth1")["rate_bps"] == 10_000_000
    counted = summary["capture"]
    assert counted["inferred_drops"] == counted["qdisc_drops"]
    back = tmp_path / "run" / "captures" / "r3-eth1.out.pcap"
    assert back.stat().st_size > 24
