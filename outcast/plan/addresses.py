"""The hosts' IPv6 addresses, which follow from their IPv4 addresses.

A host's IPv6 address is FD00 with the IPv4 address in its last four bytes: h1 has 10.0.0.1 and
fd00::a00:1. The prefix is one of those that anybody may use (RFC 4193). So whatever knows a host by
one of its addresses knows it by the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address

from controllers.graph import Graph
from outcast.errors import ConfigError
from outcast.experiment import Experiment, Link
from outcast.experiment.parts import Family
from outcast.experiment.workloads import DATAGRAM_HEADERS_BYTES

PREFIX = int(IPv6Address("fd00::"))
PREFIX_BITS = 96
"""How many bits come before the IPv4 address."""

LEAST_MTU_BYTES = 1280


def ipv6_of(ipv4: str) -> str:
    """The IPv6 address of the host that has this IPv4 address."""
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


def require_mtu(links: Iterable[Link]) -> None:
    """Raises ConfigError where a link is too narrow for IPv6 (RFC 8200, section 5)."""
    least_bytes = min(link.mtu_bytes for link in links)
    if least_bytes < LEAST_MTU_BYTES:
        raise ConfigError(
            f"links: a link takes {least_bytes} B; IPv6 needs {LEAST_MTU_BYTES} B or more, or "
            "addressing: ipv4"
        )


def machine_of(graph: Graph, host: str) -> str:
    """The host that an interface is of: itself, unless the topology says so by `of`."""
    return str(graph.nodes[host].get("of", host))


def of(graph: Graph, host: str, family: Family) -> str:
    """A host's address of a family."""
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
