"""What a sender sent twice, against its log, where links lose, duplicate and let overtake."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcast.analysis.capture.headers import ACK, SYN
from outcast.analysis.measure.segments import segments, sent_twice

MSS = 1000
FIELDS = ("ids", "stamps", "random ids and stamps")


@dataclass(frozen=True)
class Sending:
    """One time that the sender sent [low, high), with its place in the order of sending."""

    place: int
    low: int
    high: int
    ip_id: int
    tsval: int


def sendings(draw: np.random.Generator, fields: str, count: int) -> list[Sending]:
    """A sender that sends new segments, and old ones again at least a tick later, also joined."""
    log: list[Sending] = []
    first_id, tick = int(draw.integers(1, 2**16)), int(draw.integers(1, 2**32))
    end = 0
    for place in range(count):
        low, high = end, end + 1
        if log and draw.random() < 0.1:
            tick += 1
            low = int(draw.integers(0, end))
            high = min(end, low + int(draw.integers(1, 3)))
        elif draw.random() < 0.1:
            tick += 1
        end = max(end, high)
        ip_id = (first_id + place) % 2**16 if fields == "ids" else 0
        if "random" in fields:
            ip_id = int(draw.integers(0, 2**16))
        log.append(Sending(place, low, high, ip_id, 0 if fields == "ids" else tick % 2**32))
    return log


def arrived(draw: np.random.Generator, log: list[Sending], jitter: float) -> list[Sending]:
    """Loses a tenth, duplicates a fifth, and lets the others overtake."""
    came = [each for each in log if draw.random() < 0.9]
    places = [each.place + jitter * draw.random() for each in came]
    order = [came[row] for row in np.argsort(places, kind="stable")]
    return [each for one in order for each in [one] * (2 if draw.random() < 0.2 else 1)]


def arrays(came: list[Sending], first: int = 0) -> tuple[np.ndarray, ...]:
    low, high = (np.array([getattr(each, name) for each in came]) * MSS for name in ("low", "high"))
    ip_id = np.array([each.ip_id for each in came], np.uint16)
    tsval = np.array([each.tsval for each in came], np.uint32)
    return first + low, first + high, np.full(low.size, ACK, np.uint8), ip_id, tsval


def in_log(came: list[Sending]) -> list[bool]:
    """The truth: the first arrival of each sending, if data beyond its begin was sent before."""
    return [
        each not in came[:row]
        and any(other.high > each.low and other.place < each.place for other in came)
        for row, each in enumerate(came)
    ]


@given(st.integers(0, 2**32), st.sampled_from(FIELDS), st.floats(0, 20))
def test_only_what_the_sender_sent_twice_counts(seed, fields, jitter):
    draw = np.random.default_rng(seed)
    came = arrived(draw, sendings(draw, fields, 120), jitter)
    truth = in_log(came)
    assert any(truth)
    assert sent_twice(*arrays(came)).tolist() == truth


@given(st.integers(0, 2**32), st.sampled_from(FIELDS), st.floats(0, 20))
def test_without_a_second_sending_there_is_none(seed, fields, jitter):
    draw = np.random.default_rng(seed)
    log = sendings(draw, fields, 200)
    new = [each for row, each in enumerate(log) if all(each.low >= e.high for e in log[:row])]
    came = arrived(draw, new, jitter)
    low, high, flags, ip_id, tsval = arrays(came, first=2**32 - 50 * MSS)
    assert not sent_twice(low, high, flags, ip_id, tsval).any()
    nothing = np.zeros(low.size, np.bool_)
    seq = (low % 2**32).astype(np.uint32)
    path = np.zeros(low.size, np.int64)
    found = segments(path, seq, high - low, flags, ~nothing, ip_id, tsval)
    assert (found.following == -1).all()
    assert found.first.tolist() == [came.index(each) for each in came]


def test_without_ids_and_stamps_only_a_close_copy_is_a_duplicate():
    none = np.zeros(8, np.uint16), np.zeros(8, np.uint32)
    low = np.array([0, 1, 1, 2, 4, 3, 5, 1])
    flags = np.full(8, ACK, np.uint8)
    # What came late may have been overtaken or sent again; nothing tells which.
    assert sent_twice(low, low + 1, flags, *none).tolist() == [False] * 5 + [True, False, True]


@pytest.mark.parametrize(("ip_id", "tsval"), [(1, 0), (0, 9)])
def test_a_syn_that_a_link_duplicates_was_sent_once(ip_id, tsval):
    low, flags = np.zeros(3, np.int64), np.full(3, SYN, np.uint8)
    ids = np.array([ip_id, ip_id, ip_id + 1], np.uint16)
    stamps = np.array([tsval, tsval, tsval], np.uint32)
    assert sent_twice(low, low, flags, ids, stamps).tolist() == [False, False, True]
