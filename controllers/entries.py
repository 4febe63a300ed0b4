"""The flow entries that routes become, and their reading back from a switch."""

from __future__ import annotations

import re
from dataclasses import dataclass

from controllers.graph import Graph
from controllers.routes import Routes

ROUTE_PRIORITY = 100
MISS_PRIORITY = 0

ETH_TYPES = {"ip": 0x0800, "arp": 0x0806}


@dataclass(frozen=True, slots=True)
class Entry:
    """One flow entry of table 0.

    Attributes:
        priority: the higher wins.
        protocol: `"ip"` or `"arp"`; None matches every packet.
        destination: the IPv4 destination, or the ARP target, as dotted text.
        output: the port to send out by; None drops.
    """

    priority: int
    protocol: str | None = None
    destination: str | None = None
    output: int | None = None


TABLE_MISS = Entry(MISS_PRIORITY)
"""Drops what no other entry matches, instead of asking the controller."""


def planned(graph: Graph, routes: Routes) -> dict[str, frozenset[Entry]]:
    """All the entries that each switch is to hold, by switch name.

    One for IP and one for ARP for each destination, and the table miss. With the ARP ones a
    request goes straight to the host that it asks for, so nothing is ever flooded.
    """
    return {
        switch: frozenset(
            [
                TABLE_MISS,
                *(
                    Entry(ROUTE_PRIORITY, protocol, graph.nodes[host]["ip"], port)
                    for host, port in ports.items()
                    for protocol in ETH_TYPES
                ),
            ]
        )
        for switch, ports in routes.items()
    }


def parse_dump(dump: str) -> frozenset[Entry]:
    """The entries in the output of `ovs-ofctl dump-flows --no-stats --no-names SWITCH`.

    Raises:
        ValueError: a line is of no form that `planned` makes; it is quoted.
    """
    lines = (line.strip() for line in dump.splitlines())
    return frozenset(
        _parse_line(line) for line in lines if line and not re.match("(OFPST|NXST)_FLOW", line)
    )


def _parse_line(line: str) -> Entry:
    match, _, actions = line.partition("actions=")
    fields = [field for field in re.split("[, ]+", match) if field]
    values = dict(field.split("=", 1) for field in fields if "=" in field)
    flags = {field for field in fields if "=" not in field}
    protocol = next((name for name in ETH_TYPES if name in flags), None)
    destination = values.pop({"ip": "nw_dst", "arp": "arp_tpa", None: ""}[protocol], None)
    # 32768 is the priority that ovs-ofctl leaves out.
    priority = int(values.pop("priority", "32768"))
    values.pop("cookie", None)
    output = re.fullmatch("output:([0-9]+)|drop", actions)
    if values or flags - {protocol} or output is None or (protocol and destination is None):
        raise ValueError(f"unexpected flow entry: {line}")
    return Entry(priority, protocol, destination, int(output[1]) if output[1] else None)
