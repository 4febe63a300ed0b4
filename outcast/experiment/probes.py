"""Probes: small packets between two hosts, whose answers show the latency during the traffic."""

from __future__ import annotations

from typing import Literal

from outcast.experiment.links import MOST_MTU_BYTES
from outcast.experiment.parts import (
    Dscp,
    Duration,
    OwnFamily,
    Part,
    SizeBytes,
    Start,
    TimeNs,
    described,
)
from outcast.experiment.workloads import DATAGRAM_HEADERS_BYTES

LEAST_EVERY_NS = 10_000
MOST_PROBES = 1000


class Probe(Part):
    """A series of small packets, each of which is answered; the first has a random phase."""

    source: str = described("the host that asks", alias="from")
    to: str = described("the host that answers")
    every_ns: TimeNs = described(
        "time from one packet to the next", default=10_000_000, ge=LEAST_EVERY_NS
    )
    kind: Literal["icmp", "udp"] = described(
        "icmp: echo requests, which the kernel answers, as ping(8); udp: datagrams from and to a "
        "program of ours",
        default="icmp",
    )
    size_bytes: SizeBytes = described(
        "payload bytes of a packet, as of ping -s; headers of IPv4 and of ICMP or UDP add 28, and "
        "those of IPv6 48",
        default=56,
        ge=4,
        le=MOST_MTU_BYTES - DATAGRAM_HEADERS_BYTES,
    )
    addressing: OwnFamily = None
    dscp: Dscp = described(
        "code point of its packets and of their answers, as `ef` or 46", default=0
    )
    start_ns: Start = 0
    duration_ns: Duration = None
