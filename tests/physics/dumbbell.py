"""Networks of the cases.

Dumbbell: senders l1, l2 ... on the left and receivers r1, r2 ... on the right of one link, or of
several: `between` switches stand in a row, s1 - s2 - s3. Receiver rN is at the last one. With
`cross`, host cN sends over the link from sN to sN+1 alone, to dN (a parking lot).

Parallel: l1 at s1 and r1 at s2, with `paths` switches m1, m2 ... side by side between them.
"""

from itertools import pairwise

from mininet.topo import Topo


class Dumbbell(Topo):
    def build(self, n: int = 1, between: int = 2, cross: int = 0) -> None:
        switches = [self.addSwitch(f"s{number}") for number in range(1, between + 1)]
        for near, far in pairwise(switches):
            self.addLink(near, far)
        for number in range(1, n + 1):
            self.addLink(self.addHost(f"l{number}"), switches[0])
            self.addLink(self.addHost(f"r{number}"), switches[-1])
        for number in range(1, cross + 1):
            self.addLink(self.addHost(f"c{number}"), switches[number - 1])
            self.addLink(self.addHost(f"d{number}"), switches[number])


class Parallel(Topo):
    def build(self, paths: int = 4) -> None:
        ends = [self.addSwitch(f"s{number}") for number in (1, 2)]
        for number in range(1, paths + 1):
            middle = self.addSwitch(f"m{number}")
            for end in ends:
                self.addLink(end, middle)
        for host, end in zip(("l1", "r1"), ends, strict=True):
            self.addLink(self.addHost(host), end)


topos = {"dumbbell": Dumbbell, "parallel": Parallel}
