"""Generated traffic and the synthetic blackout, in the guest."""

import json

import numpy as np
import polars as pl
import pytest

from outcast.records.run_directory import RunDirectory
from outcast.view import figures
from tests.guest_runs import run

SHORT = ["duration=100ms", "analysis={}"]


def test_an_incast_asks_for_the_next_blocks_when_all_have_come(tmp_path):
    target = tmp_path / "run"
    summary = run(
        *("t15-incast", target, *SHORT, "topology.hosts=9", "noise.profile=jitter"),
        "workloads=[{kind: incast, senders: 8, block: 32KB, rounds: 5}]",
    )
    found = summary["completions"]["0"]
    assert (found["flows"], found["unfinished"], found["failed"]) == (40, 0, 0)
    table = pl.read_parquet(target / "completions.parquet")
    rounds = table.group_by("round").agg(
        pl.col("t_start").min().alias("first"),
        pl.col("t_start").max().alias("last"),
        pl.col("t_end").max(),
        pl.len(),
    )
    rounds = rounds.sort("round")
    assert rounds["len"].to_list() == [8] * 5
    assert (rounds["first"] == rounds["last"]).all()
    # A round begins when the last block of the one before has come, within the receiver's calls.
    waited = rounds["first"][1:] - rounds["t_end"][:-1]
    assert (waited >= 0).all()
    assert (waited < 1_000_000).all()
    assert set(table["congestion_control"].drop_nulls()) <= {"cubic"}
    # No block comes faster than the receiver's link takes eight of them.
    lengths = rounds["t_end"] - rounds["first"]
    assert (lengths > 8 * 32768 * 8 * 0.99).all()


def test_generated_payloads_are_of_random_sizes(tmp_path):
    target = tmp_path / "run"
    summary = run(
        *("t15-incast", target, *SHORT, "topology.hosts=6", "transport.tcprand={min_payload: 200}"),
        "workloads=[{kind: incast, senders: 4, block: 64KB, rounds: 6}, "
        "{kind: shuffle, hosts: 3, bytes: 200KB}]",
        "noise.profile=exact",
    )
    assert [summary["completions"][index]["unfinished"] for index in "01"] == [0, 0]
    completed = pl.read_parquet(target / "completions.parquet")
    completed = completed.with_columns(pl.col("src").str.replace("h", "10.0.0."))
    packets = pl.read_parquet(target / "packets.parquet").filter(pl.col("payload") > 0)
    packets = packets.with_columns(pl.col("src").cast(pl.String)).sort("t_in")
    for kind in ("incast", "shuffle"):
        mine = completed.filter(kind=kind, dst="h1").select("src", "sport").unique()
        found = packets.join(mine, on=["src", "sport"])
        sizes = found.unique(["src", "sport", "seq"], keep="first")["payload"].to_numpy()
        assert len(sizes) > 400
        assert sizes.max() <= 1448
        # Only a block's last payload is what was left of it.
        blocks = completed.filter(kind=kind, dst="h1").height
        assert (sizes < 200).sum() <= blocks
        # Kolmogorov-Smirnov, at one in a thousand.
        below = [(sizes <= size).mean() - (size - 199) / 1249 for size in range(200, 1449)]
        assert max(map(abs, below)) < 1.95 / len(sizes) ** 0.5 + blocks / len(sizes)


def test_background_and_datagrams_beside_the_flows(tmp_path):
    target = tmp_path / "run"
    summary = run(
        *("fig3c", target, *SHORT),
        "workloads=[{kind: background, load: 0.05, sizes: data-mining, largest: 100KB}, "
        "{kind: constant_rate, from: 6-hop, rate: 10mbit}, "
        "{kind: shuffle, hosts: 3, bytes: 20KB, concurrent: 1}]",
    )
    background, stream, shuffle = (summary["completions"][index] for index in "012")
    assert background["flows"] > 100
    assert background["failed"] == background["not_started"] == 0
    assert background["unfinished"] < 0.2 * background["flows"]
    # On this clock nothing is late: a system call takes no time of it.
    assert background["latest_start_ms"] < 0.2
    # Twelve senders, 100 ms, 1470 B each 1.176 ms.
    assert stream["datagrams_sent"] == pytest.approx(12 * 85, abs=12)
    assert 0 <= stream["datagrams_lost"] < 0.5 * stream["datagrams_sent"]
    assert shuffle["flows"] == 6
    assert shuffle["unfinished"] == 0
    table = pl.read_parquet(target / "completions.parquet")
    # What the programs say is what the capture at the receiver's port saw.
    packets = pl.read_parquet(target / "packets.parquet")
    port = packets.filter((pl.col("dport") == 5003) & (pl.col("verdict") == "forwarded"))
    received = table.filter(kind="constant_rate")["datagrams_received"].sum()
    assert port.height == received
    # A shuffle's host sends one flow at a time.
    for _, mine in table.filter(kind="shuffle").sort("t_start").group_by("src"):
        assert (mine["t_start"][1:] >= mine["t_end"][:-1]).all()


