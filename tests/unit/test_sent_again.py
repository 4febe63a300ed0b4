"""Which packet brought the data of an earlier one again."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from outcast.analysis.capture.headers import ACK
from outcast.analysis.measure.sent_again import sent_again

MSS = 1000
WRAP = 1 << 32

Packet = tuple[int, int, int, bool]
"""Path, first byte, bytes, whether it was dropped."""


def followers(packets: list[Packet], first: int = 5, flags: int = ACK) -> list[int]:
    path, low, payload, dropped = (np.array(column) for column in zip(*packets, strict=True))
    return sent_again(
        path,
        ((first + low) % WRAP).astype(np.uint32),
        payload,
        np.full(path.size, flags, np.uint8),
        dropped.astype(np.bool_),
    ).tolist()


def test_the_next_packet_with_the_same_sequence_number() -> None:
    packets = [(0, 0, MSS, True), (0, MSS, MSS, False), (0, 0, MSS, True), (0, 0, MSS, False)]
    assert followers(packets) == [2, -1, 3, -1]
    # The same where sequence numbers wrap between the copies.
    assert followers(packets, first=WRAP - MSS) == [2, -1, 3, -1]


def test_a_retransmission_that_was_cut_otherwise() -> None:
    packets = [(0, MSS, MSS, True), (0, 2 * MSS, MSS, True), (0, 3 * MSS, MSS, False)]
    assert followers([*packets, (0, 3 * MSS, MSS, False), (0, MSS, 2 * MSS, False)]) == [
        *(4, 4, 3, -1, -1)
    ]


def test_what_was_not_sent_again() -> None:
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
def test_against_a_slow_search(drawn: list[Packet], first: int) -> None:
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
