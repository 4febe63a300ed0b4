"""Compares the captures of two runs byte by byte, and says in words where they part and why."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

from outcast.errors import InputError, ReplayError, UntrustedError, shortened
from outcast.plan.addresses import ipv4_of
from outcast.plan.model import Plan
from outcast.records.kept_captures import (
    COMPRESSED,
    Packet,
    digests,
    first_stamp_ns,
    is_kept,
    parting,
)
from outcast.records.run_directory import Manifest, RunDirectory
from outcast.units import format_time

_LONGEST_VALUE = 120
_PROGRAMS = ("outcast", "datapath", "kernel", "guest", "versions")
_MEASURED = ("traffic.", "samples.", "cpu.", "workloads.", "routing.split")
"""How effective settings begin that only follow from the packets."""

_ETHERNET_BYTES = 14
_VLAN, _IPV4, _IPV6 = 0x8100, 0x0800, 0x86DD
_IPV6_BYTES = 40
_TYPES = {0x0806: "ARP", 0x88CC: "LLDP"}
_TCP, _UDP = 6, 17
_PROTOCOLS = {1: "ICMP", 58: "ICMPv6"}
_FLAGS = ("FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR")
"""Flags of TCP, from the lowest bit (RFC 9293, section 3.1)."""


def flag_names(flags: int) -> str:
    """The names of TCP's flags: `PSH+ACK`."""
    return "+".join(name for bit, name in enumerate(_FLAGS) if flags >> bit & 1)


@dataclass(frozen=True, slots=True)
class SeenPacket:
    """A packet as one of two captures shows it.

    Attributes:
        at_ns: epoch time on the run's clock.
        frame_bytes: its length on the link, without the checksum.
        source, destination: addresses with ports, as `10.0.0.1:20001`; empty if it is not IP.
        what: what it is, as `TCP ACK, sequence number 7, acknowledges 8, 1448 bytes`.
        flow: the number of its flow; None if it belongs to none of the manifest.
        host: the host that sent it; None if unknown.
        process: the process that sent it, as `the sender of flow 3`; None if unknown.
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
        way = f" from {self.source} to {self.destination}" if self.source else ""
        by = f", sent by {self.process or 'an unknown process'}"
        at = f" at {self.host}" if self.host else ""
        stamp = f"{self.at_ns // 10**9}.{self.at_ns % 10**9:09d}"
        return f"{stamp}: {self.what}{way}{by}{at}"


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The first packet in which two runs part, by virtual time over all captures of both.

    Attributes:
        capture: the capture's name in the run directory, without `.zst`.
        port, direction: where it was captured.
        number: how many packets of this capture are equal before it.
        at_ns: epoch time of the earlier of the two packets.
        since_start_ns: the same after the traffic's start in the first run; negative before it.
        since_first_packet_ns: the same after the earliest packet of all captures of both.
        one, other: the packet in each run; None where the capture has ended.
        only_time: whether the two packets are equal but for their time.
    """

    capture: str
    port: str
    direction: str
    number: int
    at_ns: int
    since_start_ns: int
    since_first_packet_ns: int
    one: SeenPacket | None
    other: SeenPacket | None
    only_time: bool

    def lines(self) -> list[str]:
        """When and where the runs part, and the packet on each side."""
        after = self.since_start_ns >= 0
        when = f"{abs(self.since_start_ns) / 1e9:.9f} s {'after' if after else 'before'}"
        return [
            f"they part {when} the traffic's start, "
            f"{self.since_first_packet_ns / 1e9:.9f} s after the first packet",
            f"in {self.capture}, after {self.number} equal packets",
            *(
                f"{which} run: {'the capture has ended' if seen is None else seen.in_words()}"
                for which, seen in (("first", self.one), ("second", self.other))
            ),
            *([self.same_packet] if self.same_packet else []),
        ]

    @property
    def same_packet(self) -> str:
        """Says that only the time differs, or a field that is not named; empty if more does."""
        if self.one is None or self.other is None:
            return ""
        if not self.only_time:
            is_same = self.one.in_words() == self.other.in_words()
            return "another field of it differs, as its ECN bits or window" if is_same else ""
        by_ns = self.other.at_ns - self.one.at_ns
        return (
            f"what was captured of it is equal: only its time differs, by {by_ns} ns in the second"
        )


