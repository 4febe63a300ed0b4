"""The flows of an experiment: who sends to whom, over which path, when, and how."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from controllers import routes
from controllers.distances import distances
from controllers.graph import Graph
from controllers.hashing import TCP, FiveTuple
from outcast import units
from outcast.errors import ConfigError, did_you_mean, some_of
from outcast.experiment import Experiment, FlowGroup, Link, Transport
from outcast.experiment.parts import Family
from outcast.experiment.transport import Ecn
from outcast.plan import addresses
from outcast.plan.links import Direction
from outcast.plan.topology import Ways, every_way, receiver, there_and_back

FIRST_SOURCE_PORT = 20001
"""Flows differ in their source port, which the run chooses."""
SERVER_PORT = 5001
"""iperf's own default."""
_FURTHER_SERVER_PORT = 5004
"""The first port for another kind of receiver; further kinds take the next ports. Generated flows
use the ports before it (outcast/plan/schedule.py), and the same host may receive both."""
_CLASS = re.compile(r"([0-9]+)-hop")
MOST_FLOWS = 20_000
"""With more, their source ports would reach those of generated flows."""


@dataclass(frozen=True, slots=True)
class Flow:
    """One TCP flow, sender to receiver.

    Attributes:
        src, dst: host names. Their addresses are `src_ip` and `dst_ip`, both of one family.
        path: node names from sender to receiver; a switch may stand in it twice.
        return_path: node names of its acknowledgements, from receiver to sender.
        hops: its class: the links on a shortest path, even if it takes a longer one. A "2-hop"
            sender is at the receiver's own switch (section 2.2). It keeps that label under routing
            that lengthens its path, as in section 5.4.
        duration_ns, size_bytes: when it ends; exactly one of them is set.
        name: what the configuration calls its group; None if it gives no name.
    """

    flow: int
    group: int
    src: str
    src_ip: str
    sport: int
    dst: str
    dst_ip: str
    dport: int
    path: tuple[str, ...]
    return_path: tuple[str, ...]
    hops: int
    start_ns: int
    duration_ns: int | None
    size_bytes: int | None
    transport: Transport = field(default_factory=Transport)
    name: str | None = None
    dscp: int = 0

    @property
    def family(self) -> Family:
        return "ipv6" if ":" in self.src_ip else "ipv4"

    @property
    def five_tuple(self) -> FiveTuple:
        return FiveTuple(self.src_ip, self.sport, self.dst_ip, self.dport, TCP)


def families_of(flows: Iterable[Flow]) -> list[Family]:
    """The families of the flows' addresses, without those of programs."""
    return sorted({flow.family for flow in flows})


def resolve_flows(
    experiment: Experiment,
    graph: Graph,
    table: routes.Routes,
    links: Mapping[Direction, Link],
) -> tuple[Flow, ...]:
    """Every flow of the groups, in the order of the configuration.

    Raises ConfigError: a group does not fit the topology.
    """
    flows: list[Flow] = []
    pairs_of = _pairs_of(experiment.flows, graph)
    ports: dict[tuple[Family, ReceiverKind], int] = {
        (
            addresses.families(experiment)[0],
            receiver_kind(experiment.transport),
        ): SERVER_PORT
    }
    for index, group in enumerate(experiment.flows):
        kind = (
            experiment.family_of(group),
            receiver_kind(experiment.group_transport(index)),
        )
        dport = ports.setdefault(kind, _FURTHER_SERVER_PORT - 1 + len(ports))
        number = len(pairs_of[index]) * group.per_host
        _require_times(experiment, group, number, f"flows.{index}")
        for flow in _of_group(experiment, index, graph, table, pairs_of[index], dport, len(flows)):
            slowest_bps = min(links[hop].rate_bps for hop in pairwise(flow.path))
            _require_room(flow, experiment, slowest_bps)
            flows.append(flow)
    if len(flows) > MOST_FLOWS:
        raise ConfigError(f"flows: {len(flows)} flows; at most {MOST_FLOWS} are allowed")
    return tuple(flows)


