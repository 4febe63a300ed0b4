"""The plan: what will be built, captured and sent, resolved to nodes, ports and paths.

Nothing here needs Mininet, because the report reads a stored plan on any machine.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise, product

from controllers import routes
from controllers.graph import Graph
from controllers.hashing import FiveTuple
from outcast.experiment import Experiment, Link
from outcast.experiment.engine import EngineName
from outcast.experiment.parts import Family
from outcast.plan import addresses, grouping
from outcast.plan.addresses import Subnets
from outcast.plan.bottleneck import Bottleneck
from outcast.plan.flows import Flow, subflow_ways
from outcast.plan.grouping import Groups
from outcast.plan.links import Direction, Wire, base_rtt_ns, wires
from outcast.plan.noise import HostNoise
from outcast.plan.probes import Probe
from outcast.plan.programs import Command, Program, probe, program_ways
from outcast.plan.programs import pairs as program_pairs
from outcast.plan.schedule import Generated, generated_packet, generated_ways
from outcast.plan.topology import (
    Ways,
    every_way,
    hosts_carried,
    ingress_port,
    port_name,
    there_and_back,
)
from outcast.plan.traces import LinkTrace

BLACKOUT_ENDS = ("blackout-link", "blackout-port")
"""The veth pair between a synthetic blackout's switch and the switch that it stands in front of."""


@dataclass(frozen=True, slots=True)
class PlannedMember:
    flow: int
    name: str | None
    hops: int
    congestion_control: str | None
    ingress: str | None
    src: str


