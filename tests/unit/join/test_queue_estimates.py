"""Capacity, length and sojourn time of a queue, and the phase of arrivals in blackouts."""

from dataclasses import replace

import numpy as np
import pytest

from outcast.analysis.measure.blackout import port_chains
from outcast.analysis.measure.noise import contests, packet_time_ns, phases
from outcast.analysis.measure.queue import length_spread, replay, sojourn_spread, switch_latency_ns
from outcast.analysis.measure.queue_levels import Capacity, capacity, level_within
from outcast.experiment.links import FRAMINGS
from tests.golden import model
from tests.golden.packets import P, joined, joined_model


@pytest.mark.parametrize("limit", [9000, 16_384, 40_000])
def test_the_capacity_of_a_drop_tail_queue(tmp_path, limit):
    got = joined_model(tmp_path, model.drop_tail(model.make_traffic(3, 20_000), limit, 10**9))
    found = capacity(got, replay(got), 0)
    assert found.unit == "bytes"
    assert found.confidence > 0.99
    assert found.holds(limit, packet=1)
    assert found.below - found.at_least < 1514
    assert not found.holds(limit + 3000, packet=1)


def test_a_tag_that_a_switch_takes_away_leaves_the_level_as_it_is(tmp_path):
    got = joined_model(tmp_path, model.drop_tail(model.make_traffic(3, 20_000), 16_384, 10**9))
    frames = got.arrivals.frame_bytes + np.int32(4)
    tagged = replace(got, arrivals=replace(got.arrivals, frame_bytes=frames))
    plain, of_tagged = (level_within(one, replay(one), 0, 0, 0, 0) for one in (got, tagged))
    assert plain.holds(16_384, packet=1)
    assert of_tagged == plain


def test_a_queue_that_counts_packets_is_told_from_one_of_bytes(tmp_path):
    traffic = model.make_traffic(4, 20_000)
    rng = np.random.default_rng(4)
    traffic = replace(traffic, payload=rng.integers(0, 1448, len(traffic)))
    got = joined_model(tmp_path, model.drop_tail(traffic, 11, 10**9, count_packets=True))
    found = capacity(got, replay(got), 0)
    assert (found.unit, found.at_least, found.below) == ("packets", 11, 12)


def test_a_latency_before_the_queue_blurs_the_level(tmp_path):
    """The captures see a packet before the queue does. Shifting by the latency corrects that."""
    traffic = model.drop_tail(model.make_traffic(5, 20_000), 16_384, 10**9)
    early = replace(traffic, t_in=traffic.t_in - 30_000)
    got = joined_model(tmp_path, early)
    blurred = capacity(got, replay(got), 0)
    latency = switch_latency_ns(got, replay(got), 0)
    sharp = capacity(got, replay(got, latency), 0)
    assert latency == pytest.approx(30_300, abs=1000)
    assert sharp.confidence > max(blurred.confidence + 0.05, 0.95)
    assert sharp.holds(16_384, packet=1)


def test_without_drops_there_is_no_level(tmp_path):
    got = joined_model(
        tmp_path, model.drop_tail(model.make_traffic(6, 500, load=0.2), 10**6, 10**9)
    )
    assert capacity(got, replay(got), 0) is None


def test_length_over_time_and_sojourn(tmp_path):
    """1000 bytes from 10 to 20, 2000 from 20 to 40, 1000 from 40 to 50 µs, of 100 µs."""
    packets = [P(10, seq=1, ip_id=1, payload=934), P(20, seq=2, ip_id=2, payload=934)]
    leaving = [P(40, seq=1, ip_id=1, payload=934), P(50, seq=2, ip_id=2, payload=934)]
    got = joined(tmp_path, packets, leaving)
    spread = length_spread(replay(got), 0, 0, 100_000)
    assert (spread.mean, spread.p50, spread.p90, spread.max) == (600, 0, 2000, 2000)
    late = length_spread(replay(got), 0, 30_000, 40_000)
    assert (late.mean, late.p50) == (2000, 2000)
    stay = sojourn_spread(got, 0)
    assert (stay.mean, stay.max) == (30_000, 30_000)


def test_phases_of_a_blackout(tmp_path):
    """As in figure 9 of the paper: a packet leaves every 12 µs; B comes 2 µs later and takes its
    place, A comes 5 µs later and is lost."""
    a_in, b_in, out = [], [], []
    for n in range(40):
        leaves = 100 + 12 * n
        out.append(P(leaves, seq=n, ip_id=n, src="10.0.0.3"))
        if n >= 5:
            b_in.append(P(leaves - 60 + 2, seq=n, ip_id=n, src="10.0.0.3"))
        else:
            b_in.append(P(1 + n, seq=n, ip_id=n, src="10.0.0.3"))
        if 10 <= n < 20:
            a_in.append(P(leaves + 5, seq=n, ip_id=n, src="10.0.0.2"))
    got = joined(tmp_path, {"a": a_in, "b": b_in}, out)
    chains = port_chains(got)
    assert chains.drops.tolist() == [10]
    assert packet_time_ns(got, 0, 10**9, FRAMINGS["none"]) == 12_112
    assert packet_time_ns(got, 0, 10**9, FRAMINGS["ethernet"]) == 12_304
    assert packet_time_ns(got, 0, None, FRAMINGS["none"]) == 12_000
    found = phases(got, chains, 0, 12_000, got.arrivals.stamp_ns)
    assert set(np.round(found.phase[found.lost] * 12)) == {5}
    assert set(np.round(found.phase[~found.lost] * 12)) == {2}
    assert found.during[found.lost].all()
    assert (~found.during).any()
    share = found.share(lost=True, during=True)
    assert share[4] == 1
    assert sum(share) == 1
    # A packet that spends 5 us on the way to the queue reaches it 5 us later in the packet time.
    late = phases(got, chains, 0, 12_000, got.arrivals.stamp_ns + 5_000)
    assert set(np.round(late.phase[late.lost] * 12)) == {10}
    assert set(np.round(late.phase[~late.lost] * 12)) == {7}


def test_who_comes_second_is_lost():
    left = np.arange(0, 100, 10)
    # 8 in the first packet time, after another port's 3; then 12, before another port's 15.
    seen = contests(
        np.array([8, 12, -1]), np.array([True, False, False]), np.array([3, 15]), left, 10
    )
    assert seen.phase.tolist() == [0.8, 0.2]
    assert seen.second.tolist() == [True, False]
    assert seen.lost_share(second=True) == 1
    assert seen.lost_share(second=False) == 0
    assert contests(left, left < 0, left[:0], left, 10).lost_share(second=True) is None


@pytest.mark.parametrize(
    ("limit", "confidence", "agrees"),
    [(100, 0.99, True), (101, 0.99, False), (99, 1.0, True), (98, 1.0, False), (100, 0.55, None)],
)
def test_a_limit_agrees_within_a_packet(limit, confidence, agrees):
    assert Capacity("packets", 99, 100, confidence).holds(limit, packet=1) is agrees