def _of_group(
    experiment: Experiment,
    index: int,
    graph: Graph,
    table: routes.Routes,
    pairs: Sequence[tuple[str, str]],
    dport: int,
    first: int,
) -> Iterator[Flow]:
    """The flows of a group, from these senders to these receivers; they count from `first`."""
    group, settings = experiment.flows[index], experiment.group_transport(index)
    family = experiment.family_of(group)
    hops_to: dict[str, dict[str, int]] = {}
    senders = ((src, dst) for src, dst in pairs for _ in range(group.per_host))
    for place, (src, dst) in enumerate(senders):
        start_ns = group.start_ns + place * group.stagger_ns
        duration_ns = group.duration_ns
        if duration_ns is None and group.size_bytes is None:
            duration_ns = experiment.duration_ns - start_ns
        own, other = (addresses.address_of(graph, host, family) for host in (src, dst))
        packet = FiveTuple(own, FIRST_SOURCE_PORT + first + place, other, dport)
        if dst not in hops_to:
            hops_to[dst] = distances(dst, graph.adj.__getitem__)
        there, back = there_and_back(graph, table, src, dst, packet)
        yield Flow(
            flow=first + place,
            group=index,
            src=src,
            src_ip=packet.src,
            sport=packet.sport,
            dst=dst,
            dst_ip=packet.dst,
            dport=packet.dport,
            path=tuple(there),
            return_path=tuple(back),
            hops=hops_to[dst][src],
            start_ns=start_ns,
            duration_ns=duration_ns,
            size_bytes=group.size_bytes,
            transport=settings,
            name=group.name,
            dscp=group.dscp,
        )


def _pairs_of(groups: Sequence[FlowGroup], graph: Graph) -> dict[int, list[tuple[str, str]]]:
    """Sender and receiver of each group's hosts, by the group's number.

    Named hosts come first, so that a class has those that no entry names.
    """
    used: set[tuple[str, str]] = set()
    pairs_of = {}
    for index, group in sorted(enumerate(groups), key=lambda item: _is_class(item[1])):
        where = f"flows.{index}"
        pairs_of[index] = _pairs(group, graph, where, used)
        for src, dst in pairs_of[index]:
            if addresses.machine_of(graph, src) == addresses.machine_of(graph, dst):
                raise ConfigError(f"{where}: {src} and {dst} are interfaces of one host")
            if (src, dst) in used:
                raise ConfigError(
                    f"{where}: {src} sends to {dst} already; use per_host for several flows of "
                    "one host"
                )
            used.add((src, dst))
    return pairs_of


def _is_class(group: FlowGroup) -> bool:
    return isinstance(group.source, str) and _CLASS.fullmatch(group.source) is not None


