"""What a hop does to packets besides queueing, and what a join says of it."""

import random
from collections import deque
from dataclasses import replace

import pytest

from outcast.analysis.join.join import Verdict
from outcast.api.joins import join_captures
from outcast.errors import UntrustedError
from tests.golden.packets import P, capture


def _join(folder, came, left):
    """The join of captures of an input a and an output o."""
    paths = [
        capture(folder / name, sorted(packets, key=lambda one: one.at_us))
        for name, packets in (("a", came), ("o", left))
    ]
    return join_captures({"a": paths[0]}, {"o": paths[1]}, one_clock=True)


def _served(came, pauses):
    """What leaves at 10 Mbps, with pauses from a time and for a time in microseconds."""
    left, free_us = [], 0.0
    for one in came:
        free_us = max(free_us, one.at_us)
        for since_us, for_us in pauses:
            if since_us <= free_us < since_us + for_us:
                free_us = since_us + for_us
        left.append(replace(one, at_us=free_us))
        free_us += 0.8 * (one.payload + 66)
    return left


@pytest.mark.parametrize("load", [0.3, 0.9])
@pytest.mark.parametrize("pauses", [[], [120], [300], [150, 400, 200]])
def test_an_output_that_stood_still_is_named_and_keeps_its_rate(load, pauses, tmp_path):
    draw = random.Random(load)
    at_us, came = 0.0, []
    for n in range(1, 3000):
        at_us += draw.expovariate(load / 0.8 / 800)
        came.append(P(at_us, seq=10_000 * n, ip_id=n, payload=draw.randint(100, 1448)))
    whens = [(500_000 * (n + 1), 1_000 * ms) for n, ms in enumerate(pauses)]
    left = _served(came, whens)
    found = _join(tmp_path, came, left)
    lines = [line for line in found.remarks if "nothing left for" in line]
    assert len(lines) == bool(pauses)
    (estimate,) = found.estimates
    assert estimate.rate_bps == pytest.approx(10e6, rel=1e-3)
    if pauses:
        since_us, for_us = max(whens, key=lambda one: one[1])
        said_s = float(lines[0].split("left for ")[1].split()[0])
        assert for_us / 1e6 - 0.005 < said_s < for_us / 1e6 + 0.002
        end_us = since_us + for_us
        waited = sum(one.at_us < end_us <= gone.at_us for one, gone in zip(came, left, strict=True))
        assert f" s while {waited:,} packets waited" in lines[0]
        assert ("such pauses" in lines[0]) == (len(pauses) > 1)


def test_a_pause_explains_drops_and_no_limit_is_claimed_from_them(tmp_path):
    draw = random.Random(4)
    at_us, came = 0.0, []
    for n in range(1, 3000):
        at_us += draw.expovariate(0.9 / 0.8 / 800)
        came.append(P(at_us, seq=10_000 * n, ip_id=n, payload=draw.randint(100, 1448)))
    pause = (500_000, 300_000)
    in_pause = [one for one in came if 0 <= one.at_us - pause[0] < pause[1]]
    lost = in_pause[5:]
    again = [
        replace(one, at_us=at_us + 1000 * n, ip_id=9000 + one.ip_id)
        for n, one in enumerate(lost, 1)
    ]
    passed = sorted((*(one for one in came if one not in lost), *again), key=lambda p: p.at_us)
    found = _join(tmp_path, came + again, _served(passed, [pause]))
    assert found.joined.counts.dropped == len(lost) > 300
    (line,) = found.remarks
    assert "nothing left for" in line
    (estimate,) = found.estimates
    assert estimate.rate_bps == pytest.approx(10e6, rel=1e-3)
    assert estimate.limit_unit is None
    assert not found.drop_ranges


