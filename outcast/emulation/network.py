"""The network, with Mininet's objects, built by netlink in bulk.

Mininet's own classes start a shell for every node and several programs for every link. Under
virtual time each takes tens of milliseconds, which is most of a run. The subclasses here keep
Mininet's topology, nodes, links and names, and leave the kernel's part to a few netlink messages:

* a host is a network namespace that a descriptor holds open; `host.popen` runs programs in it;
* links are veth pairs, made directly between the namespaces;
* all switches come up in one ovs-vsctl(8) transaction.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mininet.link import Intf, Link
from mininet.net import Mininet
from mininet.node import Host, OVSSwitch

from outcast.emulation import arrivals, cards, queues, red, rtnetlink, transport, wires
from outcast.emulation.commands import Commands, entered, new_namespace, sysfs, wait_until
from outcast.errors import FeatureMissingError, ReadBackError, RunError
from outcast.experiment import Experiment, Transport
from outcast.experiment.links import STANDARD_MTU_BYTES
from outcast.experiment.links import Link as LinkSettings
from outcast.plan import addresses, ports
from outcast.plan import transport as plan_transport
from outcast.plan.model import BLACKOUT_ENDS, Plan
from outcast.plan.noise import IFB_OF_HOST
from outcast.plan.paths import port_name
from outcast.plan.topology import make_topo
from outcast.records.effective import HostSettings, QueueSettings
from outcast.records.queue_statistics import Shown
from outcast.records.run_directory import Cause

if TYPE_CHECKING:
    from outcast.experiment.parts import Family
    from outcast.plan.subnets import Route

_LOOPBACK = 1
"""The index of lo in every network namespace (loopback_net_init in drivers/net/loopback.c)."""
_RTO_MIN_LOCK = 1 << 13
"""The bit of RTAX_RTO_MIN in RTAX_LOCK (linux/rtnetlink.h)."""
UP_DEADLINE_S = 10.0
_FIRST_TABLE = 100
"""The table of routes of a host's further interfaces is this one and their place among them."""


class NamespaceHost(Host):
    """A Mininet host without a shell of its own: a namespace and programs started in it."""

    netns: int

    def startShell(self, mnopts: str | None = None) -> None:  # Mininet's name
        """Makes the namespace, and no shell."""
        self.netns = new_namespace()

    def cmd(self, *args: Any, **kwargs: Any) -> str:
        """Runs a command line in the host and returns its output, like Mininet's `cmd`."""
        line = " ".join(str(arg) for arg in args)
        with entered(self.netns):
            done = subprocess.run(
                ["sh", "-c", line], capture_output=True, text=True, check=False, timeout=60
            )
        return done.stdout + done.stderr

    def popen(self, *args: Any, **kwargs: Any) -> subprocess.Popen[Any]:
        """Starts a program in the host."""
        with entered(self.netns):
            return subprocess.Popen(*args, **kwargs)

    def addIntf(self, intf: Intf, port: int | None = None, moveIntfFn: Any = None) -> None:
        """Notes the interface, and moves none, because veth pairs are made where they belong."""
        super().addIntf(intf, port=port, moveIntfFn=lambda *_: None)

    def config(self, **_params: Any) -> dict[str, Any]:
        """Does nothing; see Network.configure_hosts."""
        return {}

    def terminate(self) -> None:
        """Closes the namespace, and with it its interfaces."""
        os.close(self.netns)


class PortSwitch(OVSSwitch):
    """A Mininet Open vSwitch switch without a shell; see Network.start_switches."""

    isSetup = True  # Mininet would ask a running Open vSwitch for its version here.

    def startShell(self, mnopts: str | None = None) -> None:
        """Does nothing, because switches are in the network's own namespace."""

    def cmd(self, *_args: Any, **_kwargs: Any) -> str:
        """Does nothing, because the network does in bulk what Mininet would run here."""
        return ""

    def config(self, **_params: Any) -> dict[str, Any]:
        """Does nothing, because a switch has only its ports to configure."""
        return {}


