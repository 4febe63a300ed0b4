"""The kernel's counters: nstat's for each host, and tc's for each captured port."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from outcast.emulation import queues
from outcast.emulation.commands import entered
from outcast.emulation.network import Network

_SNMP_FILES = (Path("/proc/thread-self/net/snmp"), Path("/proc/thread-self/net/netstat"))


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
