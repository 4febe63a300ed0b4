"""Builds the network: nodes, links, addresses."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mininet.link import Intf, Link
from mininet.net import Mininet
from mininet.node import Host, OVSSwitch

from outcast.emulation.commands import SystemCommands, entered, new_namespace, sysfs, wait_until
from outcast.emulation.kernel import rtnetlink
from outcast.emulation.network import hosts, lossy_links, transport
from outcast.errors import ReadBackError, RunError
from outcast.experiment import Experiment
from outcast.experiment.links import STANDARD_MTU_BYTES
from outcast.plan.model import BLACKOUT_ENDS, Plan
from outcast.plan.topology import make_topo
from outcast.records import queue_statistics
from outcast.records.counters import Cause
from outcast.records.queue_statistics import Shown


class NamespaceHost(Host):
    """A Mininet host without a shell: a namespace, which hosts.py configures."""

    netns: int

    def startShell(self, mnopts: str | None = None) -> None:  # Mininet's name
        self.netns = new_namespace()

    def addIntf(self, intf: Intf, port: int | None = None, moveIntfFn: Any = None) -> None:
        super().addIntf(intf, port=port, moveIntfFn=lambda *_: None)

    def config(self, **_params: Any) -> dict[str, Any]:
        return {}

    def terminate(self) -> None:
        os.close(self.netns)


class PortSwitch(OVSSwitch):
    """A Mininet Open vSwitch switch without a shell; openvswitch.py makes it."""

    isSetup = True  # Or Mininet would run Open vSwitch's tools for its version.

    def startShell(self, mnopts: str | None = None) -> None:
        pass

    def cmd(self, *_args: Any, **_kwargs: Any) -> str:
        return ""

    def config(self, **_params: Any) -> dict[str, Any]:
        return {}


class PlainIntf(Intf):
    """An interface that has only a name here; the kernel's part is done in bulk."""

    def config(self, **_params: Any) -> dict[str, Any]:
        return {}


class PlainLink(Link):
    """A link that is only noted; `Network.create_links` makes the veth pairs."""

    @classmethod
    def makeIntfPair(cls, *_args: Any, **_kwargs: Any) -> None:
        pass


UP_DEADLINE_S = 10.0


class _Place(NamedTuple):
    """The switches' namespace, or a router's: a socket in it, and its interfaces by name."""

    netns: int | None
    kernel: rtnetlink.Kernel
    ports: dict[str, int]


