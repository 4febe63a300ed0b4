"""`outcast topo`: the nodes, the links and the path of every flow, without root."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from outcast.cli import shared, terminal
from outcast.plan.addresses import with_port

if TYPE_CHECKING:
    from collections.abc import Mapping

    from outcast.experiment import Experiment, Network, NetworkHost, NetworkSwitch
    from outcast.experiment.network import NetworkRouter
    from outcast.plan.flows import Flow
    from outcast.plan.model import Plan


@click.command(
    "topo",
    epilog=shared.examples(
        "outcast topo configs/fig3c.yaml",
        "outcast topo configs/fig3c.yaml --set flows.1.hosts=6 --png fig3c.png",
    ),
)
@click.argument("config", type=click.Path(path_type=Path))
@shared.overrides
@click.option("--dot", is_flag=True, help="Print the network in Graphviz's dot language.")
@click.option("--png", type=shared.PngPath(), metavar="FILE", help="Draw the network to this file.")
def command(config: Path, overrides: tuple[str, ...], dot: bool, png: Path | None) -> None:
    """Show what CONFIG would build: the nodes, the links, every flow's path, the bottleneck.

    Needs no root and builds nothing.
    """
    from outcast import experiment
    from outcast.api import experiments
    from outcast.networks import resolve
    from outcast.view.figures import topology as drawing

    experiments.require_mininet()
    from outcast.plan.make import make_plan

    source = experiment.read(config, overrides)
    chosen = resolve.experiment_of(source)
    plan = make_plan(chosen, source.located)
    if png is not None:
        drawing.draw(plan, png, chosen.name, chosen.analysis.group_by)
        terminal.echo_path(png)
    if dot:
        terminal.echo(drawing.to_dot(plan), nl=False)
    if png is None and not dot:
        terminal.echo("\n".join(describe(chosen, plan)))


def describe(experiment: Experiment, plan: Plan) -> list[str]:
    """The lines that the verb prints without --dot and --png."""
    from outcast.plan import link_words, ports
    from outcast.plan.hints import beforehand

    graph = plan.graph
    plural = "" if len(plan.routers) == 1 else "s"
    routers = f", {len(plan.routers)} router{plural}" if plan.routers else ""
    switches = f"{len(plan.switches)} switch{'' if len(plan.switches) == 1 else 'es'}"
    lines = [f"{experiment.name}: {len(plan.hosts)} hosts, {switches}{routers}"]
    lines += ["", "hosts"]
    network = getattr(experiment.topology, "network", None)
    labels = labels_of(network) if network else {}
    for host in plan.hosts:
        if (machine := plan.machine(host)) != host:
            labels[host] = f"{labels.get(host, '')}  a further interface of {machine}"
    lines += [
        f"  {host}  {', '.join(plan.addresses(host))}{labels.get(host, '')}" for host in plan.hosts
    ]
    lines += ["", "switches"]
    lines += [
        f"  {switch}  {graph.nodes[switch]['layer']}  {graph.degree(switch)} ports"
        f"{labels.get(switch, '')}"
        for switch in plan.switches
    ]
    lines += _routers(plan, labels)
    timed = _with_delays(experiment, plan)
    common = link_words.usual(plan.links)
    lines += ["", f"links ({link_words.settings(common)}, where nothing else stands)"]
    own = link_words.own(plan.links)
    lines += [
        f"  {plan.port(node, neighbour)} -- {plan.port(neighbour, node)}  "
        f"{own(node, neighbour)}".rstrip()
        for node, neighbour in graph.edges
    ]
    is_default = any(link.delay_ns is None for link in timed.links.values())
    with_delay = ", with the virtual engine's delay of 25us" if is_default else ""
    lines += ["", f"flows (base RTTs without queues and noise{with_delay})"]
    lines += [
        f"  {flow.flow}: {flow.hops}-hop  {' '.join(flow.path)}  "
        f"({with_port(flow.src_ip, flow.sport)} to {with_port(flow.dst_ip, flow.dport)})  "
        f"{_base_rtt(timed, flow)}{_who(flow)}"
        for flow in plan.flows
    ]
    lines += [*_workloads(experiment, plan), *_probes(timed)]
    told = beforehand(experiment, timed, experiment.engine)
    lines += [f"  note: {text}" for text in told]
    lines += _groups(experiment, plan)
    if plan.programs:
        lines += ["", "programs"]
    for program in plan.programs:
        what = "server" if program.is_server else "client"
        lines.append(f"  {program.name}: {what} at {program.host}  {shlex.join(program.argv)}")
        lines += [
            f"    {program.host} to {peer}  {' '.join(plan.path(program.host, peer))}"
            for peer in program.peers
        ]
    for name, port in (
        ("bottleneck", plan.bottleneck),
        *(("measures too", p) for p in plan.others),
    ):
        settings = ports.switch_queue(experiment, timed, port.egress)
        lines += ["", f"{name}: {port.egress}, fed by {', '.join(port.ingress)}"]
        lines.append(f"  queue: {link_words.queue(settings)}")
    limits = link_words.limits(experiment, timed, plan.switch_ports())
    lines += ["", "queues", *(f"  {text}" for text in limits)] if limits else []
    lines += ["", f"noise: {_noise(experiment)}"]
    if network and network.notes:
        lines += ["", "not used", *(f"  {note}" for note in network.notes)]
    return lines


def _routers(plan: Plan, labels: Mapping[str, str]) -> list[str]:
    """Every router's ports with their addresses and subnets, and its routes by gateways."""
    lines = ["", "routers"] if plan.routers else []
    for router in plan.routers:
        lines.append(f"  {router}{labels.get(router, '')}")
        for node in plan.graph.adj[router]:
            ip = plan.subnets.ip(router, node)
            lines.append(f"    {plan.port(router, node)}  {ip}/{plan.subnets.prefix_length}")
        lines += [
            f"    to {route.network}/{route.prefix_length} by {route.gateway}"
            for route in plan.subnets.routes(router)
        ]
    return lines


