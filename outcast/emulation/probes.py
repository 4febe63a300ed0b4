"""Probes of paths: packets with a flow's own addresses and ports, which nobody answers.

A switch that chooses by addresses and ports sends a probe where it will send the flow.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from controllers.hashing import TCP, UDP, FiveTuple
from outcast.emulation import rtnetlink
from outcast.emulation.commands import entered
from outcast.errors import ReadBackError

_TCP_HEADER = struct.Struct("!HHIIBBHHH")
_HEADER_WORDS = 5
_IP_HEADER_BYTES, _IPV6_HEADER_BYTES, _UDP_HEADER_BYTES = 20, 40, 8
_MOST_BYTES = 1 << 16
_IP_MTU_DISCOVER, _IPV6_MTU_DISCOVER, _PMTUDISC_PROBE = 10, 23, 3
"""From linux/in.h and linux/in6.h: never cut a packet, and do not heed what the kernel knows of the
path."""
_RESET = 0x04
"""A reset to a port that nobody listens at is ignored (RFC 9293, section 3.5.2)."""


class Probes:
    """Sends probes between hosts.

    Args:
        netns: the descriptor of a host's network namespace.
        host_of: the host that has an address.
        deadline_s: how long a probe may take.
    """

    def __init__(
        self, netns: Callable[[str], int], host_of: Callable[[str], str], deadline_s: float
    ) -> None:
        self._netns = netns
        self._host_of = host_of
        self._deadline_s = deadline_s
        self._raw: dict[str, socket.socket] = {}
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Probes:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def send(self, packet: FiveTuple, size_bytes: int | None = None) -> FiveTuple:
        """Sends a probe from its source to its destination. Returns the packet that arrived.

        Args:
            packet: its headers.
            size_bytes: the size of the IP packet, which then must not be cut on the way (RFC 791's
                DF). None sends a small one.

        Raises:
            TimeoutError: nothing arrived.
            OSError: with errno EMSGSIZE, the packet is larger than the sender's interface takes.
        """
        if packet.protocol == UDP:
            return self._send_udp(packet, size_bytes)
        receiver, sender = self._raw_socket(packet.dst), self._raw_socket(packet.src)
        payload = b""
        if size_bytes is not None:
            _forbid_cutting(sender)
            payload = bytes(size_bytes - _header_bytes(packet) - _TCP_HEADER.size)
        sender.sendto(tcp_reset(packet, payload), (packet.dst, 0))
        arrived, source = receiver.recvfrom(_MOST_BYTES)
        # A raw socket of IPv6 hands over what follows the header (RFC 3542, section 3).
        size = len(arrived) + (_IPV6_HEADER_BYTES if ":" in packet.dst else 0)
        if size_bytes is not None and size != size_bytes:
            raise ReadBackError(packet.dst, "size of a probe", size_bytes, size)
        if ":" in packet.dst:
            sport, dport = struct.unpack_from("!HH", arrived)
            return FiveTuple(source[0], sport, packet.dst, dport)
        return parse_tcp(arrived)

    def _raw_socket(self, address: str) -> socket.socket:
        if address not in self._raw:
            self._raw[address] = self._open.enter_context(
                self._socket(address, socket.SOCK_RAW, socket.IPPROTO_TCP)
            )
            self._raw[address].bind((address, 0))
        return self._raw[address]

    def _send_udp(self, packet: FiveTuple, size_bytes: int | None) -> FiveTuple:
        with (
            self._socket(packet.dst, socket.SOCK_DGRAM, 0) as receiver,
            self._socket(packet.src, socket.SOCK_DGRAM, 0) as sender,
        ):
            receiver.bind((packet.dst, packet.dport))
            sender.bind((packet.src, packet.sport))
            payload = b"probe"
            if size_bytes is not None:
                _forbid_cutting(sender)
                payload = bytes(size_bytes - _header_bytes(packet) - _UDP_HEADER_BYTES)
            sender.sendto(payload, (packet.dst, packet.dport))
            arrived, (address, port, *_) = receiver.recvfrom(_MOST_BYTES)
            if len(arrived) != len(payload):
                raise ReadBackError(packet.dst, "size of a probe", len(payload), len(arrived))
            return FiveTuple(address, port, packet.dst, packet.dport, UDP)

    @contextmanager
    def _socket(self, address: str, kind: int, protocol: int) -> Iterator[socket.socket]:
        with entered(self._netns(self._host_of(address))):
            inside = socket.socket(rtnetlink.family_of(address), kind, protocol)
        with inside:
            inside.settimeout(self._deadline_s)
            yield inside


def _header_bytes(packet: FiveTuple) -> int:
    return _IPV6_HEADER_BYTES if ":" in packet.dst else _IP_HEADER_BYTES


def _forbid_cutting(sender: socket.socket) -> None:
    if sender.family == socket.AF_INET6:
        sender.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _PMTUDISC_PROBE)
    else:
        sender.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PMTUDISC_PROBE)


def tcp_reset(packet: FiveTuple, zeros: bytes = b"") -> bytes:
    """A reset, with a payload of zeros, which do not change the checksum."""
    fields = (packet.sport, packet.dport, 0, 0, _HEADER_WORDS << 4, _RESET, 0)
    # The checksum is the same over the pseudo-headers of both versions (RFC 8200, section 8.1).
    family = rtnetlink.family_of(packet.src)
    ends = socket.inet_pton(family, packet.src) + socket.inet_pton(family, packet.dst)
    pseudo = ends + struct.pack("!xBH", TCP, _TCP_HEADER.size + len(zeros))
    checksum = internet_checksum(pseudo + _TCP_HEADER.pack(*fields, 0, 0))
    return _TCP_HEADER.pack(*fields, checksum, 0) + zeros


def internet_checksum(data: bytes) -> int:
    """The checksum of RFC 1071, over an even number of bytes."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def parse_tcp(datagram: bytes) -> FiveTuple:
    """Addresses and ports of an IPv4 packet with TCP."""
    header = 4 * (datagram[0] & 0x0F)
    sport, dport = struct.unpack_from("!HH", datagram, header)
    src, dst = socket.inet_ntoa(datagram[12:16]), socket.inet_ntoa(datagram[16:20])
    return FiveTuple(src, sport, dst, dport, datagram[9])
