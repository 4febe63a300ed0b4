"""Retransmissions, spurious ones, timeouts and round trips from the captures."""

import struct
from dataclasses import dataclass
from pathlib import Path

import dpkt
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcast.analysis.capture.headers import ACK, HAS_TIMESTAMP, SYN
from outcast.analysis.capture.pcap import read_capture
from outcast.analysis.join.join import JoinOptions
from outcast.analysis.join.packets import Packets
from outcast.analysis.machine_code import Array
from outcast.analysis.measure import tcp
from outcast.analysis.measure.segments import segments, sent_twice
from tests.golden.packets import P, joined

MIN_RTO_NS = 4_000_000
WATCHED = JoinOptions(watched_ns=(0, 10**10))


def resent(folder: Path, came: list[P], left: list[P], min_rto_ns: int = MIN_RTO_NS) -> tcp.Resent:
    return tcp.resent(joined(folder, came, left, WATCHED), min_rto_ns)


def segment(at_ms: float, number: int, copy: int = 0) -> P:
    return P(at_ms * 1000, seq=1000 + 1448 * number, ip_id=100 * copy + number, tsval=copy)


def left(packets: list[P]) -> list[P]:
    return [
        P(p.at_us + 100, seq=p.seq, ip_id=p.ip_id, tsval=p.tsval, payload=p.payload)
        for p in packets
    ]


def test_a_retransmission_that_was_needed_and_one_that_was_not(tmp_path):
    came = [segment(0, 0), segment(1, 1), segment(2, 2), segment(3, 1, copy=1), segment(4, 2, 1)]
    got = resent(tmp_path, came, left([came[0], *came[2:]]))
    assert got.retransmission.tolist() == [False, False, False, True, True]
    assert got.spurious.tolist() == [False, False, False, False, True]
    assert not got.halted_ns.any()
    came = [segment(0, 0), segment(1, 2), segment(2, 1, copy=1)]
    got = resent(tmp_path, came, left(came))
    assert got.retransmission.tolist() == [False, False, True]
    assert not got.spurious.any()


def test_a_timeout_halts_the_flow(tmp_path):
    """Idle for 1.5 times the minimum RTO, and not the very last segment (a loss probe)."""
    came = [segment(0, 0), segment(0.1, 1), segment(0.2, 2)]
    late = segment(0.2 + 6.1, 1, copy=1)
    got = resent(tmp_path, [*came, late], left([came[0], late]))
    assert got.halted_ns.tolist() == [0, 0, 0, 6_100_000]
    assert got.timeout.tolist() == [False, False, False, True]
    soon = segment(0.2 + 5.9, 1, copy=1)
    got = resent(tmp_path, [*came, soon], left([came[0], soon]))
    assert not got.halted_ns.any()
    probe = segment(0.2 + 6.1, 2, copy=1)
    got = resent(tmp_path, [*came, probe], left([*came, probe]))
    assert got.retransmission[-1]
    assert not got.halted_ns.any()


def test_the_last_segment_again_is_a_timeout_if_new_data_follows_soon(tmp_path):
    """A tail loss probe would have been new data, because the sender had some."""
    came = [segment(0, 0), segment(0.1, 1), segment(6.3, 1, copy=1)]
    soon, late = segment(6.8, 2), segment(13, 2)
    got = resent(tmp_path, [*came, soon], left([came[0], came[2], soon]))
    assert got.timeout.tolist() == [False, False, True, False]
    got = resent(tmp_path, [*came, late], left([came[0], came[2], late]))
    assert not got.timeout.any()


def test_racks_reordering_timer_is_no_timeout(tmp_path):
    """One later segment got through, so the sender heard of the hole and waited for reordering."""
    came = [segment(0, 0), segment(0.1, 1), segment(0.2, 2), segment(6.4, 1, copy=1)]
    through = left([came[0], *came[2:]])
    got = resent(tmp_path, came, through)
    assert got.halted_ns.tolist() == [0, 0, 0, 6_200_000]
    assert not got.timeout.any()
    assert tcp.resent(joined(tmp_path, came, through, WATCHED), MIN_RTO_NS, sack=False).timeout[-1]


