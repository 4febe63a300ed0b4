"""Probes: small packets between two hosts, whose answers tell the latency during the traffic."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from outcast.experiment.links import MOST_MTU_BYTES
from outcast.experiment.parts import Dscp, Duration, OwnFamily, Part, SizeBytes, Start, TimeNs
from outcast.experiment.workloads import DATAGRAM_HEADERS_BYTES

LEAST_EVERY_NS = 10_000
MOST_PROBES = 1000


class Probe(Part):
    """A series of small packets, each of which is answered; the first has a random phase."""

    source: str = Field(alias="from", description="the host that asks")
    to: str = Field(description="the host that answers")
    every_ns: TimeNs = Field(
        default=10_000_000, ge=LEAST_EVERY_NS, description="time from one packet to the next"
    )
    kind: Literal["icmp", "udp"] = Field(
        default="icmp",
        description="icmp: echo requests, which the kernel answers, as ping(8); udp: datagrams "
        "from and to a program of ours",
    )
    size_bytes: SizeBytes = Field(
        default=56,
        ge=4,
        le=MOST_MTU_BYTES - DATAGRAM_HEADERS_BYTES,
        description="payload bytes of a packet, as of ping -s; headers of IPv4 and of ICMP or UDP "
        "add 28, and those of IPv6 48",
    )
    addressing: OwnFamily = None
    dscp: Dscp = Field(
        default=0, description="code point of its packets and of their answers, as `ef` or 46"
    )
    start_ns: Start = 0
    duration_ns: Duration = None
