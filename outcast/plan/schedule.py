"""Every generated flow before the run: a pure function of the workloads, the hosts and the seed."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from controllers import routes
from controllers.graph import Graph
from controllers.hashing import TCP, UDP, FiveTuple
from outcast.errors import ConfigError, did_you_mean
from outcast.experiment import (
    Background,
    ConstantRate,
    Experiment,
    Incast,
    Link,
    Poisson,
    Shuffle,
    Workload,
)
from outcast.experiment.parts import Family
from outcast.plan import addresses
from outcast.plan.flows import senders_of
from outcast.plan.links import Direction
from outcast.plan.topology import Way, Ways, receiver, there_and_back

TCP_PORT = 5002
"""Where receivers of generated TCP flows listen."""
UDP_PORT = 5003
FIRST_SOURCE_PORT = 40001
"""The first source port of a host's generated flows; its other flows use lower ones
(outcast/plan/flows.py)."""
LEAST_GAP_NS = 1000
"""The smallest gap between datagrams. Gaps are whole nanoseconds, so a rate is off by at most a
thousandth."""
MOST_FLOWS = 200_000
"""With more, planning and recording would take longer than the run."""


@dataclass(frozen=True, slots=True)
class Generated:
    """One generated flow: a TCP transfer, a block of a round, or a stream of datagrams.

    Attributes:
        sport: source port. The blocks of one sender share it, because they share a connection.
        size_bytes: payload that must arrive; None for a stream.
        start_ns: time from the traffic's start; None where it starts when its turn comes.
        round: the number of an incast's round, from 0; None for other kinds.
        end_ns, gap_ns, datagram_bytes: a stream's end, the time between its datagrams, and the
            payload of each.
    """

    flow: int
    workload: int
    kind: str
    src: str
    dst: str
    sport: int
    size_bytes: int | None
    start_ns: int | None
    round: int | None = None
    end_ns: int | None = None
    gap_ns: int | None = None
    datagram_bytes: int | None = None
    family: Family = "ipv4"

    @property
    def datagrams(self) -> int | None:
        """How many datagrams a stream is planned to send; None for a transfer."""
        if self.start_ns is None or self.end_ns is None or self.gap_ns is None:
            return None
        return max(0, -(-(self.end_ns - self.start_ns) // self.gap_ns))


class _Hosts:
    """The part of the network that a schedule depends on.

    Attributes:
        names: all hosts, in the topology's order.
    """

    def __init__(self, graph: Graph, links: Mapping[Direction, Link]) -> None:
        self.graph, self._links = graph, links
        nodes = graph.nodes(data=True)
        self.names = [n for n, data in nodes if data["kind"] == "host" and "of" not in data]

    def sends_bps(self, host: str) -> int:
        """The rate of a host's link away from it."""
        return self._links[host, next(self.graph.neighbors(host))].rate_bps

    def receives_bps(self, host: str) -> int:
        """The rate of a host's link towards it."""
        return self._links[next(self.graph.neighbors(host)), host].rate_bps


def generated_packet(graph: Graph, flow: Generated) -> FiveTuple:
    """The addresses and ports in the headers of a generated flow's data packets."""
    udp = flow.datagram_bytes is not None
    return FiveTuple(
        addresses.address_of(graph, flow.src, flow.family),
        flow.sport,
        addresses.address_of(graph, flow.dst, flow.family),
        UDP_PORT if udp else TCP_PORT,
        UDP if udp else TCP,
    )


def generated_ways(graph: Graph, table: routes.Routes, generated: Sequence[Generated]) -> Ways:
    """The different paths of generated flows, each with the path of its acknowledgements."""
    ways: dict[tuple[str, ...], Way] = {}
    seen: set[object] = set()
    for flow in sorted(generated, key=lambda flow: (flow.src, flow.dst)):
        packet = generated_packet(graph, flow)
        key = packet if table.choices else (flow.src, flow.dst)
        if key not in seen:
            seen.add(key)
            there, back = there_and_back(graph, table, flow.src, flow.dst, packet)
            ways[(*there, *back)] = (there, back)
    return list(ways.values())


