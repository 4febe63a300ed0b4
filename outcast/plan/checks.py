"""Refuses what a configuration asks of a network that cannot have it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from controllers.graph import Graph
from outcast.errors import ConfigError, did_you_mean, refusals_at
from outcast.experiment import Experiment
from outcast.experiment.links import STANDARD_MTU_BYTES
from outcast.experiment.queues import WITH_CLASSES
from outcast.plan import addresses, grouping, noise, ports
from outcast.plan.bottleneck import Traffic
from outcast.plan.flows import Flow, host_transports, negotiated_ecn
from outcast.plan.model import Plan
from outcast.plan.schedule import Generated
from outcast.units import format_time


def require_layers(experiment: Experiment, graph: Graph) -> None:
    existing = sorted({str(graph.edges[edge]["layers"]) for edge in graph.edges})
    for layers, _ in experiment.links.layers.given():
        if layers not in existing:
            raise ConfigError(
                f"links.layers.{layers}: no such links in this topology; "
                f"there are {', '.join(existing)}{did_you_mean(str(layers), existing)}"
            )


def require_interfaces(experiment: Experiment, graph: Graph, flows: Sequence[Flow]) -> None:
    """Raises ConfigError where a host's further interfaces cannot have the requested settings."""
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


def require_transport(
    experiment: Experiment, graph: Graph, flows: Sequence[Flow], generated: Sequence[Generated]
) -> None:
    """Raises ConfigError where a group of flows changes a host that generated TCP flows use."""
    base = experiment.transport
    of_hosts = host_transports(base, flows, lambda host: addresses.machine_of(graph, host))
    for flow in generated:
        src, dst = of_hosts.get(flow.src, base), of_hosts.get(flow.dst, base)
        # A connection negotiates SACK and ECN only where both of its ends have them.
        agrees = {
            "min_rto": src.min_rto_ns == base.min_rto_ns,
            "pacing": (src.pacing == "fq") == (base.pacing == "fq"),
            "sack": (src.sack and dst.sack) == base.sack,
            "ecn": negotiated_ecn(src.ecn, dst.ecn) == base.ecn,
        }
        for name, is_alike in agrees.items():
            if not is_alike and flow.size_bytes is not None:
                raise ConfigError(
                    f"workloads.{flow.workload}: {flow.src} sends to {flow.dst} with another "
                    f"{name} than transport.{name}, because a group of flows sets it for these "
                    "hosts; allowed are groups and workloads that agree in it, or share no host"
                )


def require_traffic(experiment: Experiment, traffic: Traffic) -> None:
    if traffic.flows or traffic.loading or traffic.probes:
        return
    if experiment.workloads:
        raise ConfigError("workloads: no flow starts within the duration; allowed is more load")
    raise ConfigError(
        "programs: none names another host, so nothing would be sent; allowed is a host's address "
        "in a command, as {h1}, or its name in `to`"
    )


def require_ports(experiment: Experiment, plan: Plan) -> None:
    layers = sorted({str(plan.graph.nodes[node]["layer"]) for node in plan.forwarders})
    of_switches = plan.switch_ports()
    for index, exception in enumerate(experiment.queues):
        # A list has ports alone.
        groups = [*layers, "bottleneck"] if isinstance(exception.at, str) else []
        for name in ports.places(exception):
            if name in (*groups, *of_switches):
                continue
            allowed = f"{', '.join(groups)}, or a port" if groups else "ports"
            raise ConfigError(
                f"queues.{index}.at: {name!r} is not there; allowed are {allowed} as "
                f"{of_switches[0]}{did_you_mean(name, [*groups, *of_switches])}"
            )


def require_room(experiment: Experiment, plan: Plan) -> None:
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
        with refusals_at(f"{key}{'' if key == 'links' else '.limit'}: {port}"):
            settings = ports.queue_of(experiment, plan, port)
        alike = (settings.queue, settings.rate_bps, settings.frame_bytes)
        if alike in tried:
            continue
        tried.add(alike)
        with refusals_at(f"links: the queue of {port}"):
            ports.require_fits(settings)
            settings.queue.check_rate(link.rate_bps)


def require_one_idle(experiment: Experiment, plan: Plan) -> None:
    """Raises ConfigError where ports need red to do different things while it is empty."""
    first: dict[str, str] = {}
    for (node, neighbour), link in plan.links.items():
        port, queue = plan.port(node, neighbour), link.queue
        if plan.graph.nodes[node]["kind"] != "host":
            _, queue = ports.asked_of_switch(experiment, plan, port)
        if queue is not None and (idle := ports.red_idle(queue)) is not None:
            first.setdefault(idle, f"{idle} for {queue.kind} at {port}")
    if len(first) > 1:
        raise ConfigError(
            f"queue.idle: {' and '.join(sorted(first.values()))}, but a kernel has one value for "
            "all red queues; allowed is idle: stock for every one, as ecn_threshold needs it, or "
            "idle: seen for every one"
        )


def require_blackout(experiment: Experiment, plan: Plan) -> None:
    bottleneck = plan.bottleneck
    at = experiment.blackout and experiment.blackout.at
    if at and bottleneck.switch in plan.routers:
        raise ConfigError(f"blackout.at: {at} is a router's port; allowed is a switch's port")
    if at and at not in bottleneck.ingress:
        raise ConfigError(
            f"blackout.at: {at!r} is not an input of the bottleneck {bottleneck.egress}; "
            f"allowed are {', '.join(bottleneck.ingress)}"
        )


def require_groups(experiment: Experiment, plan: Plan) -> None:
    analysis = experiment.analysis
    names = [program.name for program in plan.programs]
    with refusals_at("analysis.compare"):
        grouping.comparison(analysis.group_by, analysis.compare, plan.groups, names)


def require_drawn_ways(experiment: Experiment, plan: Plan) -> None:
    """Raises ConfigError where packets drawn to other ways cannot have the requested settings."""
    if not plan.per_packet:
        return
    has = {
        "workloads": plan.generated,
        "probes": plan.probes,
        "transport.mptcp": [flow for flow in plan.flows if flow.transport.mptcp is not None],
        "analysis.group_by: port": experiment.analysis.group_by == "port",
    }
    for key, there in has.items():
        if there:
            raise ConfigError(
                f"{key}: routing.core: packet gives no flow a path of its own; allowed is "
                "core: random"
            )
    for flow in plan.flows:
        ways = plan.ways(flow.src, flow.dst, flow.five_tuple)
        crossed = [
            port.egress
            for port in (plan.bottleneck, *plan.others)
            if any(port.egress in plan.ports_on(way) for way in ways)
        ]
        partly = next((p for p in crossed if any(p not in plan.ports_on(w) for w in ways)), None)
        if partly is not None:
            raise ConfigError(
                f"routing.core: packet sends only a part of the packets from {flow.src} to "
                f"{flow.dst} by {partly}, which is studied; allowed is a bottleneck that "
                "all cross, as the receiver's port"
            )


def require_interval(experiment: Experiment, plan: Plan) -> None:
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