@dataclass(frozen=True, slots=True)
class ManifestDifference:
    """A value that differs between two manifests.

    Attributes:
        part, name: the part of the manifest, as `kernel` or `effective`, and the setting in it.
        one, other: its value in each run; None where it is absent.
        decides: whether it can decide the packets. A measured value, for example how long
            connecting took, only follows from them.
    """

    part: str
    name: str
    one: object
    other: object
    decides: bool

    def in_words(self) -> str:
        values = (
            "absent" if value is None else shortened(str(value), _LONGEST_VALUE)
            for value in (self.one, self.other)
        )
        return f"{self.part}: {self.name}: {' and '.join(values)}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Whether two runs are equal, and where they part if not.

    Attributes:
        equal: whether both have the same captures with the same bytes.
        captures: how many captures both have.
        different: names of the captures that both have and that differ.
        only_one, only_other: names of the captures that only one run has.
        not_kept: names of different captures whose packets at least one run did not keep.
        first: the first difference; None if nothing differs or nothing was kept.
        manifests: what differs between the manifests, causes before effects.
    """

    equal: bool
    captures: int
    different: tuple[str, ...]
    only_one: tuple[str, ...]
    only_other: tuple[str, ...]
    not_kept: tuple[str, ...]
    first: FirstDifference | None
    manifests: tuple[ManifestDifference, ...]

    @property
    def causes(self) -> list[str]:
        """The differences of the manifests that can decide packets, in words."""
        return [differ.in_words() for differ in self.manifests if differ.decides]

    @property
    def difference(self) -> str:
        """What differs first, in one line; empty if nothing does."""
        if self.equal:
            return ""
        if self.first is None and not self.different:
            # One run lacks captures that the other has; what both have is equal.
            return self.lines()[1]
        if self.first is None:
            return f"{self.lines()[0]}, and which packet is unknown: a capture was not kept"
        when, where, *_ = self.first.lines()
        return f"{when}, {where}"

    def lines(self) -> list[str]:
        """What differs, where first, and what can have caused it."""
        if self.equal:
            although = ", although:" if self.manifests else ""
            said = [f"equal: {self.captures} captures, byte by byte{although}"]
        else:
            said = [f"different: {len(self.different)} of {self.captures} captures"]
        for names, which in ((self.only_one, "first"), (self.only_other, "second")):
            if names:
                said.append(f"only the {which} run captured {', '.join(names)}")
        if self.first is not None:
            said += self.first.lines()
        elif self.different:
            said.append(
                f"where they part is unknown, because {', '.join(self.not_kept)} was not kept"
            )
        if self.causes:
            said.append("what differs and can decide packets:")
            said += [f"  {words}" for words in self.causes]
        elif not self.equal:
            said.append("their manifests name no cause: same configuration, kernel and versions")
        return said


def require_equal(first: RunDirectory, other: RunDirectory) -> int:
    """Requires that all captures are equal byte by byte. Returns their number.

    Raises:
        ReplayError: something differs. Its text names where the runs part, and the first cause.
        InputError: as `explain`.
    """
    explanation = explain(first, other)
    if explanation.equal:
        return explanation.captures
    raise ReplayError("; before that, ".join([explanation.difference, *explanation.causes[:1]]))


def explain(first: RunDirectory, other: RunDirectory) -> Explanation:
    """Finds where two runs part, by virtual time, and what can have caused it.

    Raises InputError: one of the two is not the directory of a finished run, or a capture is
    broken.
    """
    runs = [(directory, directory.read_manifest()) for directory in (first, other)]
    here, there = (digests(directory, manifest) for directory, manifest in runs)
    both = sorted(set(here) & set(there))
    different = tuple(name for name in both if here[name] != there[name])
    kept = [name for name in different if is_kept(first.path / name) and is_kept(other.path / name)]
    paths = [directory.path / name for directory, _ in runs for name in both]
    return Explanation(
        equal=here == there,
        captures=len(both),
        different=different,
        only_one=tuple(sorted(set(here) - set(there))),
        only_other=tuple(sorted(set(there) - set(here))),
        not_kept=tuple(name for name in different if name not in kept),
        first=_first_of_all(runs, kept, [path for path in paths if is_kept(path)]),
        manifests=tuple(_manifests_differ(runs[0][1], runs[1][1])),
    )


def _first_of_all(
    runs: Sequence[tuple[RunDirectory, Manifest]], different: Sequence[str], kept: Sequence[Path]
) -> FirstDifference | None:
    """The earliest of the captures' first differences."""
    (first_run, first), (other_run, _) = runs
    parts = {name: parting(first_run.path / name, other_run.path / name) for name in different}
    parted = [(part.at_ns, name, part) for name, part in parts.items() if part is not None]
    if not parted:
        return None
    at_ns, name, part = min(parted, key=lambda entry: entry[:2])
    record = next(
        record for record in first.captures if record.file.removesuffix(COMPRESSED) == name
    )
    stamps = (first_stamp_ns(path) for path in kept)
    began_ns = min((stamp_ns for stamp_ns in stamps if stamp_ns is not None), default=at_ns)
    one, other = (
        None if packet is None else _seen(packet, run, manifest)
        for packet, (run, manifest) in zip((part.one, part.other), runs, strict=True)
    )
    return FirstDifference(
        capture=name,
        port=record.port,
        direction=record.direction,
        number=part.number,
        at_ns=at_ns,
        since_start_ns=at_ns - first.traffic.t_start_ns,
        since_first_packet_ns=at_ns - began_ns,
        one=one,
        other=other,
        only_time=part.only_time,
    )