class PlainIntf(Intf):
    """An interface that has only a name here; the kernel's part is done in bulk."""

    def config(self, **_params: Any) -> dict[str, Any]:
        """Does nothing."""
        return {}


class PlainLink(Link):
    """A link that is only noted; `Network.create_links` makes the veth pairs."""

    @classmethod
    def makeIntfPair(cls, *_args: Any, **_kwargs: Any) -> None:
        """Does nothing."""


class _Place(NamedTuple):
    """The switches' namespace, or a router's: a socket in it, and its interfaces by name."""

    netns: int | None
    kernel: rtnetlink.Kernel
    ports: dict[str, int]


UNBOUNDED = (
    "the delays of hosts' links come before the hosts' own queues, because this kernel cannot put "
    "them behind; so TCP small queues hold no sender back, and a host's queue may lose packets "
    "(docs/engines.md); the virtual engine's kernel can"
)


class Network:
    """The emulated network of one run, in the present network namespace.

    When the block ends, its hosts' namespaces are closed.

    Attributes:
        net: the Mininet object: `net["h1"]`, `net.hosts`, `net.links`.
        has_cables: whether hosts' delays come behind their queues, as far as is known.
        warnings: what this kernel cannot do as it should.
    """

    def __init__(self, experiment: Experiment, plan: Plan, commands: Commands) -> None:
        self.experiment = experiment
        self.plan = plan
        self.commands = commands
        self._topo = make_topo(experiment)
        # Otherwise Mininet would change limits and buffers of the whole machine (fixLimits).
        Mininet.inited = True
        self.net = Mininet(
            topo=self._topo,
            switch=PortSwitch,
            host=NamespaceHost,
            link=PlainLink,
            intf=PlainIntf,
            controller=None,
            build=False,
        )
        self._root = rtnetlink.Kernel()
        self._places = [_Place(None, self._root, {})]
        self._shown_mtus: dict[str, int] | None = None
        self.has_cables = True
        self.warnings: list[str] = []

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def build(self) -> HostSettings:
        """Makes namespaces, links, addresses and TCP's settings; returns what is in effect.

        Raises ReadBackError: the kernel shows another setting than was asked for.
        """
        self.net.buildFromTopo(self._topo)
        for host in self.plan.hosts:
            if (machine := self.plan.machine(host)) != host:
                # A further interface of a host is in that host's namespace.
                self.net[host].terminate()
                self.net[host].netns = os.dup(self.netns(machine))
        self.create_links()
        for router in self.plan.routers:
            self._bring_up(router)
        settings = self.configure_hosts()
        for place, router in zip(self._places[1:], self.plan.routers, strict=True):
            wait_until(place.kernel.are_up, f"the links of {router}", UP_DEADLINE_S, pause_s=0.05)
            # Imported here, because what a run without routers imports decides its bytes.
            from outcast.emulation import routers

            routers.configure(self.plan, router, place.netns)
        return settings

    def place(self, node: str) -> int | None:
        """The descriptor of a host's or router's namespace; None of a switch, which has none."""
        return None if node in self.plan.switches else self.netns(node)

    def _bring_up(self, router: str) -> None:
        """Brings up a router's ports. They get addresses when both ends of every link are up,

        because IPv6 tells its groups anew when a carrier comes.
        """
        netns = self.netns(router)
        ports = [self.plan.port(router, node) for node in self.plan.graph.adj[router]]
        with entered(netns):
            if "ipv6" in self.plan.families:
                enable_ipv6(router, ports)
            else:
                disable_ipv6(router)
            for port in ports:
                self._configure_offloads(port)
            index = {port: socket.if_nametoindex(port) for port in ports}
            kernel = rtnetlink.Kernel()
            kernel.do([rtnetlink.set_up(number) for number in (_LOOPBACK, *index.values())])
            self._places.append(_Place(netns, kernel, index))

    def netns(self, host: str) -> int:
        """The descriptor of the namespace that a host and its further interfaces are in."""
        return int(self.net[self.plan.machine(host)].netns)

    def further_interfaces(self, host: str) -> dict[str, str]:
        """The IPv4 addresses of a host's further interfaces, by the interfaces' names."""
        return {f"{name}-eth0": self.plan.ip(name) for name in self.plan.interfaces(host)[1:]}

    def close(self) -> None:
        """Closes the hosts' namespaces."""
        for place in self._places:
            place.kernel.close()
        for host in self.net.hosts:
            host.terminate()

    def create_links(self) -> None:
        """Makes a veth pair for every link, with its ends in their nodes' namespaces, and up."""
        self._root.do([rtnetlink.set_up(_LOOPBACK)])
        disable_ipv6("the switches' namespace")
        pairs = []
        for link in self.net.links:
            near, far = link.intf1, link.intf2
            nodes = (near.node.name, far.node.name)
            mtu_bytes = self._mtu_bytes(nodes)
            wire = self.plan.wires.get(frozenset(nodes))
            if wire is None:
                pairs.append((self._end(near, mtu_bytes), self._end(far, mtu_bytes)))
                continue
            for intf in (near, far):
                inner = rtnetlink.End(wire.facing(intf.node.name), mtu_bytes)
                pairs.append((inner, self._end(intf, mtu_bytes)))
        if self._blackout_ends():
            mtu_bytes = self._mtu_bytes(self.plan.ends[str(self.plan.blackout_at)])
            link_end, port_end = (rtnetlink.End(name, mtu_bytes) for name in BLACKOUT_ENDS)
            pairs.append((link_end, port_end))
        self._root.do([rtnetlink.add_veth_pair(near, far) for near, far in pairs])
        root = self._places[0].ports
        root |= {name: index for index, name in socket.if_nameindex()}
        self._root.do([rtnetlink.set_up(root[port]) for port in self._interfaces()])
        wires.connect(self.plan, self.commands)

    def _mtu_bytes(self, direction: tuple[str, str]) -> int | None:
        """The MTU of a link; None where it is the kernel's default for Ethernet."""
        mtu_bytes = self.plan.links[direction].mtu_bytes
        return None if mtu_bytes == STANDARD_MTU_BYTES else mtu_bytes

    def _interfaces(self) -> list[str]:
        """Every interface of the switches' namespace that packets cross."""
        ports = [
            self.plan.port(s, node) for s in self.plan.switches for node in self.plan.graph.adj[s]
        ]
        return [*ports, *self._blackout_ends(), *wires.names(self.plan)]

    def _blackout_ends(self) -> tuple[str, ...]:
        return BLACKOUT_ENDS if self.plan.blackout_at else ()

    def steer_arrivals(self, core: int, folder: Path) -> None:
        """Makes one core process everything that arrives at any interface, in order.

        A veth pair leaves a packet to the core that its sender runs on. When that core changes,
        packets overtake one another within a link by microseconds, which no cable allows. Receive
        packet steering puts them into one queue (Documentation/networking/scaling.rst).

        Raises ReadBackError: the kernel does not show the setting.
        """
        folder.mkdir()
        places: list[tuple[int | None, list[str]]] = [(None, self._interfaces())]
        places += [(self.netns(host), [f"{host}-eth0"]) for host in self.plan.hosts]
        places += [(place.netns, list(place.ports)) for place in self._places[1:]]
        for netns, interfaces in places:
            with sysfs(netns, folder) as mounted:
                for interface in interfaces:
                    setting = mounted / f"class/net/{interface}/queues/rx-0/rps_cpus"
                    mask = _core_mask(core)
                    try:
                        setting.write_text(mask)
                        read_back = setting.read_text().strip()
                    except OSError as error:
                        raise ReadBackError(interface, "rps_cpus", mask, error.strerror) from None
                    if int(read_back.replace(",", ""), 16) != 1 << core:
                        raise ReadBackError(interface, "rps_cpus", mask, read_back)

    def _end(self, intf: Any, mtu_bytes: int | None) -> rtnetlink.End:
        if intf.node in self.net.hosts:
            if intf.node.name in self.plan.routers:
                address = self.plan.subnets.mac(*self.plan.ends[intf.name])
            else:
                address = self.plan.mac(intf.node.name)
            return rtnetlink.End(intf.name, mtu_bytes, address, intf.node.netns)
        return rtnetlink.End(intf.name, mtu_bytes)

    def configure_hosts(self) -> HostSettings:
        """Sets addresses, static ARP, the route with its minimum RTO, TCP's settings, offloads."""
        route_min_rto_ms: dict[str, int] = {}
        route_metrics: dict[str, dict[str, int]] = {}
        talks: dict[str, set[str]] = {}
        for src, dst in sorted(self.plan.pairs):
            talks.setdefault(src, set()).add(dst)
            talks.setdefault(dst, set()).add(src)
        base = self.experiment.transport
        of_machines = plan_transport.of_hosts(base, self.plan.flows, self.plan.machine)
        of_hosts = {
            host: of_machines[machine]
            for host in self.plan.hosts
            if (machine := self.plan.machine(host)) in of_machines
        }
        for host in self.plan.hosts:
            with entered(self.netns(host)):
                if "ipv6" in self.plan.families:
                    enable_ipv6(host, [f"{host}-eth0"])
                else:
                    disable_ipv6(host)
                for name, value in transport.sysctls(of_hosts.get(host, base)).items():
                    transport.write_sysctl(name, value, host)
                settings = of_hosts.get(host, base)
                own = host if settings.min_rto_ns != base.min_rto_ns else ""
                with rtnetlink.Kernel() as kernel:
                    metrics = self._configure_host(kernel, host, talks.get(host, set()), settings)
                route_min_rto_ms[own] = metrics.pop("rto_min")
                own = host if transport.route_metrics(base) != metrics else ""
                if metrics or own:
                    route_metrics[own] = metrics
                self._configure_offloads(f"{host}-eth0")
        first = next(iter(talks))
        with entered(self.netns(first)):
            # What a group of flows sets at this host says nothing of the others.
            others = [
                name
                for name in transport.RECORDED_SYSCTLS
                if name not in transport.sysctls(of_hosts.get(first, base))
            ]
            recorded = {name: transport.read_sysctl(name) for name in others}
        for port in self._interfaces():
            self._configure_offloads(port)
        of_all = transport.sysctls(base)
        return HostSettings(
            route_min_rto_ms=route_min_rto_ms,
            route_metrics=route_metrics,
            sysctls=_with_dots(of_all),
            own_sysctls={
                host: _with_dots(
                    {
                        name: value
                        for name, value in transport.sysctls(settings).items()
                        if value != of_all.get(name)
                    }
                )
                for host, settings in of_hosts.items()
            },
            recorded_sysctls=_with_dots(recorded),
            offloads=bool(base.offloads),
        )

    def _configure_host(
        self, kernel: rtnetlink.Kernel, host: str, talks_to: set[str], settings: Transport
    ) -> dict[str, int]:
        """Sets up a host in its namespace. Returns its route's metrics; `rto_min` is in ms."""
        index = socket.if_nametoindex(f"{host}-eth0")
        requested = {
            "rto_min": settings.min_rto_ns // 10**6,
            **transport.route_metrics(settings),
        }
        # The kernel uses a minimum RTO only if the metric is locked (net/tcp.h, tcp_rto_min).
        # ip-route(8) locks it silently.
        metrics = {**requested, "lock": _RTO_MIN_LOCK}
        # Nobody answers for an IPv6 address that is not known, so all of them are.
        known_to = {"ipv4": talks_to, "ipv6": set(self.plan.hosts) - {host}}
        families = {
            family: (own, self._network_of(own), self._neighbours(family, known_to[family]))
            for family, own in zip(self.plan.families, self.plan.addresses(host), strict=True)
        }
        routes = self._routes(host, families)
        # What a further interface sends goes by a table of its own, and its address makes no route.
        place = self.plan.interfaces(host).index(host)
        table = _FIRST_TABLE + place if place else rtnetlink.TABLE_MAIN
        requests = [rtnetlink.set_up(_LOOPBACK)]
        for own, (_, prefix_length), _ in families.values():
            requests.append(rtnetlink.add_address(index, own, 32 if place else prefix_length))
            requests += [rtnetlink.add_rule(own, table)] if place else []
        requests.append(rtnetlink.set_up(index))
        for own, (network, prefix_length), neighbours in families.values():
            requests.append(
                rtnetlink.replace_route(index, network, prefix_length, own, metrics, table)
            )
            requests += [
                rtnetlink.replace_neighbour(index, address, mac)
                for address, mac in neighbours.items()
            ]
        for route in routes:
            own = next(a for a, *_ in families.values() if (":" in a) == (":" in route.network))
            requests.append(
                rtnetlink.replace_route(
                    *(index, route.network, route.prefix_length, own, metrics, table),
                    route.gateway,
                )
            )
        kernel.do(requests)
        for own, (network, prefix_length), neighbours in families.values():
            if place and (shown := kernel.rules().get(own)) != table:
                raise ReadBackError(host, f"table of routes of {own}", table, shown)
            to_network = [(network, prefix_length)]
            to_network += [
                (route.network, route.prefix_length)
                for route in routes
                if (":" in route.network) == (":" in own)
            ]
            for shown_to in to_network:
                shown_routes = kernel.route_metrics(*shown_to, table)
                if len(shown_routes) != 1:
                    where = f"route to {shown_to[0]}"
                    raise ReadBackError(host, where, "one with metrics", len(shown_routes))
                transport.check_route(host, requested, shown_routes[0])
                if not shown_routes[0].get("lock", 0) & _RTO_MIN_LOCK:
                    raise ReadBackError(host, "lock of the route's rto_min", "locked", "not locked")
            known = kernel.neighbours(index, rtnetlink.family_of(own))
            for address, mac in neighbours.items():
                if known.get(address) != mac:
                    raise ReadBackError(host, f"ARP entry of {address}", mac, known.get(address))
        if routes:
            from outcast.emulation import routers

            routers.check_gateways(kernel, host, routes, table)
        return requested

    def _network_of(self, address: str) -> tuple[str, int]:
        """The network of a host's address: its first address, and its prefix's length in bits."""
        network, prefix_length = self.plan.subnets.network(addresses.ipv4_of(address))
        if ":" not in address:
            return network, prefix_length
        return addresses.ipv6_of(network), addresses.PREFIX_BITS + prefix_length

    def _routes(
        self, host: str, families: Mapping[Family, tuple[str, tuple[str, int], dict[str, str]]]
    ) -> list[Route]:
        """A host's routes by gateways, whose Ethernet addresses join its neighbours."""
        if not self.plan.routers:
            return []
        from outcast.emulation import routers

        gateways = routers.neighbours_of(self.plan, host)
        for own, _, neighbours in families.values():
            neighbours |= {a: mac for a, mac in gateways.items() if (":" in a) == (":" in own)}
        return list(routers.routes_of(self.plan, host))

    def _neighbours(self, family: Family, hosts: Collection[str]) -> dict[str, str]:
        """The MAC address of each host by its address."""
        return {addresses.of(self.plan.graph, host, family): self.plan.mac(host) for host in hosts}

    def _configure_offloads(self, interface: str) -> None:
        on = bool(self.experiment.transport.offloads)
        transport.set_offloads(interface, on=on)
        transport.check_offloads(interface, transport.read_offloads(interface), on=on)

    def configure_queues(self) -> QueueSettings:
        """Sets up every port's qdiscs, those that need tc(8) by a batch for all of a namespace.

        Call it after `start_switches`: Open vSwitch clears the qdiscs of the ports that it adds.

        Raises ReadBackError: the kernel shows another setting than was asked for.
        """
        of_bottleneck: dict[str, Any] = {}
        bottleneck = self.plan.bottleneck.egress
        requested = [
            ports.switch_queue(self.experiment, self.plan, port)
            for port in self.plan.switch_ports()
        ]
        self.warnings += red.set_idle([request.queue for request in requested])
        for place in self._places:
            with entered(place.netns):
                self._tc([request for request in requested if request.port in place.ports])
        messages = self.shown_queues()
        alike: dict[tuple[tuple[str, Any], ...], list[str]] = {}
        for request in requested:
            effective = queues.read_back(request, messages.get(request.port, []))
            with entered(self.place(self.plan.ends[request.port][0])):
                effective |= queues.read_classes(request)
            alike.setdefault(tuple(effective.items()), []).append(request.port)
            if request.port == bottleneck:
                of_bottleneck = effective
        interrupts, throttle = self.plan.host_noise.interrupts, self.plan.host_noise.throttle
        per_second: dict[int, list[str]] = {}
        for host in self.plan.hosts:
            request = ports.host_queue(self.experiment, self.plan, host)
            with entered(self.netns(host)):
                request = self._set_up_host(request)
                if interrupts is not None or throttle is not None:
                    # Imported here, because runs without noise of hosts do not need it.
                    from pyroute2.iproute import IPRoute

                    with IPRoute() as netlink:
                        if interrupts is not None:
                            arrivals.hold_back(
                                *(netlink, request.port, interrupts, self._waiting(host))
                            )
                        if throttle is not None:
                            link = self._link_of(host)
                            rate = throttle.at(link.rate_bps)
                            cards.install(
                                *(netlink, request.port, rate),
                                address=self.plan.mac(host),
                                mtu_bytes=link.mtu_bytes,
                            )
                            per_second.setdefault(rate, []).append(host)
                with rtnetlink.Kernel() as kernel:
                    index = socket.if_nametoindex(request.port)
                    shown_queue = kernel.queues({index}).get(index, [])
                effective = queues.read_back(request, shown_queue)
                effective |= queues.read_classes(request)
            alike.setdefault(tuple(effective.items()), []).append(request.port)
        if per_second:
            cards.wait_until_ready(min(per_second))
        return QueueSettings(
            of_bottleneck,
            tuple((tuple(names), dict(settings)) for settings, names in alike.items()),
            None if interrupts is None else (interrupts.least_ns, interrupts.most_ns),
            {rate: tuple(hosts) for rate, hosts in per_second.items()},
        )

    def _waiting(self, host: str) -> str:
        """The name of the interface in which a host's arrivals wait."""
        place = self.plan.interfaces(host).index(host)
        return f"{IFB_OF_HOST}{place}" if place else IFB_OF_HOST

    def _set_up_host(self, request: ports.PortQueue) -> ports.PortQueue:
        """Sets up a host's port, its delay behind its queue if the kernel can do that."""
        if self.has_cables and (request.has_netem or request.sender):
            wanted = replace(request, has_cable=True)
            try:
                self._tc([wanted])
            except FeatureMissingError:
                # The cable comes first, so nothing has been set up yet.
                self.has_cables = False
                self.warnings.append(UNBOUNDED)
            else:
                return wanted
        self._tc([request])
        return request

    def _link_of(self, host: str) -> LinkSettings:
        """Finds what is asked for of a host's link, in the direction from the host."""
        (switch,) = self.plan.graph.adj[host]
        return self.plan.links[host, switch]

    def _tc(self, requested: Sequence[ports.PortQueue]) -> None:
        for request in requested:
            queues.set_delay(request)
        # In a loop of its own, because the order in which qdiscs are made decides a run's bytes.
        for request in requested:
            queues.set_shaper(request)
        lines = [line for request in requested for line in queues.commands(request)]
        if lines:
            self.commands.run(["tc", "-batch", "-"], stdin="\n".join(lines) + "\n")
        for request in requested:
            queues.set_by_netlink(request)

    def shown_queues(self) -> dict[str, list[Any]]:
        """The netlink messages of the qdiscs and classes of every switch port."""
        shown: dict[str, list[Any]] = {}
        for place in self._places:
            messages = place.kernel.queues(set(place.ports.values()))
            shown |= {port: messages.get(number, []) for port, number in place.ports.items()}
        return shown

    def counted_by_queues(self, ports: Collection[str] | None = None) -> dict[str, list[Shown]]:
        """Reads what the qdiscs of these switch ports have counted, or those of every one."""
        shown: dict[str, list[Shown]] = {}
        for place in self._places:
            index = {p: number for p, number in place.ports.items() if ports is None or p in ports}
            messages = place.kernel.statistics(set(index.values())) if index else {}
            shown |= {port: messages.get(number, []) for port, number in index.items()}
        return shown

    def transmitted(self) -> dict[str, int]:
        """Packets that each switch port has sent so far, by the kernel's interface counters."""
        return {port: stats["tx_packets"] for port, stats in self.interface_counters().items()}

    def interface_counters(self) -> dict[str, dict[str, int]]:
        """The kernel's counters of every switch port (ip-link(8), statistics)."""
        return self._counters(self.plan.switch_ports())

    def wire_counters(self) -> dict[str, dict[str, int]]:
        """The counters of the inner ends of links that lose packets; none where no link does."""
        return self._counters(wires.names(self.plan)) if self.plan.wires else {}

    def _counters(self, interfaces: Collection[str]) -> dict[str, dict[str, int]]:
        wanted = set(interfaces)
        found: dict[str, dict[str, int]] = {}
        for place in self._places:
            names = {index: name for name, index in place.ports.items() if name in wanted}
            counted = place.kernel.counters()
            if gone := [name for index, name in names.items() if index not in counted]:
                raise RunError(f"counters of interfaces: the kernel has none of {', '.join(gone)}")
            found |= {name: counted[index] for index, name in names.items()}
        return found

    def losses(self) -> dict[str, dict[Cause, int]]:
        """Reads what every port of the network has lost so far, also the hosts' ports, by cause.

        An interface that drops a packet counts it as `tx_dropped`, also where the veth pair's far
        end refuses it (veth_xmit in drivers/net/veth.c). A drop of the queue is not among these.

        Raises ReadBackError: a port has no queue of ours.
        """
        interfaces, messages = self.interface_counters(), self.counted_by_queues()
        lost = {port: _lost(messages[port], interfaces[port]) for port in self.plan.switch_ports()}
        for host in self.plan.hosts:
            with entered(self.netns(host)), rtnetlink.Kernel() as kernel:
                index = socket.if_nametoindex(f"{host}-eth0")
                counted = kernel.counters(index)[index]
                lost[f"{host}-eth0"] = _lost(kernel.statistics({index}).get(index, []), counted)
        for (node, neighbour), count in wires.lost(self.plan, messages).items():
            lost[self.plan.port(node, neighbour)]["link"] = count
        return lost

    def read_mtus(self) -> dict[int, list[str]]:
        """The interfaces by their MTU; nothing where all links have the usual one.

        Raises ReadBackError: an interface has another MTU than its link.
        """
        if all(link.mtu_bytes == STANDARD_MTU_BYTES for link in self.plan.links.values()):
            return {}
        mtus: dict[int, list[str]] = {}
        for (node, neighbour), link in self.plan.links.items():
            port = self.plan.port(node, neighbour)
            if node not in self.plan.switches:
                with entered(self.netns(node)), rtnetlink.Kernel() as kernel:
                    mtus_read = kernel.mtus()
            else:
                mtus_read = self._root_mtus()
            wire = self.plan.wires.get(frozenset((node, neighbour)))
            inner = [(wire.facing(node), self._root_mtus())] if wire else []
            for interface, table in ((port, mtus_read), *inner):
                if table.get(interface) != link.mtu_bytes:
                    raise ReadBackError(interface, "mtu", link.mtu_bytes, table.get(interface))
                mtus.setdefault(link.mtu_bytes, []).append(interface)
        return mtus

    def _root_mtus(self) -> dict[str, int]:
        if self._shown_mtus is None:
            self._shown_mtus = self._root.mtus()
        return self._shown_mtus

    def start_switches(self, datapath: str, controller: str) -> None:
        """Makes all bridges with ports and controllers in one transaction, and reads them back."""
        argv = ["ovs-vsctl", "--timeout=20"]
        for switch in self.plan.switches:
            datapath_id = f"{self.plan.graph.nodes[switch]['dpid']:016x}"
            argv += ["--", "add-br", switch]
            argv += ["--", "set", "Bridge", switch, f"datapath_type={datapath}"]
            argv += [
                "fail_mode=secure",
                f"protocols={self.plan.openflow}",
                "mcast_snooping_enable=false",
            ]
            argv += [f"other-config:datapath-id={datapath_id}"]
            argv += ["other-config:disable-in-band=true"]
            argv += ["--", "set-controller", switch, controller]
            for neighbour in self.plan.graph.neighbors(switch):
                port = port_name(self.plan.graph, switch, neighbour)
                number = self.plan.graph.edges[switch, neighbour]["ports"][switch]
                port = self.plan.attached(port)
                argv += ["--", "add-port", switch, port]
                argv += ["--", "set", "Interface", port, f"ofport_request={number}"]
        self.commands.run(argv)
        self._check_ports()

    def _check_ports(self) -> None:
        text = self.commands.run(
            [
                "ovs-vsctl",
                "--timeout=20",
                "--format=csv",
                "--no-headings",
                "--columns=name,ofport,error",
                "list",
                "Interface",
            ]
        )
        ports_read = {}
        for line in text.splitlines():
            name, number, error = line.split(",", 2)
            ports_read[name] = (number, error.strip('"[]'))
        for switch in self.plan.switches:
            for neighbour in self.plan.graph.neighbors(switch):
                port = port_name(self.plan.graph, switch, neighbour)
                number = str(self.plan.graph.edges[switch, neighbour]["ports"][switch])
                effective, error = ports_read.get(self.plan.attached(port), ("none", ""))
                if effective != number:
                    raise ReadBackError(
                        port, "OpenFlow port", number, f"{effective} {error}".strip()
                    )


