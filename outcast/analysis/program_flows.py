"""The flows of programs, which nobody planned: found in the captures, named by their programs.

A flow is one direction of a TCP connection, or of what two UDP ports send each other (QUIC too).
It belongs to the program at one of its two hosts that the configuration lets talk to the other
one. ping(8) has no flows. If several programs are left, a server that listens at another port
drops out, and then those that were not running when the flow began. If that does not leave one
program, the flow bears all their names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from outcast.analysis.capture.headers import TCP, UDP, FlowKey
from outcast.analysis.join.join import Joined
from outcast.analysis.join.packets import grouped
from outcast.plan import schedule
from outcast.plan.addresses import ipv4_of
from outcast.records.flows import (
    BottleneckRecord,
    FlowRecord,
    PeerRecord,
    ProbeRecord,
    ProgramRecord,
)
from outcast.records.run_directory import Manifest

_WITHOUT_FLOWS = frozenset({"ping", "ping6", "fping", "arping"})
"""Programs that send neither TCP nor UDP (ping(8): ICMP; arping(8): ARP)."""
LEAST_DATA_SHARE = 0.1
"""A direction of a connection with less of the other one's payload carries no data of its own."""
_EITHER = " or "
"""Between the names of programs whose flows look the same."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """A flow at a bottleneck: the times of its first and its last packet there, its payload."""

    key: FlowKey
    ingress: str
    first_ns: int
    last_ns: int
    payload_bytes: int


def program_flows(
    manifest: Manifest, joins: Sequence[tuple[BottleneckRecord, Joined]]
) -> list[FlowRecord]:
    """A record for each flow of a program, by its first packet, numbered after planned flows."""
    if not manifest.programs:
        return []
    planned = manifest.planned_flows
    known = _planned_keys([*planned, *manifest.probes])
    groups = max((record.group for record in planned), default=-1) + 1
    number = max((record.flow for record in planned), default=-1) + 1
    # What a host's sockets have unless the program asks for another one.
    usual = manifest.requested.get("transport.congestion_control")
    chosen = {
        (record.host, record.port, record.peer_port): record.congestion_control
        for record in manifest.program_controls
    }
    records: list[FlowRecord] = []
    every = [seen for _, joined in joins for seen in _flows(joined)]
    payload = {seen.key: seen.payload_bytes for seen in every}
    for seen in sorted(every, key=lambda seen: (seen.first_ns, seen.key)):
        key = seen.key
        if (key.src, key.sport, key.dst, key.dport) in known or _is_generated(manifest, key):
            continue
        programs = _programs(manifest.programs, seen)
        if not programs:
            continue
        own, peer = programs[0]
        at_own = ipv4_of(key.src) == ipv4_of(own.ip)
        src = own.host if at_own else peer.host
        control = chosen.get((src, key.sport, key.dport), usual)
        records.append(
            FlowRecord(
                flow=number + len(records),
                group=groups + manifest.programs.index(own),
                src=src,
                src_ip=key.src,
                sport=key.sport,
                dst=peer.host if at_own else own.host,
                dst_ip=key.dst,
                dport=key.dport,
                hops=peer.hops,
                path=peer.path if at_own else peer.return_path,
                return_path=peer.return_path if at_own else peer.path,
                ingress=seen.ingress,
                start_ns=max(0, seen.first_ns - manifest.traffic.t_start_ns),
                duration_ns=max(0, seen.last_ns - max(seen.first_ns, manifest.traffic.t_start_ns)),
                size_bytes=None,
                congestion_control=control if key.protocol == TCP else None,
                name=_EITHER.join(program.name for program, _ in programs),
                protocol="tcp" if key.protocol == TCP else "udp",
                of_program=True,
                carries_data=seen.payload_bytes > 0
                and seen.payload_bytes >= LEAST_DATA_SHARE * payload.get(key.reversed, 0),
            )
        )
    return records


def _flows(joined: Joined) -> list[_Seen]:
    arrivals = joined.arrivals
    return [
        _Seen(
            joined.flows[number],
            joined.inputs[int(arrivals.port[rows[0]])],
            int(arrivals.stamp_ns[rows[0]]),
            int(arrivals.stamp_ns[rows[-1]]),
            int(arrivals.payload_bytes[rows].sum()),
        )
        for number, rows in grouped(arrivals.flow).items()
        if joined.flows[number].protocol in (TCP, UDP)
    ]


def _planned_keys(records: Sequence[FlowRecord | ProbeRecord]) -> set[tuple[str, int, str, int]]:
    """Addresses and ports of planned flows and probes, and of what they are answered with."""
    keys = set()
    for record in records:
        own = [(record.src_ip, record.sport, record.dst_ip, record.dport)]
        for src, sport, dst, dport in getattr(record, "connections", own):
            keys |= {(src, sport, dst, dport), (dst, dport, src, sport)}
    return keys


def _is_generated(manifest: Manifest, key: FlowKey) -> bool:
    """Whether a flow has the ports of a workload's flows, or of their acknowledgements."""
    if not manifest.generated_hosts:
        return False
    served = (schedule.TCP_PORT, schedule.UDP_PORT)
    return any(
        sport >= schedule.FIRST_SOURCE_PORT and dport in served
        for sport, dport in ((key.sport, key.dport), (key.dport, key.sport))
    )


def _programs(
    programs: Sequence[ProgramRecord], seen: _Seen
) -> list[tuple[ProgramRecord, PeerRecord]]:
    """The programs that may have sent a flow, each with its other host."""
    key = seen.key
    port_at = {ipv4_of(key.src): key.sport, ipv4_of(key.dst): key.dport}
    between = [
        (program, peer)
        for program in programs
        for peer in program.peers
        if port_at.keys() == {ipv4_of(program.ip), ipv4_of(peer.ip)}
        and _WITHOUT_FLOWS.isdisjoint(Path(word).name for word in program.command[:1])
    ]
    # A server may also ask others, as a proxy does.
    between = [
        (program, peer)
        for program, peer in between
        if program.port in (None, port_at[ipv4_of(program.ip)])
    ] or between
    running = [
        (program, peer)
        for program, peer in between
        if any(
            execution.t_start_ns <= seen.first_ns <= execution.t_end_ns
            for execution in program.executions
        )
    ]
    return running or between