def make_schedule(
    experiment: Experiment, graph: Graph, links: Mapping[Direction, Link]
) -> tuple[Generated, ...]:
    """All generated flows of an experiment, each workload's in the order of their start.

    Raises ConfigError: a host does not exist, or there would be too many flows.
    """
    hosts = _Hosts(graph, links)
    flows: list[Generated] = []
    next_port: dict[str, int] = defaultdict(lambda: FIRST_SOURCE_PORT)
    for index, workload in enumerate(experiment.workloads):
        ports: dict[tuple[str, str], int] = {}
        for flow in _of_workload(experiment, index, workload, hosts):
            sport = ports.get((flow.src, flow.dst)) if flow.round else None
            if sport is None:
                sport = ports[flow.src, flow.dst] = next_port[flow.src]
                next_port[flow.src] += 1
            if sport > 65535 or len(flows) >= MOST_FLOWS:
                raise _too_many(index)
            family = experiment.family_of(workload)
            flows.append(replace(flow, flow=len(flows), sport=sport, family=family))
    return tuple(flows)


def _too_many(index: int) -> ConfigError:
    return ConfigError(
        f"workloads.{index}: more than {MOST_FLOWS} flows, or {65536 - FIRST_SOURCE_PORT} of one "
        "host; allowed are less load, larger sizes or a shorter duration"
    )


def _of_workload(
    experiment: Experiment, index: int, workload: Workload, hosts: _Hosts
) -> Iterator[Generated]:
    draw = random.Random(f"{experiment.seed} workload {index}")
    where = f"workloads.{index}"
    to = getattr(workload, "to", None)
    if to is not None:
        _require_host(hosts, to, f"{where}.to")
    match workload:
        case Background():
            yield from _background(experiment, index, workload, hosts)
        case Poisson():
            yield from _poisson(experiment, index, workload, hosts, draw)
        case Shuffle():
            yield from _shuffle(index, workload, hosts, draw)
        case Incast():
            yield from _incast(index, workload, hosts)
        case ConstantRate():
            yield from _constant_rate(experiment, index, workload, hosts, draw)


def _end_ns(experiment: Experiment, workload: Background | Poisson | ConstantRate) -> int:
    if workload.duration_ns is None:
        return experiment.duration_ns
    return workload.start_ns + workload.duration_ns


def _transfer(index: int, kind: str, src: str, dst: str, size: int, start: int | None) -> Generated:
    return Generated(0, index, kind, src, dst, 0, size, start)


def _background(
    experiment: Experiment, index: int, workload: Background, hosts: _Hosts
) -> Iterator[Generated]:
    """Each host sends on its own to any other, with a mean gap of F/B (section 3.2.5)."""
    sizes = workload.distribution()
    end_ns = _end_ns(experiment, workload)
    flows = []
    for src in hosts.names:
        draw = random.Random(f"{experiment.seed} workload {index} {src}")
        others = [name for name in hosts.names if name != src]
        mean_gap_ns = sizes.mean_bytes() * 8e9 / (workload.load * hosts.sends_bps(src))
        for at_ns in _arrivals(draw, mean_gap_ns, workload.start_ns, end_ns):
            dst = draw.choice(others)
            flows.append(_transfer(index, "background", src, dst, sizes.sample(draw), at_ns))
            if len(flows) > MOST_FLOWS:
                raise _too_many(index)
    yield from sorted(flows, key=lambda flow: flow.start_ns or 0)