def _lost(messages: Sequence[Any], counted: Mapping[str, int]) -> dict[Cause, int]:
    return {**queues.lost(messages), "interface": counted["tx_dropped"] + counted["tx_errors"]}


def _with_dots(sysctls: Mapping[str, str]) -> dict[str, str]:
    """The same values under the names that sysctl(8) prints."""
    return {name.replace("/", "."): value for name, value in sysctls.items()}


def _core_mask(core: int) -> str:
    """A core's bitmap in the form that the kernel takes: words of 32 bits, the highest first."""
    words = ["00000000"] * (core // 32 + 1)
    words[0] = f"{1 << core % 32:08x}"
    return ",".join(words)


_IPV6_SETTINGS = {
    "disable_ipv6": "0",
    "accept_ra": "0",
    "autoconf": "0",
    "router_solicitations": "0",
    "addr_gen_mode": "1",
    "accept_dad": "0",
    "dad_transmits": "0",
}
"""These keep a host from sending IPv6 packets of its own: it has the addresses that it is given,
and no link-local one, asks for no router, and looks for no duplicate. That it belongs to its
address's group (RFC 3810) it repeats within a tick, before there is a switch (ip-sysctl.rst)."""


@cache
def _tick_ms() -> str:
    """The kernel's tick, but 1 ms at least, because it shows times as whole ticks."""
    return str(max(1, 1000 // (transport.kernel_hz() or 1000)))


def enable_ipv6(node: str, ports: Collection[str]) -> None:
    """Switches IPv6 on at the interfaces of a host or router.

    Raises FeatureMissingError: the kernel has no IPv6.
    """
    transport.require_ipv6()
    for scope in ("all", "lo"):
        transport.write_sysctl(f"ipv6/conf/{scope}/disable_ipv6", "0", node)
    # Packets may come in by an interface that is made later, as a card's.
    settings = _IPV6_SETTINGS | {"mldv2_unsolicited_report_interval": _tick_ms()}
    for scope in ("default", *ports):
        for name, value in settings.items():
            transport.write_sysctl(f"ipv6/conf/{scope}/{name}", value, node)


def disable_ipv6(where: str) -> None:
    """Switches IPv6 off, because its own messages would stand among the captured packets."""
    for scope in ("all", "default"):
        if transport.read_sysctl(f"ipv6/conf/{scope}/disable_ipv6"):
            transport.write_sysctl(f"ipv6/conf/{scope}/disable_ipv6", "1", where)
