"""Links one by one, in the guest: rates by direction, packets lost on the wire, jumbo frames."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from outcast.analysis.capture.pcap import read_capture
from tests import guest_runs

NETWORK = (
    *("topology.rivals=2", "links.rate=1gbit", "duration=100ms", "analysis={bin: 10ms}"),
    "flows=[{from: 2-hop, hosts: 1}, {from: 3-hop, hosts: 2}]",
)


def run(target: Path, *settings: str) -> dict[str, Any]:
    """A run's summary. The run has to be trusted, and no loss of a link counts as a drop."""
    summary = guest_runs.run("linear-12", target, *NETWORK, *settings)
    assert summary["capture"]["inferred_drops"] == summary["capture"]["qdisc_drops"]
    return summary


def link(target: Path, port: str) -> dict[str, Any]:
    return pl.read_parquet(target / "links.parquet").row(
        by_predicate=pl.col("port") == port, named=True
    )


def frame_bytes(target: Path, port: str) -> Any:
    return read_capture(port, target / f"captures/{port}.out.pcap").columns.frame_bytes


def test_each_direction_of_a_link_has_its_own_rate(tmp_path):
    target = tmp_path / "run"
    run(
        target,
        "flows=[{from: [h3, h1], to: [h1, h4]}]",
        "links.overrides=[{from: s2, to: s1, rate: 30mbit}, {from: s1, to: s2, rate: 200mbit}, "
        "{between: [h3, s2], mtu: 9000}]",
    )
    flows = pl.read_parquet(target / "flows.parquet").sort("flow")
    slow_bps, fast_bps = flows["goodput_bps"]
    # The slow direction also has the other flow's acknowledgements, which slow that one down.
    assert 0.85 < slow_bps / (30e6 * 1448 / 1538) <= 1.0
    assert 40e6 < fast_bps < 200e6 * 1448 / 1538
    slow, fast = link(target, "s2-eth1"), link(target, "s1-eth3")
    # The handshakes before the start count too.
    assert 0.2 < slow["utilisation"] <= 1.01
    # Preamble, check sequence and gap take 24 bytes' time with each frame.
    on_wire = [way["bytes"] + 24 * way["packets"] for way in (fast, slow)]
    assert fast["utilisation"] == pytest.approx(
        slow["utilisation"] * on_wire[0] / on_wire[1] * 30 / 200, rel=1e-6
    )
    # One host takes jumbo frames, and TCP agrees on what both ends take.
    assert frame_bytes(target, "s2-eth1").max() == 1514


def test_a_link_loses_its_share(tmp_path):
    loss = "links.overrides=[{between: [s1, s2], loss: 0.02}, {from: s1, to: h1, loss: 0.01}]"
    one = tmp_path / "one"
    studied = "bottleneck.port=s2-eth1"
    summary = run(one, loss, studied, "capture.ports=all")
    # The flow that does not cross the named port counts at s1-eth1, and the others only once.
    assert set(summary["queue"]) == {"s2-eth1", "s1-eth1"}
    assert summary["total_goodput_bps"] < 1e9 * 1448 / 1538
    assert min(pl.read_parquet(one / "flows.parquet")["goodput_bps"]) > 0
    for port, share in (("s2-eth1", 0.02), ("s1-eth1", 0.01)):
        sent, lost = link(one, port)["packets"], link(one, port)["lost_link"]
        assert sent > 1000
        # Five standard deviations of the binomial distribution.
        assert abs(lost - share * sent) < 5 * math.sqrt(sent * share * (1 - share))
    assert link(one, "s1-eth2")["lost_link"] == 0
    # What left by the one port and did not come in by the other is what the link lost.
    hosts = frozenset({"10.0.0.1"})
    left = len(read_capture("s2-eth1", one / "captures/s2-eth1.out.pcap", hosts).columns.flow)
    came = len(read_capture("s1-eth3", one / "captures/s1-eth3.in.pcap", hosts).columns.flow)
    counted = json.loads((one / "counters.json").read_text())["links"]
    (lost,) = (way["after"]["lost"]["link"] for way in counted if way["port"] == "s2-eth1")
    # Packets are lost after the duration too, while senders empty their buffers.
    assert left - came == lost >= link(one, "s2-eth1")["lost_link"] > 0


