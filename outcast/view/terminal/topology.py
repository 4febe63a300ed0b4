"""A plan in lines of text: nodes, links, the path of every flow, the bottleneck."""

import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from outcast.experiment import Experiment
from outcast.experiment.measure import cut_windows
from outcast.plan import grouping, link_words, ports, probes
from outcast.plan.addresses import with_port
from outcast.plan.hints import beforehand, offered_bps
from outcast.plan.model import Plan
from outcast.units import counted, format_time, round_rate

MOST_LOADS = 16
_MOST_IN_SHORT = 4
"""The most lines of a section, unless all are requested."""


def describe(experiment: Experiment, plan: Plan, whole: bool = True) -> list[str]:
    """The text of `outcast topo`: the bottleneck and its flows first.

    If the `whole` is wanted, all flows, nodes and links follow one by one.
    """
    labels = _labels(experiment, plan)
    notes = beforehand(experiment, plan, experiment.engine)
    notes += cut_windows(experiment.analysis.windows_ns, experiment.duration_ns)
    return [
        *built(experiment, plan, whole),
        *(f"  note: {text}" for text in notes),
        *([] if whole else ["", "--all shows every flow's path, and all links and nodes"]),
        *(_flows(plan) if whole else []),
        *(_nodes(plan, labels) if whole else []),
        *(_routers(plan, labels) if whole else []),
        *(_links(plan) if whole else []),
    ]


def built(experiment: Experiment, plan: Plan, whole: bool = False) -> list[str]:
    """What is built and sent; sections are cut unless the `whole` is wanted."""
    # outcast leaves out some settings of a user's topology file.
    network = getattr(experiment.topology, "network", None)
    sections = [
        *_queues(experiment, plan),
        _groups(experiment, plan),
        _loads(plan),
        _workloads(experiment, plan),
        _probes(plan),
        _programs(plan),
        _titled("not used", getattr(network, "notes", ())),
    ]
    if not whole:
        sections = [_short(section) for section in sections]
    return [
        _heading(experiment, plan),
        *(line for section in sections for line in section),
        *("", f"noise: {_noise(experiment)}"),
    ]


def _short(section: list[str]) -> list[str]:
    """The beginning of a section, which begins with an empty line and its title."""
    more = len(section) - 2 - _MOST_IN_SHORT
    return section if more < 2 else [*section[:-more], f"  and {more} more"]


def _labels(experiment: Experiment, plan: Plan) -> dict[str, str]:
    """Remarks on nodes: their names in a user's file, and of which machine a host is a port."""
    network = getattr(experiment.topology, "network", None)
    nodes = [*network.hosts, *network.switches, *network.routers] if network else []
    labels = {node.name: f"  ({node.label})" for node in nodes if node.label}
    for host in plan.hosts:
        if (machine := plan.machine(host)) != host:
            labels[host] = f"{labels.get(host, '')}  a further interface of {machine}"
    return labels


def _titled(title: str, lines: Iterable[str]) -> list[str]:
    return ["", title, *(f"  {line}" for line in listed)] if (listed := [*lines]) else []


def _heading(experiment: Experiment, plan: Plan) -> str:
    routers = f", {counted(len(plan.routers), 'router')}" if plan.routers else ""
    switches = f"{len(plan.switches)} switch{'' if len(plan.switches) == 1 else 'es'}"
    hosts, links = f"{len(plan.hosts)} hosts", counted(len(plan.graph.edges), "link")
    usual = link_words.settings(link_words.usual(plan.links))
    return f"{experiment.name}: {hosts}, {switches}{routers}, {links} ({usual})"


def _nodes(plan: Plan, labels: Mapping[str, str]) -> list[str]:
    graph = plan.graph
    return [
        *("", "hosts"),
        *(
            f"  {host}  {', '.join(plan.addresses(host))}{labels.get(host, '')}"
            for host in plan.hosts
        ),
        *("", "switches"),
        *(
            f"  {switch}  {graph.nodes[switch]['layer']}  {graph.degree(switch)} ports"
            f"{labels.get(switch, '')}"
            for switch in plan.switches
        ),
    ]


def _links(plan: Plan) -> list[str]:
    common = link_words.usual(plan.links)
    own = link_words.own(plan.links)
    return [
        *("", f"links ({link_words.settings(common)}, where nothing else stands)"),
        *(
            f"  {plan.port(node, neighbour)} -- {plan.port(neighbour, node)}  "
            f"{own(node, neighbour)}".rstrip()
            for node, neighbour in plan.graph.edges
        ),
    ]


def _flows(plan: Plan) -> list[str]:
    lines = ["", "flows (base RTTs without queues and noise)"]
    if plan.per_packet:
        lines.append("  each packet draws its core switch; these are one of the ways of each flow")
    for flow in plan.flows:
        control = flow.transport.congestion_control
        who = control if flow.name is None else grouping.title(flow.name, [control])
        # The round trip of a full frame without queues.
        rtt_ms = plan.base_rtt_ns(flow.path, flow.return_path) / 1e6
        lines.append(
            f"  {flow.flow}: {flow.hops}-hop  {' '.join(flow.path)}  "
            f"({with_port(flow.src_ip, flow.sport)} to {with_port(flow.dst_ip, flow.dport)})  "
            f"base RTT {rtt_ms:.4g} ms, BDP {plan.product_bytes(flow):,} B on the wire  {who}"
        )
    return lines


