"""Goodput counts unique bytes in any order of segments, also across the wrap of the numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from outcast.analysis.capture.headers import TCP, FlowKey
from outcast.analysis.capture.pcap import read_capture
from outcast.analysis.join.join import join
from outcast.analysis.join.packets import Packets
from outcast.analysis.measure.throughput import bytes_between, fresh_bytes, series
from tests.golden.packets import P, capture

FLOW = FlowKey("10.0.0.2", 20001, "10.0.0.1", 5001, TCP)


def packets(segments: list[tuple[int, int]], flags: int = 0x10) -> Packets:
    made = Packets.empty(len(segments))
    made.flow[:] = 0
    made.seq[:] = [seq % 2**32 for seq, _ in segments]
    made.payload_bytes[:] = [size for _, size in segments]
    made.flags[:] = flags
    made.stamp_ns[:] = np.arange(len(segments)) * 1000
    return made


def test_spurious_retransmissions_count_once() -> None:
    got = fresh_bytes(packets([(0, 100), (100, 100), (0, 100), (50, 100), (150, 100)]), (FLOW,))
    assert got.tolist() == [100, 100, 0, 0, 50]


def test_a_hole_counts_when_it_is_filled() -> None:
    got = fresh_bytes(packets([(0, 100), (200, 100), (100, 100), (50, 250)]), (FLOW,))
    assert got.tolist() == [100, 100, 100, 0]


def test_a_syn_takes_a_number_but_carries_nothing() -> None:
    """The SYN's number is 999, so data begins at 1000; a keep-alive at 999 is nothing new."""
    both = packets([(999, 0), (1000, 10), (999, 1), (1010, 10)])
    both.flags[0] = 0x02
    assert fresh_bytes(both, (FLOW,)).tolist() == [0, 10, 1, 10]
    opened = packets([(999, 5), (1000, 10)])
    opened.flags[0] = 0x02
    assert fresh_bytes(opened, (FLOW,)).tolist() == [5, 5]


def test_udp_counts_all_its_payload() -> None:
    udp = FlowKey("10.0.0.2", 1, "10.0.0.1", 2, 17)
    assert fresh_bytes(packets([(0, 100), (0, 100)]), (udp,)).tolist() == [100, 100]


@given(
    base=st.integers(0, 2**32 - 1),
    segments=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 60)), max_size=60),
)
def test_against_a_set_of_bytes(base: int, segments: list[tuple[int, int]]) -> None:
    """Every byte counts once, when it first appears, also across the wrap at 2^32."""
    got = fresh_bytes(packets([(base + at, size) for at, size in segments]), (FLOW,))
    seen: set[int] = set()
    for (at, size), fresh in zip(segments, got.tolist(), strict=True):
        new = set(range(at, at + size)) - seen
        assert fresh == len(new)
        seen |= new


def test_scattered_segments_take_no_quadratic_time() -> None:
    rng = np.random.default_rng(1)
    order = rng.permutation(300_000) * 7
    got = fresh_bytes(packets([(int(at), 5) for at in order]), (FLOW,))
    assert int(got.sum()) == 5 * 300_000


def test_bins_and_intervals(tmp_path: Path) -> None:
    came = [P(n * 1000, seq=n * 1448, ip_id=n) for n in range(10)]
    left = [P(n * 1000 + 500, seq=n * 1448, ip_id=n) for n in range(10)]
    joined = join(
        [read_capture("a", capture(tmp_path / "a", came))],
        [read_capture("out", capture(tmp_path / "out", left))],
    )
    fresh = fresh_bytes(joined.departures, joined.flows)
    got = series(joined.departures, fresh, 1, 1_000_000, 2_000_000, 9_000_000)
    assert got.packets.tolist() == [[2, 2, 2, 2]]
    assert got.goodput_bytes.tolist() == [[2896] * 4]
    assert got.frame_bytes.tolist() == [[3028] * 4]
    # The last bin ends with the interval, so what left after it is not in it.
    cut = series(joined.departures, fresh, 1, 1_000_000, 2_000_000, 8_000_000)
    assert cut.packets.tolist() == [[2, 2, 2, 1]]
    assert bytes_between(joined.departures, fresh, 1, 500_000, 2_500_000).tolist() == [2896]
