"""Hosts and routers: addresses, neighbours, routes, and TCP's settings and offloads.

A router is a Linux host that forwards between the subnets of its ports.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from ipaddress import ip_address, ip_interface
from typing import TYPE_CHECKING, Any, NamedTuple

from outcast.emulation.commands import entered
from outcast.emulation.kernel import rtnetlink
from outcast.emulation.network import transport
from outcast.errors import ReadBackError
from outcast.experiment import Transport
from outcast.plan import addresses
from outcast.plan.flows import host_transports
from outcast.plan.model import Plan
from outcast.records.effective import host_settings

if TYPE_CHECKING:
    from outcast.experiment.parts import Family
    from outcast.plan.addresses import Route

LOOPBACK = 1
"""The index of lo in every network namespace (loopback_net_init in drivers/net/loopback.c)."""
_RTO_MIN_LOCK = 1 << 13
"""The bit of RTAX_RTO_MIN in RTAX_LOCK (linux/rtnetlink.h)."""
_FIRST_TABLE = 100
"""The table of routes of a host's further interfaces is this one and their place among them."""


def configure(
    base: Transport, plan: Plan, netns: Callable[[str], int], interfaces: Sequence[str]
) -> dict[str, Any]:
    """Sets up all hosts, and the offloads of switches' `interfaces`. Returns what is in effect.

    `base` has TCP's settings of hosts for which no group of flows has others.
    """
    route_min_rto_ms: dict[str, int] = {}
    route_metrics: dict[str, dict[str, int]] = {}
    talks: dict[str, set[str]] = {}
    for src, dst in sorted(plan.pairs):
        talks.setdefault(src, set()).add(dst)
        talks.setdefault(dst, set()).add(src)
    of_hosts = _own_settings(base, plan)
    for host in plan.hosts:
        settings = of_hosts.get(host, base)
        with entered(netns(host)):
            set_families(host, [f"{host}-eth0"], plan.families)
            for name, value in transport.sysctls(settings).items():
                transport.write_sysctl(name, value, host)
            own = host if settings.min_rto_ns != base.min_rto_ns else ""
            with rtnetlink.Kernel() as kernel:
                interface = _Interface(plan, host, talks.get(host, set()), settings)
                kernel.do(list(interface.requests()))
                interface.check(kernel)
            metrics = dict(interface.metrics)
            route_min_rto_ms[own] = metrics.pop("rto_min")
            own = host if transport.route_metrics(base) != metrics else ""
            if metrics or own:
                route_metrics[own] = metrics
            transport.configure_offloads(f"{host}-eth0", on=bool(base.offloads))
    first = next(iter(talks))
    with entered(netns(first)):
        # What a group of flows sets at this host says nothing of the others.
        set_here = transport.sysctls(of_hosts.get(first, base))
        recorded = {
            name: transport.read_sysctl(name)
            for name in transport.RECORDED_SYSCTLS
            if name not in set_here
        }
    for port in interfaces:
        transport.configure_offloads(port, on=bool(base.offloads))
    return host_settings(
        route_min_rto_ms=route_min_rto_ms,
        route_metrics=route_metrics,
        sysctls=_with_dots(transport.sysctls(base)),
        own_sysctls={host: _own_sysctls(tcp, base) for host, tcp in of_hosts.items()},
        recorded_sysctls=_with_dots(recorded),
        offloads=bool(base.offloads),
    )


def _own_sysctls(own: Transport, base: Transport) -> dict[str, str]:
    of_all = transport.sysctls(base)
    differing = {
        name: value for name, value in transport.sysctls(own).items() if value != of_all.get(name)
    }
    return _with_dots(differing)


def _own_settings(base: Transport, plan: Plan) -> dict[str, Transport]:
    """TCP's settings of each interface's host that a group of flows sets."""
    of_machines = host_transports(base, plan.flows, plan.machine)
    return {
        host: of_machines[machine]
        for host in plan.hosts
        if (machine := plan.machine(host)) in of_machines
    }


class _Subnet(NamedTuple):
    """An address of a host, its network, and the MAC addresses of those that the host knows."""

    address: str
    network: str
    prefix_length: int
    neighbours: dict[str, str]