def _programs(plan: Plan) -> list[str]:
    lines = []
    for program in plan.programs:
        what = "server" if program.is_server else "client"
        lines.append(f"{program.name}: {what} at {program.host}  {shlex.join(program.argv)}")
        for peer in program.peers:
            way = " ".join(plan.path(program.host, peer))
            lines.append(f"  {program.host} to {peer}  {way}")
    return _titled("programs", lines)


def _queues(experiment: Experiment, plan: Plan) -> list[list[str]]:
    lines: list[str] = []
    captured = [("bottleneck", plan.bottleneck), *(("measures too", port) for port in plan.others)]
    for name, port in captured:
        settings = ports.switch_queue(experiment, plan, port.egress)
        lines += ["", f"{name}: {port.egress}, fed by {', '.join(port.ingress)}"]
        lines.append(f"  queue: {link_words.queue(settings)}")
    limits = link_words.limits(experiment, plan, plan.switch_ports())
    return [lines, _titled("queues", limits)]


def _routers(plan: Plan, labels: Mapping[str, str]) -> list[str]:
    lines = []
    for router in plan.routers:
        lines.append(f"{router}{labels.get(router, '')}")
        for node in plan.graph.adj[router]:
            ip = plan.subnets.ip(router, node)
            lines.append(f"  {plan.port(router, node)}  {ip}/{plan.subnets.prefix_length}")
        for route in plan.subnets.routes(router):
            lines.append(f"  to {route.network}/{route.prefix_length} by {route.gateway}")
    return _titled("routers", lines)


def _noise(experiment: Experiment) -> str:
    noise = experiment.noise
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


def _workloads(experiment: Experiment, plan: Plan) -> list[str]:
    flows = Counter(flow.workload for flow in plan.generated)
    lines = []
    for number, workload in enumerate(experiment.workloads):
        given = workload.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        kind = given.pop("kind")
        settings = (
            f"{key} {' '.join(map(str, value)) if isinstance(value, list) else value}"
            for key, value in given.items()
        )
        of_it = counted(flows[number], "flow")
        lines.append(f"{number}: {kind}  {', '.join(settings)}  ({of_it})")
    return _titled("workloads", lines)


def _probes(plan: Plan) -> list[str]:
    lines = []
    for probe in plan.probes:
        there = plan.path(probe.src, probe.dst, probe.headers)
        back = plan.path(probe.dst, probe.src, probe.headers.reversed())
        marked = f", DSCP {probe.dscp}" if probe.dscp else ""
        lines.append(
            f"{probe.probe}: {probe.kind}  {' '.join(there)}  {probe.payload_bytes} B every "
            f"{format_time(probe.every_ns)}{marked}  "
            f"base RTT {probes.base_rtt_ns(plan.links, probe, there, back) / 1e6:.4g} ms"
        )
    return _titled("probes", lines)


def _loads(plan: Plan) -> list[str]:
    if plan.per_packet:
        return []
    offered = [(bps, hop, plan.links[hop].rate_bps) for hop, bps in offered_bps(plan).items()]
    loads = sorted(((bps / rate, plan.port(*hop), bps, rate) for bps, hop, rate in offered))[::-1]
    lines = [
        f"{port}: {load:.3g}  ({round_rate(bps)} of {round_rate(rate)})"
        for load, port, bps, rate in loads[:MOST_LOADS]
    ]
    if len(loads) > MOST_LOADS:
        rest = loads[MOST_LOADS:]
        lines.append(f"{counted(len(rest), 'more port')}, {rest[0][0]:.3g} at most")
    return _titled("offered load over rate (what senders' own ports let through)", lines)


def _groups(experiment: Experiment, plan: Plan) -> list[str]:
    """The groups of tables and figures, and the two that the headline compares."""
    analysis = experiment.analysis
    kind = grouping.chosen(analysis.group_by, plan.groups)
    lines = [
        f"{grouping.title(label, grouping.controls(flows))}: {counted(len(flows), 'flow')}, "
        f"base RTT {_round_trips(plan, [flow.flow for flow in flows])}"
        for label, flows in plan.groups.get(kind, {}).items()
    ]
    named = [program.name for program in plan.programs]
    compared = grouping.comparison(analysis.group_by, analysis.compare, plan.groups, named)
    if compared is not None:
        lines.append(f"compared: {' over '.join(compared.groups)}")
    return _titled(f"groups by {kind}", lines)


def _round_trips(plan: Plan, flows: Collection[int]) -> str:
    found = sorted(
        plan.base_rtt_ns(flow.path, flow.return_path) / 1e6
        for flow in plan.flows
        if flow.flow in flows
    )
    return f"{' to '.join(f'{rtt_ms:.4g}' for rtt_ms in dict.fromkeys((found[0], found[-1])))} ms"
