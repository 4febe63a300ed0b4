"""Routes that need Open vSwitch's kernel datapath: each path is tried, each link is counted."""

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.guest_runs import manifest_of
from tests.virtual.test_run import SHORT, run


def ports_on(path: list[str], links: pl.DataFrame) -> list[str]:
    """The interfaces by which a packet on a path leaves."""
    names = {(row["node"], row["neighbour"]): row["port"] for row in links.iter_rows(named=True)}
    return [names[hop] for hop in pairwise(path)]


def require_links(target: Path) -> dict[str, Any]:
    """Checks that only the links on the flows' paths carried something."""
    manifest = manifest_of(target)
    links = pl.read_parquet(target / "links.parquet")
    planned = {
        port
        for flow in manifest["flows"]
        for path in (flow["path"], flow["return_path"])
        for port in ports_on(path, links)
    }
    assert planned == set(links.filter(pl.col("packets") > 0)["port"])
    return manifest


@pytest.mark.parametrize("core", ["destination", "random"])
def test_equal_length(core, tmp_path):
    target = tmp_path / "run"
    config = "p16-equal-length" if core == "destination" else "p16-equal-length-random"
    summary = run(config, target, *SHORT)
    manifest = require_links(target)
    assert {len(flow["path"]) - 1 for flow in manifest["flows"]} == {6}
    assert {name: each["flows"] for name, each in summary["classes"].items()} == {"2": 1, "6": 12}
    flows = pl.read_parquet(target / "flows.parquet")
    assert set(flows["path_links"]) == {6}
    cores = {flow["path"][3] for flow in manifest["flows"]}
    if core == "destination":
        assert len(cores) == 1
        # At the core switch, which is then the bottleneck, back by the port by which it came in.
        assert manifest["bottlenecks"][0]["egress"] in manifest["bottlenecks"][0]["ingress"]
    else:
        assert len(cores) > 1
        assert manifest["effective"]["routing.openflow"] == "OpenFlow15"


def test_a_core_switch_for_each_packet(tmp_path):
    target = tmp_path / "run"
    summary = run("p16-equal-length-packet", target, *SHORT)
    manifest = manifest_of(target)
    links = pl.read_parquet(target / "links.parquet")
    assert set(links.filter(pl.col("packets") > 0)["node"]) >= {"c0_0", "c0_1", "c1_0", "c1_1"}
    sent = dict(zip(links["port"], links["packets"] + links["lost"], strict=True))
    for ports in manifest["effective"]["routing.split"].values():
        counts = [sent[port] for port in ports]
        assert max(abs(2 * count - sum(counts)) for count in counts) < 5 * sum(counts) ** 0.5
    # The lone sender's packets come in by both ports, and one overtakes another.
    packets = pl.read_parquet(target / "packets.parquet").filter(pl.col("flow") == 0)
    assert packets["ingress"].n_unique() == 2
    assert summary["capture"]["unmatched"] == 0
    flows = pl.read_parquet(target / "flows.parquet")
    assert (flows["retransmissions_seen"] <= flows["retransmits"]).all()


def test_hashed(tmp_path):
    target = tmp_path / "run"
    run("w6-hashed", target, *SHORT)
    manifest = require_links(target)
    split = manifest["effective"]["routing.split"]
    links = pl.read_parquet(target / "links.parquet")
    planned = dict(zip(links["port"], links["flows"], strict=True))
    assert split
    assert all(planned[port] >= count for ports in split.values() for port, count in ports.items())
    log = (target / "log.txt").read_text()
    assert json.dumps({"event": "split", "flows": split}) in log


def test_outputs_that_share_a_receiver(tmp_path):
    """Each of four outputs towards one receiver counts the drops of its own packets alone."""
    config = tmp_path / "parallel.yaml"
    shutil.copy(Path(__file__).parents[1] / "physics/dumbbell.py", tmp_path)
    config.write_text(
        """
name: parallel
topology: {kind: file, path: dumbbell.py, topo: parallel}
links:
  rate: 10mbit
  delay: 1ms
  overrides: [{between: [l1, s1], rate: 1gbit}, {between: [s2, r1], rate: 1gbit}]
queue: {kind: pfifo, limit: 20 packets}
routing: {kind: hashed}
flows: [{from: l1, to: r1, per_host: 12}]
duration: 500ms
"""
    )
    target = tmp_path / "run"
    run(config, target)
    manifest = manifest_of(target)
    assert {port["ingress"][0] for port in manifest["bottlenecks"]} == {"s1-eth5"}
    assert len(manifest["bottlenecks"]) == 4
    assert pl.read_parquet(target / "flows.parquet")["dropped"].sum() > 0
