"""A network as data: what a user's own topology file came to.

The file is read, or run, once. From then on the experiment carries the network, so that whatever
has the experiment needs neither the file nor its code.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from ipaddress import IPv4Address
from typing import Any, Literal, NamedTuple

from pydantic import Field, JsonValue, field_validator

from controllers.distances import distances
from outcast.experiment.parts import Part, described

MOST_NODES = 1000
MOST_LINKS = 1500
"""With more, a configuration that holds the network could be larger than its reader takes."""

ROUTERS_FROM = 0xFF00
"""In a network of routers, their ports have the last addresses of each subnet of /16."""
MOST_SUBNETS = 254
LONGEST_INTERFACE = 15
"""In bytes: IFNAMSIZ of linux/if.h without the null."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_CLASS = re.compile(r"[0-9]+-hop")
TAKEN = frozenset(
    {"lo", "all", "default", "ovs-system", "ovs-netdev", "blackout-link", "blackout-port"}
)
"""Names of interfaces that are there already, and of the kernel's folders beside theirs."""
_ADDRESS = re.compile(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}")


class NetworkError(ValueError):
    """A network that cannot be built.

    `subject` is the node or link that is wrong, as `h1` or `h1 - s1`; empty for the whole.
    """

    def __init__(self, subject: str, text: str) -> None:
        super().__init__(f"{subject}: {text}" if subject else text)
        self.subject = subject
        self.text = text


class End(NamedTuple):
    """One end of a link: its interface is `NODE-ethPORT`."""

    node: str
    port: int

    @property
    def interface(self) -> str:
        return f"{self.node}-eth{self.port}"


class NetworkHost(Part):
    """A host, or a further interface of one. `of` is then that host's name."""

    name: str
    ip: str
    mac: str
    role: str | None = Field(default=None, max_length=40)
    of: str | None = None
    label: str | None = Field(default=None, max_length=200)


class NetworkSwitch(Part):
    """A switch."""

    name: str
    dpid: int = Field(gt=0, lt=2**63)
    layer: Literal["edge", "aggregation", "core"] = "edge"
    label: str | None = Field(default=None, max_length=200)


class NetworkRouter(Part):
    """A Linux host that forwards between the subnets of its links."""

    name: str
    label: str | None = Field(default=None, max_length=200)


class NetworkLink(Part):
    """A link. `own` has its own settings by sending node, in the words of `links`."""

    ends: tuple[str, str]
    own: dict[str, dict[str, Any]] = Field(default={})

    @field_validator("ends")
    @classmethod
    def _interfaces(cls, ends: tuple[str, str]) -> tuple[str, str]:
        for interface in ends:
            if not re.fullmatch(r".+-eth(0|[1-9][0-9]{0,4})", interface):
                raise ValueError(f"{interface!r}: allowed is the name of an interface, as s1-eth1")
        return ends

    @property
    def places(self) -> tuple[End, End]:
        first, second = (interface.rpartition("-eth") for interface in self.ends)
        return End(first[0], int(first[2])), End(second[0], int(second[2]))


class Network(Part):
    """A whole network. The order of its nodes is that in which Mininet lists them."""

    of: dict[str, JsonValue] = described("the keys of the topology that it was made from")
    hosts: tuple[NetworkHost, ...] = Field(max_length=MOST_NODES)
    switches: tuple[NetworkSwitch, ...] = Field(max_length=MOST_NODES)
    links: tuple[NetworkLink, ...] = Field(max_length=MOST_LINKS)
    notes: tuple[str, ...] = described("what was left out", default=(), max_length=20)
    routers: tuple[NetworkRouter, ...] = Field(default=(), max_length=MOST_NODES)

    def _require(self) -> None:
        nodes = len(self.hosts) + len(self.switches) + len(self.routers)
        if nodes > MOST_NODES or len(self.links) > MOST_LINKS:
            raise NetworkError(
                "",
                f"{nodes} nodes and {len(self.links)} links; allowed are "
                f"{MOST_NODES} nodes and {MOST_LINKS} links",
            )
        if len(self.hosts) < 2 or not self.switches:
            raise NetworkError(
                "",
                f"{len(self.hosts)} hosts and {len(self.switches)} switches; allowed are two hosts "
                "or more, and a switch between them",
            )
        _require_names(self)
        _require_addresses(self.hosts)
        _require_links(self)
        _require_interfaces(self)
        _require_connected(self)
        if self.routers:
            _require_subnets(self)

    @property
    def nodes(self) -> tuple[NetworkHost | NetworkSwitch | NetworkRouter, ...]:
        return (*self.hosts, *self.switches, *self.routers)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return [(first.node, second.node) for first, second in (link.places for link in self.links)]