def arrivals(target: Path) -> tuple[np.ndarray[Any, Any], list[list[int]]]:
    """For each packet that s2 sent to s1: when it left, and when its copies came, in ns."""
    hosts = frozenset({"10.0.0.1"})
    left = read_capture("s2-eth1", target / "captures/s2-eth1.out.pcap", hosts).columns
    came = read_capture("s1-eth3", target / "captures/s1-eth3.in.pcap", hosts).columns
    at: dict[tuple[int, ...], list[int]] = {}
    for *packet, stamp_ns in zip(came.ip_id, came.seq, came.ack, came.stamp_ns, strict=True):
        at.setdefault(tuple(map(int, packet)), []).append(int(stamp_ns))
    sent = zip(left.ip_id, left.seq, left.ack, strict=True)
    return left.stamp_ns, [at.get(tuple(map(int, packet)), []) for packet in sent]


def test_bursts_of_losses_are_as_long_as_their_closed_form_says(tmp_path):
    bursts = "links.overrides=[{from: s2, to: s1, burst_loss: {p: 0.004, r: 0.5}}]"
    # Many flows, because each waits for a timeout when it has lost a window.
    many = "flows=[{from: 2-hop, hosts: 1}, {from: 3-hop, hosts: 2, per_host: 8}]"
    studied = ("bottleneck.port=s2-eth1", "capture.ports=all", "transport.min_rto=2ms")
    target = tmp_path / "run"
    run(target, bursts, many, *studied, "duration=500ms")
    _, copies = arrivals(target)
    lost = np.array([not came for came in copies])
    assert lost.size > 8_000
    # p / (p + r), whose standard deviation here is some 11 % of it, because losses come together.
    assert lost.mean() == pytest.approx(0.004 / 0.504, rel=0.4)
    begun = np.count_nonzero(lost[1:] & ~lost[:-1])
    # 1 / r; a burst's length has the standard deviation sqrt(1 - r) / r.
    assert lost.sum() / begun == pytest.approx(2, abs=4 * math.sqrt(0.5) / 0.5 / begun**0.5)
    counted = json.loads((target / "counters.json").read_text())["links"]
    assert [way["after"]["lost"]["link"] for way in counted if way["port"] == "s2-eth1"] == [
        lost.sum()
    ]
    manifest = json.loads((target / "manifest.json").read_text())
    assert manifest["effective"]["links.s2 to s1.burst_loss"] == {"p": 0.004, "r": 0.5}


def test_packets_come_late_or_twice_as_often_as_asked_for(tmp_path):
    target = tmp_path / "run"
    run(
        target,
        "links.overrides=[{from: s2, to: s1, late: {share: 0.05, by: 200us}, duplicate: 0.02}]",
        *("bottleneck.port=s2-eth1", "capture.ports=all", "duration=200ms"),
    )
    left_ns, copies = arrivals(target)
    took_ns = np.array([came[0] - int(left) for came, left in zip(copies, left_ns, strict=True)])
    late = took_ns > np.median(took_ns) + 100_000
    assert late.size > 5_000
    # Four standard deviations of the binomial distribution.
    for share, seen in ((0.05, late.mean()), (0.02, np.mean([len(came) - 1 for came in copies]))):
        assert abs(seen - share) < 4 * math.sqrt(share * (1 - share) / late.size)
    assert took_ns[late].mean() - took_ns[~late].mean() == pytest.approx(200_000, rel=0.05)
    assert link(target, "s2-eth1")["lost_link"] == 0


CUMULATIVE: dict[str, Callable[[float], float]] = {
    "uniform": lambda x: min(1, max(0, (x + 1) / 2)),
    # 4/3 of Pareto's with the exponent 3, moved by its mean of 3/2; the kernel's table ends at 4.
    "pareto": lambda x: 0 if x < -2 / 3 else 1 if x >= 4 else 1 - (0.75 * x + 1.5) ** -3,
}
"""The distributions of a random delay, in spreads from its mean."""