class _Interface:
    """The interface of a host, in the host's namespace.

    Attributes:
        metrics: those of its routes; `rto_min` is in ms.
    """

    def __init__(self, plan: Plan, host: str, talks_to: set[str], settings: Transport) -> None:
        self._host, self._plan = host, plan
        self._index = socket.if_nametoindex(f"{host}-eth0")
        self.metrics = {
            "rto_min": settings.min_rto_ns // 10**6,
            **transport.route_metrics(settings),
        }
        # Nobody answers for an IPv6 address that is not known, so all of them are.
        known_to = {"ipv4": talks_to, "ipv6": set(plan.hosts) - {host}}
        self._subnets = [
            _Subnet(own, *_network_of(plan, own), _neighbours(plan, family, known_to[family]))
            for family, own in zip(plan.families, plan.addresses(host), strict=True)
        ]
        self._routes = self._by_gateways() if plan.routers else []
        # What a further interface sends goes by a table of its own, and its address makes no route.
        self._place = plan.interfaces(host).index(host)
        self._table = _FIRST_TABLE + self._place if self._place else rtnetlink.TABLE_MAIN

    def _by_gateways(self) -> list[Route]:
        """The routes by gateways, whose Ethernet addresses join the neighbours."""
        gateways = _gateways_of(self._plan, self._host)
        for subnet in self._subnets:
            subnet.neighbours.update(
                {ip: mac for ip, mac in gateways.items() if _are_alike(ip, subnet.address)}
            )
        return _routes_of(self._plan, self._host)

    def requests(self) -> Iterator[rtnetlink.Request]:
        # The kernel uses a minimum RTO only if the metric is locked (net/tcp.h, tcp_rto_min).
        # ip-route(8) locks it silently.
        metrics = {**self.metrics, "lock": _RTO_MIN_LOCK}
        index, table = self._index, self._table
        yield rtnetlink.set_up(LOOPBACK)
        for own, _, prefix_length, _ in self._subnets:
            yield rtnetlink.add_address(index, own, 32 if self._place else prefix_length)
            if self._place:
                yield rtnetlink.add_rule(own, table)
        yield rtnetlink.set_up(index)
        for own, network, prefix_length, neighbours in self._subnets:
            yield rtnetlink.replace_route(index, network, prefix_length, own, metrics, table)
            for address, mac in neighbours.items():
                yield rtnetlink.replace_neighbour(index, address, mac)
        for route in self._routes:
            own = next(a for a, *_ in self._subnets if _are_alike(a, route.network))
            to = (route.network, route.prefix_length)
            yield rtnetlink.replace_route(index, *to, own, metrics, table, route.gateway)

    def check(self, kernel: rtnetlink.Kernel) -> None:
        """Raises ReadBackError where the kernel shows something else than requested."""
        for own, network, prefix_length, neighbours in self._subnets:
            if self._place and (table := kernel.rules().get(own)) != self._table:
                where = f"table of routes of {own}"
                raise ReadBackError(self._host, where, self._table, table)
            self._check_route(kernel, network, prefix_length)
            for route in self._routes:
                if _are_alike(route.network, own):
                    self._check_route(kernel, route.network, route.prefix_length)
            known = kernel.neighbours(self._index, rtnetlink.family_of(own))
            _check_neighbours(self._host, neighbours, known)
        check_gateways(kernel, self._host, self._routes, self._table)

    def _check_route(self, kernel: rtnetlink.Kernel, network: str, prefix_length: int) -> None:
        metrics = kernel.route_metrics(network, prefix_length, self._table)
        if len(metrics) != 1:
            raise ReadBackError(self._host, f"route to {network}", "one with metrics", len(metrics))
        transport.check_route(self._host, self.metrics, metrics[0])
        if not metrics[0].get("lock", 0) & _RTO_MIN_LOCK:
            where = "lock of the route's rto_min"
            raise ReadBackError(self._host, where, "locked", "not locked")


def _are_alike(address: str, other: str) -> bool:
    return rtnetlink.family_of(address) == rtnetlink.family_of(other)


def _network_of(plan: Plan, address: str) -> tuple[str, int]:
    """The network of a host's address: its first address, and its prefix's length in bits."""
    network, prefix_length = plan.subnets.network(addresses.ipv4_of(address))
    if ":" not in address:
        return network, prefix_length
    return addresses.ipv6_of(network), addresses.PREFIX_BITS + prefix_length


def _neighbours(plan: Plan, family: Family, hosts: Collection[str]) -> dict[str, str]:
    return {addresses.address_of(plan.graph, host, family): plan.mac(host) for host in hosts}


def _with_dots(sysctls: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("/", "."): value for name, value in sysctls.items()}


