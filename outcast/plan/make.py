"""From an experiment to its plan: hosts, links, every flow's path, the bottleneck.

Pure: nothing here asks the kernel, so `outcast topo` and the tests need no root.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from controllers import routes
from controllers.graph import Graph
from outcast.errors import ConfigError, did_you_mean
from outcast.experiment import Experiment, FlowGroup, Link, Transport
from outcast.experiment.links import STANDARD_MTU_BYTES
from outcast.experiment.queues import WITH_CLASSES
from outcast.experiment.routing import Shortest
from outcast.plan import (
    addresses,
    events,
    grouping,
    noise,
    ports,
    probes,
    programs,
    schedule,
    subnets,
    trace_frames,
    traces,
    transport,
)
from outcast.plan import links as plan_links
from outcast.plan.bottleneck import (
    Bottleneck,
    find,
    find_others,
    with_all_packets,
)
from outcast.plan.flows import Flow, resolve_flows, senders_of
from outcast.plan.links import Direction
from outcast.plan.model import Plan
from outcast.plan.paths import (
    compute_routes,
    generated_packet,
    generated_ways,
    hashed_paths,
    port_name,
    receiver,
    subflow_ways,
)
from outcast.plan.schedule import Generated
from outcast.plan.topology import make_graph, make_topo
from outcast.units import format_time

FIRST_TTL = 64
"""IPDEFTTL of the kernel's include/uapi/linux/ip.h; IPv6's hop limit is the same."""


def _in_config(refusal: str) -> str:
    return f"config.yaml: {refusal}"


def make_plan(experiment: Experiment, located: Callable[[str], str] = _in_config) -> Plan:
    """The plan of an experiment.

    Raises ConfigError: the flows, queues or captures do not fit the topology.
    """
    try:
        graph = make_graph(make_topo(experiment))
        if experiment.addressing != "ipv4":
            addresses.add_ipv6(graph)
        if isinstance(experiment.routing, Shortest):
            subnets.add_ways(graph, experiment.routing.ways)
        table = compute_routes(experiment, graph)
        _require_layers(experiment, graph)
        link_traces = traces.read_all(experiment)
        links = plan_links.resolve(experiment, graph, link_traces)
        if experiment.addressing != "ipv4":
            addresses.require_mtu(links.values())
        flows = resolve_flows(experiment, graph, table, links)
        _require_interfaces(experiment, graph, flows)
        of_hosts = transport.of_hosts(
            experiment.transport, flows, lambda host: addresses.machine_of(graph, host)
        )
        generated = schedule.make_schedule(experiment, _hosts(graph, links))
        _require_transport(experiment.transport, of_hosts, generated)
        planned_programs = programs.resolve_programs(experiment, graph, table)
        program_ways = programs.program_ways(graph, table, planned_programs)
        planned_probes = probes.resolve_probes(experiment, graph, table)
        probe_ways = probes.probe_ways(graph, table, planned_probes)
        further_ways = subflow_ways(graph, table, flows)
        ways = [*generated_ways(graph, table, generated), *program_ways]
        plan_links.require_mtu(links, _packets(graph, table, flows, generated))
        plan_links.require_mtu(
            links, (("programs", path, None) for w in program_ways for path in w)
        )
        plan_links.require_mtu(links, (("flows", path, None) for w in further_ways for path in w))
        plan_links.require_mtu(links, probes.packets(planned_probes, probe_ways))
        if not flows and not ways and not probe_ways:
            raise ConfigError(_no_flows(experiment))
        # Probes load nothing, so they are looked at only where there is nothing else.
        crossing = flows or _way_flows(graph, ways or probe_ways)
        first = _bottleneck(experiment, graph, crossing, links, [there for there, _ in ways])
        measured = (*flows, *_way_flows(graph, program_ways, len(flows))) if program_ways else flows
        all_ways = [*ways, *probe_ways, *further_ways]
        there_and_back = sorted(path for way in all_ways for path in way)
        paths = [*there_and_back, *(flow.return_path for flow in flows)]
        paths += hashed_paths(graph, table, flows)
        _require_hops(graph, [*(flow.path for flow in flows), *paths])
        bottleneck, *others = (
            with_all_packets(port, graph, paths)
            for port in (
                first,
                # A program's flows are found in the captures, and would be found at both ports.
                *find_others(graph, measured, links, first, may_share=not program_ways),
            )
        )
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
        if link_traces:
            full = trace_frames.wire_bytes(experiment, plan)
            plan = replace(plan, traces=traces.of_links(experiment, link_traces, full))
        _require_ports(experiment, plan)
        _require_room(experiment, plan)
        captures = _capture_ports(experiment, plan)
        events.changes(experiment, plan)
        events.port_traces(experiment, plan)
        _check_blackout(experiment, bottleneck, plan)
        _check_groups(experiment, plan)
        _check_interval(experiment, plan)
    except ConfigError as error:
        raise ConfigError(located(str(error))) from None
    return replace(plan, capture_ports=captures)


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


def _require_transport(
    base: Transport, of_hosts: Mapping[str, Transport], generated: Sequence[Generated]
) -> None:
    """Raises ConfigError where a group of flows changes a host that generated TCP flows use."""
    for flow in generated:
        src, dst = of_hosts.get(flow.src, base), of_hosts.get(flow.dst, base)
        # A connection negotiates SACK and ECN only where both of its ends have them.
        agrees = {
            "min_rto": src.min_rto_ns == base.min_rto_ns,
            "pacing": (src.pacing == "fq") == (base.pacing == "fq"),
            "sack": (src.sack and dst.sack) == base.sack,
            "ecn": transport.negotiated_ecn(src.ecn, dst.ecn) == base.ecn,
        }
        for name, is_alike in agrees.items():
            if not is_alike and flow.size_bytes is not None:
                raise ConfigError(
                    f"workloads.{flow.workload}: {flow.src} sends to {flow.dst} with another "
                    f"{name} than transport.{name}, because a group of flows sets it for these "
                    "hosts; allowed are groups and workloads that agree in it, or share no host"
                )


def _hosts(graph: Graph, links: Mapping[Direction, Link]) -> schedule.Hosts:
    def senders(source: str | list[str], dst: str, where: str) -> list[str]:
        group = FlowGroup.model_construct(source=source)
        return senders_of(group, dst, graph, where)

    return schedule.Hosts(
        names=[
            name
            for name, data in graph.nodes(data=True)
            if data["kind"] == "host" and "of" not in data
        ],
        receiver=lambda where: receiver(graph, where),
        senders=senders,
        sends_bps=lambda host: links[host, next(graph.neighbors(host))].rate_bps,
        receives_bps=lambda host: links[next(graph.neighbors(host)), host].rate_bps,
    )


def _require_interfaces(experiment: Experiment, graph: Graph, flows: Sequence[Flow]) -> None:
    """Raises ConfigError where a host's further interfaces cannot have what is asked for."""
    interfaces = Counter(
        addresses.machine_of(graph, name)
        for name, data in graph.nodes(data=True)
        if data["kind"] == "host"
    )
    more = next((host for host, count in interfaces.items() if count > 1), None)
    if more is not None and experiment.addressing != "ipv4":
        raise ConfigError(f"addressing: {more} has several interfaces; allowed is ipv4")
    if more is not None and noise.of_hosts(experiment).throttle is not None:
        raise ConfigError(
            f"noise.interrupts: cards count from the last one, and {more} has several interfaces; "
            "allowed is noise.profile: exact, or {most: 64us}"
        )
    for flow in flows:
        mptcp = flow.transport.mptcp
        if mptcp is None or mptcp.over != "interfaces":
            continue
        where = f"flows.{flow.group}.transport.mptcp"
        machine = addresses.machine_of(graph, flow.src)
        has = interfaces[machine]
        if has == 1:
            raise ConfigError(f"{where}: {machine} has one interface; allowed is over: ports")
        if machine != flow.src:
            raise ConfigError(
                f"{where}: {flow.src} is a further interface of {machine}; allowed is a flow "
                f"from {machine}"
            )
        if mptcp.subflows != has:
            raise ConfigError(
                f"{where}.subflows: {mptcp.subflows}; allowed is {has}, one for each interface of "
                f"{machine}"
            )