@pytest.mark.parametrize("distribution", CUMULATIVE)
def test_a_random_delay_has_its_distribution(tmp_path, distribution):
    """Datagrams further apart than delays differ, so that none waits for another."""
    delay = f"{{mean: 400us, spread: 100us, distribution: {distribution}}}"
    run(
        tmp_path / "run",
        f"links.overrides=[{{from: s2, to: s1, random_delay: {delay}}}]",
        *("bottleneck.port=s2-eth1", "capture.ports=all", "duration=2s"),
        *("flows=[]", "workloads=[{kind: constant_rate, from: 3-hop, rate: 5mbit}]"),
    )
    left_ns, copies = arrivals(tmp_path / "run")
    took_ns = np.sort([came[0] - int(t) for came, t in zip(copies, left_ns, strict=True) if came])
    size = took_ns.size
    assert size > 800
    # What the link takes besides: the same for all.
    least = {"uniform": -1, "pareto": -2 / 3}[distribution]
    in_spreads = (took_ns - took_ns.mean()) / 100_000
    expected = np.array([CUMULATIVE[distribution](x) for x in in_spreads])
    # Kolmogorov's distance at 1 %; the kernel's table and the mean shift it by less than 0.02.
    distance = np.abs(expected - (np.arange(size) + 0.5) / size).max()
    assert distance < 1.63 / math.sqrt(size) + 0.02
    assert in_spreads.min() > least - 0.3
    whole = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert whole["effective"]["links.s2 to s1.random_delay"]["distribution"] == distribution


def test_a_random_delay_keeps_packets_in_order(tmp_path):
    """Unless it is to let them overtake, which the test of what was sent once needs."""
    delay = "{mean: 400us, spread: 200us, in_order: true}"
    run(
        tmp_path / "run",
        f"links.overrides=[{{from: s2, to: s1, random_delay: {delay}}}]",
        *("bottleneck.port=s2-eth1", "capture.ports=all", "duration=100ms"),
    )
    _, copies = arrivals(tmp_path / "run")
    assert not (np.diff([came[0] for came in copies if came]) < 0).any()


def test_what_a_link_duplicates_or_lets_overtake_was_sent_once(tmp_path):
    """Before the studied queue, whose inputs see packets in another order than their sender."""
    delay = "{mean: 4ms, spread: 2ms, distribution: normal, in_order: false}"
    run(
        tmp_path / "run",
        f"links.overrides=[{{from: h2, to: s1, random_delay: {delay}}}, "
        "{from: h4, to: s2, duplicate: 0.1}]",
        *("queue={kind: pfifo, limit: 500 packets}", "addressing=ipv6"),
        *("links.rate=100mbit", "duration=500ms"),
    )
    flows = pl.read_parquet(tmp_path / "run" / "flows.parquet")
    seen, counted = flows["retransmissions_seen"], flows["retransmits"]
    assert (abs(seen - counted) <= 0.02 * flows["packets"]).all(), (seen, counted)


def test_a_policer_drops_what_finds_no_tokens(tmp_path):
    """When it changes, it begins with a full bucket."""
    target = tmp_path / "run"
    run(
        target,
        "links.overrides=[{from: s2, to: s1, policer: {rate: 100mbit, burst: 32KB}}]",
        "events=[{at: 50ms, from: s2, to: s1, policer: {rate: 20mbit, burst: 10000B}}]",
        "flows=[{from: 3-hop, hosts: 2, per_host: 4}]",
        *("bottleneck.port=s2-eth1", "capture.ports=all", "transport.min_rto=2ms"),
    )
    manifest = json.loads((target / "manifest.json").read_text())
    assert manifest["effective"]["links.s2 to s1.policer"]["rate"] == 100_000_000
    (change,) = manifest["changes"]
    assert (change["what"], change["requested"]) == ("policer_bps", 20_000_000)
    assert change["shown"] == 20_000_000
    changed_ns = manifest["traffic"]["t_start_ns"] + change["applied_ns"]
    left_ns, copies = arrivals(target)
    lost = np.array([not came for came in copies])
    before, bucket = None, Bucket(100e6, 32768.0)
    dropped = []
    for at_ns, frame in zip(left_ns.tolist(), frame_bytes(target, "s2-eth1"), strict=True):
        if before is None and at_ns > changed_ns:
            before, bucket = bucket, Bucket(20e6, 10_000.0)
        dropped.append(not bucket.lets(at_ns, frame - 14))
    late = left_ns > changed_ns
    assert min(np.count_nonzero(lost[late]), np.count_nonzero(lost[~late])) > 30
    # Captures have the time of the first bit, and the policer that of the last.
    assert np.count_nonzero(lost != np.array(dropped)) < 0.02 * lost.sum()
    counted = json.loads((target / "counters.json").read_text())["links"]
    (link_lost,) = (way["after"]["lost"]["link"] for way in counted if way["port"] == "s2-eth1")
    assert link_lost == lost.sum()


