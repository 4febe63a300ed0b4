"""Two switches in a row: a receiver and a lone sender at the first, n rivals at the second.

The topology of the class reproductions ("Exploring Outcast", figure 3; "Life's not fair",
simple topology). The lone sender is two links from the receiver, each rival three links:

```
h1 (receiver) --- s1 --- s2 --- h3 .. hN (rivals)
h2 (lone) -------/
```

To use it without outcast: `mn --custom topologies/linear.py --topo linear,rivals=12`.
"""

from __future__ import annotations

from mininet.topo import Topo


class LinearTopo(Topo):
    """Two switches. s1's ports lead to: 1 the receiver, 2 the lone sender, 3 the second switch."""

    def build(self, rivals: int = 2, **_options: object) -> None:
        """Adds the nodes and links. `rivals` is the number of senders at the second switch."""
        rivals = int(rivals)
        if not 1 <= rivals <= 250:
            raise ValueError(f"rivals={rivals}: 1 to 250 are allowed")
        edge = self.addSwitch("s1", dpid=f"{1:016x}", layer="edge")
        far = self.addSwitch("s2", dpid=f"{2:016x}", layer="edge")
        for number in range(1, rivals + 3):
            role = "receiver" if number == 1 else "sender"
            self.addHost(f"h{number}", ip=f"10.0.0.{number}/8", mac=_mac(number), role=role)
        self.addLink("h1", edge)
        self.addLink("h2", edge)
        self.addLink(edge, far)
        for number in range(3, rivals + 3):
            self.addLink(f"h{number}", far)


def _mac(number: int) -> str:
    return f"02:00:00:00:00:{number:02x}"


topos = {"linear": LinearTopo}
