"""The queues that are studied: their output ports, and the input ports that feed them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

from controllers import routes
from controllers.graph import Graph
from outcast.errors import ConfigError, did_you_mean, some_of
from outcast.experiment import Experiment, Link
from outcast.plan import addresses
from outcast.plan.flows import Flow, hashed_paths
from outcast.plan.links import Direction
from outcast.plan.topology import Ways, every_way, ingress_port, port_name

FIRST_TTL = 64
"""IPDEFTTL of the kernel's include/uapi/linux/ip.h; IPv6's hop limit is the same."""


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The output port at which each flow's share is smallest, and the inputs that feed it.

    Attributes:
        ingress: the ports by which packets come in that leave by it.
        destinations: addresses of the hosts that these packets are for.
    """

    switch: str
    egress: str
    ingress: tuple[str, ...]
    destinations: tuple[str, ...]


@dataclass(frozen=True)
class Traffic:
    """The flows, and the ways of other traffic. Each way is a path with the path back."""

    flows: Sequence[Flow]
    generated: Ways
    programs: Ways
    probes: Ways
    subflows: Ways

    @property
    def loading(self) -> Ways:
        """Ways of what loads links besides the flows. Probes load nothing."""
        return [*self.generated, *self.programs]


def find_all(
    experiment: Experiment,
    graph: Graph,
    table: routes.Routes,
    links: Mapping[Direction, Link],
    traffic: Traffic,
) -> Iterator[Bottleneck]:
    """The studied port, and then the others that are bottlenecks too.

    Raises ConfigError: there is no such port, or a packet would not outlive its way.
    """
    flows, ways = traffic.flows, traffic.loading
    # Probes load nothing, so they are looked at only where there is nothing else.
    of_flows: list[Sequence[str]] = [flow.path for flow in flows]
    if table.per_packet:
        of_flows = [way for f in flows for way in every_way(graph, table, f.src, f.dst)]
    crossing: Sequence[Sequence[str]] = of_flows or [there for there, _ in ways or traffic.probes]
    first = _bottleneck(experiment, graph, crossing, links, [there for there, _ in ways])
    all_ways = [*ways, *traffic.probes, *traffic.subflows]
    paths: list[Sequence[str]] = [*sorted(path for way in all_ways for path in way)]
    paths += [flow.return_path for flow in flows]
    if table.per_packet:
        paths += [way for f in flows for way in every_way(graph, table, f.dst, f.src)]
    paths += hashed_paths(graph, table, flows)
    _require_hops(graph, [*of_flows, *paths])
    of_programs = traffic.programs
    measured = [*of_flows, *(tuple(there) for there, _ in of_programs)]
    # A program's flows are found in the captures, and would be found at both ports.
    others = find_others(graph, measured, links, first, may_share=not of_programs)
    return (with_all_packets(port, graph, paths) for port in (first, *others))


def _bottleneck(
    experiment: Experiment,
    graph: Graph,
    paths: Sequence[Sequence[str]],
    links: Mapping[Direction, Link],
    beside: Iterable[Sequence[str]],
) -> Bottleneck:
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
    require_port("bottleneck.port", port, list(hops))
    bottleneck = find(graph, paths, links, set(links) - {hops[port]})
    if bottleneck is None:
        crossed = sorted({port_name(graph, *hop) for path in paths for hop in pairwise(path[1:])})
        raise ConfigError(
            f"bottleneck.port: no flow leaves by {port}; flows leave by {some_of(crossed, 12)}"
        )
    return bottleneck


def require_port(key: str, port: str, ports: Sequence[str]) -> None:
    """Raises ConfigError where there is no such port; its text begins with `key`."""
    if port not in ports:
        raise ConfigError(
            f"{key}: no switch port {port!r}; there are {', '.join(ports[:6])}, ..."
            f"{did_you_mean(port, ports)}"
        )


def _require_hops(graph: Graph, paths: Iterable[Sequence[str]]) -> None:
    for path in paths:
        routers = sum(graph.nodes[node]["kind"] == "router" for node in path)
        if routers >= FIRST_TTL:
            raise ConfigError(
                f"topology: {routers} routers on the way from {path[0]} to {path[-1]}; allowed "
                f"are {FIRST_TTL - 1}, because a packet's TTL begins with {FIRST_TTL}"
            )