@dataclass(frozen=True)
class Plan:
    """Everything that a run builds, captures and sends.

    Attributes:
        graph: hosts, switches and links, in the form of controllers/graph.py.
        routing: one of controllers.routes.KINDS.
        hash_seed: seeds the hash by which switches choose a port; 0 where they choose by none.
        bottleneck: the port whose queue is studied.
        blackout_at: the port in front of which a synthetic blackout stands.
        others: the ports that measure the flows that do not cross the bottleneck.
        links: the settings of each direction of each link, by the sending node and its neighbour.
        events: the tracepoints of the guest's kernel whose events are recorded.
        host_noise: what hosts do to arrivals and departures.
        families: of the hosts' addresses; the first one is meant where nothing says which.
        command: what runs instead of flows, workloads and clients; None in a run.
    """

    graph: Graph
    routing: str
    hash_seed: int
    flows: tuple[Flow, ...]
    bottleneck: Bottleneck
    capture_ports: tuple[tuple[str, str], ...]
    generated: tuple[Generated, ...] = ()
    blackout_at: str | None = None
    others: tuple[Bottleneck, ...] = ()
    links: Mapping[Direction, Link] = field(default_factory=dict)
    programs: tuple[Program, ...] = ()
    command: Command | None = None
    traces: tuple[LinkTrace, ...] = ()
    events: tuple[str, ...] = ()
    host_noise: HostNoise = field(default_factory=HostNoise)
    probes: tuple[Probe, ...] = ()
    families: tuple[Family, ...] = ("ipv4",)

    @cached_property
    def traced(self) -> frozenset[Direction]:
        return frozenset(direction for trace in self.traces for direction in trace.directions)

    @cached_property
    def base_rtts_ns(self) -> Mapping[Direction, int]:
        """The base RTT of each direction of each link, by which a queue of `1 bdp` is made.

        It is the greatest of the flows that cross the direction with data. Where none does, it is
        the greatest of those that cross it with acknowledgements, and else the greatest of all
        flows. So one product is enough for each of them. A network without flows, as that of a
        command, has the greatest between its first host and another.
        """
        ways: list[tuple[Sequence[str], Sequence[str]]] = [
            (flow.path, flow.return_path) for flow in self.flows
        ]
        ways += subflow_ways(self.graph, self.routes, self.flows)
        ways += self.loading_ways
        ways = ways or self._ways_to_first_host()
        data: dict[Direction, int] = {}
        answers: dict[Direction, int] = {}
        for there, back in dict.fromkeys((tuple(there), tuple(back)) for there, back in ways):
            rtt_ns = self.base_rtt_ns(there, back)
            for crossed, path in ((data, there), (answers, back)):
                for hop in pairwise(path):
                    crossed[hop] = max(rtt_ns, crossed.get(hop, 0))
        greatest_ns = max(data.values(), default=0)
        return {hop: data.get(hop) or answers.get(hop, greatest_ns) for hop in self.links}

    def _ways_to_first_host(self) -> list[tuple[Sequence[str], Sequence[str]]]:
        first, *others = self.hosts
        packets = {host: probe(self.ip(host), self.ip(first)) for host in others}
        return [
            there_and_back(self.graph, self.routes, host, first, packet)
            for host, packet in packets.items()
        ]

    def base_rtt_ns(self, there: Sequence[str], back: Sequence[str]) -> int:
        return base_rtt_ns(self.links, there, back)

    def slowest_bps(self, path: Sequence[str]) -> int:
        return min(self.links[hop].rate_bps for hop in pairwise(path))

    def product_bytes(self, flow: Flow) -> int:
        """A flow's bandwidth-delay product: the least rate of its path times its base RTT."""
        rtt_ns = self.base_rtt_ns(flow.path, flow.return_path)
        return self.slowest_bps(flow.path) * rtt_ns // (8 * 10**9)

    @cached_property
    def routes(self) -> routes.Routes:
        """Where every switch sends packets, by the host that they are for.

        The graph, the kind and the seed decide them; a report never asks for them.
        """
        return routes.compute(self.graph, self.routing, self.hash_seed)

    @cached_property
    def wires(self) -> Mapping[frozenset[str], Wire]:
        return wires(self.links)

    @property
    def loading_ways(self) -> Ways:
        """The ways of what loads links, but for the flows: of generated flows and programs."""
        return [
            *generated_ways(self.graph, self.routes, self.generated),
            *program_ways(self.graph, self.routes, self.programs),
        ]

    def smallest_mtu_bytes(self, path: Sequence[str]) -> int:
        return min(self.links[hop].mtu_bytes for hop in pairwise(path))

    @property
    def pairs(self) -> set[tuple[str, str]]:
        pairs = {(flow.src, flow.dst) for flow in self.flows}
        pairs |= {(flow.src, flow.dst) for flow in self.generated}
        pairs |= {(series.src, series.dst) for series in self.probes}
        pairs |= {
            (interface, flow.dst)
            for flow in self.flows
            if flow.transport.mptcp is not None and flow.transport.mptcp.over == "interfaces"
            for interface in self.interfaces(flow.src)
        }
        return pairs | set(self._other_pairs())

    def _other_pairs(self) -> list[tuple[str, str]]:
        """Hosts of programs with those that they talk to; the command's host with all others."""
        pairs = program_pairs(self.programs)
        if self.command is not None:
            host = self.command.host
            pairs += [(host, o) for o in self.hosts if self.machine(o) != self.machine(host)]
        return pairs

    @property
    def hosts(self) -> list[str]:
        return [name for name, data in self.graph.nodes(data=True) if data["kind"] == "host"]

    def machine(self, host: str) -> str:
        """The host that an interface is of: itself, unless it is a further one (`of`)."""
        return addresses.machine_of(self.graph, host)

    def interfaces(self, host: str) -> list[str]:
        """The names of a host's interfaces: its own first, and the further ones."""
        own = self.machine(host)
        return [own, *(name for name in self.hosts if name != own and self.machine(name) == own)]

    @property
    def counted_hosts(self) -> list[str]:
        """The hosts that take part, but those whose counters mix flows of several interfaces."""
        used = {name for flow in self.flows for name in (flow.src, flow.dst)}
        used |= {name for flow in self.generated for name in (flow.src, flow.dst)}
        interfaces = Counter(map(self.machine, used))
        talking = {self.machine(name) for pair in self.pairs for name in pair}
        return sorted(host for host in talking if interfaces[host] <= 1)

    @cached_property
    def carrying(self) -> Graph:
        """The graph with what each switch `carries`, for its flow entries.

        Entries for all hosts at all switches would be most of the set-up of a large network. A
        program or a command may talk to any host, and a router answers to any.
        """
        graph: Graph = self.graph.copy()
        if self.programs or self.command is not None or self.routers:
            return graph
        interfaces: dict[str, list[str]] = defaultdict(list)
        for host in self.hosts:
            interfaces[self.machine(host)].append(host)
        pairs = {
            ends
            for src, dst in self.pairs
            for ends in product(interfaces[self.machine(src)], interfaces[self.machine(dst)])
        }
        carried = hosts_carried(graph, self.routes, pairs)
        for switch in self.switches:
            graph.nodes[switch]["carries"] = sorted(carried.get(switch, ()))
        return graph

    @property
    def switches(self) -> list[str]:
        return [name for name, data in self.graph.nodes(data=True) if data["kind"] == "switch"]

    @cached_property
    def routers(self) -> list[str]:
        return [name for name, data in self.graph.nodes(data=True) if data["kind"] == "router"]

    @property
    def forwarders(self) -> list[str]:
        return [*self.switches, *self.routers]

    @cached_property
    def subnets(self) -> Subnets:
        return Subnets(self.graph, self.routes)

    def ip(self, host: str) -> str:
        return str(self.graph.nodes[host]["ip"])

    def addresses(self, host: str) -> tuple[str, ...]:
        """The host's addresses, in the order of `families`."""
        return tuple(addresses.address_of(self.graph, host, family) for family in self.families)

    @cached_property
    def host_of(self) -> dict[str, str]:
        """The host that has an address, whichever of the families it is of."""
        return {
            address: host for host in self.hosts for address in addresses.of_host(self.graph, host)
        }

    def mac(self, host: str) -> str:
        return str(self.graph.nodes[host]["mac"])

    def path(self, src: str, dst: str, flow: FiveTuple | None = None) -> list[str]:
        """The nodes from one host to another, both included; see `routes.path`."""
        return routes.path(self.routes, self.graph, src, dst, flow)

    @property
    def per_packet(self) -> bool:
        """Whether each packet of a flow may take another way than the one before it."""
        return self.routing in routes.PER_PACKET

    def ways(self, src: str, dst: str, flow: FiveTuple) -> list[list[str]]:
        """Every path of a packet: one, unless switches draw a port for each packet."""
        if self.per_packet:
            return every_way(self.graph, self.routes, src, dst)
        return [self.path(src, dst, flow)]

    def flow_ways(self, flow: Flow) -> list[list[str]]:
        """Every path that packets and acknowledgements of a flow may take."""
        packet, mptcp = flow.five_tuple, flow.transport.mptcp
        if mptcp is None:
            there, back = (flow.src, flow.dst, packet), (flow.dst, flow.src, packet.reversed())
            return [*self.ways(*there), *self.ways(*back)]
        # The kernel picks the ports of subflows.
        own = self.interfaces(flow.src) if mptcp.over == "interfaces" else [flow.src]
        ends = [pair for name in own for pair in ((name, flow.dst), (flow.dst, name))]
        return [way for pair in ends for way in every_way(self.graph, self.routes, *pair)]

    @property
    def openflow(self) -> str:
        """The OpenFlow version that the switches speak, as ovs-vsctl(8) names it."""
        return "OpenFlow15" if self.routes.choices else "OpenFlow13"

    def ports_on(self, path: Sequence[str]) -> list[str]:
        """The output ports of the switches on a path, in the path's order."""
        return [self.port(switch, following) for switch, following in pairwise(path[1:])]

    def path_probes(self) -> list[FiveTuple]:
        """The headers of packets that together try every path of the flows, in both directions.

        There is one for each pair of hosts where paths depend on nothing else, and one for each
        flow where they do. Generated flows and programs always have one for each pair. So have
        probes, and one each where paths depend on ports.
        """
        packets: dict[object, FiveTuple] = {}
        for flow in self.flows:
            packet = flow.five_tuple
            packets[packet if self.routes.choices else (packet.src, packet.dst)] = packet
        for generated in self.generated:
            packet = generated_packet(self.graph, generated)
            packets.setdefault((packet.src, packet.dst), packet)
        for series in self.probes:
            if self.routes.choices:
                packets[series.headers] = series.headers
        for src, dst in [*self._other_pairs(), *((each.src, each.dst) for each in self.probes)]:
            for ends in zip(self.addresses(src), self.addresses(dst), strict=True):
                packets.setdefault(ends, probe(*ends))
        there = set(packets.values())
        both = there | {packet.reversed() for packet in there}
        return sorted(both, key=lambda packet: (packet.src, packet.dst, packet.sport, packet.dport))

    def port(self, node: str, neighbour: str) -> str:
        return port_name(self.graph, node, neighbour)

    @cached_property
    def ends(self) -> dict[str, tuple[str, str]]:
        """Every interface, also of hosts: its own node, and the node that it leads to."""
        return {
            port_name(self.graph, node, neighbour): (node, neighbour)
            for edge in self.graph.edges
            for node, neighbour in (edge, edge[::-1])
        }

    def ingress(self, flow: Flow) -> str | None:
        """The port by which a flow enters the switch of its bottleneck.

        None if it crosses none, or if its packets enter by several.
        """
        if self.per_packet:
            return None
        entered = (
            ingress_port(self.graph, flow.path, bottleneck.egress)
            for bottleneck in (self.bottleneck, *self.others)
        )
        return next((port for port in entered if port is not None), None)

    @cached_property
    def groups(self) -> Groups[PlannedMember]:
        """The flows of every group; see `grouping.every`. Programs' flows are not known yet."""
        return grouping.every(
            [
                PlannedMember(
                    flow.flow,
                    flow.name,
                    flow.hops,
                    flow.transport.congestion_control,
                    self.ingress(flow),
                    flow.src,
                )
                for flow in self.flows
            ]
        )

    def attached(self, port: str) -> str:
        """The interface that the switch has for a port: another one where a blackout stands."""
        return BLACKOUT_ENDS[1] if port == self.blackout_at else port

    def switch_ports(self) -> list[str]:
        """The interface names of every port of a switch or router."""
        return [
            port_name(self.graph, switch, neighbour)
            for switch in self.forwarders
            for neighbour in self.graph.neighbors(switch)
        ]


IN_CONFIG = "config.yaml: {}".format
"""Locates a refusal of an experiment that comes from no file that is known."""


@dataclass(frozen=True, eq=False)
class Planned:
    """An experiment, and its plan in each engine. A plan is made once, when it is first needed.

    Attributes:
        experiment: as requested, without an engine's defaults.
        located: says in a refusal where the experiment comes from.
    """

    experiment: Experiment
    located: Callable[[str], str] = IN_CONFIG
    _by_engine: dict[EngineName, tuple[Experiment, Plan]] = field(default_factory=dict)

    def by(self, engine: EngineName) -> tuple[Experiment, Plan]:
        """The experiment with an engine's defaults, and its plan. Raises as `make_plan`."""
        if engine not in self._by_engine:
            # Imports Mininet, which may have to be made first.
            from outcast.plan.make import make_plan

            resolved = self.experiment.resolved(engine)
            self._by_engine[engine] = resolved, make_plan(resolved, self.located)
        return self._by_engine[engine]
