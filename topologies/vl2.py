"""The Clos network of VL2 (Greenberg et al., SIGCOMM 2009, section 4.1 and figure 5).

An aggregation switch has D_A ports, an intermediate switch has D_I. There are D_A/2 intermediate
and D_I aggregation switches, and each aggregation switch is linked to each intermediate switch.
There are D_A * D_I / 4 top-of-rack switches, each linked to two aggregation switches.

The layers have the fat-tree's names: a top-of-rack switch is edge, an intermediate switch is core.
Host `hR_N`, with N from 2, is in rack R and has the address 10.(R div 256).(R mod 256).N. `eR` is
the rack's switch, `aA` is aggregation switch A, `cI` is intermediate switch I. The ports of an edge
switch lead first to the hosts, then to its two aggregation switches. Those of an aggregation switch
lead first to the racks, then to the cores. Port A+1 of a core switch leads to `aA`.

Two hosts are 2 links apart in one rack, 4 links under the same two aggregation switches, and
otherwise 6. The receiver of many-to-one experiments is the first host, `h0_2`.

VL2 forwards by valiant load balancing, which draws a core switch for each flow. Here the routing of
the experiment decides which paths flows take.

To use it without outcast:
`mn --custom topologies/vl2.py --topo vl2,aggregation_ports=4,intermediate_ports=4`.
"""

from __future__ import annotations

from mininet.topo import Topo


class Vl2Topo(Topo):
    """VL2's Clos network; the module describes its names, addresses and ports."""

    def build(
        self,
        aggregation_ports: int = 4,
        intermediate_ports: int = 4,
        hosts_per_rack: int = 4,
        **_options: object,
    ) -> None:
        """Adds the nodes and links.

        Args:
            aggregation_ports: D_A, an even number; half of them lead up, half down.
            intermediate_ports: D_I, an even number; also the number of aggregation switches.
            hosts_per_rack: the number of hosts in each rack; 20 in the paper.
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
