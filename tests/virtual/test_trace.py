"""`outcast trace` in the guest: the same run with its events, exact to the nanosecond."""

import polars as pl
import pytest

import outcast
from tests import guest_runs

SMALL = """
name: small
topology: {kind: linear, rivals: 2}
links: {rate: 100mbit, delay: 50us}
queue: {kind: tbf, limit: 16KB}
transport: {congestion_control: cubic, min_rto: 10ms}
flows: [{from: 2-hop}, {from: 3-hop}]
duration: 100ms
analysis: {}
"""


@pytest.fixture(scope="module")
def traced(tmp_path_factory) -> outcast.KernelTrace:
    """A run without events, and what `outcast trace` made of it."""
    folder = tmp_path_factory.mktemp("trace")
    (folder / "small.yaml").write_text(SMALL)
    guest_runs.run(folder / "small.yaml", folder / "run")
    assert not (folder / "run" / "trace").exists()
    return outcast.trace(
        folder / "run",
        ["qdisc:qdisc_dequeue", "net:netif_receive_skb", "skb:kfree_skb", "tcp:tcp_probe"],
    )


def test_the_run_made_again_is_the_same_run(traced):
    assert traced.captures == len(traced.run.manifest.captures) > 0
    assert min(traced.events.values()) > 0


def test_events_are_at_the_captures_nanosecond(traced):
    run = traced.run
    t_start_ns = run.manifest.traffic.t_start_ns
    packets = run.table("packets", whole=True).with_row_index("packet")
    packets = packets.with_columns(pl.col("ingress", "egress").cast(pl.String))
    came_in = run.table("trace/netif_receive_skb").join(packets, on="packet")
    came_in = came_in.filter(pl.col("port") == pl.col("ingress"))
    assert sorted(came_in["packet"]) == packets["packet"].to_list()
    assert (came_in["t_ns"] + t_start_ns - came_in["t_in"]).unique().to_list() == [0]
    left = run.table("trace/qdisc_dequeue").join(packets, on="packet")
    left = left.filter(pl.col("port") == pl.col("egress"))
    forwarded = packets.filter(pl.col("verdict") == "forwarded")
    assert sorted(left["packet"].unique()) == forwarded["packet"].to_list()
    assert (left["t_ns"] + t_start_ns - left["t_out"]).unique().to_list() == [0]


def test_every_drop_has_its_reason(traced):
    dropped = (
        traced.run.table("packets", whole=True).with_row_index("packet").filter(verdict="dropped")
    )
    assert dropped.height > 0
    drops = traced.run.table("trace/kfree_skb").filter(pl.col("packet").is_not_null())
    assert set(dropped["packet"]) <= set(drops["packet"])
    mine = drops.filter(pl.col("packet").is_in(dropped["packet"].to_list()))
    assert set(mine["port"]) == {traced.run.manifest.bottlenecks[0].egress}
    assert mine["reason_name"].null_count() == mine["location_name"].null_count() == 0
