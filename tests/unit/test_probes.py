"""Probes: a kernel takes them for TCP resets, and they are read back."""

from __future__ import annotations

import struct
from ipaddress import IPv6Address

from hypothesis import given
from hypothesis import strategies as st

from controllers.hashing import FiveTuple
from outcast.emulation.probes import internet_checksum, parse_tcp, tcp_reset

PORTS = st.integers(1, 65535)


@given(PORTS, PORTS)
def test_a_probe_has_the_flows_ports_and_a_valid_checksum(sport: int, dport: int) -> None:
    packet = FiveTuple("10.1.0.2", sport, "10.0.0.2", dport)
    segment = tcp_reset(packet)
    pseudo = bytes([10, 1, 0, 2, 10, 0, 0, 2, 0, 6]) + struct.pack("!H", len(segment))
    assert internet_checksum(pseudo + segment) == 0
    assert segment[13] == 0x04
    header = bytes([0x45, *bytes(8), 6, 0, 0, 10, 1, 0, 2, 10, 0, 0, 2])
    assert parse_tcp(header + segment) == packet
    with_options = bytes([0x46]) + header[1:] + bytes(4)
    assert parse_tcp(with_options + segment) == packet


@given(PORTS, PORTS)
def test_a_probe_of_ipv6_has_a_valid_checksum(sport: int, dport: int) -> None:
    ends = ("fd00::a01:2", "fd00::a00:2")
    segment = tcp_reset(FiveTuple(ends[0], sport, ends[1], dport))
    addresses = b"".join(IPv6Address(end).packed for end in ends)
    # RFC 8200, section 8.1.
    pseudo = addresses + struct.pack("!IxxxB", len(segment), 6)
    assert internet_checksum(pseudo + segment) == 0


def test_the_checksum_is_that_of_the_rfcs_example() -> None:
    # RFC 1071, section 3: the sum of these words is ddf2.
    assert internet_checksum(bytes.fromhex("0001f203f4f5f6f7")) == 0xFFFF - 0xDDF2
