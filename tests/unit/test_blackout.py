"""Chains of drops: by hand, and against a slow count."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np

from outcast.analysis.capture.pcap import read_capture, read_captures
from outcast.analysis.join.join import Joined, JoinOptions, Verdict, join
from outcast.analysis.measure.blackout import flow_chains, length_counts, port_chains
from tests.golden import model
from tests.golden.packets import P, capture


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
        (P(t_in, seq=1448 * n, ip_id=n, **who), t_out, who)  # type: ignore[arg-type]
        for n, (t_in, who, t_out) in enumerate(times)
    ]
    ports = {
        name: read_capture(
            name, capture(tmp_path / name, [packet for packet, _, w in packets if w is who])
        )
        for name, who in (("s0-eth2", lone), ("s0-eth3", rival))
    }
    left = [
        P(t_out, seq=packet.seq, ip_id=packet.ip_id, src=packet.src, sport=packet.sport)
        for packet, t_out, _ in packets
        if t_out is not None
    ]
    out = read_capture("s0-eth1", capture(tmp_path / "out", left))
    return join(list(ports.values()), [out], JoinOptions(watched_ns=(0, 10**10)))


def test_the_printed_trace(tmp_path: Path) -> None:
    joined = trace(tmp_path)
    chains = port_chains(joined)
    assert chains.ingress.tolist() == [0, 0]
    assert chains.drops.tolist() == [4, 1]
    assert chains.t_start_ns.tolist() == [82_843_000, 84_100_000]
    assert chains.t_end_ns.tolist() == [83_174_000, 84_100_000]
    assert chains.flows.tolist() == [1, 1]
    assert chains.others_through.tolist() == [3, 0]
    assert length_counts(chains.drops) == {1: 1, 4: 1}


def test_a_packet_of_unknown_fate_did_not_get_through(tmp_path: Path) -> None:
    joined = trace(tmp_path)
    verdict = joined.verdict.copy()
    (rivals,) = np.nonzero(verdict == Verdict.FORWARDED)
    verdict[rivals[0]] = Verdict.UNKNOWN
    chains = port_chains(replace(joined, verdict=verdict))
    assert chains.drops.tolist() == [4, 1]
    assert chains.others_through.tolist() == [2, 0]


def test_flows_of_a_chain_are_counted_once(tmp_path: Path) -> None:
    senders = ["10.0.0.2", "10.0.0.3", "10.0.0.2", "10.0.0.2", "10.0.0.3"]
    came = [P(10 * n, seq=n, ip_id=n, src=src) for n, src in enumerate(senders)]
    left = [P(100, seq=4, ip_id=4, src="10.0.0.3")]
    joined = join(
        [read_capture("a", capture(tmp_path / "a", came))],
        [read_capture("out", capture(tmp_path / "out", left))],
        JoinOptions(watched_ns=(0, 10**9)),
    )
    by_port, by_flow = port_chains(joined), flow_chains(joined)
    assert (by_port.drops.tolist(), by_port.flows.tolist()) == ([4], [2])
    assert sorted(by_flow.drops.tolist()) == [1, 3]


def test_against_a_slow_count(tmp_path: Path) -> None:
    traffic = model.drop_tail(model.make_traffic(5, 20_000, (2, 3, 5)), 9000, 10**9)
    paths = model.write_captures(tmp_path, model.captures(traffic))
    captures = read_captures(list(paths.items()))
    end = int(traffic.t_in[-1]) + 10**9
    joined = join(captures[:-1], captures[-1:], JoinOptions(watched_ns=(0, end)))
    chains = port_chains(joined)
    rows = list(
        zip(
            traffic.port.tolist(),
            traffic.t_in.tolist(),
            (traffic.t_out < 0).tolist(),
            traffic.src.tolist(),
            strict=True,
        )
    )
    expected = []
    for port in range(3):
        mine = [row for row in rows if row[0] == port]
        for dropped, group in groupby(mine, key=lambda row: row[2]):
            chain = list(group)
            if dropped:
                expected.append(
                    (port, chain[0][1], chain[-1][1], len(chain), len({row[3] for row in chain}))
                )
    got = zip(
        chains.ingress.tolist(),
        chains.t_start_ns.tolist(),
        chains.t_end_ns.tolist(),
        chains.drops.tolist(),
        chains.flows.tolist(),
        strict=True,
    )
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
    assert int(chains.drops.sum()) == joined.counts.dropped == int(flow_chains(joined).drops.sum())