class Network:
    """The emulated network of one run, in the present network namespace.

    Attributes:
        net: the Mininet object: `net["h1"]`, `net.hosts`, `net.links`.
        places: the switches' namespace, and that of each router.
        warnings: what this kernel cannot do as it should.
    """

    def __init__(self, experiment: Experiment, plan: Plan, commands: SystemCommands) -> None:
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
        self.places = [_Place(None, self._root, {})]
        self.warnings: list[str] = []

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def build(self) -> dict[str, Any]:
        """Makes namespaces, links, addresses and TCP's settings; returns what is in effect."""
        self.net.buildFromTopo(self._topo)
        for host in self.plan.hosts:
            if (machine := self.plan.machine(host)) != host:
                # A further interface of a host is in that host's namespace.
                self.net[host].terminate()
                self.net[host].netns = os.dup(self.netns(machine))
        self.create_links()
        for router in self.plan.routers:
            self._bring_up(router)
        settings = hosts.configure(
            self.experiment.transport, self.plan, self.netns, self._interfaces()
        )
        for place, router in zip(self.places[1:], self.plan.routers, strict=True):
            wait_until(place.kernel.are_up, f"the links of {router}", UP_DEADLINE_S, pause_s=0.05)
            hosts.configure_router(self.plan, router, place.netns)
        return settings

    def place(self, node: str) -> int | None:
        """The descriptor of a host's or router's namespace; None of a switch, which has none."""
        return None if node in self.plan.switches else self.netns(node)

    def _bring_up(self, router: str) -> None:
        """Brings up a router's ports.

        They get addresses once both ends of every link are up, because IPv6 reports its groups
        again when a carrier comes.
        """
        netns = self.netns(router)
        ports = [self.plan.port(router, node) for node in self.plan.graph.adj[router]]
        with entered(netns):
            hosts.set_families(router, ports, self.plan.families)
            for port in ports:
                transport.configure_offloads(port, on=bool(self.experiment.transport.offloads))
            index = {port: socket.if_nametoindex(port) for port in ports}
            kernel = rtnetlink.Kernel()
            kernel.do([rtnetlink.set_up(number) for number in (hosts.LOOPBACK, *index.values())])
            self.places.append(_Place(netns, kernel, index))

    def netns(self, host: str) -> int:
        return int(self.net[self.plan.machine(host)].netns)

    def further_interfaces(self, host: str) -> dict[str, str]:
        return {f"{name}-eth0": self.plan.ip(name) for name in self.plan.interfaces(host)[1:]}

    def close(self) -> None:
        for place in self.places:
            place.kernel.close()
        for host in self.net.hosts:
            host.terminate()

    def create_links(self) -> None:
        """Makes a veth pair for every link, with its ends in their nodes' namespaces, and up."""
        self._root.do([rtnetlink.set_up(hosts.LOOPBACK)])
        hosts.disable_ipv6("the switches' namespace")
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
        root = self.places[0].ports
        root |= {name: index for index, name in socket.if_nameindex()}
        self._root.do([rtnetlink.set_up(root[port]) for port in self._interfaces()])
        lossy_links.connect(self.plan, self.commands)

    def _mtu_bytes(self, direction: tuple[str, str]) -> int | None:
        """The MTU of a link; None where it is the kernel's default for Ethernet."""
        mtu_bytes = self.plan.links[direction].mtu_bytes
        return None if mtu_bytes == STANDARD_MTU_BYTES else mtu_bytes

    def _interfaces(self) -> list[str]:
        """Every interface of the switches' namespace that packets cross."""
        ports = [
            self.plan.port(s, node) for s in self.plan.switches for node in self.plan.graph.adj[s]
        ]
        return [*ports, *self._blackout_ends(), *lossy_links.names(self.plan)]

    def _blackout_ends(self) -> tuple[str, ...]:
        return BLACKOUT_ENDS if self.plan.blackout_at else ()

    def steer_arrivals(self, core: int, folder: Path) -> None:
        """Makes one core process all arrivals at every interface, in order.

        A veth pair leaves a packet to the core that its sender runs on. When that core changes,
        packets overtake one another within a link by microseconds, which no cable allows. Receive
        packet steering puts them into one queue (Documentation/networking/scaling.rst).
        """
        folder.mkdir()
        places: list[tuple[int | None, list[str]]] = [(None, self._interfaces())]
        places += [(self.netns(host), [f"{host}-eth0"]) for host in self.plan.hosts]
        places += [(place.netns, list(place.ports)) for place in self.places[1:]]
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

    def shown_queues(self) -> dict[str, list[Any]]:
        dumps: dict[str, list[Any]] = {}
        for place in self.places:
            messages = place.kernel.queues(set(place.ports.values()))
            dumps |= {port: messages.get(number, []) for port, number in place.ports.items()}
        return dumps

    def counted_by_queues(self, ports: Collection[str] | None = None) -> dict[str, list[Shown]]:
        """What the qdiscs of these switch ports, or of all, have counted."""
        counts: dict[str, list[Shown]] = {}
        for place in self.places:
            index = {p: number for p, number in place.ports.items() if ports is None or p in ports}
            messages = place.kernel.statistics(set(index.values())) if index else {}
            counts |= {port: messages.get(number, []) for port, number in index.items()}
        return counts

    def transmitted(self) -> dict[str, int]:
        """Packets that each switch port has sent so far."""
        return {port: stats["tx_packets"] for port, stats in self.interface_counters().items()}

    def interface_counters(self) -> dict[str, dict[str, int]]:
        """The kernel's counters of every switch port (ip-link(8), statistics)."""
        return self._counters(self.plan.switch_ports())

    def wire_counters(self) -> dict[str, dict[str, int]]:
        """The counters of the inner ends of links that lose packets; none where no link does."""
        return self._counters(lossy_links.names(self.plan)) if self.plan.wires else {}

    def _counters(self, interfaces: Collection[str]) -> dict[str, dict[str, int]]:
        wanted = set(interfaces)
        found: dict[str, dict[str, int]] = {}
        for place in self.places:
            names = {index: name for name, index in place.ports.items() if name in wanted}
            counted = place.kernel.counters()
            if gone := [name for index, name in names.items() if index not in counted]:
                raise RunError(f"counters of interfaces: the kernel has none of {', '.join(gone)}")
            found |= {name: counted[index] for index, name in names.items()}
        return found

    def losses(self) -> dict[str, dict[Cause, int]]:
        """What every port of the network has lost so far, by cause; hosts' ports too.

        An interface that drops a packet counts it as `tx_dropped`, also where the veth pair's far
        end refuses it (veth_xmit in drivers/net/veth.c). A drop of the queue is not among these.

        Raises ReadBackError: a port lacks the queue that outcast set up.
        """
        interfaces, messages = self.interface_counters(), self.counted_by_queues()
        lost = {port: _lost(messages[port], interfaces[port]) for port in self.plan.switch_ports()}
        for host in self.plan.hosts:
            with entered(self.netns(host)), rtnetlink.Kernel() as kernel:
                index = socket.if_nametoindex(f"{host}-eth0")
                counted = kernel.counters()[index]
                lost[f"{host}-eth0"] = _lost(kernel.statistics({index}).get(index, []), counted)
        for (node, neighbour), count in lossy_links.lost(self.plan, messages).items():
            lost[self.plan.port(node, neighbour)]["link"] = count
        return lost

    def read_mtus(self) -> dict[int, list[str]]:
        """The interfaces by their MTU; nothing where all links have the usual one.

        Raises ReadBackError: an interface has another MTU than its link.
        """
        if all(link.mtu_bytes == STANDARD_MTU_BYTES for link in self.plan.links.values()):
            return {}
        mtus: dict[int, list[str]] = {}
        of_switches = self._root.mtus()
        for (node, neighbour), link in self.plan.links.items():
            here = of_switches
            if node not in self.plan.switches:
                with entered(self.netns(node)), rtnetlink.Kernel() as kernel:
                    here = kernel.mtus()
            wire = self.plan.wires.get(frozenset((node, neighbour)))
            inner = [(wire.facing(node), of_switches)] if wire else []
            for interface, table in ((self.plan.port(node, neighbour), here), *inner):
                if table.get(interface) != link.mtu_bytes:
                    raise ReadBackError(interface, "mtu", link.mtu_bytes, table.get(interface))
                mtus.setdefault(link.mtu_bytes, []).append(interface)
        return mtus


def _lost(messages: Sequence[Any], counted: Mapping[str, int]) -> dict[Cause, int]:
    return {
        **queue_statistics.lost(messages),
        "interface": counted["tx_dropped"] + counted["tx_errors"],
    }


def _core_mask(core: int) -> str:
    """A core's bitmap: words of 32 bits, the highest first."""
    words = ["00000000"] * (core // 32 + 1)
    words[0] = f"{1 << core % 32:08x}"
    return ",".join(words)
