"""From an experiment to its plan, step by step: the network, what is sent, and the studied ports.

Each step is a pure function. None asks a kernel, so `outcast topo` and the tests need no root.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from controllers import routes
from controllers.graph import Graph
from outcast.errors import ConfigError
from outcast.experiment import MTU_FRAME_BYTES, Experiment
from outcast.experiment.links import RateTrace
from outcast.experiment.parts import ETHERNET_HEADER_BYTES
from outcast.plan import addresses, checks, events, noise, probes, programs, traces
from outcast.plan import links as plan_links
from outcast.plan.bottleneck import Traffic, find_all, require_port
from outcast.plan.flows import resolve_flows, subflow_ways
from outcast.plan.links import Direction
from outcast.plan.model import IN_CONFIG, Plan
from outcast.plan.schedule import Generated, generated_packet, generated_ways, make_schedule
from outcast.plan.topology import compute_routes, make_graph, make_topo, there_and_back

_CHECKS: tuple[Callable[[Experiment, Plan], object], ...] = (
    checks.require_ports,
    checks.require_room,
    checks.require_one_idle,
    events.changes,
    events.port_traces,
    checks.require_blackout,
    checks.require_groups,
    checks.require_interval,
    checks.require_drawn_ways,
)
"""Each raises ConfigError where the experiment does not fit its plan."""


def make_plan(experiment: Experiment, located: Callable[[str], str] = IN_CONFIG) -> Plan:
    """The plan of an experiment.

    Raises ConfigError: the flows, queues or captures do not fit the topology.
    """
    try:
        plan = _planned(experiment)
        for check in _CHECKS:
            check(experiment, plan)
        return replace(plan, capture_ports=_capture_ports(experiment, plan))
    except ConfigError as error:
        raise ConfigError(located(str(error))) from None


def _planned(experiment: Experiment) -> Plan:
    """The plan without the ports where packets are captured."""
    graph = make_graph(make_topo(experiment))
    if experiment.addressing != "ipv4":
        addresses.add_ipv6(graph)
    addresses.add_ways(experiment, graph)
    table = compute_routes(experiment, graph)
    checks.require_layers(experiment, graph)
    own_traces = traces.read_all(experiment)
    rates = {n: traces.steps_of(experiment, n, own)[1] for n, own in own_traces.items()}
    links = plan_links.resolve(experiment, graph, rates)
    addresses.require_mtu(experiment, links.values())
    flows = resolve_flows(experiment, graph, table, links)
    checks.require_interfaces(experiment, graph, flows)
    generated = make_schedule(experiment, graph, links)
    checks.require_transport(experiment, graph, flows, generated)
    planned_programs = programs.resolve_programs(experiment, graph, table)
    program_ways = programs.program_ways(graph, table, planned_programs)
    planned_probes = probes.resolve_probes(experiment, graph, table)
    traffic = Traffic(
        flows,
        generated=generated_ways(graph, table, generated),
        programs=program_ways,
        probes=probes.probe_ways(graph, table, planned_probes),
        subflows=subflow_ways(graph, table, flows),
    )
    plan_links.require_mtu(links, _packets(graph, table, traffic, generated, planned_probes))
    checks.require_traffic(experiment, traffic)
    bottleneck, *others = find_all(experiment, graph, table, links, traffic)
    plan = Plan(
        graph=graph,
        routing=table.kind,
        hash_seed=table.hash_seed,
        flows=flows,
        bottleneck=bottleneck,
        capture_ports=(),
        generated=generated,
        blackout_at=experiment.blackout.at if experiment.blackout else None,
        others=tuple(others),
        links=links,
        programs=planned_programs,
        probes=planned_probes,
        events=experiment.trace.events if experiment.trace is not None else (),
        host_noise=noise.of_hosts(experiment),
        families=addresses.families(experiment),
    )
    if not own_traces:
        return plan
    wire_bytes = _full_wire_bytes(experiment, plan)
    return replace(plan, traces=traces.of_links(experiment, own_traces, wire_bytes))


def _packets(
    graph: Graph,
    table: routes.Routes,
    traffic: Traffic,
    generated: Sequence[Generated],
    planned_probes: Sequence[probes.Probe],
) -> Iterator[tuple[str, Sequence[str], int | None]]:
    """What `links.require_mtu` checks: where an error points, a path, and the packets' size."""
    for flow in traffic.flows:
        for path in (flow.path, flow.return_path):
            yield f"flows.{flow.group}", path, None
    yield from _generated_packets(graph, table, generated)
    for where, ways in (("programs", traffic.programs), ("flows", traffic.subflows)):
        yield from ((where, path, None) for way in ways for path in way)
    yield from probes.packets(planned_probes, traffic.probes)


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
        require_port("capture.ports", port, existing)
        chosen += [(port, way) for way in ("in", "out") if (port, way) not in chosen]
    return tuple(chosen)


def _full_wire_bytes(experiment: Experiment, plan: Plan) -> dict[Direction, int]:
    """The bytes that the largest full frame takes, by direction of a link with a trace.

    Acknowledgements do not count.
    """
    largest = {
        end: 0
        for override in experiment.links.overrides
        if isinstance(override.rate_bps, RateTrace)
        for end in override.directions
    }
    for path, packet_bytes in _senders(plan):
        frame_bytes = ETHERNET_HEADER_BYTES + (packet_bytes or plan.smallest_mtu_bytes(path))
        for hop in pairwise(path):
            if hop in largest:
                largest[hop] = max(largest[hop], frame_bytes)
    return {
        end: plan.links[end].framing.wire_bytes(frame_bytes or MTU_FRAME_BYTES)
        for end, frame_bytes in largest.items()
    }


def _senders(plan: Plan) -> Iterator[tuple[Sequence[str], int | None]]:
    """The path of data, and the size of its packets, None if the path's MTU limits it."""
    for flow in plan.flows:
        yield flow.path, None
    for each in plan.generated:
        path = plan.path(each.src, each.dst, generated_packet(plan.graph, each))
        size = each.datagram_bytes
        yield path, size and size + addresses.datagram_headers_bytes(each.family)
    for ways in programs.program_ways(plan.graph, plan.routes, plan.programs):
        for path in ways:
            yield path, None


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
