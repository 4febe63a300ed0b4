"""Routes as flow entries and groups, and reading these back from a switch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from controllers.graph import Graph
from controllers.routes import Routes, hash_parameter

FROM_PORT_PRIORITY = 200
FROM_ABOVE_PRIORITY = 150
ROUTE_PRIORITY = 100
MISS_PRIORITY = 0

ETH_TYPES = {"ip": 0x0800, "arp": 0x0806, "ipv6": 0x86DD}
_DESTINATIONS = {"ip": "nw_dst", "arp": "arp_tpa", "ipv6": "ipv6_dst"}
"""The field of each protocol's destination, by ovs-ofctl(8)'s names."""

IN_PORT = 0xFFFFFFF8
"""OpenFlow's OFPP_IN_PORT: out by the port that the packet came in by.

A switch drops a packet that is sent to that port by its number.
"""

HASH_FIELDS = ("ip_src", "ip_dst", "nw_proto", "tcp_src", "tcp_dst", "udp_src", "udp_dst")
"""The fields that groups hash, by ovs-ofctl(8)'s names; controllers/hashing.py has the hash."""
HASH_FIELDS_IPV6 = ("ipv6_src", "ipv6_dst")
"""What groups hash besides where hosts have IPv6 addresses."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One flow entry of table 0.

    Attributes:
        priority: of several entries that match, the one with the highest priority counts.
        protocol: `"ip"`, `"arp"` or `"ipv6"`; None matches every packet.
        destination: the destination, or the ARP target, as text.
        output: the port by which packets are sent, or IN_PORT.
        in_port: the port by which packets come in; None means any.
        group: the group that chooses the port. Without `group` and `output` packets are dropped.
    """

    priority: int
    protocol: str | None = None
    destination: str | None = None
    output: int | None = None
    in_port: int | None = None
    group: int | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """A select group, with the selection method `hash` over HASH_FIELDS unless it draws.

    Attributes:
        number: the group's identifier.
        ports: the output of each bucket, in the order of the buckets, which have weight 1.
        parameter: 64 bits that go into the hash.
        ipv6: whether HASH_FIELDS_IPV6 are hashed too.
        draws: whether the kernel draws a bucket for each packet (method `dp_hash`).
    """

    number: int
    ports: tuple[int, ...]
    parameter: int
    ipv6: bool = False
    draws: bool = False


def drawn_basis(ports: tuple[int, ...]) -> int:
    """The basis with which patch 0025 of the guest's kernel draws one of as many values.

    Open vSwitch gives its first values to the buckets in their order, one each
    (group_setup_dp_hash_table in ofproto/ofproto-dpif.c), so each port is as likely as another.
    """
    return 0x7061 << 16 | len(ports)


TABLE_MISS = Entry(MISS_PRIORITY)
"""Drops packets that no other entry matches, instead of asking the controller."""


def planned(graph: Graph, routes: Routes) -> dict[str, frozenset[Entry]]:
    """All entries of each switch, by switch name.

    For each destination that the switch carries packets to there is one for IP, one for ARP, and
    one for IPv6 if it has such an address. The table miss comes last. By the ARP entries a request
    goes straight to its target, so nothing is ever flooded. IPv6 neighbours are static and need no
    requests. Where the route depends on the port that a packet came in by, entries of higher
    priority match it.
    """
    numbers = {
        switch: {group.ports: group.number for group in groups}
        for switch, groups in planned_groups(graph, routes).items()
    }
    return {
        switch: frozenset(
            [
                TABLE_MISS,
                *_towards(graph, routes, switch, numbers[switch]),
                *_from_above(graph, routes, switch),
                *_back(graph, routes, switch),
            ]
        )
        for switch in numbers
    }


def planned_groups(graph: Graph, routes: Routes) -> dict[str, frozenset[Group]]:
    """All groups of each switch, by switch name: one for each set of ports."""
    ipv6 = any(data.get("ip6") for _, data in graph.nodes(data=True))
    return {
        switch: frozenset(
            Group(number, ports, drawn_basis(ports), draws=True)
            if routes.per_packet
            else Group(number, ports, hash_parameter(routes.hash_seed, graph, switch), ipv6)
            for number, ports in enumerate(
                sorted(set(routes.choices.get(switch, {}).values())), start=1
            )
        )
        for switch in routes.to
        if graph.nodes[switch]["kind"] == "switch"
    }


def _towards(
    graph: Graph, routes: Routes, switch: str, numbers: dict[tuple[int, ...], int]
) -> list[Entry]:
    chosen = routes.choices.get(switch, {})
    entries = []
    for host, port in _carried(graph, switch, routes.to[switch]):
        for protocol, address in _addresses(graph, host):
            if host in chosen and protocol != "arp":
                group = numbers[chosen[host]]
                entries.append(Entry(ROUTE_PRIORITY, protocol, address, group=group))
            else:
                entries.append(Entry(ROUTE_PRIORITY, protocol, address, port))
    return entries


