"""From an experiment to its plan: hosts, links, every flow's path, the bottleneck.

Pure: nothing here asks the kernel, so `outcast topo` and the tests need no root.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from controllers import routes
from controllers.graph import Graph
from outcast.errors import ConfigError, did_you_mean, some_of
from outcast.experiment import MTU_FRAME_BYTES, Experiment, Link
from outcast.experiment.links import RateTrace
from outcast.experiment.parts import ETHERNET_HEADER_BYTES
from outcast.experiment.topology import Shortest
from outcast.plan import addresses, checks, events, noise, probes, programs, schedule, traces
from outcast.plan import links as plan_links
from outcast.plan.bottleneck import Bottleneck, find, find_others, with_all_packets
from outcast.plan.flows import Flow, hashed_paths, host_transports, resolve_flows, subflow_ways
from outcast.plan.links import Direction
from outcast.plan.model import IN_CONFIG, Plan
from outcast.plan.programs import program_ways
from outcast.plan.schedule import Generated, generated_packet, generated_ways
from outcast.plan.topology import (
    Ways,
    compute_routes,
    every_way,
    make_graph,
    make_topo,
    port_name,
    there_and_back,
)


def make_plan(experiment: Experiment, located: Callable[[str], str] = IN_CONFIG) -> Plan:
    """The plan of an experiment.

    Raises ConfigError: the flows, queues or captures do not fit the topology.
    """
    try:
        plan = _planned(experiment)
        checks.require_ports(experiment, plan)
        checks.require_room(experiment, plan)
        checks.require_one_idle(experiment, plan)
        captures = _capture_ports(experiment, plan)
        events.changes(experiment, plan)
        events.port_traces(experiment, plan)
        checks.require_blackout(experiment, plan)
        checks.require_groups(experiment, plan)
        checks.require_interval(experiment, plan)
        checks.require_drawn_ways(experiment, plan)
    except ConfigError as error:
        raise ConfigError(located(str(error))) from None
    return replace(plan, capture_ports=captures)


@dataclass(frozen=True)
class _Traffic:
    """All that is sent, with the ways of what is no flow of a group."""

    flows: tuple[Flow, ...]
    generated: tuple[Generated, ...]
    programs: tuple[programs.Program, ...]
    probes: tuple[probes.Probe, ...]
    generated_ways: Ways
    program_ways: Ways
    probe_ways: Ways
    subflow_ways: Ways

    @property
    def loading_ways(self) -> Ways:
        """Ways of what loads links, but for the flows. Probes load nothing."""
        return [*self.generated_ways, *self.program_ways]


def _planned(experiment: Experiment) -> Plan:
    """The plan without the ports where packets are captured."""
    graph = make_graph(make_topo(experiment))
    if experiment.addressing != "ipv4":
        addresses.add_ipv6(graph)
    if isinstance(experiment.routing, Shortest):
        addresses.add_ways(graph, experiment.routing.ways)
    table = compute_routes(experiment, graph)
    checks.require_layers(experiment, graph)
    link_traces = traces.read_all(experiment)
    links = plan_links.resolve(experiment, graph, link_traces)
    if experiment.addressing != "ipv4":
        addresses.require_mtu(links.values())
    traffic = _traffic(experiment, graph, table, links)
    bottleneck, *others = _bottlenecks(experiment, graph, table, links, traffic)
    plan = Plan(
        graph=graph,
        routing=table.kind,
        hash_seed=table.hash_seed,
        flows=traffic.flows,
        bottleneck=bottleneck,
        capture_ports=(),
        generated=traffic.generated,
        blackout_at=experiment.blackout.at if experiment.blackout else None,
        others=tuple(others),
        links=links,
        programs=traffic.programs,
        probes=traffic.probes,
        events=experiment.trace.events if experiment.trace is not None else (),
        host_noise=noise.of_hosts(experiment),
        families=addresses.families(experiment),
    )
    if not link_traces:
        return plan
    full = _full_wire_bytes(experiment, plan)
    return replace(plan, traces=traces.of_links(experiment, link_traces, full))


def _traffic(
    experiment: Experiment, graph: Graph, table: routes.Routes, links: Mapping[Direction, Link]
) -> _Traffic:
    """All that is sent. Raises ConfigError where it is nothing, or links do not take it."""
    flows = resolve_flows(experiment, graph, table, links)
    checks.require_interfaces(experiment, graph, flows)
    of_hosts = host_transports(
        experiment.transport, flows, lambda host: addresses.machine_of(graph, host)
    )
    generated = schedule.make_schedule(experiment, graph, links)
    checks.require_transport(experiment.transport, of_hosts, generated)
    planned_programs = programs.resolve_programs(experiment, graph, table)
    program_ways = programs.program_ways(graph, table, planned_programs)
    planned_probes = probes.resolve_probes(experiment, graph, table)
    traffic = _Traffic(
        flows,
        generated,
        planned_programs,
        planned_probes,
        program_ways=program_ways,
        probe_ways=probes.probe_ways(graph, table, planned_probes),
        subflow_ways=subflow_ways(graph, table, flows),
        generated_ways=generated_ways(graph, table, generated),
    )
    plan_links.require_mtu(links, _packets(graph, table, traffic))
    if not flows and not traffic.loading_ways and not traffic.probe_ways:
        raise ConfigError(_no_flows(experiment))
    return traffic


def _bottlenecks(
    experiment: Experiment,
    graph: Graph,
    table: routes.Routes,
    links: Mapping[Direction, Link],
    traffic: _Traffic,
) -> Iterator[Bottleneck]:
    """The studied port, and then the others that are bottlenecks too.

    Raises ConfigError: there is no such port, or a packet would not outlive its way.
    """
    flows, ways = traffic.flows, traffic.loading_ways
    # Probes load nothing, so they are looked at only where there is nothing else.
    of_flows: list[Sequence[str]] = [flow.path for flow in flows]
    if table.per_packet:
        of_flows = [way for f in flows for way in every_way(graph, table, f.src, f.dst)]
    crossing: Sequence[Sequence[str]] = of_flows or [
        there for there, _ in ways or traffic.probe_ways
    ]
    first = _bottleneck(experiment, graph, crossing, links, [there for there, _ in ways])
    all_ways = [*ways, *traffic.probe_ways, *traffic.subflow_ways]
    paths: list[Sequence[str]] = [*sorted(path for way in all_ways for path in way)]
    paths += [flow.return_path for flow in flows]
    if table.per_packet:
        paths += [way for f in flows for way in every_way(graph, table, f.dst, f.src)]
    paths += hashed_paths(graph, table, flows)
    checks.require_hops(graph, [*of_flows, *paths])
    of_programs = traffic.program_ways
    measured = [*of_flows, *(tuple(there) for there, _ in of_programs)]
    # A program's flows are found in the captures, and would be found at both ports.
    others = find_others(graph, measured, links, first, may_share=not of_programs)
    return (with_all_packets(port, graph, paths) for port in (first, *others))


def plan_of_command(
    plan: Plan, host: str | None, command: Sequence[str], folder: str, within_ns: int
) -> Plan:
    """The plan of one command in the network of a plan: with its servers, without its traffic.

    Raises ConfigError: there is no such host, or the switches choose paths by ports.
    """
    hosts = {name: plan.addresses(name) for name in plan.hosts}
    chosen = host or plan.hosts[0]
    programs.require_host(hosts, chosen, "--host")
    if plan.routes.choices:
        raise ConfigError(
            f"{plan.routing} routing chooses paths by ports, which a command chooses itself; "
            "allowed is another routing"
        )
    argv = tuple(programs.fill(word, hosts, "COMMAND")[0] for word in command)
    return replace(
        plan,
        flows=(),
        generated=(),
        probes=(),
        programs=tuple(program for program in plan.programs if program.is_server),
        command=programs.Command(chosen, argv, folder, within_ns),
    )


def _no_flows(experiment: Experiment) -> str:
    """What an error says where nothing is sent."""
    if experiment.workloads:
        return "workloads: no flow starts within the duration; allowed is more load"
    return (
        "programs: none names another host, so nothing would be sent; allowed is a host's address "
        "in a command, as {h1}, or its name in `to`"
    )


def _packets(
    graph: Graph, table: routes.Routes, traffic: _Traffic
) -> Iterator[tuple[str, Sequence[str], int | None]]:
    """What `links.require_mtu` checks: where an error points, a path, and the packets' size."""
    for flow in traffic.flows:
        for path in (flow.path, flow.return_path):
            yield f"flows.{flow.group}", path, None
    yield from _generated_packets(graph, table, traffic.generated)
    for where, ways in (("programs", traffic.program_ways), ("flows", traffic.subflow_ways)):
        yield from ((where, path, None) for way in ways for path in way)
    yield from probes.packets(traffic.probes, traffic.probe_ways)