class Segment(NamedTuple):
    """The hosts and switches that reach one another without a router, which are one subnet.

    `ports` has each router at it, with the node that the router's port leads to.
    """

    nodes: tuple[str, ...]
    ports: tuple[tuple[str, str], ...]


def segments(links: Iterable[tuple[str, str]], routers: Collection[str]) -> list[Segment]:
    """The segments of a network; a link between two routers is one too."""
    links, neighbours = list(links), dict[str, list[str]]()
    for first, second in links:
        neighbours.setdefault(first, []).append(second)
        neighbours.setdefault(second, []).append(first)
    inside = {node: [n for n in others if n not in routers] for node, others in neighbours.items()}
    found, placed = [], set(routers)
    for start in neighbours:
        if start in placed:
            continue
        nodes = distances(start, inside.__getitem__)
        placed.update(nodes)
        ports = [
            (router, node) for node in nodes for router in neighbours[node] if router in routers
        ]
        found.append(Segment(tuple(nodes), tuple(ports)))
    between = [link for link in links if link[0] in routers and link[1] in routers]
    return [*found, *(Segment((), (link, link[::-1])) for link in between)]


def _require_names(network: Network) -> None:
    names = Counter(node.name for node in network.nodes)
    for name, count in names.items():
        if count > 1:
            raise NetworkError(name, "two nodes have this name; allowed is one")
        if not _NAME.fullmatch(name) or name in TAKEN:
            raise NetworkError(
                repr(name),
                "is no name for a node; allowed are letters, digits and _ . + - , and no name "
                "that the kernel uses itself",
            )
    own = {host.name for host in network.hosts if host.of is None}
    for host in network.hosts:
        if _CLASS.fullmatch(host.name):
            raise NetworkError(host.name, "is the name of a class of hosts, as flows.N.from has it")
        if host.of is not None and host.of not in own:
            raise NetworkError(
                host.name, f"of {host.of!r}: allowed is the name of a host that has no `of` itself"
            )
    dpids: dict[int, str] = {}
    for switch in network.switches:
        if (other := dpids.setdefault(switch.dpid, switch.name)) != switch.name:
            raise NetworkError(switch.name, f"dpid {switch.dpid:x} is that of {other} already")


def _require_addresses(hosts: tuple[NetworkHost, ...]) -> None:
    seen: dict[str, str] = {}
    first: int | None = None
    for host in hosts:
        try:
            address = IPv4Address(host.ip)
        except ValueError:
            raise NetworkError(
                host.name, f"ip {host.ip!r}: allowed is an IPv4 address, as 10.0.0.1"
            ) from None
        network, rest = int(address) >> 24, int(address) & 0xFFFFFF
        first = network if first is None else first
        if not 1 <= network <= 223 or network == 127 or rest in (0, 0xFFFFFF):
            raise NetworkError(host.name, f"ip {host.ip}: allowed is the address of a host")
        if network != first:
            raise NetworkError(
                host.name,
                f"ip {host.ip} and {hosts[0].name}'s {hosts[0].ip} differ before the first dot; "
                "allowed are addresses of one network of /8",
            )
        if not _ADDRESS.fullmatch(host.mac) or int(host.mac[:2], 16) & 1:
            raise NetworkError(
                host.name, f"mac {host.mac!r}: allowed is a host's address, as 02:00:00:00:00:01"
            )
        for kind, value in (("ip", host.ip), ("mac", host.mac)):
            if (other := seen.setdefault(value, host.name)) != host.name:
                raise NetworkError(host.name, f"{kind} {value} is that of {other} already")


