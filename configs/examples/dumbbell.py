"""A dumbbell as people write it for Mininet: `mn --custom dumbbell.py --topo dumbbell,left=3`.

Senders on the left and receivers on the right share the link between two switches.
"""

from __future__ import annotations

from mininet.link import TCLink
from mininet.topo import Topo


class Dumbbell(Topo):
    """h1, h2, ... on the left send over s1 - s2 to as many hosts on the right."""

    def build(self, left: int = 3, bw: float = 100, delay: str = "1ms") -> None:
        """Adds the nodes and links. `bw` (Mbps) and `delay` are those of the shared link."""
        first, second = self.addSwitch("s1"), self.addSwitch("s2")
        self.addLink(first, second, cls=TCLink, bw=bw, delay=delay)
        for number in range(1, left + 1):
            self.addLink(self.addHost(f"h{number}"), first)
        for number in range(left + 1, 2 * left + 1):
            self.addLink(self.addHost(f"h{number}"), second)


topos = {"dumbbell": Dumbbell}