def _generated_packets(
    graph: Graph, table: routes.Routes, generated: Sequence[Generated]
) -> Iterator[tuple[str, Sequence[str], int | None]]:
    seen = set()
    for flow in generated:
        size = flow.datagram_bytes
        packet = generated_packet(graph, flow)
        key = (flow.workload, packet if table.choices else (packet.src, packet.dst), size)
        if key not in seen:
            seen.add(key)
            where = f"workloads.{flow.workload}"
            there, back = there_and_back(graph, table, flow.src, flow.dst, packet)
            yield where, there, size and size + addresses.datagram_headers_bytes(flow.family)
            if size is None:
                yield where, back, None


def _bottleneck(
    experiment: Experiment,
    graph: Graph,
    paths: Sequence[Sequence[str]],
    links: Mapping[Direction, Link],
    beside: Iterable[Sequence[str]],
) -> Bottleneck:
    """The port that the configuration names, or the one where each flow's share is smallest."""
    if experiment.bottleneck is None:
        bottleneck = find(graph, paths, links, beside=beside)
        # A path between two hosts has a switch on it, and so an output port.
        assert bottleneck is not None
        return bottleneck
    port = experiment.bottleneck.port
    hops = {
        port_name(graph, switch, neighbour): (switch, neighbour)
        for switch, neighbour in links
        if graph.nodes[switch]["kind"] != "host"
    }
    _require_port("bottleneck.port", port, list(hops))
    bottleneck = find(graph, paths, links, set(links) - {hops[port]})
    if bottleneck is None:
        crossed = sorted({port_name(graph, *hop) for path in paths for hop in pairwise(path[1:])})
        raise ConfigError(
            f"bottleneck.port: no flow leaves by {port}; flows leave by {some_of(crossed, 12)}"
        )
    return bottleneck