def _carried(graph: Graph, switch: str, ports: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """The destinations that the switch needs entries for, with their ports."""
    carries = graph.nodes[switch].get("carries")
    return ((host, port) for host, port in ports.items() if carries is None or host in carries)


def _addresses(graph: Graph, host: str) -> list[tuple[str, str]]:
    """A host's destinations, each after its protocol."""
    data = graph.nodes[host]
    ipv6 = [("ipv6", data["ip6"])] if data.get("ip6") else []
    return [("ip", data["ip"]), ("arp", data["ip"]), *ipv6]


def _from_above(graph: Graph, routes: Routes, switch: str) -> list[Entry]:
    entries = []
    for in_port in routes.upper.get(switch, ()):
        entries.append(Entry(FROM_ABOVE_PRIORITY, in_port=in_port))
        entries += [
            Entry(FROM_PORT_PRIORITY, protocol, address, port, in_port)
            for host, port in _carried(graph, switch, routes.from_above[switch])
            for protocol, address in _addresses(graph, host)
        ]
    return entries


def _back(graph: Graph, routes: Routes, switch: str) -> list[Entry]:
    """A top switch's entries for packets that go down by the port that they came up by."""
    if not routes.depends_on_input or switch in routes.upper:
        return []
    return [
        Entry(FROM_PORT_PRIORITY, protocol, address, IN_PORT, port)
        for host, port in _carried(graph, switch, routes.to[switch])
        for protocol, address in _addresses(graph, host)
    ]


_NO_ENTRY = re.compile("(OFPST|NXST)_FLOW|table_id=254,")
"""A heading, or an entry of the table that controllers cannot see (TBL_INTERNAL of ofproto)."""
_STATISTICS = re.compile("(?:duration=[0-9.]+s|n_packets=[0-9]+|n_bytes=[0-9]+), *")


def parse_dump(dump: str) -> frozenset[Entry]:
    """The entries in the output of `ovs-ofctl dump-flows --no-stats --no-names SWITCH`.

    That of `ovs-appctl bridge/dump-flows SWITCH` has statistics and Open vSwitch's own last table
    too, which are left out.

    Raises:
        ValueError: a line has a form that no entry of `planned` has; it is quoted.
    """
    lines = (_STATISTICS.sub("", line).strip() for line in dump.splitlines())
    return frozenset(_parse_line(line) for line in lines if line and not _NO_ENTRY.match(line))


@lru_cache(1 << 16)
def _parse_line(line: str) -> Entry:
    """An entry from its line without statistics. Many switches have the same ones."""
    match, _, actions = line.partition("actions=")
    fields = [field for field in re.split("[, ]+", match) if field]
    values = dict(field.split("=", 1) for field in fields if "=" in field)
    flags = {field for field in fields if "=" not in field}
    protocol = next((name for name in ETH_TYPES if name in flags), None)
    destination = values.pop(_DESTINATIONS[protocol], None) if protocol else None
    # ovs-ofctl leaves out the priority 32768.
    priority = int(values.pop("priority", "32768"))
    in_port = values.pop("in_port", None)
    values.pop("cookie", None)
    action = re.fullmatch("output:([0-9]+)|group:([0-9]+)|(IN_PORT)|drop", actions)
    if values or flags - {protocol} or action is None or (protocol and destination is None):
        raise ValueError(f"unexpected flow entry: {line}")
    output = IN_PORT if action[3] else int(action[1]) if action[1] else None
    return Entry(
        priority,
        protocol,
        destination,
        output,
        int(in_port) if in_port else None,
        int(action[2]) if action[2] else None,
    )


def parse_groups(dump: str) -> frozenset[Group]:
    """The groups in the output of `ovs-ofctl -O OpenFlow15 dump-groups SWITCH`.

    Raises:
        ValueError: a line has a form that no group of `planned_groups` has; it is quoted.
    """
    lines = (line.strip() for line in dump.splitlines())
    return frozenset(_parse_group(line) for line in lines if line.startswith("group_id="))


def _parse_group(line: str) -> Group:
    match = re.fullmatch(
        r"group_id=([0-9]+),type=select,selection_method=(hash|dp_hash)"
        r"(?:,selection_method_param=([0-9]+))?(?:,fields\(([a-z0-9_,]+)\))?"
        r"((?:,bucket=bucket_id:[0-9]+,actions=output:[0-9]+)+)",
        line,
    )
    buckets = re.findall("bucket_id:([0-9]+),actions=output:([0-9]+)", match[5] if match else "")
    in_order = [int(number) for number, _ in buckets] == list(range(len(buckets)))
    fields = set((match[4] or "").split(",")) - {""} if match else set()
    ipv6 = not fields.isdisjoint(HASH_FIELDS_IPV6)
    draws = match is not None and match[2] == "dp_hash"
    wanted = set() if draws else {*HASH_FIELDS, *(HASH_FIELDS_IPV6 * ipv6)}
    if match is None or fields != wanted or not in_order:
        raise ValueError(f"unexpected group: {line}")
    ports = tuple(int(port) for _, port in buckets)
    return Group(int(match[1]), ports, int(match[3] or 0), ipv6, draws)
