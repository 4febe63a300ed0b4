"""What a hop does to packets besides queueing, and what a join says of it."""

import random
from dataclasses import replace

import pytest

from outcast.analysis.join.join import Verdict
from outcast.analysis.measure import queue
from outcast.analysis.measure.by_length import lost_by_length
from outcast.api.joins import join_captures
from tests.golden.packets import P, capture, joined


def _join(folder, came, left):
    """The join of captures of an input a and an output o."""
    paths = [
        capture(folder / name, sorted(packets, key=lambda one: one.at_us))
        for name, packets in (("a", came), ("o", left))
    ]
    return join_captures({"a": paths[0]}, {"o": paths[1]}, one_clock=True)


def _of_lengths(seed, lengths, flows=1, count=400):
    """Segments of these payloads by chance, a millisecond apart, from ports 5, 6..."""
    draw = random.Random(seed)
    return [
        P(1000 * n, seq=10_000 * n, ip_id=n, payload=draw.choice(lengths), sport=5 + n % flows)
        for n in range(1, count)
    ]


def _pass(folder, came, is_lost):
    """The join of packets of which some are lost, and their data sent again in short segments."""
    gone = {one.seq: is_lost(one) for one in came}
    again = [
        replace(one, at_us=one.at_us + 45_300, ip_id=one.ip_id + 9_000, payload=40)
        for one in came
        if gone[one.seq]
    ]
    left = [one for one in came if not gone[one.seq]] + again
    return _join(folder, came + again, [replace(one, at_us=one.at_us + 20) for one in left])


def _lengths(found):
    return [line for line in found.remarks if "limit of length" in line]


@pytest.mark.parametrize("limit", [100, 700, 1400])
@pytest.mark.parametrize("flows", [1, 3])
def test_a_limit_of_length_on_the_way_is_named(limit, flows, tmp_path):
    lengths = [40, 90, 600, 650, 1300, 1380, 1420, 1448]
    came = _of_lengths(limit, lengths, flows)
    found = _pass(tmp_path, came, lambda one: one.payload > limit)
    (line,) = _lengths(found)
    passed, least = (
        66 + max(p for p in lengths if p <= limit),
        66 + min(p for p in lengths if p > limit),
    )
    lost = sum(one.payload > limit for one in came)
    assert f"frames of up to {passed:,} bytes passed, and all {lost:,} of {least:,} bytes" in line
    assert ("and 2 more flows" in line) == (flows > 1)


def test_one_segment_that_is_lost_for_ever_is_no_limit_of_length(tmp_path):
    came = _of_lengths(1, [100])
    came = [replace(p, payload=900, seq=7) if n % 5 == 0 else p for n, p in enumerate(came)]
    assert not _lengths(_pass(tmp_path, came, lambda one: one.payload == 900))


@pytest.mark.parametrize("why", ["chance", "for a while", "one longer passed", "few", "shorter"])
def test_other_losses_are_no_limit_of_length(why, tmp_path):
    draw = random.Random(why)
    came = _of_lengths(2, [100, 700, 900, 1200, 1448])
    times = [one.at_us for one in came if one.payload > 700]
    lost = {
        "chance": lambda one: draw.random() < 0.4,
        "for a while": lambda one: 50_000 < one.at_us < 90_000,
        "one longer passed": lambda one: one.payload == 1200 and one.at_us != times[9],
        "few": lambda one: one.payload > 700 and one.at_us < times[6],
        "shorter": lambda one: one.payload > 700 or draw.random() < 0.6,
    }[why]
    if why == "for a while":
        came = [p if lost(p) else replace(p, payload=min(p.payload, 700)) for p in came]
    if why == "few":
        came = [p if lost(p) else replace(p, payload=min(p.payload, 700)) for p in came]
    assert not _lengths(_pass(tmp_path, came, lost))


def test_a_queue_of_bytes_that_is_full_for_long_frames_alone_is_no_limit_of_length(tmp_path):
    """Another flow keeps it nearly full, and only short frames still fit."""
    came = [P(30 * n, seq=2_000 * n, ip_id=n, payload=1000, sport=5) for n in range(1, 9000)]
    came += [
        P(300 * n + 1, seq=2_000 * n, ip_id=n, payload=10 if n % 3 else 1300, sport=6)
        for n in range(100, 790)
    ]
    came.sort(key=lambda one: one.at_us)
    left, leaves = [], []
    for one in came:
        leaves = [(when, size) for when, size in leaves if when > one.at_us]
        size = one.payload + 66
        if sum(size for _, size in leaves) + size <= 2500:
            leaves.append(((leaves[-1][0] if leaves else one.at_us) + 0.1 * size, size))
            left.append(replace(one, at_us=leaves[-1][0]))
    found = joined(tmp_path, came, left)
    lost = found.arrivals.payload_bytes[found.verdict == Verdict.DROPPED]
    assert (lost == 1300).sum() > 200
    assert not [*lost_by_length(found, queue.replay(found))]
