"""From an experiment to what is to be built: hosts, links, every flow's path, the bottleneck.

Pure: nothing here touches the kernel, so that `outcast topo` and the tests run unprivileged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from controllers.graph import Graph
from outcast.errors import ConfigError, did_you_mean
from outcast.experiment import Experiment, FlowGroup, Transport
from outcast.plan import schedule, transport
from outcast.plan.bottleneck import Bottleneck, find, find_others, with_inputs
from outcast.plan.flows import Flow, resolve_flows, senders_of
from outcast.plan.model import Plan
from outcast.plan.paths import (
    compute_routes,
    generated_ways,
    receiver,
)
from outcast.plan.schedule import Generated
from outcast.plan.topology import make_graph, make_topo


def make_plan(experiment: Experiment, where: str = "config.yaml") -> Plan:
    """Resolves hosts, paths and ports. `where` begins the text of an error.

    Raises:
        ConfigError: where the flows do not fit the topology.
    """
    graph = make_graph(make_topo(experiment))
    try:
        table = compute_routes(experiment, graph)
        flows = resolve_flows(experiment, graph, table)
        _require_layers(experiment, graph)
        of_hosts = transport.of_hosts(experiment.transport, flows)
        generated = schedule.make(experiment, _hosts(experiment, graph))
        _require_transport(experiment.transport, of_hosts, generated)
        ways = generated_ways(graph, table, generated)

        def rate_bps(layers: str) -> int:
            return experiment.links.between(layers).rate_bps

        first = find(graph, flows or _way_flows(graph, ways), rate_bps)
        # A path between two hosts has a switch on it, and so an output port.
        assert first is not None
        bottleneck, *others = (
            with_inputs(each, graph, ways)
            for each in (first, *find_others(graph, flows, rate_bps, first))
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
        )
        _require_ports(experiment, plan)
        captures = _capture_ports(experiment, plan)
        _check_blackout(experiment, bottleneck)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    return replace(plan, capture_ports=captures)


def _require_transport(
    base: Transport, of_hosts: Mapping[str, Transport], generated: Sequence[Generated]
) -> None:
    """Raises ConfigError where a group of flows changes a host that generated TCP flows use."""
    for each in generated:
        src, dst = of_hosts.get(each.src, base), of_hosts.get(each.dst, base)
        # Each connection has of these what both of its ends have.
        had = {"min_rto": src.min_rto_ns == base.min_rto_ns}
        had |= {"pacing": (src.pacing == "fq") == (base.pacing == "fq")}
        had |= {"sack": (src.sack and dst.sack) == base.sack}
        had |= {"ecn": (src.ecn and dst.ecn) == base.ecn}
        for name, fits in had.items():
            if not fits and each.size_bytes is not None:
                raise ConfigError(
                    f"workloads.{each.workload}: {each.src} sends to {each.dst} with another "
                    f"{name} than transport.{name}, which a group of flows sets for these hosts; "
                    "allowed are groups and workloads that agree in it, or share no host"
                )


def _hosts(experiment: Experiment, graph: Graph) -> schedule.Hosts:
    def senders(source: str | list[str], dst: str, where: str) -> list[str]:
        group = FlowGroup.model_construct(source=source)
        return senders_of(group, dst, graph, where)

    return schedule.Hosts(
        names=[name for name, data in graph.nodes(data=True) if data["kind"] == "host"],
        receiver=receiver(graph),
        senders=senders,
        rate_bps=lambda _host: experiment.links.between("host-edge").rate_bps,
    )


def _way_flows(graph: Graph, ways: Sequence[tuple[list[str], list[str]]]) -> tuple[Flow, ...]:
    """A flow for each path, to find the bottleneck of generated traffic by."""
    if not ways:
        raise ConfigError("workloads: not one flow comes in this time; allowed is more load")
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
        for number, (there, back) in enumerate(ways)
    )


def _check_blackout(experiment: Experiment, bottleneck: Bottleneck) -> None:
    at = experiment.blackout and experiment.blackout.at
    if at and at not in bottleneck.ingress:
        raise ConfigError(
            f"blackout.at: {at!r} is no input of the bottleneck {bottleneck.egress}; allowed are "
            f"{', '.join(bottleneck.ingress)}"
        )


def _require_layers(experiment: Experiment, graph: Graph) -> None:
    """Raises ConfigError where an exception is for links that the topology has not."""
    there = sorted({str(graph.edges[edge]["layers"]) for edge in graph.edges})
    for layers, _ in experiment.links.layers.given():
        if layers not in there:
            raise ConfigError(
                f"links.layers.{layers}: no such links in this topology; "
                f"there are {', '.join(there)}{did_you_mean(str(layers), there)}"
            )


def _require_ports(experiment: Experiment, plan: Plan) -> None:
    """Raises ConfigError where an exception is for ports that the topology has not."""
    layers: list[str] = sorted({str(plan.graph.nodes[switch]["layer"]) for switch in plan.switches})
    ports = plan.switch_ports()
    for index, exception in enumerate(experiment.queues):
        one = isinstance(exception.at, str)
        for name in [exception.at] if isinstance(exception.at, str) else exception.at:
            if name in ports or (one and name in (*layers, "bottleneck")):
                continue
            allowed = f"{', '.join(layers)}, bottleneck, or a port" if one else "ports"
            raise ConfigError(
                f"queues.{index}.at: {name!r} is not there; allowed are {allowed} as {ports[0]}"
                f"{did_you_mean(name, [*layers, 'bottleneck', *ports] if one else ports)}"
            )


def _capture_ports(experiment: Experiment, plan: Plan) -> tuple[tuple[str, str], ...]:
    chosen: list[tuple[str, str]] = []
    for bottleneck in (plan.bottleneck, *plan.others):
        chosen += [(bottleneck.egress, "out"), *((port, "in") for port in bottleneck.ingress)]
    chosen = list(dict.fromkeys(chosen))
    asked = experiment.capture.ports
    if asked == "bottleneck":
        return tuple(chosen)
    existing = plan.switch_ports()
    named = existing if asked == "all" else list(asked)
    for port in named:
        if port not in existing:
            some = ", ".join(existing[:6])
            near = did_you_mean(port, existing)
            raise ConfigError(
                f"capture.ports: no switch port {port!r}; there are {some}, ...{near}"
            )
        chosen += [(port, way) for way in ("in", "out") if (port, way) not in chosen]
    return tuple(chosen)
