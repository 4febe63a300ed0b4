"""The kernel's counters: nstat's for each host, tc's for each captured port, and each link's."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outcast.emulation import link_counters as links
from outcast.emulation import queues
from outcast.emulation.commands import entered
from outcast.emulation.lost import LostPackets
from outcast.emulation.network import Network
from outcast.plan.model import Plan
from outcast.records.counters import CaptureRecord, Counters, HostCounters, PortCounters

EMPTY_DEADLINE_S = 10.0
_SNMP_FILES = (Path("/proc/thread-self/net/snmp"), Path("/proc/thread-self/net/netstat"))


@dataclass(frozen=True)
class Snapshot:
    """The kernel's counters of captured ports, of hosts, and of links."""

    ports: Mapping[str, dict[str, Any]]
    hosts: Mapping[str, dict[str, int]]
    links: links.Counted


def read(network: Network, lost: LostPackets) -> Snapshot:
    """Reads all counters that a run keeps."""
    plan = network.plan
    return Snapshot(
        port_counters(network, sorted({port for port, _ in plan.capture_ports})),
        {host: host_counters(network, host) for host in plan.counted_hosts},
        read_links(network, lost),
    )


def read_links(network: Network, lost: LostPackets) -> links.Counted:
    """Reads the counters of all links, and what each port has lost."""
    losses = network.losses()
    for port, count in lost.by_sender().items():
        losses[port]["link"] = losses[port].get("link", 0) + count
    return {**network.interface_counters(), **network.wire_counters()}, losses


def record(
    plan: Plan,
    before: Snapshot,
    at_start: links.Counted | None,
    at_end: Snapshot | None,
    after: Snapshot,
    captures: Sequence[CaptureRecord],
) -> Counters:
    """The content of counters.json."""

    def times(name: str, kind: str) -> dict[str, Any]:
        read = {"before": before, "at_end": at_end, "after": after}
        return {time: each and getattr(each, kind)[name] for time, each in read.items()}

    ends = (before.links, at_start, None if at_end is None else at_end.links, after.links)
    return Counters(
        ports={port: PortCounters(**times(port, "ports")) for port in before.ports},
        hosts={host: HostCounters(**times(host, "hosts")) for host in before.hosts},
        captures=list(captures),
        links=links.records(plan, *ends),
    )


def await_empty(network: Network, ports: Collection[str]) -> str:
    """Waits until these ports' queues are empty. Returns which are not in time; empty for none.

    It is a line of the record, because no check after the traffic ends a run.
    """
    end = time.monotonic() + EMPTY_DEADLINE_S
    while full := [port for port, stats in port_counters(network, ports).items() if stats["qlen"]]:
        if time.monotonic() > end:
            return (
                f"{', '.join(full)}: packets were still queued {EMPTY_DEADLINE_S:.0f} s after the "
                "flows' end"
            )
        time.sleep(0.05)
    return ""


def host_counters(network: Network, host: str) -> dict[str, int]:
    """A host's counters under nstat(8)'s names (`TcpRetransSegs`, `TcpExtTCPTimeouts`)."""
    with entered(network.netns(host)):
        return parse_snmp("".join(path.read_text() for path in _SNMP_FILES))


def parse_snmp(text: str) -> dict[str, int]:
    """Reads /proc/net/snmp and netstat: pairs of lines, one of names and one of values."""
    counters: dict[str, int] = {}
    lines = iter(text.splitlines())
    for names, values in zip(lines, lines, strict=True):
        prefix, *keys = names.split()
        _, *numbers = values.split()
        counters.update(
            {
                prefix.rstrip(":") + key: int(number)
                for key, number in zip(keys, numbers, strict=True)
            }
        )
    return counters


def port_counters(network: Network, ports: Collection[str]) -> dict[str, dict[str, Any]]:
    """Counters of switch ports: the shaper's bytes, packets, drops, overlimits, backlog and qlen.

    `own` has what the queue below counts itself; see `outcast.emulation.queues.own_counters`.
    `rx_packets` and `tx_packets` are the interface's own. They show whether a capture is complete.
    """
    interfaces = network.interface_counters()
    messages = network.counted_by_queues(ports)
    return {
        port: {
            **queues.counters(messages[port]),
            "own": queues.own_counters(messages[port]),
            "rx_packets": interfaces[port]["rx_packets"],
            "tx_packets": interfaces[port]["tx_packets"],
        }
        for port in ports
    }
