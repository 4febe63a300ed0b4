"""Routers: Linux hosts that forward between the subnets of their ports."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address, ip_interface

from outcast.emulation.commands import entered
from outcast.emulation.kernel import rtnetlink
from outcast.emulation.network import transport
from outcast.errors import ReadBackError
from outcast.plan import addresses, subnets
from outcast.plan.model import Plan
from outcast.plan.subnets import Route

_FORWARDING = {"ipv4": "ipv4/ip_forward", "ipv6": "ipv6/conf/all/forwarding"}
_PER_PORT = {"rp_filter": "0", "send_redirects": "0"}
"""A packet may come by another port than the way back leaves by (ip-sysctl.rst)."""


def routes_of(plan: Plan, node: str) -> Iterator[Route]:
    """The routes by gateways of a host or router, for each family of the hosts' addresses."""
    for route in plan.subnets.routes(node):
        for family in plan.families:
            yield subnets.ipv6_of(route) if family == "ipv6" else route


def neighbours_of(plan: Plan, node: str) -> dict[str, str]:
    """The Ethernet addresses of the routers in a node's subnets, by address of each family."""
    return {
        addresses.ipv6_of(ip) if family == "ipv6" else ip: mac
        for ip, mac in plan.subnets.neighbours(node).items()
        for family in plan.families
    }


def configure(plan: Plan, router: str, netns: int | None) -> None:
    """Gives a router addresses, neighbours and routes, and makes it forward.

    Raises:
        ReadBackError: the kernel shows something else than requested.
    """
    ports = {plan.port(router, node): (router, node) for node in plan.graph.adj[router]}
    known = neighbours_of(plan, router)
    for host in plan.subnets.hosts(router):
        known |= dict.fromkeys(plan.addresses(host), plan.mac(host))
    with entered(netns), rtnetlink.Kernel() as kernel:
        for name, value in _settings(plan, ports).items():
            transport.write_sysctl(name, value, router)
        own = {}
        requests = []
        for port, ends in ports.items():
            ip, index = plan.subnets.ip(*ends), socket.if_nametoindex(port)
            for family in plan.families:
                address = addresses.ipv6_of(ip) if family == "ipv6" else ip
                bits = plan.subnets.prefix_length
                bits += addresses.PREFIX_BITS if family == "ipv6" else 0
                requests.append(rtnetlink.add_address(index, address, bits))
                own[address] = (index, bits)
        index_of = {address: _index(address, own) for address in known}
        requests += [
            rtnetlink.replace_neighbour(index_of[address], address, mac)
            for address, mac in known.items()
        ]
        routes = list(routes_of(plan, router))
        for route in routes:
            index = _index(route.gateway, own)
            source = next(a for a, (i, _) in own.items() if i == index and _alike(a, route.gateway))
            requests.append(
                rtnetlink.replace_route(
                    index, route.network, route.prefix_length, source, {}, gateway=route.gateway
                )
            )
        kernel.do(requests)
        check_gateways(kernel, router, routes)
        for index in sorted(set(index_of.values())):
            arp_entries = {
                **kernel.neighbours(index, socket.AF_INET),
                **kernel.neighbours(index, socket.AF_INET6),
            }
            for address in (address for address in known if index_of[address] == index):
                if arp_entries.get(address) != known[address]:
                    where = f"ARP entry of {address}"
                    raise ReadBackError(router, where, known[address], arp_entries.get(address))


def _settings(plan: Plan, ports: Iterable[str]) -> dict[str, str]:
    """The router's settings below /proc/sys/net."""
    settings = {
        f"ipv4/conf/{scope}/{name}": value
        for scope in ("all", "default", *ports)
        for name, value in _PER_PORT.items()
    }
    return settings | {_FORWARDING[family]: "1" for family in plan.families}


def _alike(address: str, other: str) -> bool:
    return rtnetlink.family_of(address) == rtnetlink.family_of(other)


def _index(address: str, own: Mapping[str, tuple[int, int]]) -> int:
    """The interface in whose subnet an address is."""
    return next(
        index
        for mine, (index, bits) in own.items()
        if ip_address(address) in ip_interface(f"{mine}/{bits}").network
    )


def check_gateways(
    kernel: rtnetlink.Kernel, node: str, routes: Iterable[Route], table: int = rtnetlink.TABLE_MAIN
) -> None:
    """Raises ReadBackError where a route by a gateway is not there."""
    gateways: dict[socket.AddressFamily, dict[tuple[str, int, int], str]] = {}
    for route in routes:
        family = rtnetlink.family_of(route.network)
        if family not in gateways:
            gateways[family] = kernel.gateways(family)
        effective = gateways[family].get((route.network, route.prefix_length, table))
        if effective != route.gateway:
            where = f"gateway to {route.network}/{route.prefix_length}"
            raise ReadBackError(node, where, route.gateway, effective)