def causes(first: Manifest, other: Manifest) -> list[str]:
    """What differs of the programs that made two runs, in words: outcast, kernel, guest."""
    differ = _manifests_differ(first, other)
    return [difference.in_words() for difference in differ if difference.part in _PROGRAMS]


def _manifests_differ(former: Manifest, latter: Manifest) -> Iterator[ManifestDifference]:
    """Gives what differs between two manifests; what decides comes first."""
    first, second = _settings(former), _settings(latter)
    differences = [
        ManifestDifference(*key, first.get(key), second.get(key), _decides(*key))
        for key in dict.fromkeys([*first, *second])
        if first.get(key) != second.get(key)
    ]
    here, there = (manifest.files.get("config.yaml") for manifest in (former, latter))
    if here != there and not any(differ.part == "config" for differ in differences):
        # The file holds more than what is requested of the kernel, for example the analysis.
        differences.insert(0, ManifestDifference("config", "config.yaml", here, there, True))
    yield from sorted(differences, key=lambda differ: not differ.decides)


def _settings(manifest: Manifest) -> dict[tuple[str, str], object]:
    """All that two runs can differ in, by the part of the manifest and the name in it."""
    parts: dict[str, Mapping[str, object]] = {
        "config": manifest.requested,
        **{
            part: {part: getattr(manifest, part)}
            for part in ("engine", "datapath", "seed", "outcast")
        },
        "kernel": manifest.kernel,
        "guest": {} if manifest.guest is None else manifest.guest.model_dump(),
        "versions": manifest.versions,
        "effective": manifest.effective,
        "interventions": {} if manifest.interventions is None else manifest.interventions.named,
        "traffic": {"t_start_ns": manifest.traffic.t_start_ns},
    }
    return {(part, name): value for part, values in parts.items() for name, value in values.items()}


def _decides(part: str, name: str) -> bool:
    return part != "traffic" and not (part == "effective" and name.startswith(_MEASURED))


