"""Says what a captured packet is and who sent it, for people who compare two runs.

The analysis decodes whole captures in columns (outcast.analysis.capture). Here a single packet is
put into words, and a packet that cannot be decoded is no error.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address

from outcast.plan.model import Plan
from outcast.records.run_directory import Manifest

_ETHERNET_BYTES = 14
_VLAN, _IPV4 = 0x8100, 0x0800
_TYPES = {0x0806: "ARP", 0x86DD: "IPv6", 0x88CC: "LLDP"}
_TCP, _UDP, _ICMP = 6, 17, 1
_FLAGS = ("FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR")
"""Of TCP, from the lowest bit (RFC 9293, section 3.1)."""


@dataclass(frozen=True, slots=True)
class Header:
    """A packet's addresses, and what it is.

    Attributes:
        src, dst: IPv4 addresses; None if it is not IPv4 or was captured too short.
        sport, dport: its ports; None if it has none.
        what: what it is, as `TCP ACK, sequence number 7, 1448 bytes`.
    """

    src: str | None
    dst: str | None
    sport: int | None
    dport: int | None
    what: str


def read_header(data: bytes) -> Header:
    """Decodes an Ethernet frame as far as it was captured."""
    if len(data) < _ETHERNET_BYTES:
        return Header(None, None, None, None, f"{len(data)} bytes, too few for a frame's header")
    at = _ETHERNET_BYTES
    (kind,) = struct.unpack_from("!H", data, at - 2)
    if kind == _VLAN and len(data) >= at + 4:
        at += 4
        (kind,) = struct.unpack_from("!H", data, at - 2)
    if kind != _IPV4 or len(data) < at + 20:
        return Header(None, None, None, None, _TYPES.get(kind, f"Ethernet of type {kind:#06x}"))
    length, ip_id, protocol = struct.unpack_from("!HH3xB", data, at + 2)
    src, dst = (str(IPv4Address(data[at + place : at + place + 4])) for place in (12, 16))
    header_bytes = (data[at] & 15) * 4
    begin = at + header_bytes
    payload_bytes = max(0, length - header_bytes)
    if protocol == _TCP and len(data) >= begin + 14:
        sport, dport, sequence, acknowledged, offset, flags = struct.unpack_from(
            "!HHIIBB", data, begin
        )
        names = "+".join(name for bit, name in enumerate(_FLAGS) if flags >> bit & 1)
        payload_bytes = max(0, payload_bytes - (offset >> 4) * 4)
        what = (
            f"TCP {names or 'without flags'}, sequence number {sequence}, "
            f"acknowledges {acknowledged}, {payload_bytes} bytes, IP id {ip_id}"
        )
        return Header(src, dst, sport, dport, what)
    if protocol == _UDP and len(data) >= begin + 8:
        sport, dport = struct.unpack_from("!HH", data, begin)
        return Header(
            src, dst, sport, dport, f"UDP, {max(0, payload_bytes - 8)} bytes, IP id {ip_id}"
        )
    name = "ICMP" if protocol == _ICMP else f"IP protocol {protocol}"
    return Header(src, dst, None, None, f"{name}, {payload_bytes} bytes, IP id {ip_id}")


@dataclass(frozen=True, slots=True)
class Sender:
    """Who sent a packet.

    Attributes:
        flow: the number of its flow in the manifest; None if it belongs to none.
        host: the sending host; None if unknown.
        process: what sent it there; None if unknown.
    """

    flow: int | None
    host: str | None
    process: str | None


def sender_of(header: Header, manifest: Manifest, plan: Plan | None) -> Sender:
    """Finds the flow of a packet, and the host and process that sent it."""
    for flow in manifest.flows:
        ends = [(flow.sport, flow.dport), *((sub.sport, sub.dport) for sub in flow.subflows)]
        named = f"flow {flow.flow}" + (f" ({flow.name})" if flow.name else "")
        if (header.src, header.dst) == (flow.src_ip, flow.dst_ip) and (
            (header.sport, header.dport) in ends
        ):
            return Sender(flow.flow, flow.src, f"the sender of {named}")
        if (header.dst, header.src) == (flow.src_ip, flow.dst_ip) and (
            (header.dport, header.sport) in ends
        ):
            return Sender(flow.flow, flow.dst, f"the receiver of {named}")
    for probe in manifest.probes:
        end_at = {probe.src_ip: probe.src, probe.dst_ip: probe.dst}
        # Of ICMP the header here has no identifier, so the first probe between them is named.
        ports = (probe.sport, probe.dport) if probe.kind == "udp" else (None, None)
        if (
            header.src in end_at
            and header.dst in end_at
            and (header.sport, header.dport) in (ports, ports[::-1])
        ):
            return Sender(None, end_at[header.src], f"probe {probe.probe} ({probe.kind})")
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
                    return Sender(None, host, process)
    programs = [program.name for program in manifest.programs if program.ip == header.src]
    if programs:
        return Sender(None, host, f"program {' or '.join(programs)}")
    return Sender(None, host, None)


def _addresses(manifest: Manifest, plan: Plan | None) -> Iterator[tuple[str, str]]:
    """IPv4 addresses with their hosts, as far as the records tell them."""
    for flow in manifest.flows:
        yield flow.src_ip, flow.src
        yield flow.dst_ip, flow.dst
    for program in manifest.programs:
        yield program.ip, program.host
        for peer in program.peers:
            yield peer.ip, peer.host
    if plan is not None:
        for host in plan.hosts:
            yield plan.ip(host), host
