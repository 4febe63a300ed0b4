"""The hosts' IPv6 addresses, which follow from their IPv4 addresses.

A host's IPv6 address is FD00 with the IPv4 address in its last four bytes: h1 has 10.0.0.1 and
fd00::a00:1. The prefix is one of those that anybody may use (RFC 4193). So whatever knows a host by
one of its addresses knows it by the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from itertools import pairwise

from controllers.graph import Graph
from controllers.routes import Routes
from outcast.errors import ConfigError, did_you_mean
from outcast.experiment import Experiment, Link
from outcast.experiment.network import ROUTERS_FROM, Segment, segments
from outcast.experiment.parts import Family
from outcast.experiment.topology import Shortest
from outcast.experiment.workloads import DATAGRAM_HEADERS_BYTES

PREFIX = int(IPv6Address("fd00::"))
PREFIX_BITS = 96
"""How many bits come before the IPv4 address."""

LEAST_MTU_BYTES = 1280


def ipv6_of(ipv4: str) -> str:
    return str(IPv6Address(PREFIX | int(IPv4Address(ipv4))))


def ipv4_of(address: str) -> str:
    """The IPv4 address of the host that has this address; any other address as it is.

    A socket of IPv6 has an IPv4 address as ::ffff:10.0.0.1 (RFC 4291, section 2.5.5.2).
    """
    if ":" not in address:
        return address
    ipv6 = IPv6Address(address)
    prefix = int(ipv6) >> (128 - PREFIX_BITS) << (128 - PREFIX_BITS)
    if prefix != PREFIX and ipv6.ipv4_mapped is None:
        return address
    return str(IPv4Address(int(ipv6) & 0xFFFFFFFF))


def with_port(address: str, port: int) -> str:
    """An address with a port; IPv6 stands in brackets (RFC 3986, section 3.2.2)."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def add_ipv6(graph: Graph) -> None:
    """Gives every host its IPv6 address, as `ip6`."""
    for _, data in graph.nodes(data=True):
        if data["kind"] == "host":
            data["ip6"] = ipv6_of(str(data["ip"]))


def require_mtu(experiment: Experiment, links: Iterable[Link]) -> None:
    """Raises ConfigError where a link is too narrow for IPv6 (RFC 8200, section 5)."""
    least_bytes = min(link.mtu_bytes for link in links)
    if experiment.addressing != "ipv4" and least_bytes < LEAST_MTU_BYTES:
        raise ConfigError(
            f"links: a link takes {least_bytes} B; IPv6 needs {LEAST_MTU_BYTES} B or more, or "
            "addressing: ipv4"
        )


def machine_of(graph: Graph, host: str) -> str:
    """The host that an interface is of: itself, unless the topology says so by `of`."""
    return str(graph.nodes[host].get("of", host))


def address_of(graph: Graph, host: str, family: Family) -> str:
    return str(graph.nodes[host]["ip" if family == "ipv4" else "ip6"])


def datagram_headers_bytes(family: Family) -> int:
    """What a packet of ICMP or UDP has besides its payload; IPv6's header is 20 bytes longer."""
    return DATAGRAM_HEADERS_BYTES + (20 if family == "ipv6" else 0)


def families(experiment: Experiment) -> tuple[Family, ...]:
    """The families of the hosts' addresses; the first is meant where nothing says which."""
    return ("ipv4", "ipv6") if experiment.addressing == "both" else (experiment.addressing,)


def of_host(graph: Graph, host: str) -> tuple[str, ...]:
    """All addresses that switches have routes to for a host."""
    data = graph.nodes[host]
    return (str(data["ip"]), *((str(data["ip6"]),) if data.get("ip6") else ()))


_BITS = 16
FLAT_BITS = 8


@dataclass(frozen=True, slots=True)
class Route:
    """Packets for a network go to a gateway; both are IPv4 addresses."""

    network: str
    prefix_length: int
    gateway: str


