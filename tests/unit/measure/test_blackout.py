"""Chains of drops: by hand, against a slow count, against a lot, and the synthetic blackout."""

from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path

import numpy as np
import pytest

from outcast import experiment
from outcast.analysis.join.join import Joined, JoinOptions, Verdict
from outcast.analysis.measure import blackout
from outcast.analysis.measure.blackout import flow_chains, length_counts, port_chains
from outcast.emulation.network.lossy_links import blackout_on_ns
from outcast.plan.make import make_plan
from tests.golden import model
from tests.golden.packets import P, joined, joined_model


def trace(tmp_path: Path) -> Joined:
    """The printed trace of "Life's not fair": four drops in a row on one port while the other
    port's packets get through; then one that is forwarded and one drop more."""
    lone = {"src": "10.0.0.2", "sport": 53035}
    rival = {"src": "10.0.0.3", "sport": 34287}
    times = [
        (82_843, lone, None),
        (82_871, rival, 93_369),
        (82_942, lone, None),
        (82_986, rival, 93_474),
        (83_064, lone, None),
        (83_104, rival, 93_591),
        (83_174, lone, None),
        (83_297, rival, 93_705),
        (84_000, lone, 94_000),
        (84_100, lone, None),
    ]
    packets = [
        (P(t_in, seq=1448 * n, ip_id=n, **who), t_out, who)
        for n, (t_in, who, t_out) in enumerate(times)
    ]
    ports = {
        name: [packet for packet, _, w in packets if w is who]
        for name, who in (("s0-eth2", lone), ("s0-eth3", rival))
    }
    left = [
        P(t_out, seq=packet.seq, ip_id=packet.ip_id, src=packet.src, sport=packet.sport)
        for packet, t_out, _ in packets
        if t_out is not None
    ]
    return joined(tmp_path, ports, left, JoinOptions(watched_ns=(0, 10**10)))


def test_the_printed_trace(tmp_path):
    chains = port_chains(trace(tmp_path))
    assert chains.ingress.tolist() == [0, 0]
    assert chains.drops.tolist() == [4, 1]
    assert chains.t_start_ns.tolist() == [82_843_000, 84_100_000]
    assert chains.t_end_ns.tolist() == [83_174_000, 84_100_000]
    assert chains.flows.tolist() == [1, 1]
    assert chains.others_through.tolist() == [3, 0]
    assert chains.longest_gap_ns.tolist() == [122_000, 0]
    assert chains.before_gap.tolist() == [2, 1]
    assert length_counts(chains.drops) == {"1": 1, "4": 1}


def test_a_packet_of_unknown_fate_did_not_get_through(tmp_path):
    made = trace(tmp_path)
    verdict = made.verdict.copy()
    (rivals,) = np.nonzero(verdict == Verdict.FORWARDED)
    verdict[rivals[0]] = Verdict.UNKNOWN
    chains = port_chains(replace(made, verdict=verdict))
    assert chains.drops.tolist() == [4, 1]
    assert chains.others_through.tolist() == [2, 0]


def test_flows_of_a_chain_are_counted_once(tmp_path):
    senders = ["10.0.0.2", "10.0.0.3", "10.0.0.2", "10.0.0.2", "10.0.0.3"]
    came = [P(10 * n, seq=n, ip_id=n, src=src) for n, src in enumerate(senders)]
    left = [P(100, seq=4, ip_id=4, src="10.0.0.3")]
    made = joined(tmp_path, came, left, JoinOptions(watched_ns=(0, 10**9)))
    by_port, by_flow = port_chains(made), flow_chains(made)
    assert (by_port.drops.tolist(), by_port.flows.tolist()) == ([4], [2])
    assert sorted(by_flow.drops.tolist()) == [1, 3]


