r"""Two subnets of hosts, a switch at each, and three routers between them, which are Linux hosts.

h1 --+                             +-- h3
     s1 -- r1 ------ r2 -- s2 -----+
h2 --+      \         /            +-- h4
              -- r3 --
"""

from __future__ import annotations

from mininet.topo import Topo


class Routed(Topo):
    """The network above; the links between routers have `bw` Mbps and `delay`."""

    def build(self, bw: float = 10, delay: str = "2ms") -> None:
        """Adds nodes and links."""
        for switch, hosts in (("s1", ("h1", "h2")), ("s2", ("h3", "h4"))):
            self.addSwitch(switch)
            for host in hosts:
                self.addLink(self.addHost(host), switch, bw=100)
        for router in ("r1", "r2", "r3"):
            self.addHost(router, kind="router")
        self.addLink("s1", "r1", bw=100)
        self.addLink("r1", "r2", bw=bw, delay=delay)
        self.addLink("r2", "s2", bw=100)
        self.addLink("r2", "r3", bw=bw, delay=delay)
        self.addLink("r3", "r1", bw=bw, delay=delay)


topos = {"routed": Routed}