def _no_flows(experiment: Experiment) -> str:
    """What an error says where nothing is sent."""
    if experiment.workloads:
        return "workloads: no flow starts within the duration; allowed is more load"
    return (
        "programs: none names another host, so nothing would be sent; allowed is a host's address "
        "in a command, as {h1}, or its name in `to`"
    )


def _way_flows(
    graph: Graph, ways: Sequence[tuple[list[str], list[str]]], first: int = 0
) -> tuple[Flow, ...]:
    """A flow for each path, because a bottleneck is found by flows; they count from `first`."""
    return tuple(
        Flow(
            flow=number,
            group=0,
            src=there[0],
            src_ip=graph.nodes[there[0]]["ip"],
            sport=0,
            dst=there[-1],
            dst_ip=graph.nodes[there[-1]]["ip"],
            dport=0,
            path=tuple(there),
            return_path=tuple(back),
            hops=len(there) - 1,
            start_ns=0,
            duration_ns=None,
            size_bytes=None,
        )
        for number, (there, back) in enumerate(ways, first)
    )


def _check_groups(experiment: Experiment, plan: Plan) -> None:
    """Raises ConfigError where `analysis.compare` names groups that the flows do not form."""
    analysis = experiment.analysis
    try:
        grouping.comparison(
            analysis.group_by,
            analysis.compare,
            plan.groups,
            [program.name for program in plan.programs],
        )
    except ValueError as error:
        raise ConfigError(f"analysis.compare: {error}") from None