class Subnets:
    """The subnets of a network, and the way from each to the others.

    Attributes:
        segments: the subnets' hosts, switches and routers; none where there is no router.
        prefix_length: of every subnet's IPv4 addresses.
    """

    def __init__(self, graph: Graph, routes: Routes) -> None:
        self._graph, self._routes = graph, routes
        self.segments = _segments(graph)
        self.prefix_length = _BITS if self.segments else FLAT_BITS
        self._hosts = [
            [node for node in segment.nodes if graph.nodes[node]["kind"] == "host"]
            for segment in self.segments
        ]
        self._networks = self._numbered()
        self._ip = {
            port: str(IPv4Address((network << _BITS) + ROUTERS_FROM + number))
            for network, segment in zip(self._networks, self.segments, strict=True)
            for number, port in enumerate(segment.ports, 1)
        }
        self._next: dict[tuple[str, str], tuple[str, str]] = {}

    def _numbered(self) -> list[int]:
        """The first 16 bits of each segment's addresses; one without hosts has a free number."""
        given = [
            int(IPv4Address(self._graph.nodes[hosts[0]]["ip"])) >> _BITS if hosts else None
            for hosts in self._hosts
        ]
        used = {number for number in given if number is not None}
        first = min(used, default=0) >> 8 << 8
        free = (number for number in range(first + 1, first + 256) if number not in used)
        try:
            return [next(free) if number is None else number for number in given]
        except StopIteration:
            raise ConfigError("topology: allowed are 255 subnets between routers") from None

    def ip(self, router: str, neighbour: str) -> str:
        return self._ip[router, neighbour]

    def mac(self, router: str, neighbour: str) -> str:
        """The Ethernet address of a router's port: 02:00 and the bytes of its IPv4 address."""
        return "02:00:" + IPv4Address(self._ip[router, neighbour]).packed.hex(":")

    def network(self, ip: str) -> tuple[str, int]:
        """The subnet of an IPv4 address: its first address, and its prefix's length in bits."""
        bits = 32 - self.prefix_length
        return str(IPv4Address(int(IPv4Address(ip)) >> bits << bits)), self.prefix_length

    def neighbours(self, node: str) -> Mapping[str, str]:
        """The Ethernet addresses of the routers' ports in the subnets of a node, by address."""
        return {
            self._ip[port]: self.mac(*port)
            for segment in self.segments
            if _is_at(node, segment)
            for port in segment.ports
            if port[0] != node
        }

    def hosts(self, router: str) -> list[str]:
        return [
            host
            for segment, hosts in zip(self.segments, self._hosts, strict=True)
            if any(port[0] == router for port in segment.ports)
            for host in hosts
        ]

    def next_hop(self, node: str, host: str) -> tuple[str, str]:
        """The host or router that gets a node's packets for `host` next, and the node before it."""
        if (node, host) not in self._next:
            kinds = self._graph.nodes
            if kinds[node]["kind"] == "host":
                following = next(iter(self._graph.adj[node]))
            else:
                number = self._routes.to[node][host]
                ways = self._graph.adj[node].items()
                following = next(name for name, data in ways if data["ports"][node] == number)
            is_switch = kinds[following]["kind"] == "switch"
            found = self.next_hop(following, host) if is_switch else (following, node)
            self._next[node, host] = found
        return self._next[node, host]

    def routes(self, node: str) -> Iterator[Route]:
        """How a host or router sends to the subnets that it is not in.

        A subnet goes by the gateway of its first host, and each host that has another gateway has a
        route of its own.
        """
        for number, segment in enumerate(self.segments):
            if _is_at(node, segment):
                continue
            gateway: str | None = None
            for host in self._hosts[number]:
                own = self._ip[self.next_hop(node, host)]
                ip = str(self._graph.nodes[host]["ip"])
                if gateway is None:
                    gateway = own
                    yield Route(*self.network(ip), own)
                elif own != gateway:
                    yield Route(ip, 32, own)


def _segments(graph: Graph) -> list[Segment]:
    """The subnets of a network; none where there is no router."""
    routers = {name for name, data in graph.nodes(data=True) if data["kind"] == "router"}
    return segments(graph.edges, routers) if routers else []


def _is_at(node: str, segment: Segment) -> bool:
    return node in segment.nodes or any(router == node for router, _ in segment.ports)


def ipv6_route(route: Route) -> Route:
    network, gateway = map(ipv6_of, (route.network, route.gateway))
    return Route(network, route.prefix_length + PREFIX_BITS, gateway)


def add_ways(experiment: Experiment, graph: Graph) -> None:
    """Puts `routing.ways` into the graph. Raises ConfigError for what is no path of it."""
    ways = experiment.routing.ways if isinstance(experiment.routing, Shortest) else ()
    subnets = [segment.nodes for segment in _segments(graph)] if ways else []
    for number, way in enumerate(ways):
        where = f"routing.ways.{number}"
        for name in way:
            if name not in graph:
                raise ConfigError(f"{where}: no node {name!r}{did_you_mean(name, graph)}")
        between = [node for node in way[1:-1] if graph.nodes[node]["kind"] != "host"]
        if len(way) < 3 or len(between) < len(way) - 2 or len(set(way)) < len(way):
            raise ConfigError(
                f"{where}: allowed are a host, the switches and routers between, and a host, each "
                "once, as [h2, s3, s1, h1]"
            )
        if any(graph.nodes[end]["kind"] != "host" for end in (way[0], way[-1])):
            raise ConfigError(f"{where}: allowed are hosts at its ends")
        for node, following in pairwise(way):
            if not graph.has_edge(node, following):
                raise ConfigError(f"{where}: no link between {node} and {following}")
        inside = next((nodes for nodes in subnets if way[-1] in nodes), ())
        for node, following in pairwise(way[1:]):
            if node in inside and graph.nodes[following]["kind"] == "router":
                raise ConfigError(
                    f"{where}: {node} and {way[-1]} are in one subnet; allowed is no router between"
                )
            chosen = graph.nodes[node].setdefault("ways", {})
            if (earlier := chosen.setdefault(way[-1], following)) != following:
                raise ConfigError(
                    f"{where}: {node} sends packets for {way[-1]} to {earlier} by another way; "
                    "allowed is one, because nodes choose by the destination"
                )