def _noise(experiment: Experiment) -> str:
    """The profile and its parts; of `engine: auto` those of the virtual engine."""
    from outcast.experiment.engine import candidates
    from outcast.units import format_time

    noise = experiment.noise.resolved(candidates(experiment.engine)[0])
    latency_ns = noise.switch_latency_ns
    parts = {
        "oscillators": f"{noise.oscillators_ppm:g} ppm" if noise.oscillators_ppm else "",
        "interrupts": noise.interrupts,
        "sender": noise.sender,
        "switch latency": f"up to {format_time(latency_ns)}" if latency_ns else "",
    }
    if noise.greatest_jitter:
        parts["switch latency"] = "as much as keeps packets in order"
    words = [f"{name} {value}" for name, value in parts.items() if value]
    return f"{noise.profile}; {', '.join(words)}" if words else f"{noise.profile}; none"


def _with_delays(experiment: Experiment, plan: Plan) -> Plan:
    """The plan with the engine's own delay of links where none is given."""
    from dataclasses import replace

    from outcast.experiment.engine import candidates, properties

    own_ns = properties(candidates(experiment.engine)[0]).delay_ns
    links = {
        way: replace(link, delay_ns=own_ns) if link.delay_ns is None else link
        for way, link in plan.links.items()
    }
    return replace(plan, links=links)


def _base_rtt(plan: Plan, flow: Flow) -> str:
    """The round trip of a full frame without queues, and the bandwidth-delay product."""
    from outcast.plan.round_trips import base_rtt_ns, product_bytes

    rtt_ms = base_rtt_ns(plan, flow.path, flow.return_path) / 1e6
    return f"base RTT {rtt_ms:.4g} ms, BDP {product_bytes(plan, flow):,} B on the wire  "


def _workloads(experiment: Experiment, plan: Plan) -> list[str]:
    """Every workload with the settings that it was given, and how many flows came of it."""
    flows = Counter(flow.workload for flow in plan.generated)
    lines = ["", "workloads"] if experiment.workloads else []
    for number, workload in enumerate(experiment.workloads):
        given = workload.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        kind = given.pop("kind")
        told = (
            f"{key} {' '.join(map(str, value)) if isinstance(value, list) else value}"
            for key, value in given.items()
        )
        lines.append(
            f"  {number}: {kind}  {', '.join(told)}  "
            f"({flows[number]} flow{'' if flows[number] == 1 else 's'})"
        )
    return lines


def _probes(plan: Plan) -> list[str]:
    """Every probe's path, size and code point, and its round trip without queues."""
    from outcast.plan.probes import base_rtt_ns
    from outcast.units import format_time

    lines = ["", "probes"] if plan.probes else []
    for probe in plan.probes:
        there = plan.path(probe.src, probe.dst, probe.headers)
        back = plan.path(probe.dst, probe.src, probe.headers.reversed())
        marked = f", DSCP {probe.dscp}" if probe.dscp else ""
        lines.append(
            f"  {probe.probe}: {probe.kind}  {' '.join(there)}  {probe.payload_bytes} B every "
            f"{format_time(probe.every_ns)}{marked}  "
            f"base RTT {base_rtt_ns(plan.links, probe, there, back) / 1e6:.4g} ms"
        )
    return lines


def _who(flow: Flow) -> str:
    from outcast.plan import grouping

    control = flow.transport.congestion_control
    return control if flow.name is None else grouping.title(flow.name, [control])


def _groups(experiment: Experiment, plan: Plan) -> list[str]:
    """The groups that tables and figures will show, and the two that the headline compares."""
    from outcast.plan import grouping

    analysis = experiment.analysis
    kind = grouping.chosen(analysis.group_by, plan.groups)
    groups = plan.groups.get(kind, {})
    lines = ["", f"groups by {kind}"] if groups else []
    lines += [
        f"  {grouping.title(label, grouping.controls(flows))}: "
        f"{len(flows)} flow{'' if len(flows) == 1 else 's'}"
        for label, flows in groups.items()
    ]
    named = [program.name for program in plan.programs]
    compared = grouping.comparison(analysis.group_by, analysis.compare, plan.groups, named)
    if compared is not None:
        lines.append(f"  compared: {' over '.join(compared.groups)}")
    return lines


def labels_of(network: Network) -> dict[str, str]:
    """How a user's own file calls nodes that have another name here."""
    nodes: list[NetworkHost | NetworkSwitch | NetworkRouter]
    nodes = [*network.hosts, *network.switches, *network.routers]
    return {node.name: f"  ({node.label})" for node in nodes if node.label}
