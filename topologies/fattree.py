"""The k-ary fat-tree of Al-Fares et al. (SIGCOMM 2008), as in section 3.1 of the Outcast paper.

There are k pods, each with k/2 edge and k/2 aggregation switches, and (k/2)^2 core switches. Each
edge switch has k/2 hosts; there are k^3/4 hosts in all. Every switch has k ports.

Host `hP_E_N` has the address 10.P.E.N, with N from 2 (Al-Fares et al., section 3.2). `eP_E` is
edge switch E of pod P, `aP_A` is aggregation switch A of pod P. `cA_J` is the J-th of the core
switches to which the aggregation switches with number A connect. Ports 1 to k/2 of an edge or
aggregation switch lead down, ports k/2+1 to k lead up. Port P+1 of a core switch leads to pod P.

The receiver of many-to-one experiments is the first host, `h0_0_2`.

To use it without outcast: `mn --custom topologies/fattree.py --topo fattree,k=4`.
"""

from __future__ import annotations

from mininet.topo import Topo


class FatTreeTopo(Topo):
    """The fat-tree; the module describes its names, addresses and ports."""

    def build(self, k: int = 4, **_options: object) -> None:
        """Adds the nodes and links. `k` is the number of ports of every switch."""
        k = int(k)
        if k % 2 or not 2 <= k <= 32:
            raise ValueError(f"k={k}: an even number from 2 to 32 is allowed")
        half = k // 2
        dpid = 0
        for layer, group_count, prefix in (
            ("edge", k, "e"),
            ("aggregation", k, "a"),
            ("core", half, "c"),
        ):
            for group in range(group_count):
                for number in range(half):
                    dpid += 1
                    self.addSwitch(f"{prefix}{group}_{number}", dpid=f"{dpid:016x}", layer=layer)
        for pod in range(k):
            for edge in range(half):
                for number in range(2, half + 2):
                    name = f"h{pod}_{edge}_{number}"
                    role = "receiver" if (pod, edge, number) == (0, 0, 2) else "sender"
                    self.addHost(
                        name,
                        ip=f"10.{pod}.{edge}.{number}/8",
                        mac=f"02:00:0a:{pod:02x}:{edge:02x}:{number:02x}",
                        role=role,
                    )
                    self.addLink(name, f"e{pod}_{edge}", port1=0, port2=number - 1)
        for pod in range(k):
            for edge in range(half):
                for aggregation in range(half):
                    self.addLink(
                        f"e{pod}_{edge}",
                        f"a{pod}_{aggregation}",
                        port1=half + 1 + aggregation,
                        port2=1 + edge,
                    )
            for aggregation in range(half):
                for core in range(half):
                    self.addLink(
                        f"a{pod}_{aggregation}",
                        f"c{aggregation}_{core}",
                        port1=half + 1 + core,
                        port2=1 + pod,
                    )


topos = {"fattree": FatTreeTopo}