def find(
    graph: Graph,
    paths: Iterable[Sequence[str]],
    links: Mapping[Direction, Link],
    without: Set[tuple[str, str]] = frozenset(),
    beside: Iterable[Sequence[str]] = (),
) -> Bottleneck | None:
    """The output port at which each flow's share of the rate is smallest; `paths` are the flows'.

    Of several such ports it is the one with most inputs in use, then one whose inputs together are
    faster than it, because no queue builds up elsewhere. Then it is the one that most inputs feed
    with the paths `beside` of other traffic, and last the one nearest to the receivers.

    Returns the port; None where the flows cross no link that is not left out.
    """
    crossing: Counter[tuple[str, str]] = Counter()
    inputs: dict[tuple[str, str], dict[str, int]] = {}
    destinations: dict[tuple[str, str], list[str]] = {}
    nearness: dict[tuple[str, str], int] = {}
    for path in paths:
        for index, (switch, following) in enumerate(pairwise(path)):
            hop = (switch, following)
            if index == 0 or hop in without:
                continue
            crossing[hop] += 1
            before = path[index - 1]
            ingress = port_name(graph, switch, before)
            inputs.setdefault(hop, {})[ingress] = links[before, switch].rate_bps
            mine = destinations.setdefault(hop, [])
            mine += [ip for ip in addresses.of_host(graph, path[-1]) if ip not in mine]
            nearness[hop] = index
    if not crossing:
        return None
    merging = {hop: {*ports} for hop, ports in inputs.items()}
    for path in beside:
        for before, switch, following in zip(path, path[1:], path[2:], strict=False):
            merging.get((switch, following), set()).add(port_name(graph, switch, before))
    switch, following = max(
        crossing,
        key=lambda hop: (
            Fraction(crossing[hop], links[hop].rate_bps),
            len(inputs[hop]),
            sum(inputs[hop].values()) > links[hop].rate_bps,
            len(merging[hop]),
            nearness[hop],
        ),
    )
    return Bottleneck(
        switch=switch,
        egress=port_name(graph, switch, following),
        ingress=tuple(inputs[switch, following]),
        destinations=tuple(destinations[switch, following]),
    )


def find_others(
    graph: Graph,
    paths: Sequence[Sequence[str]],
    links: Mapping[Direction, Link],
    first: Bottleneck,
    *,
    may_share: bool = True,
) -> tuple[Bottleneck, ...]:
    """The ports that measure the flows whose paths do not cross the first bottleneck.

    As long as possible, no flow crosses two of them, and no receiver is behind two. Where that
    leaves a flow unmeasured, a port follows that other flows cross too. These count at the first
    port that they cross alone (outcast/analysis/run_analysis.py). Without `may_share` there is no
    such port, and the flow stays unmeasured.
    """
    bottlenecks = [first]
    remaining = list(paths)
    while True:
        last = bottlenecks[-1]
        remaining = [path for path in remaining if ingress_port(graph, path, last.egress) is None]
        unmeasured = {*map(tuple, remaining)}
        reached = {address for port in bottlenecks for address in port.destinations}
        taken = {
            hop
            for path in paths
            if tuple(path) not in unmeasured
            or not reached.isdisjoint(addresses.of_host(graph, path[-1]))
            for hop in pairwise(path)
        }
        another = find(graph, remaining, links, taken)
        if another is None:
            break
        bottlenecks.append(another)
    while may_share and (shared := find(graph, remaining, links)):
        remaining = [path for path in remaining if ingress_port(graph, path, shared.egress) is None]
        # All that leaves by its output has to be captured.
        empty = replace(shared, ingress=(), destinations=())
        bottlenecks.append(with_all_packets(empty, graph, paths))
    return tuple(bottlenecks[1:])


def with_all_packets(
    bottleneck: Bottleneck, graph: Graph, paths: Iterable[Sequence[str]]
) -> Bottleneck:
    """The bottleneck with the inputs and the receivers of all packets that leave by its output.

    They share its queue, so they must be captured when they come in.

    `paths` are those of all that is planned, acknowledgements and answers too.
    """
    ingress, destinations = list(bottleneck.ingress), list(bottleneck.destinations)
    for path in paths:
        entered = ingress_port(graph, path, bottleneck.egress)
        if entered is not None:
            ingress.append(entered)
            destinations += addresses.of_host(graph, path[-1])
    return replace(
        bottleneck,
        ingress=tuple(dict.fromkeys(ingress)),
        destinations=tuple(dict.fromkeys(destinations)),
    )