def test_against_a_slow_count(tmp_path):
    traffic = model.drop_tail(model.make_traffic(5, 20_000, (2, 3, 5)), 9000, 10**9)
    made = joined_model(tmp_path, traffic)
    chains = port_chains(made)
    columns = (traffic.port, traffic.t_in, traffic.t_out < 0, traffic.src)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    expected = []
    for port in range(3):
        mine = [row for row in rows if row[0] == port]
        for dropped, group in groupby(mine, key=lambda row: row[2]):
            chain = list(group)
            if dropped:
                gaps = [b[1] - a[1] for a, b in pairwise(chain)]
                longest = max(gaps, default=0)
                flows = len({row[3] for row in chain})
                before = 1 + gaps.index(longest) if longest else 1
                ends = chain[0][1], chain[-1][1]
                expected.append((port, *ends, len(chain), flows, longest, before))
    columns = (chains.ingress, chains.t_start_ns, chains.t_end_ns, chains.drops, chains.flows)
    columns += (chains.longest_gap_ns, chains.before_gap)
    got = zip(*(column.tolist() for column in columns), strict=True)
    assert sorted(got) == sorted(expected)
    assert len(expected) > 1000
    for index in range(0, len(chains), 501):
        through = [
            row
            for row in rows
            if row[0] != chains.ingress[index]
            and not row[2]
            and chains.t_start_ns[index] <= row[1] <= chains.t_end_ns[index]
        ]
        assert chains.others_through[index] == len(through)
    assert int(chains.drops.sum()) == made.counts.dropped == int(flow_chains(made).drops.sum())


LINEAR = Path(__file__).parents[3] / "configs/linear-12.yaml"


@pytest.mark.parametrize(
    ("at", "overrides", "expected_ns"),
    [
        ("s1-eth2", [], 10 * 123_040),
        ("s1-eth2", ["links.layers={edge-edge: {rate: 1gbit}}"], 10 * 123_040),
        ("s1-eth3", ["links.layers={edge-edge: {rate: 1gbit}}"], 10 * 12_304),
        ("s1-eth2", ["links.overhead=none"], 10 * 121_120),
        ("s1-eth3", ["blackout.by=packets"], 0),
    ],
)
def test_it_lasts_as_long_as_so_many_packets_on_the_link_that_they_come_by(
    at, overrides, expected_ns
):
    loaded = experiment.load(LINEAR, [f"blackout={{at: {at}, drops: 10}}", *overrides])
    assert blackout_on_ns(loaded, make_plan(loaded)) == expected_ns


def test_without_a_blackout_there_is_none():
    loaded = experiment.load(LINEAR)
    assert blackout_on_ns(loaded, make_plan(loaded)) == 0


def lost(text: str) -> np.ndarray:
    return np.array([letter == "x" for letter in text])


@pytest.mark.parametrize(
    ("packets", "count"), [("", 0), ("...", 0), ("xx", 1), ("x.x", 2), (".xx.x", 2), ("xx..xx", 2)]
)
def test_chains_are_counted(packets, count):
    assert blackout.chains(lost(packets)) == count


def test_chains_are_longer_than_by_lot_where_drops_come_together():
    dropped = np.random.default_rng(3).random(20_000) < 0.2
    blocks = np.arange(20_000) // 64
    ratio = blackout.chains_by_lot(dropped, blocks, 0) / blackout.chains(dropped)
    assert ratio == pytest.approx(1, abs=0.03)
    dropped = np.repeat(np.random.default_rng(3).random(7_000) < 0.1, 3)
    blocks = np.arange(21_000) // 64
    assert blackout.chains_by_lot(dropped, blocks, 0) / blackout.chains(dropped) > 2.5
    # Every other block loses half of its packets. The lot stays within a block.
    blocks = np.arange(20_000) // 64
    dropped = (np.random.default_rng(3).random(20_000) < 0.5) & (blocks % 2 == 0)
    ratio = blackout.chains_by_lot(dropped, blocks, 0) / blackout.chains(dropped)
    assert ratio == pytest.approx(1, abs=0.03)
    dropped = lost("....xxxx....")
    assert blackout.chains_by_lot(dropped, np.arange(12) // 4, 0) == 1
