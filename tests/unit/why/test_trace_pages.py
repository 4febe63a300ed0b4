"""The kernel's ring buffer: what is written in pages is read back, and broken pages are refused."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outcast.errors import InputError
from outcast.records.trace import Formats
from outcast.uses.why import pages
from outcast.uses.why.pages import Coded, Events, open_events, read_layout
from tests.golden import trace_pages
from tests.golden.trace_pages import (
    Record,
    content,
    end_of_page,
    format_text,
    padding,
    page_of,
    text_at,
)

NUMBERS = format_text(
    "numbers",
    300,
    [
        ("const void * skaddr", 8, 8, 0),
        ("__u16 sport", 16, 2, 0),
        ("int err", 20, 4, 1),
        ("bool fin", 24, 1, 0),
        ("__be32 saddr", 28, 4, 0),
        ("u32 table[3]", 32, 12, 0),
    ],
    '"err=%d fin=%s", REC->err, __print_symbolic(REC->fin, { 0, "no" }, { 0x1, "yes" })',
)
TEXTS = format_text(
    "texts",
    301,
    [
        ("__u8 saddr[sizeof(struct sockaddr_in6)]", 8, 28, 0),
        ("char comm[16]", 36, 16, 0),
        ("__data_loc char[] dev", 52, 4, 0),
        ("__rel_loc u8[] rest", 56, 4, 0),
    ],
)
EVENTS = {"a:numbers": NUMBERS, "b:texts": TEXTS}


def written(folder: Path, data: bytes) -> Path:
    path = folder / "events.raw"
    path.write_bytes(data)
    return path


def numbers(address: int, port: int, err: int, fin: bool, host: bytes) -> bytes:
    body = struct.pack("<QHxxi?xxx4s3I", address, port, err, fin, host, 1, 2, port)
    return content(300, body)


def texts(address: bytes, comm: bytes, dev: bytes, rest: bytes) -> bytes:
    place, device = text_at(60, dev)
    after = len(rest) << 16 | len(device)
    return content(301, struct.pack("<28s16sII", address, comm, place, after) + device + rest)


def read(path: Path, formats: Formats) -> tuple[pages.EventFile, dict[str, list[Events]]]:
    file = open_events(path, formats)
    by_name: dict[str, list[Events]] = {name: [] for name in formats.events}
    for block in file.blocks():
        for events in block:
            by_name[events.layout.event].append(events)
    return file, by_name


def column(groups: list[Events], name: str) -> list[object]:
    values: list[object] = []
    for events in groups:
        found = events.columns[name]
        if isinstance(found, Coded):
            values += [found.values[code] for code in found.codes.tolist()]
        else:
            values += found.tolist()
    return values


def times(groups: list[Events]) -> list[int]:
    return [time_ns for events in groups for time_ns in events.time_ns.tolist()]


TCP_STATE = format_text(
    "tcp_cong_state_set",
    1604,
    [
        ("const void * skaddr", 8, 8, 0),
        ("__u16 sport", 16, 2, 0),
        ("__u16 dport", 18, 2, 0),
        ("__u8 cong_state", 20, 1, 0),
    ],
)
BY_HAND = (
    # The page begins at 0x174876e800 = 100 s; 0x40 = 64 of its bytes are used.
    "00e8764817000000 4000000000000000"
    # type_len 6 (24 bytes), delta 0: 1604, flags 1, preempt 0, pid 42
    "06000000 4406 01 00 2a000000 80a1b2c300000060 214e 8913 03 000000"
    # time extend: delta 0x8000001 = 1 << 27 | 1, that is word 1 and 1 << 5 | 30
    "3e000000 01000000"
    # type_len 6, delta 16 ns (16 << 5 | 6): the state is now 4
    "06020000 4406 01 00 2a000000 80a1b2c300000060 214e 8913 04 000000"
)


def test_a_page_worked_out_by_hand(tmp_path):
    data = bytes.fromhex(BY_HAND).ljust(4096, b"\0")
    formats = trace_pages.formats({"tcp:tcp_cong_state_set": TCP_STATE})
    file, events = read(written(tmp_path, data), formats)
    state = events["tcp:tcp_cong_state_set"]
    assert times(state) == [100_000_000_000, 100_000_000_000 + (1 << 27) + 1 + 16]
    assert column(state, "cong_state") == [3, 4]
    assert column(state, "sport") == [0x4E21, 0x4E21]
    assert column(state, "dport") == [5001, 5001]
    assert column(state, "skaddr") == [0x60000000C3B2A180] * 2
    assert (file.events, file.lost, file.lost_uncounted) == (2, 0, 0)


REAL = Path(__file__).parents[2] / "golden" / "kernel-events.json"
"""Four events of figure 3(c) as the guest's kernel wrote them, and its formats."""