def test_a_blackout_drops_so_many_packets_in_a_row_at_exponential_times(tmp_path):
    target = tmp_path / "run"
    summary = run(
        *("p13-blackout", target, "duration=300ms", "analysis={}", "noise.profile=jitter"),
        *("blackout.by=packets", "blackout.drops=4", "blackout.off_mean=1ms"),
        "transport={congestion_control: bic, min_rto: 2ms}",
        "flows.0.per_host=10",
    )
    capture = summary["capture"]
    periods = np.array(json.loads((target / "blackout.json").read_text())["periods"])
    assert capture["blackout_drops"] == periods[:, 2].sum()
    assert capture["inferred_drops"] == capture["blackout_drops"] + capture["qdisc_drops"]
    assert (periods[:-1, 2] == 4).all()
    # Chains in the captures: of four, but for those that a drop of the queue touched.
    chains = pl.read_parquet(target / "blackouts.parquet")
    assert len(periods) > 100
    assert (chains["drops"] == 4).sum() > 0.9 * len(periods)
    # From one chain's end to the next one's first packet: exponential, and the wait for a packet.
    gaps = np.sort(periods[1:, 0] - periods[:-1, 1]) / 1e6
    seen = np.arange(1, gaps.size + 1) / gaps.size
    # Kolmogorov-Smirnov at 0.1 %; a packet comes every 12 us or so, a hundredth of the mean.
    assert np.abs(seen - (1 - np.exp(-gaps))).max() < 1.95 / np.sqrt(gaps.size) + 0.02


def test_what_was_sent_is_what_was_received_and_all_losses(tmp_path):
    """Two of three senders share an upstream link of 1 Gbps, so packets are lost there too."""
    target = tmp_path / "run"
    summary = run(
        *("linear-12", target, "duration=50ms", "analysis={bin: 5ms}", "topology.rivals=3"),
        *("flows=[]", "links.rate=1gbit"),
        "workloads=[{kind: constant_rate, from: [h2, h3, h4], rate: 700mbit}]",
    )
    of_workload = summary["completions"]["0"]
    losses = summary["losses"]
    # Losses are of the duration. What was under way at its end is in the programs' counts alone.
    assert 0 <= of_workload["datagrams_lost"] - losses["total"] <= 10
    counted = json.loads((target / "counters.json").read_text())["links"]
    lost = {link["port"]: link["after"]["lost"]["queue"] for link in counted}
    assert sum(lost.values()) == of_workload["datagrams_lost"]
    assert lost["s1-eth1"] == summary["capture"]["qdisc_drops"]
    assert losses["elsewhere"] == losses["ports"]["s2-eth1"]["lost"]["queue"] > 500
    assert {*losses["causes"]} == {"queue"}
    received = of_workload["datagrams_sent"] - of_workload["datagrams_lost"]
    assert 0 <= received - losses["ports"]["s1-eth1"]["packets"] <= 40
    hosts = {f"h{host}-eth0" for host in (2, 3, 4)}
    sent = sum(
        link["after"]["packets"] - link["before"]["packets"]
        for link in counted
        if link["port"] in hosts
    )
    assert sent == of_workload["datagrams_sent"]
    # The captures show the same as the programs' own counts.
    streams = pl.read_parquet(target / "streams.parquet")
    assert (streams["packets"] - streams["dropped"]).to_list() == streams["received"].to_list()
    assert streams["sent"].sum() == sent
    together = of_workload["streams"]
    # What waited at the end left later. So no more than the link carries was received in a second.
    assert together["received_bps"] == pytest.approx(1e9 * 1470 / 1536, rel=2e-3)
    assert together["loss_share"] == pytest.approx(of_workload["datagrams_lost"] / sent)
    # The queue is always full, and holds 16 KB at 1 Gbps.
    assert 0.1 < together["delay_ms"]["p50"] < 0.16
    over_time = pl.read_parquet(target / "workloads.parquet")
    assert over_time["flow"].unique().sort().to_list() == [0, 1, 2]
    whole = over_time["goodput_bps"].sum() * 5e-3 / 8 / 1470
    assert received - 30 < whole <= received
    assert over_time["dropped"].sum() == pytest.approx(streams["dropped"].sum(), abs=5)
    drawn = {path.name for path in figures.draw(RunDirectory(target))}
    assert {"workloads.png", "streams.png"} <= drawn
    assert "goodput.png" not in drawn