def test_a_timeout_though_later_segments_got_through(tmp_path):
    first = segment(0, 0), segment(0.1, 1)
    again = segment(6.9, 1, copy=1)
    # Three selective acknowledgements prove the loss, so RACK does not wait.
    many = [*first, *(segment(0.2 + 0.1 * number, 2 + number) for number in range(3)), again]
    got = resent(tmp_path, many, left([many[0], *many[2:]]))
    assert got.timeout[-1]
    # The idle time is that of a doubled timeout.
    late = [*first, segment(0.2, 2), segment(14, 1, copy=1)]
    got = resent(tmp_path, late, left([late[0], *late[2:]]))
    assert got.timeout[-1]
    # The copy before was lost on the way here, and perhaps another one after it.
    unseen = [first[0], segment(0.2, 2), again]
    got = resent(tmp_path, unseen, left(unseen))
    assert got.timeout[-1]


def test_a_timeout_of_a_long_minimum_rto(tmp_path):
    """Seen with 200 ms in the guest: idle for 199.9 to 206.9 ms before five timeouts of five."""
    came = [segment(0, 0), segment(0.1, 1), segment(0.2, 2)]
    late = segment(0.2 + 199.9, 1, copy=1)
    got = resent(tmp_path, [*came, late], left([came[0], late]), 200_000_000)
    assert got.halted_ns.tolist() == [0, 0, 0, 199_900_000]
    soon = segment(0.2 + 179, 1, copy=1)
    got = resent(tmp_path, [*came, soon], left([came[0], soon]), 200_000_000)
    assert not got.halted_ns.any()


def test_a_retransmission_that_an_acknowledgement_called_for_is_no_timeout(tmp_path):
    """The round trip is long, but the sender has just heard from the receiver."""
    echo = 5000
    came, echoes = [], []
    for round_trip in range(40):
        for number in range(2):
            came.append(segment(10 * round_trip + number * 0.1, 2 * round_trip + number))
            echoes.append(echo + 10 * round_trip)
    # Sent again at once when an acknowledgement came, a round trip later; then by a timeout.
    came.append(segment(400, 77, copy=1))
    echoes.append(echo + 400)
    fast = join_with(tmp_path, came, echoes)
    assert fast.retransmission[-1]
    assert not fast.halted_ns.any()
    echoes[-1] = echo + 390
    slow = join_with(tmp_path, came, echoes)
    assert slow.halted_ns[-1] > 9_000_000


def join_with(folder: Path, came: list[P], echoes: list[int]) -> tcp.Resent:
    """Classifies arrivals. All were forwarded, except the segment that was sent again."""
    again = next(n for n, packet in enumerate(came) if packet.seq == came[-1].seq)
    got = joined(folder, came, left([*came[:again], *came[again + 1 :]]), WATCHED)
    got.arrivals.tsecr[:] = echoes
    return tcp.resent(got, MIN_RTO_NS)


def test_a_syn_sent_again_is_a_timeout(tmp_path):
    syn = {"seq": 999, "payload": 0, "flags": 0x02}
    came = [P(0, ip_id=1, **syn), P(1_000_000, ip_id=2, **syn)]
    got = resent(tmp_path, came, [P(1_000_100, ip_id=2, **syn)])
    assert got.retransmission.tolist() == [False, True]
    assert got.halted_ns.tolist() == [0, 10**9]


def data(segments: list[tuple[int, int, int]]) -> Packets:
    made = Packets.empty(len(segments))
    made.flow[:] = 0
    made.flags[:] = 0x10
    made.stamp_ns[:] = [at for at, _, _ in segments]
    made.seq[:] = [seq % 2**32 for _, seq, _ in segments]
    made.payload_bytes[:] = [size for _, _, size in segments]
    return made


