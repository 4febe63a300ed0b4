"""One switch with all hosts, for incast.

This is the topology of the TCPRand paper's figure 15 (40 senders, one receiver). Every sender is
two links from the receiver, `h1`, and has an input port of its own.

To use it without outcast: `mn --custom topologies/star.py --topo star,hosts=41`.
"""

from __future__ import annotations

from mininet.topo import Topo


class StarTopo(Topo):
    """One switch. Its port n leads to host n."""

    def build(self, hosts: int = 41, **_options: object) -> None:
        """Adds the nodes and links. `hosts` counts the receiver too."""
        hosts = int(hosts)
        if not 2 <= hosts <= 250:
            raise ValueError(f"hosts={hosts}: 2 to 250 are allowed")
        switch = self.addSwitch("s1", dpid=f"{1:016x}", layer="edge")
        for number in range(1, hosts + 1):
            name = f"h{number}"
            role = "receiver" if number == 1 else "sender"
            mac = f"02:00:00:00:00:{number:02x}"
            self.addHost(name, ip=f"10.0.0.{number}/8", mac=mac, role=role)
            self.addLink(name, switch, port1=0, port2=number)


topos = {"star": StarTopo}