def _check_interval(experiment: Experiment, plan: Plan) -> None:
    """Raises ConfigError where `analysis.from` and `analysis.to` leave nothing of the run."""
    analysis = experiment.analysis
    active_ns = max((flow.start_ns for flow in plan.flows), default=0)
    start_ns = 0 if analysis.since is None else analysis.since.at_ns(active_ns)
    until = analysis.until
    end_ns = experiment.duration_ns if until is None else until.at_ns(active_ns)
    if start_ns >= min(end_ns, experiment.duration_ns):
        key, value = ("to", until) if analysis.since is None else ("from", analysis.since)
        raise ConfigError(
            f"analysis.{key}: {value} is {format_time(start_ns)} after the traffic's start, which "
            f"leaves nothing up to {format_time(min(end_ns, experiment.duration_ns))}"
        )


def _packets(
    graph: Graph,
    table: routes.Routes,
    flows: Sequence[Flow],
    generated: Sequence[Generated],
) -> Iterator[tuple[str, Sequence[str], int | None]]:
    """What `links.require_mtu` checks: where an error points, a path, and the packets' size."""
    for flow in flows:
        for path in (flow.path, flow.return_path):
            yield f"flows.{flow.group}", path, None
    seen = set()
    for generated_flow in generated:
        size = generated_flow.datagram_bytes
        packet = generated_packet(graph, generated_flow)
        key = (generated_flow.workload, packet if table.choices else (packet.src, packet.dst), size)
        if key not in seen:
            seen.add(key)
            where = f"workloads.{generated_flow.workload}"
            ends = (generated_flow.src, generated_flow.dst)
            there = routes.path(table, graph, *ends, packet)
            headers_bytes = addresses.datagram_headers_bytes(generated_flow.family)
            yield where, there, size and size + headers_bytes
            if size is None:
                yield where, routes.path(table, graph, *ends[::-1], packet.reversed()), None


def _require_hops(graph: Graph, paths: Iterable[Sequence[str]]) -> None:
    """Raises ConfigError where a packet would not outlive its way."""
    for path in paths:
        routers = sum(graph.nodes[node]["kind"] == "router" for node in path)
        if routers >= FIRST_TTL:
            raise ConfigError(
                f"topology: {routers} routers on the way from {path[0]} to {path[-1]}; allowed "
                f"are {FIRST_TTL - 1}, because a packet's TTL begins with {FIRST_TTL}"
            )


def _bottleneck(
    experiment: Experiment,
    graph: Graph,
    flows: Sequence[Flow],
    links: Mapping[Direction, Link],
    beside: Iterable[Sequence[str]],
) -> Bottleneck:
    """The port that the configuration names, or the one where each flow's share is smallest."""
    if experiment.bottleneck is None:
        bottleneck = find(graph, flows, links, beside=beside)
        # A path between two hosts has a switch on it, and so an output port.
        assert bottleneck is not None
        return bottleneck
    port = experiment.bottleneck.port
    hops = {
        port_name(graph, switch, neighbour): (switch, neighbour)
        for switch, neighbour in links
        if graph.nodes[switch]["kind"] != "host"
    }
    if port not in hops:
        some = ", ".join(list(hops)[:6])
        raise ConfigError(
            f"bottleneck.port: no switch port {port!r}; there are {some}, ..."
            f"{did_you_mean(port, hops)}"
        )
    bottleneck = find(graph, flows, links, set(links) - {hops[port]})
    if bottleneck is None:
        crossed = sorted({port_name(graph, *hop) for f in flows for hop in pairwise(f.path[1:])})
        raise ConfigError(
            f"bottleneck.port: no flow leaves by {port}; flows leave by {', '.join(crossed[:12])}"
            + (", ..." if len(crossed) > 12 else "")
        )
    return bottleneck