def heard(acks: Array, seen: Array, sacked: Array | None = None) -> tcp.Acks:
    ends = np.zeros(acks.size, np.uint32) if sacked is None else sacked.astype(np.uint32)
    return tcp.Acks(acks.astype(np.uint32), ends, seen)


def test_round_trips_by_sequence_numbers():
    """The last segment that an acknowledgement covers is timed, unless it was sent twice."""
    base = 2**32 - 150
    sent = data(
        [(0, base, 100), (10, base + 100, 100), (20, base + 200, 100), (90, base + 200, 100)]
    )
    acks = np.array([base + 200, base + 200, base + 300], np.int64) % 2**32
    seen = np.array([60, 70, 150], np.int64)
    got = tcp.round_trips(sent, [(0, np.arange(4), heard(acks, seen))])
    assert got.sent_ns.tolist() == [10]
    assert got.rtt_ns.tolist() == [50]
    assert got.flow.tolist() == [0]


def test_an_acknowledgement_that_fills_a_hole_times_nothing():
    """The second segment was lost on the way here, and the third waited for its second copy."""
    sent = data([(0, 1000, 100), (20, 1200, 100), (500, 1100, 100), (510, 1300, 100)])
    acks = np.array([1100, 1300, 1400], np.uint32)
    seen = np.array([40, 540, 560], np.int64)
    got = tcp.round_trips(sent, [(0, np.arange(4), heard(acks, seen))])
    assert got.sent_ns.tolist() == [0, 510]
    assert got.rtt_ns.tolist() == [40, 50]


@pytest.mark.parametrize("base", [1000, 2**32 - 250])
def test_selective_acknowledgements_time_segments_during_recovery(base):
    """Segment 0 is lost; 1 to 3 are acknowledged selectively, and 2 was sent twice."""
    rows = [(0, 0), (10, 1), (20, 2), (30, 3), (95, 2), (100, 0), (200, 4)]
    sent = data([(at, base + 100 * number, 100) for at, number in rows])
    #         1, 2, 3, a copy of 2 (RFC 2883), the hole is filled, 4
    ends = [2, 3, 4, 3, None, None]
    sacked = np.array([0 if end is None else (base + 100 * end) % 2**32 for end in ends])
    acks = np.array([base] * 4 + [base + 400, base + 500]) % 2**32
    seen = np.array([510, 620, 730, 750, 800, 900])
    got = tcp.round_trips(sent, [(0, np.arange(7), heard(acks, seen, sacked))])
    assert list(zip(got.sent_ns, got.rtt_ns, strict=True)) == [(10, 500), (30, 700), (200, 700)]


