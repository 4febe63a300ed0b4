"""The queues that are studied: their output ports, and the input ports that feed them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

from controllers.graph import Graph
from outcast.experiment import Link
from outcast.plan import addresses
from outcast.plan.links import Direction
from outcast.plan.topology import ingress_port, port_name


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
