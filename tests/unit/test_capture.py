from __future__ import annotations

import pytest

from outcast import capture
from outcast.errors import RunError

CLOSING = """tcpdump: listening on s1-eth1, link-type EN10MB (Ethernet), snapshot length 128 bytes
24511 packets captured
39809 packets received by filter
1 packet dropped by kernel
"""


def test_closing_counters() -> None:
    assert capture.parse_closing_counters(CLOSING, "tcpdump") == (24511, 39809, 1)


def test_a_missing_counter_is_an_error() -> None:
    with pytest.raises(RunError, match="received by filter"):
        capture.parse_closing_counters(CLOSING.replace("received by filter", "?"), "tcpdump")