_IPV6_SETTINGS = {
    "disable_ipv6": "0",
    "accept_ra": "0",
    "autoconf": "0",
    "router_solicitations": "0",
    "addr_gen_mode": "1",
    "accept_dad": "0",
    "dad_transmits": "0",
}
"""These keep a host from sending IPv6 packets of its own: it has the configured addresses and no
link-local one, solicits no router, and looks for no duplicate. It repeats its report on its
address's group (RFC 3810) within a tick, before there is a switch (ip-sysctl.rst)."""


@cache
def _tick_ms() -> str:
    """The kernel's tick, but 1 ms at least: the kernel shows times as whole ticks."""
    return str(max(1, 1000 // (transport.kernel_hz() or 1000)))


def set_families(node: str, ports: Collection[str], families: Collection[Family]) -> None:
    """Switches IPv6 on at the interfaces of a host or router, or off."""
    if "ipv6" not in families:
        disable_ipv6(node)
        return
    transport.require_ipv6()
    for scope in ("all", "lo"):
        transport.write_sysctl(f"ipv6/conf/{scope}/disable_ipv6", "0", node)
    # Packets may come in by an interface that is made later, such as a card's.
    settings = _IPV6_SETTINGS | {"mldv2_unsolicited_report_interval": _tick_ms()}
    for scope in ("default", *ports):
        for name, value in settings.items():
            transport.write_sysctl(f"ipv6/conf/{scope}/{name}", value, node)


def disable_ipv6(where: str) -> None:
    """Switches IPv6 off, because its own messages would stand among the captured packets."""
    for scope in ("all", "default"):
        if transport.read_sysctl(f"ipv6/conf/{scope}/disable_ipv6"):
            transport.write_sysctl(f"ipv6/conf/{scope}/disable_ipv6", "1", where)


_FORWARDING = {"ipv4": "ipv4/ip_forward", "ipv6": "ipv6/conf/all/forwarding"}
_PER_PORT = {"rp_filter": "0", "send_redirects": "0"}
"""A packet may come by another port than the way back leaves by (ip-sysctl.rst)."""


def _routes_of(plan: Plan, node: str) -> list[Route]:
    """The routes by gateways of a host or router, for each family of the hosts' addresses."""
    return [
        addresses.ipv6_route(route) if family == "ipv6" else route
        for route in plan.subnets.routes(node)
        for family in plan.families
    ]


def _gateways_of(plan: Plan, node: str) -> dict[str, str]:
    """The MAC address of each router in a node's subnets, by the router's addresses."""
    return {
        addresses.ipv6_of(ip) if family == "ipv6" else ip: mac
        for ip, mac in plan.subnets.neighbours(node).items()
        for family in plan.families
    }


def configure_router(plan: Plan, router: str, netns: int | None) -> None:
    """Gives a router addresses, neighbours and routes, and makes it forward."""
    ports = {plan.port(router, node): (router, node) for node in plan.graph.adj[router]}
    known = _gateways_of(plan, router)
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
        routes = _routes_of(plan, router)
        for route in routes:
            index, to = _index(route.gateway, own), (route.network, route.prefix_length)
            source = next(
                a for a, (i, _) in own.items() if i == index and _are_alike(a, route.gateway)
            )
            requests.append(rtnetlink.replace_route(index, *to, source, {}, gateway=route.gateway))
        kernel.do(requests)
        check_gateways(kernel, router, routes)
        for index in sorted(set(index_of.values())):
            shown = {
                **kernel.neighbours(index, socket.AF_INET),
                **kernel.neighbours(index, socket.AF_INET6),
            }
            here = {address: mac for address, mac in known.items() if index_of[address] == index}
            _check_neighbours(router, here, shown)


def _check_neighbours(node: str, requested: Mapping[str, str], shown: Mapping[str, str]) -> None:
    for address, mac in requested.items():
        if shown.get(address) != mac:
            raise ReadBackError(node, f"ARP entry of {address}", mac, shown.get(address))


def _settings(plan: Plan, ports: Iterable[str]) -> dict[str, str]:
    settings = {
        f"ipv4/conf/{scope}/{name}": value
        for scope in ("all", "default", *ports)
        for name, value in _PER_PORT.items()
    }
    return settings | {_FORWARDING[family]: "1" for family in plan.families}


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
    gateways = cache(kernel.gateways)
    for route in routes:
        family = rtnetlink.family_of(route.network)
        effective = gateways(family).get((route.network, route.prefix_length, table))
        if effective != route.gateway:
            where = f"gateway to {route.network}/{route.prefix_length}"
            raise ReadBackError(node, where, route.gateway, effective)
