r"""Three senders at three distances from one receiver: a fat-tree cut down to one branch.

It stands for figure 7 of the TCPRand paper, the testbed that "simplifies the fat-tree topology in
Figure 1 but still preserves its essential nature". The paper's text does not have the drawing. It
says that the senders are S1, S2 and S4, which in its figure 1 are a 2-hop, a 4-hop and a 6-hop
sender. They are the same here, with the switches that the fat-tree has on their paths:

```
            c1
          /    \
        a1      a2
       /  \      \
     e1    e2     e3
    /  \    \      \
   r    s1   s2     s4
```

The queue towards `r` has two inputs: port 2 of `e1` has s1's flows, port 3 has those of s2 and s4.
The flows of s2 and s4 meet at `a1`.

To use it without outcast: `mn --custom topologies/three_sender.py --topo three_sender`.
"""

from __future__ import annotations

from mininet.topo import Topo

SWITCHES = (
    ("e1", "edge"),
    ("e2", "edge"),
    ("e3", "edge"),
    ("a1", "aggregation"),
    ("a2", "aggregation"),
    ("c1", "core"),
)
HOSTS = (("r", "e1"), ("s1", "e1"), ("s2", "e2"), ("s4", "e3"))
LINKS = (("e1", "a1"), ("e2", "a1"), ("e3", "a2"), ("a1", "c1"), ("a2", "c1"))


class ThreeSenderTopo(Topo):
    """The branch of a fat-tree that the module draws."""

    def build(self, **_options: object) -> None:
        """Adds the nodes and links. There are no parameters."""
        for number, (name, layer) in enumerate(SWITCHES, 1):
            self.addSwitch(name, dpid=f"{number:016x}", layer=layer)
        for number, (name, switch) in enumerate(HOSTS, 1):
            self.addHost(
                name,
                ip=f"10.0.0.{number}/8",
                mac=f"02:00:00:00:00:{number:02x}",
                role="receiver" if name == "r" else "sender",
            )
            self.addLink(name, switch)
        for lower, upper in LINKS:
            self.addLink(lower, upper)


topos = {"three_sender": ThreeSenderTopo}
