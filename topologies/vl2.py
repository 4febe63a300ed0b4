"""The Clos network of VL2 (Greenberg et al., SIGCOMM 2009, section 4.1 and figure 5).

With aggregation switches of D_A ports and intermediate switches of D_I ports there are D_A/2
intermediate and D_I aggregation switches, each of these linked to every one of those, and
D_A * D_I / 4 top-of-rack switches, each linked to two aggregation switches.

The layers bear the fat-tree's names: edge is the top of a rack, core is an intermediate switch.
Host `hR_N` is the N-th, from 2, of rack R, 10.(R div 256).(R mod 256).N; `eR` is the rack's switch,
`aA` aggregation switch A, `cI` intermediate switch I. Ports of an edge switch: first the hosts,
then its two aggregation switches; of an aggregation switch: first the racks, then the cores; port
A+1 of a core switch leads to `aA`.

Two hosts are 2 links apart in one rack, 4 under the same two aggregation switches, else 6. The
receiver of many-to-one experiments is the first host, `h0_2`.

VL2 forwards by valiant load balancing: which core a flow takes is drawn for each flow. Which
paths flows take here is for the routing to say.

Alone, without outcast:
`mn --custom topologies/vl2.py --topo vl2,aggregation_ports=4,intermediate_ports=4`.
"""

from __future__ import annotations

from mininet.topo import Topo


class Vl2Topo(Topo):
    """See the module."""

    def build(
        self,
        aggregation_ports: int = 4,
        intermediate_ports: int = 4,
        hosts_per_rack: int = 4,
        **_options: object,
    ) -> None:
        """Adds the nodes.

        Args:
            aggregation_ports: D_A, even; half lead up, half down.
            intermediate_ports: D_I, even; the number of aggregation switches.
            hosts_per_rack: 20 in the paper.
        """
        d_a, d_i, rack_size = int(aggregation_ports), int(intermediate_ports), int(hosts_per_rack)
        for name, ports in (("aggregation_ports", d_a), ("intermediate_ports", d_i)):
            if ports % 2 or not 2 <= ports <= 64:
                raise ValueError(f"{name}={ports}: an even number from 2 to 64 is allowed")
        if not 1 <= rack_size <= 64:
            raise ValueError(f"hosts_per_rack={rack_size}: 1 to 64 are allowed")
        racks = d_a * d_i // 4
        dpid = 0
        layers = (("edge", racks, "e"), ("aggregation", d_i, "a"), ("core", d_a // 2, "c"))
        for layer, count, prefix in layers:
            for number in range(count):
                dpid += 1
                self.addSwitch(f"{prefix}{number}", dpid=f"{dpid:016x}", layer=layer)
        for rack in range(racks):
            high, low = divmod(rack, 256)
            for number in range(2, rack_size + 2):
                self.addHost(
                    f"h{rack}_{number}",
                    ip=f"10.{high}.{low}.{number}/8",
                    mac=f"02:00:0a:{high:02x}:{low:02x}:{number:02x}",
                    role="receiver" if (rack, number) == (0, 2) else "sender",
                )
                self.addLink(f"h{rack}_{number}", f"e{rack}", port1=0, port2=number - 1)
        for rack in range(racks):
            pair, place = divmod(rack, d_a // 2)
            for side in range(2):
                self.addLink(
                    f"e{rack}",
                    f"a{2 * pair + side}",
                    port1=rack_size + 1 + side,
                    port2=place + 1,
                )
        for aggregation in range(d_i):
            for core in range(d_a // 2):
                self.addLink(
                    f"a{aggregation}",
                    f"c{core}",
                    port1=d_a // 2 + 1 + core,
                    port2=aggregation + 1,
                )


topos = {"vl2": Vl2Topo}
