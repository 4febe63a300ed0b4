"""The requested settings of each direction of each link.

The settings come from four places, of which the later wins: `links`, `links.layers`, the edge's own
settings in the topology, and `links.overrides`.

An edge of the graph has its own settings in `own`: by sending node, the keys of
`experiment.links.OwnKeys` as a configuration has them, for example
`{"s1": {"rate": "100mbit"}, "s2": {}}`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from pydantic import ValidationError

from controllers.graph import Graph
from outcast import handed_in, units
from outcast.errors import ConfigError, did_you_mean, refusals_at, some_of
from outcast.experiment import Experiment, Link, OwnKeys
from outcast.experiment.engine import VIRTUAL

Direction = tuple[str, str]
"""A direction of a link: the sending node, and its neighbour."""


def resolve(
    experiment: Experiment, graph: Graph, traces: Mapping[int, Sequence[int]] | None = None
) -> Mapping[Direction, Link]:
    """The settings of both directions of every link, in the order of the graph's links.

    `traces` has the rates of each rate trace, and last their mean, by the number of its override. A
    link with a trace has its mean rate here, and a jitter that fits the highest one.

    Raises ConfigError: own settings are no settings of a link, or do not fit one another; a
    switch's latency varies by more than a link's delay; an override names no link of the graph,
    or a direction that another one names.
    """
    settings: dict[Direction, Link] = {}
    for end, peer, data in graph.edges(data=True):
        of_layers = experiment.links.between(data["layers"])
        for node, neighbour in ((end, peer), (peer, end)):
            own = data.get("own", {}).get(node)
            settings[node, neighbour] = (
                of_layers if own is None else _with_own(of_layers, own, f"{node} to {neighbour}")
            )
        if settings[end, peer].mtu_bytes != settings[peer, end].mtu_bytes:
            raise ConfigError(f"topology: link {end} to {peer}: mtu: allowed is one for both ends")
    _override(experiment, settings, traces or {})
    variation_ns = experiment.noise.switch_latency_ns
    for direction, link in settings.items():
        if link.jitter_ns is None and variation_ns is not None:
            delay_ns = link.delay_ns or 0
            if variation_ns > delay_ns and not experiment.noise.has_switch_latency_of_profile:
                raise ConfigError(
                    f"noise.switch_latency: {units.format_time(variation_ns)}: allowed is up to "
                    f"the shortest delay of a link; {direction[0]} to {direction[1]} has "
                    f"{units.format_time(delay_ns)}"
                )
            settings[direction] = link = replace(link, jitter_ns=min(variation_ns, delay_ns))
        if any(event.changes_faults and event.concerns(*direction) for event in experiment.events):
            settings[direction] = link = replace(link, loss_changes=True)
            with refusals_at(f"link {direction[0]} to {direction[1]}"):
                link.check()
    return settings


def _with_own(base: Link, words: Mapping[str, object], where: str) -> Link:
    try:
        return merged(base, OwnKeys.model_validate(words))
    except ValidationError as error:
        what = handed_in.first_problem(error)
        raise ConfigError(f"topology: link {where}: {what}") from None
    except ValueError as error:
        raise ConfigError(f"topology: link {where}: {error}") from None


def _override(
    experiment: Experiment, settings: dict[Direction, Link], traces: Mapping[int, Sequence[int]]
) -> None:
    by: dict[Direction, str] = {}
    for number, override in enumerate(experiment.links.overrides):
        where = f"links.overrides.{number}"
        for direction in override.directions:
            if direction not in settings:
                raise ConfigError(f"{where}: {no_link(direction, settings)}")
            if direction in by:
                raise ConfigError(
                    f"{where}: {direction[0]} to {direction[1]} is in {by[direction]} already; "
                    "allowed is one override for a direction"
                )
            by[direction] = where
            with refusals_at(where):
                rates_bps = traces.get(number)
                if rates_bps is None:
                    settings[direction] = merged(settings[direction], override)
                    continue
                highest = override.model_copy(update={"rate_bps": max(rates_bps)})
                merged_link = merged(settings[direction], highest)
                settings[direction] = replace(merged_link, rate_bps=rates_bps[-1])


def no_link(direction: Direction, links: Collection[Direction]) -> str:
    """What an error says where there is no such link: with what either node is linked."""
    nodes = list(dict.fromkeys(node for node, _ in links))
    for name in direction:
        if name not in nodes:
            return f"no node {name!r}; there are {some_of(nodes, 12)}{did_you_mean(name, nodes)}"
    near, far = direction
    neighbours = [neighbour for node, neighbour in links if node == near]
    return f"{near} has no link to {far}; it has links to {', '.join(neighbours)}"


def merged(base: Link, own: OwnKeys) -> Link:
    """A direction's settings, with a link's own keys in the place of those that they change.

    A jitter that is not the link's own is that of the base. Where the base has the greatest jitter
    that it can have, the link gets the greatest that it can have itself.

    Raises ValueError: the settings do not fit one another.
    """
    link = base.changed(own)
    if own.jitter_ns is None and base.jitter_ns:
        greatest_ns = link.greatest_noise_ns()
        is_greatest = base.jitter_ns == base.greatest_noise_ns()
        link = replace(
            link, jitter_ns=greatest_ns if is_greatest else min(base.jitter_ns, greatest_ns)
        )
    link.check()
    return link


ACKNOWLEDGEMENT_BYTES = 66
"""Ethernet, IPv4, and TCP with time stamps."""


def base_rtt_ns(links: Mapping[Direction, Link], there: Sequence[str], back: Sequence[str]) -> int:
    """The time of a full frame and its acknowledgement without any queue.

    A switch sends a frame on when its last bit has come, so each link adds the frame's own time to
    its delay. A delay that the engine decides counts as that of the virtual engine.
    """
    data, answer = ([links[hop] for hop in pairwise(path)] for path in (there, back))
    return sum(crossing_ns(link, link.frame_bytes) for link in data) + sum(
        crossing_ns(link, ACKNOWLEDGEMENT_BYTES) for link in answer
    )


def crossing_ns(link: Link, frame_bytes: int) -> int:
    """The link's delay and the frame's own time on it."""
    drawn_ns = link.random_delay.mean_ns if link.random_delay else 0
    delay_ns = VIRTUAL.delay_ns if link.delay_ns is None else link.delay_ns
    wire_bytes = link.framing.wire_bytes(frame_bytes)
    return drawn_ns + delay_ns + wire_bytes * 8 * 10**9 // link.rate_bps


@dataclass(frozen=True, slots=True)
class Wire:
    """The stretch of a link on which packets are lost: two interfaces between the link's ends.

    Attributes:
        nodes: the link's ends.
        interfaces: for each of them, the interface that it is linked to in place of the other end.
    """

    nodes: tuple[str, str]
    interfaces: tuple[str, str]

    def facing(self, node: str) -> str:
        return self.interfaces[self.nodes.index(node)]


def wires(links: Mapping[Direction, Link]) -> dict[frozenset[str], Wire]:
    """The wire of every link that has faults in some direction, by the set of its ends."""
    lossy: dict[frozenset[str], Direction] = {}
    for direction, link in links.items():
        if link.has_faults:
            lossy.setdefault(frozenset(direction), direction)
    return {
        ends: Wire(nodes, (f"wire{number}-0", f"wire{number}-1"))
        for number, (ends, nodes) in enumerate(lossy.items(), 1)
    }


def require_mtu(
    links: Mapping[Direction, Link], ways: Iterable[tuple[str, Sequence[str], int | None]]
) -> None:
    """Raises ConfigError where a path does not take the packets that its hosts may send.

    A switch neither cuts a packet that is too large nor reports it to the sender. TCP agrees on the
    smaller of both hosts' MTUs (RFC 9293, section 3.7.1), so the whole path has to take that.

    `ways` has the key of the configuration that an error names, the path, and the size of the
    packets, or None for TCP.
    """
    for where, path, packet_bytes in ways:
        hops = list(pairwise(path))
        needed = packet_bytes or min(links[hops[0]].mtu_bytes, links[hops[-1]].mtu_bytes)
        for hop in hops:
            if links[hop].mtu_bytes < needed:
                raise ConfigError(
                    f"{where}: {path[0]} sends packets of up to {needed} B to {path[-1]}, but the "
                    f"link {hop[0]} to {hop[1]} takes {links[hop].mtu_bytes} B; allowed is "
                    f"mtu: {links[hop].mtu_bytes} at one of the two hosts, or mtu: {needed} on the "
                    "whole path"
                )