def _poisson(
    experiment: Experiment, index: int, workload: Poisson, hosts: _Hosts, draw: random.Random
) -> Iterator[Generated]:
    sizes = workload.distribution()
    receivers = list(hosts.names) if workload.to is None else [workload.to]
    sources = _sources(workload, hosts, f"workloads.{index}")
    if len({*sources, *receivers}) < 2:
        raise ConfigError(f"workloads.{index}.from: {sources[0]} cannot send to itself")
    offered_bps = workload.load * sum(hosts.receives_bps(name) for name in receivers)
    mean_gap_ns = sizes.mean_bytes() * 8e9 / offered_bps
    for at_ns in _arrivals(draw, mean_gap_ns, workload.start_ns, _end_ns(experiment, workload)):
        dst = draw.choice(receivers)
        src = draw.choice([name for name in sources if name != dst] or sources)
        while src == dst:  # the only source was drawn as its own receiver
            dst = draw.choice(receivers)
        yield _transfer(index, "poisson", src, dst, sizes.sample(draw), at_ns)


def _sources(workload: Poisson, hosts: _Hosts, where: str) -> Sequence[str]:
    if workload.source is None:
        return hosts.names
    named = [workload.source] if isinstance(workload.source, str) else workload.source
    if workload.to is None and named and set(named) <= set(hosts.names):
        return named  # here the topology's receiver may send too
    dst = workload.to or receiver(hosts.graph, f"{where}.to")
    return senders_of(workload.source, dst, hosts.graph, where)


def _arrivals(draw: random.Random, mean_gap_ns: float, start: int, end: int) -> Iterator[int]:
    """The times of a Poisson process."""
    at_ns = start + draw.expovariate(1 / mean_gap_ns)
    while at_ns < end:
        yield int(at_ns)
        at_ns += draw.expovariate(1 / mean_gap_ns)


def _shuffle(
    index: int, workload: Shuffle, hosts: _Hosts, draw: random.Random
) -> Iterator[Generated]:
    names = _first(hosts.names, workload.hosts, f"workloads.{index}.hosts")
    for src in names:
        others = [name for name in names if name != src]
        draw.shuffle(others)
        for place, dst in enumerate(others):
            start_ns = workload.start_ns if place < workload.concurrent else None
            yield _transfer(index, "shuffle", src, dst, workload.size_bytes, start_ns)


def _incast(index: int, workload: Incast, hosts: _Hosts) -> Iterator[Generated]:
    dst = workload.to or receiver(hosts.graph, f"workloads.{index}.to")
    others = [name for name in hosts.names if name != dst]
    for number in range(workload.rounds):
        for src in _first(others, workload.senders, f"workloads.{index}.senders"):
            start_ns = workload.start_ns if number == 0 else None
            block = _transfer(index, "incast", src, dst, workload.block_bytes, start_ns)
            yield replace(block, round=number)


def _constant_rate(
    experiment: Experiment, index: int, workload: ConstantRate, hosts: _Hosts, draw: random.Random
) -> Iterator[Generated]:
    dst = workload.to or receiver(hosts.graph, f"workloads.{index}.to")
    gap_ns = workload.datagram_bytes * 8 * 10**9 // workload.rate_bps
    if gap_ns < LEAST_GAP_NS:
        raise ConfigError(
            f"workloads.{index}.rate: more than a datagram of {workload.datagram_bytes} B per "
            "microsecond; allowed is a lower rate, or a larger datagram"
        )
    for src in senders_of(workload.source, dst, hosts.graph, f"workloads.{index}"):
        yield Generated(
            flow=0,
            workload=index,
            kind="constant_rate",
            src=src,
            dst=dst,
            sport=0,
            size_bytes=None,
            # Without a random offset all senders would meet in the switch at every packet.
            start_ns=workload.start_ns + draw.randrange(gap_ns),
            end_ns=_end_ns(experiment, workload),
            gap_ns=gap_ns,
            datagram_bytes=workload.datagram_bytes,
        )


def _first(names: Sequence[str], count: int | None, where: str) -> Sequence[str]:
    if count is not None and count > len(names):
        raise ConfigError(f"{where}: {count} hosts asked for; there are {len(names)}")
    return names[:count]


def _require_host(hosts: _Hosts, name: str, where: str) -> None:
    if name not in hosts.names:
        some = ", ".join(hosts.names[:6])
        near = did_you_mean(name, hosts.names)
        raise ConfigError(f"{where}: no host {name!r}; allowed are {some}, ...{near}")