def test_the_end_of_the_first_selective_block(tmp_path):
    options = [
        *((dpkt.tcp.TCP_OPT_NOP, b""), (dpkt.tcp.TCP_OPT_NOP, b"")),
        (dpkt.tcp.TCP_OPT_TIMESTAMP, struct.pack(">II", 7, 8)),
        *((dpkt.tcp.TCP_OPT_NOP, b""), (dpkt.tcp.TCP_OPT_NOP, b"")),
        (dpkt.tcp.TCP_OPT_SACK, struct.pack(">4I", 500, 900, 100, 300)),
    ]
    raw = b"".join(
        bytes([code]) if code == dpkt.tcp.TCP_OPT_NOP else bytes([code, len(body) + 2]) + body
        for code, body in options
    )
    path = tmp_path / "a.pcap"
    with path.open("wb") as stream:
        writer = dpkt.pcap.Writer(stream)
        for payload, kept in ((b"", 200), (b"x", 200), (b"", 14 + 20 + 20 + 20)):
            head = dpkt.tcp.TCP(sport=1, dport=2, seq=1, ack=50, opts=raw, off=5 + len(raw) // 4)
            head.data = payload
            packet = dpkt.ip.IP(src=b"\n\0\0\1", dst=b"\n\0\0\2", p=6, data=head)
            packet.len = len(packet)
            writer.writepkt(bytes(dpkt.ethernet.Ethernet(data=packet))[:kept], 1.0)
    columns = read_capture("a", path).columns
    assert columns.sacked.tolist() == [900, 0, 0]
    assert columns.tsecr.tolist() == [8] * 3
    assert (columns.marks == HAS_TIMESTAMP).all()


def test_for_how_long_no_timed_segment_was_under_way():
    sent, rtt = np.array([10, 12, 50]), np.array([20, 5, 100])
    # Known from 10 to 30 and from 50 to 150.
    assert tcp.untimed_ns(sent, rtt, 0, 200) == 10 + 20 + 50
    assert tcp.untimed_ns(sent, rtt, 20, 60) == 20
    assert tcp.untimed_ns(sent, rtt, 160, 200) == 40
    assert tcp.untimed_ns(sent[:0], rtt[:0], 0, 200) == 200


MSS = 1000
WRAP = 1 << 32

Packet = tuple[int, int, int, bool]
"""Path, first byte, bytes, whether it was dropped."""


def followers(packets: list[Packet], first: int = 5, flags: int = ACK) -> list[int]:
    path, low, payload, dropped = (np.array(column) for column in zip(*packets, strict=True))
    return segments(
        path,
        ((first + low) % WRAP).astype(np.uint32),
        payload,
        np.full(path.size, flags, np.uint8),
        dropped.astype(np.bool_),
        np.arange(1, path.size + 1, dtype=np.uint16),
    ).following.tolist()


def test_what_a_retransmission_repeats():
    packets = [(0, 0, MSS, True), (0, MSS, MSS, False), (0, 0, MSS, True), (0, 0, MSS, False)]
    assert followers(packets) == [2, -1, 3, -1]
    # The same where sequence numbers wrap between the copies.
    assert followers(packets, first=WRAP - MSS) == [2, -1, 3, -1]
    packets = [(0, MSS, MSS, True), (0, 2 * MSS, MSS, True), (0, 3 * MSS, MSS, False)]
    assert followers([*packets, (0, 3 * MSS, MSS, False), (0, MSS, 2 * MSS, False)]) == [
        *(4, 4, 3, -1, -1)
    ]
    # Passing two outputs, having no data, and other protocols than TCP.
    assert followers([(0, 0, MSS, False), (1, 0, MSS, False)]) == [-1, -1]
    assert followers([(0, 0, 0, False), (0, 0, 0, False)]) == [-1, -1]
    assert followers([(0, 0, MSS, True), (0, 0, MSS, False)], flags=0) == [-1, -1]
    assert followers([(0, 0, MSS, True)]) == [-1]


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(0, 3), st.booleans()),
        min_size=1,
        max_size=60,
    ),
    st.integers(0, WRAP - 1),
)
def test_against_a_slow_search(drawn, first):
    packets = [(path, low * MSS, size * MSS, lost) for path, low, size, lost in drawn]
    found = followers(packets, first)
    for place, (path, low, size, lost) in enumerate(packets):
        later = [row for row in range(place + 1, len(packets)) if packets[row][0] == path]
        same = [row for row in later if packets[row][1] == low and packets[row][2]]
        highest = {
            row: max(
                (low + size for at, low, size, _ in packets[:row] if at == path and size), default=0
            )
            for row in later
        }
        covers = [
            row
            for row in later
            if packets[row][1] < low < packets[row][1] + packets[row][2]
            and packets[row][1] < highest[row]
        ]
        expected = -1
        if size and same:
            expected = same[0]
        elif size and lost and covers:
            expected = covers[0]
        assert found[place] == expected


# --- What a sender sent twice, against its log, where links lose, duplicate and let overtake


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