def require_prefix(explanation: Explanation, since_ns: int, named: str) -> None:
    """Raises UntrustedError if two runs part before an instant after the traffic's start."""
    first = explanation.first
    if explanation.equal or (first is not None and first.since_start_ns >= since_ns):
        return
    when = "at an unknown time" if first is None else first.lines()[0]
    raise UntrustedError(
        f"{named}: the run made again is another one before the intervention at "
        f"{format_time(since_ns)}: {when}; outcast replay --explain says more"
    )


@dataclass(frozen=True, slots=True)
class Header:
    """A packet's addresses and ports, which can be absent or not captured, and what it is."""

    what: str
    src: str | None = None
    dst: str | None = None
    sport: int | None = None
    dport: int | None = None


def read_header(data: bytes) -> Header:
    """Decodes the captured part of an Ethernet frame; one that cannot be decoded is no error."""
    if len(data) < _ETHERNET_BYTES:
        return Header(f"{len(data)} bytes, too few for a frame's header")
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
        return Header(_TYPES.get(kind, f"Ethernet of type {kind:#06x}"))
    if protocol == _TCP and len(data) >= begin + 14:
        sport, dport, sequence, acknowledged, offset, flags = struct.unpack_from(
            "!HHIIBB", data, begin
        )
        payload_bytes = max(0, payload_bytes - (offset >> 4) * 4)
        what = (
            f"TCP {flag_names(flags) or 'without flags'}, sequence number {sequence}, "
            f"acknowledges {acknowledged}, {payload_bytes} bytes{numbered}"
        )
        return Header(what, src, dst, sport, dport)
    if protocol == _UDP and len(data) >= begin + 8:
        sport, dport = struct.unpack_from("!HH", data, begin)
        what = f"UDP, {max(0, payload_bytes - 8)} bytes{numbered}"
        return Header(what, src, dst, sport, dport)
    name = _PROTOCOLS.get(protocol, f"IP protocol {protocol}")
    return Header(f"{name}, {payload_bytes} bytes{numbered}", src, dst)


def _seen(packet: Packet, directory: RunDirectory, manifest: Manifest) -> SeenPacket:
    header = read_header(packet.data)
    plan = None
    # Without a plan that this version reads, senders of generated flows are not known.
    with contextlib.suppress(InputError):
        plan = directory.read_plan()
    source, destination = (
        "" if address is None else address if port is None else f"{address}:{port}"
        for address, port in ((header.src, header.sport), (header.dst, header.dport))
    )
    sender = sender_of(header, manifest, plan)
    return SeenPacket(packet.at_ns, packet.frame_bytes, source, destination, header.what, *sender)


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
        # The header lacks ICMP's identifier, so the first probe between the two hosts is named.
        ports = (probe.sport, probe.dport) if probe.kind == "udp" else (None, None)
        is_between = header.src in end_at and header.dst in end_at
        if is_between and (header.sport, header.dport) in (ports, ports[::-1]):
            return None, end_at[header.src or ""], f"probe {probe.probe} ({probe.kind})"
    hosts = dict(_addresses(manifest, plan))
    host, peer = hosts.get(header.src or ""), hosts.get(header.dst or "")
    for generated in () if plan is None else plan.generated:
        for ends, role in (
            ((host, peer, header.sport), "sender"),
            ((peer, host, header.dport), "receiver"),
        ):
            if ends == (generated.src, generated.dst, generated.sport):
                return None, host, f"the {role} of generated flow {generated.flow}"
    own = ipv4_of(header.src or "")
    programs = [program.name for program in manifest.programs if ipv4_of(program.ip) == own]
    return None, host, f"program {' or '.join(programs)}" if programs else None


def _addresses(manifest: Manifest, plan: Plan | None) -> Iterator[tuple[str, str]]:
    """The addresses that the records name, with their hosts."""
    for flow in manifest.flows:
        yield flow.src_ip, flow.src
        yield flow.dst_ip, flow.dst
    for program in manifest.programs:
        yield program.ip, program.host
        for peer in program.peers:
            yield peer.ip, peer.host
    if plan is not None:
        yield from plan.host_of.items()