def _pairs(
    group: FlowGroup, graph: Graph, where: str, used: Collection[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Sender and receiver of each of the group's hosts; a class without the pairs in `used`."""
    if not isinstance(group.to, list):
        dst = group.to or receiver(graph, f"{where}.to")
        _require_host(graph, dst, f"{where}.to")
        busy = [src for src, other in used if other == dst]
        return [
            (src, dst)
            for src in senders_of(group.source, dst, graph, where, most=group.hosts, busy=busy)
        ]
    for dst in group.to:
        _require_host(graph, dst, f"{where}.to")
    for src in group.source:
        _require_host(graph, src, f"{where}.from")
    _require_some(group.source, where)
    pairs = list(zip(group.source, group.to, strict=True))
    for src, dst in pairs:
        if src == dst:
            raise ConfigError(f"{where}.from: {dst} cannot send to itself")
    if group.hosts is not None and group.hosts > len(pairs):
        raise ConfigError(f"{where}.hosts: {group.hosts} asked for; `from` has {len(pairs)}")
    return pairs[: group.hosts]


def _require_times(experiment: Experiment, group: FlowGroup, flows: int, where: str) -> None:
    last_ns = group.start_ns + (flows - 1) * group.stagger_ns
    if last_ns + (group.duration_ns or 0) > experiment.duration_ns - (group.duration_ns is None):
        raise ConfigError(
            f"{where}.stagger: the last of {flows} flows would start after "
            f"{units.format_time(last_ns)}; it must start and end within the duration of "
            f"{units.format_time(experiment.duration_ns)}"
        )


def _require_room(flow: Flow, experiment: Experiment, rate_bps: int) -> None:
    """Raises ConfigError where a flow's bytes cannot arrive within the duration.

    `rate_bps` is the smallest rate on the flow's path.
    """
    least_ns = (flow.size_bytes or 0) * 8 * 10**9 // rate_bps
    if flow.start_ns + least_ns > experiment.duration_ns:
        raise ConfigError(
            f"flows.{flow.group}.bytes: they take {least_ns / 1e9:.3g} s or more at "
            f"{units.format_rate(rate_bps)}; allowed is what can end within the duration of "
            f"{units.format_time(experiment.duration_ns)}"
        )


def senders_of(
    source: str | list[str],
    dst: str,
    graph: Graph,
    where: str,
    *,
    most: int | None = None,
    busy: Collection[str] = (),
) -> list[str]:
    """The hosts that `source` names, or `most` hosts of the class that it names, but `busy` ones.

    Raises ConfigError: they are not there, or too few; its text begins with `where`.
    """
    if isinstance(source, list):
        _require_some(source, where)
        names = source
        for name in names:
            _require_host(graph, name, f"{where}.from")
    elif match := _CLASS.fullmatch(source):
        distance = distances(dst, graph.adj.__getitem__)
        classes: dict[int, list[str]] = {}
        for name, data in graph.nodes(data=True):
            if data["kind"] == "host" and name != dst and "of" not in data:
                classes.setdefault(distance[name], []).append(name)
        names = classes.get(int(match[1]), [])
        if not names:
            there = ", ".join(f"{hops}-hop ({len(classes[hops])})" for hops in sorted(classes))
            raise ConfigError(
                f"{where}.from: no host is {match[1]} hops from {dst}; there are {there}"
            )
        names = [name for name in names if name not in busy]
        if not names:
            raise ConfigError(
                f"{where}.from: every {source} host sends to {dst} already; use per_host for "
                "several flows of one host"
            )
    else:
        names = [source]
        _require_host(graph, source, f"{where}.from")
    if dst in names:
        raise ConfigError(f"{where}.from: {dst} cannot send to itself")
    if most is not None:
        if most > len(names):
            raise ConfigError(
                f"{where}.hosts: {most} senders asked for; {source} has {len(names)}"
                + (f", besides those that send to {dst} already" if busy else "")
            )
        names = names[:most]
    return list(names)


def _require_some(names: str | list[str], where: str) -> None:
    if not names:
        raise ConfigError(f"{where}.from: an empty list; allowed is one host or more")


def _require_host(graph: Graph, name: str, where: str) -> None:
    if name not in graph or graph.nodes[name]["kind"] != "host":
        hosts = [node for node, data in graph.nodes(data=True) if data["kind"] == "host"]
        raise ConfigError(
            f"{where}: no host or class {name!r}; allowed are a class as '2-hop' or hosts: "
            f"{some_of(hosts)}{did_you_mean(name, hosts)}"
        )


def subflow_ways(graph: Graph, table: routes.Routes, flows: Sequence[Flow]) -> Ways:
    """The paths of subflows from further interfaces, each with that of its acknowledgements.

    Raises ConfigError: switches choose by ports, which nobody knows beforehand.
    """
    pairs = {
        (name, flow.dst)
        for flow in flows
        if flow.transport.mptcp is not None and flow.transport.mptcp.over == "interfaces"
        for name in graph
        if graph.nodes[name].get("of") == flow.src
    }
    try:
        return [there_and_back(graph, table, *pair) for pair in sorted(pairs)]
    except routes.RouteError as error:
        raise ConfigError(
            f"routing: subflows over interfaces: {error}; allowed is routing.kind: shortest"
        ) from None


def hashed_paths(graph: Graph, table: routes.Routes, flows: Sequence[Flow]) -> list[list[str]]:
    """Every path that a subflow's ports may give it where switches choose by them, and those back.

    The sender's kernel draws these ports, so nobody knows beforehand which it will be.
    """
    several = [flow for flow in flows if table.choices and flow.transport.mptcp is not None]
    ends = dict.fromkeys(pair for f in several for pair in ((f.src, f.dst), (f.dst, f.src)))
    return [way for src, dst in [*ends][::-1] for way in every_way(graph, table, src, dst)]


ReceiverKind = tuple[str, Literal["iperf", "tcp", "mptcp"]]
"""What the connections of one listening socket share: congestion control, and the program."""

_ECN_KINDS: tuple[Ecn, ...] = (False, True, "accurate")
"""From the least to the most: an end with more also takes connections with less."""
_OF_A_SENDER = (
    *("min_rto_ns", "sack", "ecn", "initial_window", "tail_loss_probe", "rack", "pacing_ratio"),
    *("small_queue_bytes", "send_buffer", "mptcp"),
)
"""What the senders of one host share."""


def all_transports(experiment: Experiment) -> list[Transport]:
    """TCP's settings of the experiment, followed by those of every group of flows."""
    groups = range(len(experiment.flows))
    return [experiment.transport, *(experiment.group_transport(index) for index in groups)]


def receiver_kind(transport: Transport) -> ReceiverKind:
    """The kind of receiver that a flow needs; each kind at a host has its own listening socket.

    A DCTCP sender needs a receiver that echoes every mark as DCTCP does (RFC 8257, section 3.2).
    Any other sender needs a receiver that does not.
    """
    if transport.mptcp is not None:
        return transport.congestion_control, "mptcp"
    return transport.congestion_control, "tcp" if transport.tcprand is not None else "iperf"


def host_transports(
    base: Transport, flows: Iterable[Flow], machine: Callable[[str], str] = str
) -> Mapping[str, Transport]:
    """The settings of each host that takes part in a flow; other hosts have `base`.

    `machine` gives an interface's host.

    Selective acknowledgements, ECN, the minimum RTO, the initial window, fq and what is set by
    sysctl belong to a host and not to a socket. A receiver offers what any of its senders uses,
    because a connection has what both ends have. Delayed acknowledgements and the receive buffer
    belong to the receiver.

    Raises ConfigError: two groups of one host ask for different settings of it.
    """
    senders: dict[str, Transport] = {}
    receivers: dict[str, list[Transport]] = {}
    for flow in flows:
        receivers.setdefault(machine(flow.dst), []).append(flow.transport)
        other = senders.setdefault(machine(flow.src), flow.transport)
        for name in _OF_A_SENDER:
            if getattr(other, name) != getattr(flow.transport, name):
                raise ConfigError(f"flows: {_disagree(flow.src, name)}")
        if (other.pacing == "fq") != (flow.transport.pacing == "fq"):
            raise ConfigError(f"flows: {_disagree(flow.src, 'pacing: fq')}")
    common = {
        "congestion_control": base.congestion_control,
        "delayed_acks": base.delayed_acks,
        "receive_buffer": base.receive_buffer,
    }
    hosts = {host: settings.model_copy(update=common) for host, settings in senders.items()}
    for host, received in receivers.items():
        offered = {
            "sack": any(settings.sack for settings in received),
            "ecn": max((settings.ecn for settings in received), key=_ECN_KINDS.index),
        }
        mine = senders.get(host)
        if mine is not None and any(getattr(mine, name) != offered[name] for name in offered):
            raise ConfigError(f"flows: {_disagree(host, 'sack and ecn')}, sent and received")
        windows = {str(settings.receive_buffer) for settings in received}
        if len(windows) > 1:
            raise ConfigError(f"flows: {_disagree(host, 'receive_buffer')}, received")
        delayed = {settings.delayed_acks for settings in received}
        if len(delayed) > 1:
            raise ConfigError(f"flows: {_disagree(host, 'delayed_acks')}, received")
        hosts[host] = (mine or base).model_copy(
            update={
                **common,
                **offered,
                "delayed_acks": delayed.pop(),
                "receive_buffer": received[0].receive_buffer,
            }
        )
    return hosts


def negotiated_ecn(first: Ecn, second: Ecn) -> Ecn:
    """The ECN of a connection between two hosts: the lesser of what they have."""
    return min(first, second, key=_ECN_KINDS.index)


def _disagree(host: str, setting: str) -> str:
    name = setting.removesuffix("_ns").removesuffix("_bytes")
    return f"groups that differ in {name} have flows of {host}; it is one setting of the host"