def _require_room(experiment: Experiment, plan: Plan) -> None:
    """Raises ConfigError where a port's queue or burst holds no full frame of its own link.

    The rates of `links` and `links.layers` were checked when the experiment was read, and so were
    limits that need no port to be counted.
    """
    tried = set()
    for (node, neighbour), link in plan.links.items():
        port = plan.port(node, neighbour)
        is_host = plan.graph.nodes[node]["kind"] == "host"
        key, limit = ("links", link.queue)
        if not is_host:
            key, limit = ports.asked_of_switch(experiment, plan, port)
        if (
            link == experiment.links.between(plan.graph.edges[node, neighbour]["layers"])
            and link.mtu_bytes <= STANDARD_MTU_BYTES
            and (limit is None or (limit.is_counted and limit.kind not in WITH_CLASSES))
        ):
            continue
        if (
            is_host
            and link.queue
            and any(flow.src == node and flow.transport.pacing == "fq" for flow in plan.flows)
        ):
            raise ConfigError(
                f"links: {port} has a queue of its own, and its flows have transport.pacing: fq, "
                "which is a queue of that port too; allowed is one of the two"
            )
        try:
            settings = (
                ports.host_queue(experiment, plan, node)
                if is_host
                else ports.switch_queue(experiment, plan, port)
            )
        except ValueError as error:
            raise ConfigError(
                f"{key}{'' if key == 'links' else '.limit'}: {port}: {error}"
            ) from None
        alike = (settings.queue, settings.rate_bps, settings.frame_bytes)
        if alike in tried:
            continue
        tried.add(alike)
        try:
            ports.require_fits(settings)
            settings.queue.check_rate(link.rate_bps)
        except ValueError as error:
            raise ConfigError(f"links: the queue of {port}: {error}") from None


def _check_blackout(experiment: Experiment, bottleneck: Bottleneck, plan: Plan) -> None:
    at = experiment.blackout and experiment.blackout.at
    if at and bottleneck.switch in plan.routers:
        raise ConfigError(f"blackout.at: {at} is a router's port; allowed is a switch's port")
    if at and at not in bottleneck.ingress:
        raise ConfigError(
            f"blackout.at: {at!r} is not an input of the bottleneck {bottleneck.egress}; "
            f"allowed are {', '.join(bottleneck.ingress)}"
        )


def _require_layers(experiment: Experiment, graph: Graph) -> None:
    """Raises ConfigError where `links.layers` names layers that the topology lacks."""
    existing = sorted({str(graph.edges[edge]["layers"]) for edge in graph.edges})
    for layers, _ in experiment.links.layers.given():
        if layers not in existing:
            raise ConfigError(
                f"links.layers.{layers}: no such links in this topology; "
                f"there are {', '.join(existing)}{did_you_mean(str(layers), existing)}"
            )


def _require_ports(experiment: Experiment, plan: Plan) -> None:
    """Raises ConfigError where `queues` names ports that the topology lacks."""
    layers = sorted({str(plan.graph.nodes[node]["layer"]) for node in plan.forwarders})
    ports = plan.switch_ports()
    for index, exception in enumerate(experiment.queues):
        is_text = isinstance(exception.at, str)
        for name in [exception.at] if isinstance(exception.at, str) else exception.at:
            if name in ports or (is_text and name in (*layers, "bottleneck")):
                continue
            allowed = f"{', '.join(layers)}, bottleneck, or a port" if is_text else "ports"
            raise ConfigError(
                f"queues.{index}.at: {name!r} is not there; allowed are {allowed} as {ports[0]}"
                f"{did_you_mean(name, [*layers, 'bottleneck', *ports] if is_text else ports)}"
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
        if port not in existing:
            some = ", ".join(existing[:6])
            near = did_you_mean(port, existing)
            raise ConfigError(
                f"capture.ports: no switch port {port!r}; there are {some}, ...{near}"
            )
        chosen += [(port, way) for way in ("in", "out") if (port, way) not in chosen]
    return tuple(chosen)
