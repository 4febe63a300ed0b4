"""A network of the user's own, as Mininet's topology."""

from __future__ import annotations

from mininet.topo import Topo

from outcast.experiment import Network


class NetworkTopo(Topo):
    """A network that an experiment carries, as Mininet's."""

    def build(self, network: Network, **_options: object) -> None:
        """Adds the nodes and links."""
        for host in network.hosts:
            of = {} if host.of is None else {"of": host.of}
            self.addHost(host.name, ip=f"{host.ip}/8", mac=host.mac, role=host.role or "host", **of)
        for switch in network.switches:
            self.addSwitch(switch.name, dpid=f"{switch.dpid:016x}", layer=switch.layer)
        for router in network.routers:
            self.addHost(router.name, kind="router")
        for link in network.links:
            one, two = link.places
            own = {"own": link.own} if link.own else {}
            self.addLink(one.node, two.node, port1=one.port, port2=two.port, **own)
