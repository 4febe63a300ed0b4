"""Senders l1, l2 ... on the left and receivers r1, r2 ... on the right of one link, or of several.

`between` switches stand in a row: s1 - s2, or s1 - s2 - s3. Receiver rN is at the last one.
"""

from __future__ import annotations

from itertools import pairwise

from mininet.topo import Topo


class Dumbbell(Topo):
    def build(self, n: int = 1, between: int = 2) -> None:
        switches = [self.addSwitch(f"s{number}") for number in range(1, between + 1)]
        for near, far in pairwise(switches):
            self.addLink(near, far)
        for number in range(1, n + 1):
            self.addLink(self.addHost(f"l{number}"), switches[0])
            self.addLink(self.addHost(f"r{number}"), switches[-1])


topos = {"dumbbell": Dumbbell}