def _require_subnets(network: Network) -> None:
    names = {router.name for router in network.routers}
    address = {host.name: int(IPv4Address(host.ip)) for host in network.hosts}
    seen: dict[int, str] = {}
    pairs = network.pairs
    found = segments(pairs, names)
    if len(found) > MOST_SUBNETS or any(len(ports) > MOST_SUBNETS for _, ports in found):
        raise NetworkError(
            "", f"allowed are {MOST_SUBNETS} subnets, and as many routers' ports in each"
        )
    for nodes, ports in found:
        for router, count in Counter(router for router, _ in ports).items():
            if count > 1:
                raise NetworkError(router, f"has {count} ports in one subnet; allowed is one")
        members = [node for node in nodes if node in address]
        for host in members:
            subnet, rest = address[host] >> 16, address[host] & 0xFFFF
            if subnet != address[members[0]] >> 16 or seen.setdefault(subnet, nodes[0]) != nodes[0]:
                raise NetworkError(
                    host,
                    f"ip {IPv4Address(address[host])}: allowed is a network of /16 for the hosts "
                    "that reach one another without a router, and another one behind each router",
                )
            if rest >= ROUTERS_FROM:
                raise NetworkError(
                    host, f"ip {IPv4Address(address[host])}: x.y.255.z is a router's address"
                )
    for router in sorted(names):
        if sum(router in pair for pair in pairs) < 2:
            raise NetworkError(router, "a router with one link; allowed are two or more")


def _require_links(network: Network) -> None:
    is_host = {node.name: isinstance(node, NetworkHost) for node in network.nodes}
    least_port = {switch.name: 1 for switch in network.switches}
    pairs: set[frozenset[str]] = set()
    degree: Counter[str] = Counter()
    for link in network.links:
        first, second = link.places
        subject = f"{first.node} - {second.node}"
        for end in (first, second):
            if end.node not in is_host:
                raise NetworkError(subject, f"there is no node {end.node!r}")
            degree[end.node] += 1
            if is_host[end.node] and degree[end.node] > 1:
                raise NetworkError(
                    end.node,
                    "a host with two links; allowed is one, and for each further one a host with "
                    f"of='{end.node}'",
                )
        if first.node == second.node:
            raise NetworkError(subject, "a link from a node to itself; allowed are two nodes")
        if is_host[first.node] and is_host[second.node]:
            raise NetworkError(
                subject,
                "a link between two hosts; allowed is a link with a switch or router at one end",
            )
        if (pair := frozenset((first.node, second.node))) in pairs:
            raise NetworkError(subject, "two links between the same nodes; allowed is one")
        pairs.add(pair)
        if not link.own.keys() <= pair:
            raise NetworkError(subject, "`own` names a node that is not at its ends")
        for end in (first, second):
            if is_host[end.node] and end.port != 0:
                raise NetworkError(
                    subject, f"port {end.port} of {end.node}; allowed is 0, a host's only port"
                )
            least = least_port.get(end.node, 0)
            if not is_host[end.node] and not least <= end.port <= 65_279:
                raise NetworkError(
                    subject, f"port {end.port} of {end.node}; allowed are {least} to 65279"
                )
    for host in network.hosts:
        if degree[host.name] == 0:
            raise NetworkError(host.name, "a host without a link; allowed is one link")


def _require_interfaces(network: Network) -> None:
    # Open vSwitch makes an interface for a switch too, which has the switch's name.
    taken = {switch.name: switch.name for switch in network.switches}
    for switch in network.switches:
        if len(switch.name) > LONGEST_INTERFACE:
            raise NetworkError(
                switch.name,
                f"{len(switch.name)} characters; an interface's name has {LONGEST_INTERFACE} at "
                "most (linux/if.h)",
            )
    for link in network.links:
        first, second = link.places
        for end in (first, second):
            name = end.interface
            if len(name) > LONGEST_INTERFACE:
                raise NetworkError(
                    end.node,
                    f"its interface {name} has {len(name)} characters; allowed are "
                    f"{LONGEST_INTERFACE} (linux/if.h), and so a name of "
                    f"{LONGEST_INTERFACE - len(name) + len(end.node)}",
                )
            if name in taken:
                raise NetworkError(
                    f"{first.node} - {second.node}", f"{name} is taken by another link or switch"
                )
            taken[name] = end.node


def _require_connected(network: Network) -> None:
    start = network.hosts[0].name
    reached = next(part.nodes for part in segments(network.pairs, ()) if start in part.nodes)
    for node in network.nodes:
        if node.name not in reached:
            raise NetworkError(
                node.name, f"no path leads there from {start}; allowed is one network"
            )