def _require_port(key: str, port: str, ports: Sequence[str]) -> None:
    """Raises ConfigError where there is no such port; its text begins with `key`."""
    if port not in ports:
        raise ConfigError(
            f"{key}: no switch port {port!r}; there are {', '.join(ports[:6])}, ..."
            f"{did_you_mean(port, ports)}"
        )


def _capture_ports(experiment: Experiment, plan: Plan) -> tuple[tuple[str, str], ...]:
    chosen: list[tuple[str, str]] = []
    for bottleneck in (plan.bottleneck, *plan.others):
        chosen += [(bottleneck.egress, "out"), *((port, "in") for port in bottleneck.ingress)]
    chosen = list(dict.fromkeys(chosen))
    requested = experiment.capture.ports
    if requested == "bottleneck":
        return tuple(chosen)
    existing = plan.switch_ports()
    named = existing if requested == "all" else list(requested)
    for port in named:
        _require_port("capture.ports", port, existing)
        chosen += [(port, way) for way in ("in", "out") if (port, way) not in chosen]
    return tuple(chosen)


def _full_wire_bytes(experiment: Experiment, plan: Plan) -> dict[Direction, int]:
    """How much the largest full frames take, by direction of a link with a trace."""
    return {
        end: plan.links[end].framing.wire_bytes(max(sizes, default=MTU_FRAME_BYTES))
        for end, sizes in _by_direction(experiment, plan).items()
    }


def _by_direction(experiment: Experiment, plan: Plan) -> dict[Direction, set[int]]:
    """The sizes of full frames on each link with a trace. Acknowledgements do not count."""
    found: dict[Direction, set[int]] = {
        end: set()
        for override in experiment.links.overrides
        if isinstance(override.rate_bps, RateTrace)
        for end in override.directions
    }
    for path, packet_bytes in _senders(plan):
        hops = [*pairwise(path)]
        size = packet_bytes or min(plan.links[hop].mtu_bytes for hop in hops)
        for hop in hops:
            if hop in found:
                found[hop].add(ETHERNET_HEADER_BYTES + size)
    return found


def _senders(plan: Plan) -> Iterator[tuple[Sequence[str], int | None]]:
    """The path of data, and the size of its packets, None if the path's MTU limits it."""
    for flow in plan.flows:
        yield flow.path, None
    for each in plan.generated:
        path = plan.path(each.src, each.dst, generated_packet(plan.graph, each))
        size = each.datagram_bytes
        yield path, size and size + addresses.datagram_headers_bytes(each.family)
    for ways in program_ways(plan.graph, plan.routes, plan.programs):
        for path in ways:
            yield path, None