def test_events_of_a_real_kernel_have_the_values_of_its_hexdump(tmp_path):
    recorded = json.loads(REAL.read_text())
    page = page_of(recorded["started_ns"], bytes.fromhex("".join(recorded["used"])))
    file, events = read(written(tmp_path, page), trace_pages.formats(recorded["events"]))
    assert file.events == 4

    def values(event: str) -> dict[str, object]:
        (one,) = events[event]
        assert one.time_ns.tolist() == [15_123_535_536]
        return {name: column([one], name)[0] for name in one.columns}

    # What `xxd` shows at the offsets that the formats name, worked out by hand.
    hosts = {"saddr": b"\x0a\1\0\2", "daddr": b"\x0a\0\0\2"}
    back = {"saddr": b"\x0a\0\0\2", "daddr": b"\x0a\1\0\2"}
    assert (
        values("qdisc:qdisc_dequeue").items()
        >= {
            **{"packets": 0, "skbaddr": 0, "handle": 0x10000, "parent": 0xFFFFFFFF},
            **{"dev": b"e0_0-eth1", "seq": 0},
        }.items()
    )
    assert (
        values("net:netif_receive_skb").items()
        >= {
            **hosts,
            **{"dev": b"h0_0_2-eth0", "name": b"h0_0_2-eth0", "len": 52, "payload": 0},
            **{"seq": 0x3101554A, "ip_id": 0x793B, "sport": 20002, "dport": 5001},
        }.items()
    )
    assert (
        values("tcp:tcp_cong_state_set").items()
        >= {
            **back,
            **{"sport": 5001, "dport": 20002, "cong_state": 0, "old_state": 0},
            **{"snd_una": 0x84BED1CD, "snd_cwnd": 10, "ssthresh": 0x7FFFFFFF},
        }.items()
    )
    # Its 168 bytes have their length in a word of its own.
    assert (
        values("tcp:tcp_ack_done").items()
        >= {
            **back,
            **{"reason": 0xC102, "state": 3, "snd_cwnd": 10, "srtt_us": 43, "rttvar_us": 2000},
            **{"rto_us": 3000, "mss": 1448},
        }.items()
    )


address = st.binary(min_size=28, max_size=28)
number_record = st.tuples(
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**16 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.booleans(),
    st.binary(min_size=4, max_size=4),
)
text_record = st.tuples(
    address,
    st.text("abc/", max_size=15).map(str.encode),
    st.text("s1-eth", max_size=15).map(str.encode),
    st.binary(max_size=200),
)
delta = st.one_of(st.integers(0, 3), st.integers(0, 2**27), st.integers(2**27 - 2, 2**40))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    start=st.integers(0, 2**50),
    rows=st.lists(st.tuples(delta, st.one_of(number_record, text_record)), max_size=60),
    page_bytes=st.sampled_from([512, 4096]),
    absolute=st.booleans(),
    small=st.booleans(),
)
def test_what_was_written_is_read_back(tmp_path_factory, start, rows, page_bytes, absolute, small):
    now, records, asked = start, [], []
    for step, row in rows:
        now += step
        is_number = len(row) == 5
        make: Callable[..., bytes] = numbers if is_number else texts
        records.append(Record(now, make(*row)))
        asked.append((now, is_number, row))
    data = trace_pages.pages(records, page_bytes, absolute=absolute, small=small)
    path = written(tmp_path_factory.mktemp("pages"), data)
    file, events = read(path, trace_pages.formats(EVENTS, page_bytes))
    assert file.events == len(rows)
    for name, kind in (("a:numbers", True), ("b:texts", False)):
        mine = [(at, row) for at, is_number, row in asked if is_number == kind]
        assert times(events[name]) == [at for at, _ in mine]
        fields = (
            ("skaddr", "sport", "err", "fin", "saddr")
            if kind
            else (*("saddr", "comm", "dev", "rest"),)
        )
        for place, field in enumerate(fields):
            assert column(events[name], field) == [row[place] for _, row in mine], field
    order = [place for groups in events.values() for one in groups for place in one.order.tolist()]
    assert sorted(order) == list(range(len(rows)))


def event(delta: int, body: bytes) -> bytes:
    return struct.pack("<I", delta << 5 | len(body) // 4) + body


def test_padding_and_the_end_of_a_page(tmp_path):
    one = numbers(1, 2, 3, True, b"wxyz")
    used = (
        event(0, one)
        + padding(24, 1)  # discarded, and its delta of 1 stands for 0
        + event(5, one)
        + padding(12, 100)
        + event(6, one)
        + end_of_page()
        + b"\xff" * 32
    )
    _, events = read(written(tmp_path, page_of(1000, used)), trace_pages.formats(EVENTS))
    assert times(events["a:numbers"]) == [1000, 1005, 1111]


def test_names_of_numbers_are_in_the_layout():
    fields = {field.name: field for field in read_layout("a:numbers", NUMBERS).fields}
    assert fields["fin"].symbols == {0: "no", 1: "yes"}
    assert fields["err"].symbols == {}
    assert fields["saddr"].network
    assert not fields["sport"].network
    unclear = format_text("x", 1, [("int a", 8, 4, 1)], '__print_symbolic(REC->a, { 1 << 2, "b" })')
    assert read_layout("x:x", unclear).fields[0].symbols == {}


def test_what_is_cut_off_is_refused(tmp_path):
    path = written(tmp_path, page_of(0, event(0, numbers(1, 2, 3, True, b"wxyz")))[:-1])
    with pytest.raises(InputError, match="cut off inside a page"):
        read(path, trace_pages.formats(EVENTS))
    with pytest.raises(InputError, match="the format of a:numbers has no line"):
        read_layout("a:numbers", "")