class Bucket:
    """Tokens in bytes, of IP packets as act_police.c counts them (Cruz, 1991)."""

    def __init__(self, rate_bps: float, burst_bytes: float) -> None:
        self.rate_bps, self.burst_bytes = rate_bps, burst_bytes
        self.tokens, self.last_ns = burst_bytes, 0

    def lets(self, at_ns: int, packet_bytes: int) -> bool:
        grown = (at_ns - self.last_ns) * self.rate_bps / 8e9
        self.tokens, self.last_ns = min(self.burst_bytes, self.tokens + grown), at_ns
        lets = self.tokens >= packet_bytes
        self.tokens -= packet_bytes if lets else 0
        return lets


@pytest.mark.parametrize(
    ("most_bytes", "settings"),
    [
        (590, ("links.mtu=576", "links.rate=20mbit")),
        (1514, ("links.overrides=[{from: h2, to: s1, queue: {kind: htb, limit: 64KB}}]",)),
    ],
)
def test_no_frame_is_larger_than_the_links_where_hosts_send_in_units(
    tmp_path, most_bytes, settings
):
    # TCP hands over several segments at once, which the shaper of these hosts would not cut.
    target = tmp_path / "run"
    summary = run(target, "transport.offloads=true", *settings)
    for port in ("s1-eth1.out", "s1-eth2.in", "s1-eth3.in"):
        capture = read_capture(port, target / f"captures/{port}.pcap")
        assert capture.columns.frame_bytes.max() == most_bytes
    assert summary["queue"]["s1-eth1"]["capacity"]["agrees"] is not False


def test_events_change_what_happens_on_the_wire(tmp_path):
    """Late and twice from 100 ms on, losses in a row from 200 ms, and none of it from 300 ms on."""
    target = tmp_path / "run"
    where = "from: s2, to: s1"
    run(
        target,
        f"events=[{{at: 100ms, {where}, late: {{share: 0.1, by: 200us}}, duplicate: 0.05}}, "
        f"{{at: 200ms, {where}, burst_loss: {{p: 0.02, r: 0.5}}, late: none}}, "
        f"{{at: 300ms, {where}, burst_loss: none, duplicate: 0}}]",
        *("bottleneck.port=s2-eth1", "capture.ports=all", "duration=400ms"),
        "flows=[{from: 2-hop, hosts: 1}, {from: 3-hop, hosts: 2, per_host: 8}]",
        "transport.min_rto=2ms",
    )
    left_ns, copies = arrivals(target)
    manifest = json.loads((target / "manifest.json").read_text())
    start_ns = manifest["traffic"]["t_start_ns"]
    part = (left_ns - start_ns) // 100_000_000
    lost = np.array([not came for came in copies])
    twice = np.array([len(came) == 2 for came in copies])
    took_ns = np.array(
        [came[0] - int(t) if came else 0 for came, t in zip(copies, left_ns, strict=True)]
    )
    late = took_ns > np.median(took_ns) + 100_000
    found = {
        name: [what[part == number].mean() for number in range(4)]
        for name, what in (("late", late), ("twice", twice), ("lost", lost))
    }
    # Seven standard deviations of the binomial distribution, and its burst in a row: doubled.
    assert found["late"] == pytest.approx([0, 0.1, 0, 0], abs=0.04)
    assert found["twice"] == pytest.approx([0, 0.05, 0.05, 0], abs=0.03)
    assert found["lost"] == pytest.approx([0, 0, 0.02 / 0.52, 0], abs=0.03)
    assert found["late"][3] == found["lost"][3] == 0
    whats = [change["what"] for change in manifest["changes"]]
    assert whats == [
        *("late_ppm", "duplicate_ppm", "burst_loss_ppm", "late_ppm"),
        *("burst_loss_ppm", "duplicate_ppm"),
    ]
