"""Flows in opposite directions through studied ports: all packets share the queues."""

import polars as pl
import pytest

import outcast
from outcast.analysis.capture.pcap import read_capture

NETWORK = """
name: both-ways
topology: {kind: linear, rivals: 2}
links: {rate: 100mbit, delay: 1ms, layers: {edge-edge: {rate: 10mbit}}}
queue: {kind: tbf, limit: 20 packets}
flows: [{from: h3, to: h1}, {from: h2, to: h4}]
duration: 1s
analysis: {windows: [], bin: 10ms}
engine: virtual
"""
UNANSWERED = [
    {"kind": "constant_rate", "from": "h3", "to": "h2", "rate": "2mbit", "datagram": "1400B"}
]
PROBES = [{"from": "h4", "to": "h2", "every": "20ms", "kind": "udp"}]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"addressing": "ipv6", "workloads": UNANSWERED, "probes": PROBES},
    ],
    ids=["tcp", "udp"],
)
def test_what_hosts_without_a_flow_to_them_get_counts_too(settings, tmp_path):
    (tmp_path / "net.yaml").write_text(NETWORK, encoding="utf-8")
    run = outcast.run(
        outcast.load(tmp_path / "net.yaml", settings), tmp_path / "run", progress=False
    )
    capture = run.summary.capture
    assert capture.trusted, capture.reasons
    assert 0 < capture.inferred_drops == capture.qdisc_drops
    table = run.table("packets", whole=True).with_columns(
        pl.col("egress", "verdict").cast(pl.String)
    )
    for port in run.manifest.bottlenecks:
        output = read_capture(
            port.egress, run.directory.captures / f"{port.egress}.out.pcap", foreign=False
        )
        left = table.filter(egress=port.egress, verdict="forwarded")
        assert left.height == output.columns.flow.size
        assert left["dst"].n_unique() == 2
    # Numbers of flows are of data alone.
    data = table.filter(pl.col("flow").is_in([0, 1]))
    assert data["dst"].unique().sort().to_list() == sorted(
        flow.dst_ip for flow in run.manifest.flows
    )
    assert run.table("flows")["flow"].to_list() == [0, 1]
