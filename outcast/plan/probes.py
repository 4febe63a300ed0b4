"""The probes of an experiment: between which hosts, with which headers, when."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from controllers import routes
from controllers.graph import Graph
from controllers.hashing import UDP, FiveTuple
from outcast.errors import ConfigError
from outcast.experiment import Experiment, Link
from outcast.experiment.parts import ETHERNET_HEADER_BYTES, Family
from outcast.plan import addresses
from outcast.plan.links import Direction, crossing_ns
from outcast.plan.programs import require_host
from outcast.plan.topology import Ways, there_and_back

ICMP, ICMPV6 = 1, 58
ECHO_PORT = 7
"""The port of UDP's echo service (RFC 862)."""
FIRST_SOURCE_PORT = 10_001
"""The first source port of probes by UDP; other flows use higher ones."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A series of packets from one host to another, each of which is answered.

    Attributes:
        src, dst: host names. Their addresses are `src_ip` and `dst_ip`.
        sport: UDP's source port, or the identifier of ICMP's echo requests.
        dport: UDP's destination port; 0 for ICMP.
        payload_bytes: the bytes behind the header of ICMP or UDP.
        end_ns: no packet is sent from then on.
        dscp: the code point of its packets, and of their answers.
    """

    probe: int
    kind: Literal["icmp", "udp"]
    src: str
    src_ip: str
    dst: str
    dst_ip: str
    sport: int
    dport: int
    payload_bytes: int
    start_ns: int
    end_ns: int
    every_ns: int
    dscp: int = 0

    @property
    def packets(self) -> int:
        """How many packets it sends."""
        return max(0, -(-(self.end_ns - self.start_ns) // self.every_ns))

    @property
    def packet_bytes(self) -> int:
        """The size of its IP packets."""
        family: Family = "ipv6" if self.is_ipv6 else "ipv4"
        return self.payload_bytes + addresses.datagram_headers_bytes(family)

    @property
    def is_ipv6(self) -> bool:
        """Whether its packets are of IPv6."""
        return ":" in self.src_ip

    @property
    def headers(self) -> FiveTuple:
        """The addresses and ports by which switches see it; ICMP has no ports."""
        if self.kind == "udp":
            return FiveTuple(self.src_ip, self.sport, self.dst_ip, self.dport, UDP)
        return FiveTuple(self.src_ip, 0, self.dst_ip, 0, ICMPV6 if self.is_ipv6 else ICMP)


def resolve_probes(experiment: Experiment, graph: Graph, table: routes.Routes) -> tuple[Probe, ...]:
    """Every probe, in the order of the configuration.

    Raises ConfigError: a probe does not fit the topology, or switches choose its path by ports.
    """
    hosts = dict.fromkeys(name for name, data in graph.nodes(data=True) if "ip" in data)
    probes = []
    for number, wanted in enumerate(experiment.probes):
        where = f"probes.{number}"
        require_host(hosts, wanted.source, f"{where}.from")
        require_host(hosts, wanted.to, f"{where}.to")
        if wanted.source == wanted.to:
            raise ConfigError(f"{where}.to: {wanted.to} cannot probe itself; allowed is another")
        if wanted.kind == "icmp" and table.choices:
            raise ConfigError(
                f"{where}.kind: {experiment.routing.kind} routing chooses paths by ports, which "
                "icmp has not; allowed is kind: udp"
            )
        # At one phase with the traffic, all packets of a probe could meet the same queue.
        draw = random.Random(f"{experiment.seed} probe {number}")
        family = experiment.family_of(wanted)
        lasts_ns = wanted.duration_ns or experiment.duration_ns - wanted.start_ns
        is_udp = wanted.kind == "udp"
        probes.append(
            Probe(
                probe=number,
                kind=wanted.kind,
                src=wanted.source,
                src_ip=addresses.address_of(graph, wanted.source, family),
                dst=wanted.to,
                dst_ip=addresses.address_of(graph, wanted.to, family),
                sport=(FIRST_SOURCE_PORT if is_udp else 1) + number,
                dport=ECHO_PORT if is_udp else 0,
                payload_bytes=wanted.size_bytes,
                start_ns=wanted.start_ns + draw.randrange(min(wanted.every_ns, lasts_ns)),
                end_ns=wanted.start_ns + lasts_ns,
                every_ns=wanted.every_ns,
                dscp=wanted.dscp,
            )
        )
    return tuple(probes)


def probe_ways(graph: Graph, table: routes.Routes, probes: Sequence[Probe]) -> Ways:
    """The path of each probe, with that of its answers; then the same from the other end."""
    ways = []
    for probe in probes:
        way = there_and_back(graph, table, probe.src, probe.dst, probe.headers)
        ways += [way, way[::-1]]
    return ways


def base_rtt_ns(
    links: Mapping[Direction, Link], probe: Probe, path: Sequence[str], back: Sequence[str]
) -> int:
    """What a packet of a probe and its answer take without any queue; see `links.base_rtt_ns`."""
    frame_bytes = ETHERNET_HEADER_BYTES + probe.packet_bytes
    crossed = [links[hop] for way in (path, back) for hop in pairwise(way)]
    return sum(crossing_ns(link, frame_bytes) for link in crossed)


def packets(probes: Sequence[Probe], ways: Ways) -> Iterator[tuple[str, Sequence[str], int]]:
    """Where an error points, a path, and the size of what crosses it, for each probe."""
    for probe, (there, back) in zip(probes, ways[::2], strict=True):
        for path in (there, back):
            yield f"probes.{probe.probe}", path, probe.packet_bytes