def test_an_output_with_nothing_to_send_does_not_stand_still(tmp_path):
    came = [P(400_000 * (n // 50) + n, seq=10_000 * n, ip_id=n) for n in range(1, 1000)]
    found = _join(tmp_path, came, _served(came, []))
    assert not [line for line in found.remarks if "nothing left for" in line]


def test_ecn_marks_that_the_hop_made_are_counted(tmp_path):
    draw = random.Random(3)
    came = [
        P(1000 * n, seq=n, ip_id=n, tos=draw.choice([0, 1, 2, 3]) | 0x28) for n in range(1, 300)
    ]
    left = [
        replace(one, at_us=one.at_us + 9, tos=one.tos | (3 if one.tos & 3 and n % 5 == 0 else 0))
        for n, one in enumerate(came)
    ]
    marked = sum(a.tos != b.tos for a, b in zip(came, left, strict=True))
    able = sum(one.tos & 3 in (1, 2) for one in came)
    (line,) = (line for line in _join(tmp_path, came, left).remarks if "ECN" in line)
    assert line.startswith(f"o: {marked:,} packets left with an ECN mark")
    assert f"of {able:,} that could be marked" in line
    assert not [line for line in _join(tmp_path, left, left).remarks if "ECN" in line]


@pytest.mark.parametrize(
    ("field", "bit", "what"),
    [
        ("checksum", 4, ""),
        ("payload", 4, ""),
        ("flags", 4, ""),
        ("ip_id", 8, " another IP id."),
        ("seq", 1 << 20, " another sequence number."),
        ("sport", 64, " another address or port."),
        ("src", 4, " another address or port."),
    ],
)
def test_a_flipped_bit_is_changed_on_the_way(field, bit, what, tmp_path):
    came = [P(1000 * n, seq=9000 * n, ip_id=n, checksum=n, payload=700) for n in range(1, 500)]
    left = [replace(one, at_us=one.at_us + 20) for one in came]
    for n in (100, 200, 300):
        flipped = "10.0.0.6" if field == "src" else getattr(left[n], field) ^ bit
        left[n] = replace(left[n], **{field: flipped})
    del left[400]
    came.append(replace(came[400], at_us=came[400].at_us + 300, ip_id=700))
    left.append(replace(came[-1], at_us=came[-1].at_us + 20))
    found = _join(tmp_path, came, left)
    (line,) = (line for line in found.remarks if "changed on the way" in line)
    said = f"o: 3 packets were changed on the way, as by a flipped bit: 3 with{what}"
    assert line.startswith(said)
    counts = found.joined.counts
    assert (counts.forwarded, counts.dropped, counts.unexplained) == (497 + 2, 1, 0)
    assert not found.drop_ranges


@pytest.mark.parametrize("why", ["another id", "no ids", "one id", "late", "another length"])
def test_other_packets_are_not_changed_ones(why, tmp_path):
    came = [P(1000 * n, seq=9000 * n, ip_id=n, checksum=n) for n in range(1, 500)]
    if why in ("no ids", "one id"):
        came = [
            replace(one, ip_id=why == "one id", seq=0, payload=100 + 2 * n)
            for n, one in enumerate(came)
        ]
    left = [replace(one, at_us=one.at_us + 20) for one in came]
    gone = left.pop(100)
    changes = {
        "another id": {"ip_id": 900},
        "late": {"at_us": gone.at_us + 90_000},
        "another length": {"payload": 700},
    }.get(why, {"payload": gone.payload + 1})
    left.append(replace(gone, checksum=7000, **changes))
    found = _join(tmp_path, came, left)
    assert not [line for line in found.remarks if "changed on the way" in line]
    assert found.joined.counts.unexplained == 1


def test_exchanged_sides_of_one_port_each_are_named(tmp_path):
    came = [P(1000 * n, seq=9000 * n, ip_id=n) for n in range(1, 500)]
    left = [replace(one, at_us=one.at_us + 20) for one in came]
    with pytest.raises(UntrustedError, match="before they came in at a"):
        _join(tmp_path, left, came)


def _managed(kind, seed, count=6000, packet_us=50.0, limit=60):
    """Packets that came in and that left an output whose queue is managed in a way."""
    draw = random.Random(seed)
    came, left, waiting = [], [], deque()
    free_us = at_us = mean = since_us = 0.0
    drops = 0
    for n in range(1, count):
        # Overload, and now and then an idle time, which shows that there is no latency.
        at_us += 20_000 if n % 1000 == 0 else draw.expovariate(1.15 / packet_us)
        one = P(round(at_us, 3), seq=n, ip_id=n & 0xFFFF, payload=0)
        came.append(one)
        while waiting and max(free_us, waiting[0].at_us) <= at_us:
            first = waiting.popleft()
            start_us = max(free_us, first.at_us)
            wait_us = start_us - first.at_us
            since_us = start_us if wait_us < 1000 else since_us
            if kind == "codel" and start_us - since_us > 10_000 / (1 + drops) ** 0.5:
                since_us, drops = start_us, drops + 1
                continue
            left.append(replace(first, at_us=round(start_us, 3)))
            free_us = start_us + packet_us
        mean += 0.02 * (len(waiting) - mean)
        chance = {"red": 0.2 * (mean > 5), "pie": 0.01 * len(waiting), "chance": 0.1}.get(kind, 0)
        if waiting and draw.random() < chance:
            continue
        if len(waiting) >= limit:
            if kind != "head":
                continue
            waiting.popleft()
        waiting.append(one)
    left += [replace(one, at_us=round(free_us + n * packet_us, 3)) for n, one in enumerate(waiting)]
    quiet = [P(at_us + 1e5 * n, seq=count + n, ip_id=n, payload=0, tsval=9) for n in range(1, 9)]
    return [*came, *quiet], [*left, *(replace(one, at_us=one.at_us + 0.5) for one in quiet)]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("kind", ["head", "codel", "pie", "red", "chance", "tail"])
def test_drops_at_contents_that_others_passed_have_no_limit(kind, seed, tmp_path):
    came, left = _managed(kind, seed)
    found = _join(tmp_path, came, left)
    assert found.joined.counts.dropped == len(came) - len(left) > 50
    lines = [line for line in found.remarks if "at contents from" in line]
    (estimate,) = found.estimates
    if kind == "tail":
        assert not lines
        assert (estimate.limit_unit, estimate.limit_at_least) == ("bytes", 60 * 66)
        return
    assert estimate.limit_unit is None
    (line,) = lines
    assert "so no limit is estimated (an AQM, a policer" in line
    lost = found.joined.verdict == Verdict.DROPPED
    passed = found.queue.found_bytes[~lost].max()
    contents = found.queue.found_bytes[lost & (found.queue.found_bytes + 66 <= passed)]
    assert f"{contents.size:,} packets were dropped at contents from {contents.min():,}" in line


@pytest.mark.parametrize("is_resent", [False, True])
@pytest.mark.parametrize("share", [0.003, 0.03])
def test_a_stretch_that_an_output_lacks_is_named(share, is_resent, tmp_path):
    """The capture of 100 ms is missing, or a link was down for so long."""
    count = round(100 / share)
    came = [P(1000 * n, seq=700 * n, ip_id=n & 0xFFFF, payload=700) for n in range(1, count)]
    hole = (count // 2 * 1000, count // 2 * 1000 + 100_000)
    left = [replace(one, at_us=one.at_us + 20) for one in came]
    lost = [one for one in left if hole[0] < one.at_us < hole[1]]
    left = [one for one in left if one not in lost]
    if is_resent:
        again = [
            replace(one, at_us=hole[1] + 30_000.5 + 1000 * n, ip_id=0xFF00 + n)
            for n, one in enumerate(lost)
        ]
        came += again
        left += [replace(one, at_us=one.at_us + 20) for one in again]
    words = f"nothing from {hole[0] / 1e6 - 0.002:.3f} to {hole[1] / 1e6 - 0.001:.3f} s after"
    if not is_resent:
        with pytest.raises(UntrustedError, match=f"never sent again; it has {words}"):
            _join(tmp_path, came, left)
        # Unless nothing should have been sent again, as of UDP.
        came, left = ([replace(one, payload=0) for one in side] for side in (came, left))
    found = _join(tmp_path, came, left)
    (line,) = (line for line in found.remarks if "nothing from" in line)
    assert line.startswith(f"o: its capture has {words}")
    assert f"though {len(lost)} packets for it came in and never left" in line
    assert f"the data of {100 if is_resent else 0} were sent again" in line


def test_a_stretch_that_the_capture_of_a_standing_queue_lacks_is_no_pause(tmp_path):
    """What left meanwhile had come in long before. Some of what came beside it was dropped."""
    came = [
        P(40 * n, seq=n, ip_id=n & 0xFFFF, payload=0, sport=5 + n % 7) for n in range(1, 25_000)
    ]
    left, free_us = [], 0.0
    for one in came:
        if free_us - one.at_us < 2_000 * 53:
            free_us = max(free_us, one.at_us) + 53
            left.append(replace(one, at_us=free_us - 53))
    lacking = [one for one in left if 700_000 < one.at_us < 850_000]
    rest = [one for one in left if not 700_000 < one.at_us < 850_000]
    found = _join(tmp_path, came, rest)
    assert not [line for line in found.remarks if "left for" in line or "at contents" in line]
    (line,) = (line for line in found.remarks if "nothing from 0.700 to 0.850 s" in line)
    said = int(line.split("though ")[1].split()[0].replace(",", ""))
    assert said == pytest.approx(lacking[-1].seq - lacking[0].seq, abs=4)
