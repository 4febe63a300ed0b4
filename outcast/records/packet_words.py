"""Says what a captured packet is and who sent it, for people who compare two runs.

The analysis decodes whole captures in columns (outcast.analysis.capture). Here a single packet is
put into words, and a packet that cannot be decoded is no error.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from outcast.errors import InputError
from outcast.plan.addresses import ipv4_of
from outcast.plan.model import Plan
from outcast.records.kept_captures import Packet
from outcast.records.run_directory import Manifest, RunDirectory

_ETHERNET_BYTES = 14
_VLAN, _IPV4, _IPV6 = 0x8100, 0x0800, 0x86DD
_IPV6_BYTES = 40
_TYPES = {0x0806: "ARP", 0x88CC: "LLDP"}
_TCP, _UDP = 6, 17
_PROTOCOLS = {1: "ICMP", 58: "ICMPv6"}
_FLAGS = ("FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR")
"""Flags of TCP, from the lowest bit (RFC 9293, section 3.1)."""


@dataclass(frozen=True, slots=True)
class SeenPacket:
    """A packet as one of two captures shows it.

    Attributes:
        at_ns: epoch time on the run's clock.
        frame_bytes: its length on the link, without the checksum.
        source, destination: addresses with ports, as `10.0.0.1:20001`; empty if it is not IPv4.
        what: what it is, as `TCP, ACK, sequence number 7, 1448 bytes of payload`.
        flow: the number of its flow; None if it belongs to none of the manifest.
        host: the host that sent it; None if unknown.
        process: the process that sent it, as `sender of flow 3`; None if unknown.
    """

    at_ns: int
    frame_bytes: int
    source: str
    destination: str
    what: str
    flow: int | None
    host: str | None
    process: str | None

    def in_words(self) -> str:
        """The packet in one line."""
        way = f" from {self.source} to {self.destination}" if self.source else ""
        by = f", sent by {self.process or 'an unknown process'}"
        at = f" at {self.host}" if self.host else ""
        stamp = f"{self.at_ns // 10**9}.{self.at_ns % 10**9:09d}"
        return f"{stamp}: {self.what}{way}{by}{at}"


@dataclass(frozen=True, slots=True)
class Header:
    """A packet's addresses and ports, which can be absent or not captured, and what it is."""

    src: str | None
    dst: str | None
    sport: int | None
    dport: int | None
    what: str


def read_header(data: bytes) -> Header:
    """Decodes the captured part of an Ethernet frame."""
    if len(data) < _ETHERNET_BYTES:
        return Header(None, None, None, None, f"{len(data)} bytes, too few for a frame's header")
    at = _ETHERNET_BYTES
    (kind,) = struct.unpack_from("!H", data, at - 2)
    if kind == _VLAN and len(data) >= at + 4:
        at += 4
        (kind,) = struct.unpack_from("!H", data, at - 2)
    numbered = ""
    if kind == _IPV4 and len(data) >= at + 20:
        length, ip_id, protocol = struct.unpack_from("!HH3xB", data, at + 2)
        src, dst = (str(IPv4Address(data[at + place : at + place + 4])) for place in (12, 16))
        header_bytes = (data[at] & 15) * 4
        begin = at + header_bytes
        payload_bytes = max(0, length - header_bytes)
        numbered = f", IP id {ip_id}"
    elif kind == _IPV6 and len(data) >= at + _IPV6_BYTES:
        payload_bytes, protocol = struct.unpack_from("!HB", data, at + 4)
        src, dst = (str(IPv6Address(data[at + place : at + place + 16])) for place in (8, 24))
        begin = at + _IPV6_BYTES
    else:
        return Header(None, None, None, None, _TYPES.get(kind, f"Ethernet of type {kind:#06x}"))
    if protocol == _TCP and len(data) >= begin + 14:
        sport, dport, sequence, acknowledged, offset, flags = struct.unpack_from(
            "!HHIIBB", data, begin
        )
        names = "+".join(name for bit, name in enumerate(_FLAGS) if flags >> bit & 1)
        payload_bytes = max(0, payload_bytes - (offset >> 4) * 4)
        what = (
            f"TCP {names or 'without flags'}, sequence number {sequence}, "
            f"acknowledges {acknowledged}, {payload_bytes} bytes{numbered}"
        )
        return Header(src, dst, sport, dport, what)
    if protocol == _UDP and len(data) >= begin + 8:
        sport, dport = struct.unpack_from("!HH", data, begin)
        what = f"UDP, {max(0, payload_bytes - 8)} bytes{numbered}"
        return Header(src, dst, sport, dport, what)
    name = _PROTOCOLS.get(protocol, f"IP protocol {protocol}")
    return Header(src, dst, None, None, f"{name}, {payload_bytes} bytes{numbered}")


def seen(record: Packet, directory: RunDirectory, manifest: Manifest) -> SeenPacket:
    """Puts a packet of a run into words, with who sent it."""
    header = read_header(record.data)
    plan = None
    # Without a plan that this version reads, senders of generated flows are not known.
    with contextlib.suppress(InputError):
        plan = directory.read_plan()
    source, destination = (
        "" if address is None else address if port is None else f"{address}:{port}"
        for address, port in ((header.src, header.sport), (header.dst, header.dport))
    )
    sender = sender_of(header, manifest, plan)
    return SeenPacket(record.at_ns, record.frame_bytes, source, destination, header.what, *sender)


def sender_of(
    header: Header, manifest: Manifest, plan: Plan | None
) -> tuple[int | None, str | None, str | None]:
    """Finds the number of a packet's flow, and the host and process that sent it.

    Each is None where it is not known or does not exist.
    """
    there = (header.src, header.sport, header.dst, header.dport)
    back = (header.dst, header.dport, header.src, header.sport)
    for flow in manifest.flows:
        named = f"flow {flow.flow}" + (f" ({flow.name})" if flow.name else "")
        if there in flow.connections:
            return flow.flow, flow.src, f"the sender of {named}"
        if back in flow.connections:
            return flow.flow, flow.dst, f"the receiver of {named}"
    for probe in manifest.probes:
        end_at = {probe.src_ip: probe.src, probe.dst_ip: probe.dst}
        # Of ICMP the header here has no identifier, so the first probe between them is named.
        ports = (probe.sport, probe.dport) if probe.kind == "udp" else (None, None)
        if (
            header.src in end_at
            and header.dst in end_at
            and (header.sport, header.dport) in (ports, ports[::-1])
        ):
            return None, end_at[header.src], f"probe {probe.probe} ({probe.kind})"
    hosts = dict(_addresses(manifest, plan))
    host, peer = hosts.get(header.src or ""), hosts.get(header.dst or "")
    if plan is not None:
        for generated in plan.generated:
            for me, other, port, role in (
                (host, peer, header.sport, "sender"),
                (peer, host, header.dport, "receiver"),
            ):
                if (me, other, port) == (generated.src, generated.dst, generated.sport):
                    process = f"the {role} of generated flow {generated.flow}"
                    return None, host, process
    own = ipv4_of(header.src or "")
    programs = [program.name for program in manifest.programs if ipv4_of(program.ip) == own]
    if programs:
        return None, host, f"program {' or '.join(programs)}"
    return None, host, None


def _addresses(manifest: Manifest, plan: Plan | None) -> Iterator[tuple[str, str]]:
    """Addresses with those hosts that the records name."""
    for flow in manifest.flows:
        yield flow.src_ip, flow.src
        yield flow.dst_ip, flow.dst
    for program in manifest.programs:
        yield program.ip, program.host
        for peer in program.peers:
            yield peer.ip, peer.host
    if plan is not None:
        yield from plan.host_of.items()
