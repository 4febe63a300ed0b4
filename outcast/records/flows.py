"""Records of what was sent: flows, programs and probes, and the queues that they crossed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field

from outcast import handed_in
from outcast.errors import InputError, how_ended
from outcast.experiment.links import Framing
from outcast.experiment.queues.base import Drops

GUEST_START_NS = 1_000_000_000_000_000_000
"""The clock of the virtual engine's guest at its boot: 2001-09-09 01:46:40 UTC."""


class SubflowRecord(handed_in.Record):
    """One more TCP connection of a flow with Multipath TCP, between the same hosts."""

    sport: int
    dport: int
    src_ip: str | None = None
    """Of a further interface of the sender; null for the flow's own."""


class FlowRecord(handed_in.Record):
    """One flow that was started: its sender and receiver, and its ports at the bottleneck."""

    flow: int
    group: int
    src: str
    src_ip: str
    sport: int
    dst: str
    dst_ip: str
    dport: int
    hops: int | None
    """Its class, the number of links on a shortest path; its own path may be longer. Null in joined
    captures, which do not show it."""
    path: list[str]
    """Names of the nodes on its path, the sender first."""
    return_path: list[str] = Field(default_factory=list)
    """The path of its acknowledgements, the receiver first."""
    ingress: str | None
    """The bottleneck's port that the flow enters by."""
    start_ns: int
    """Planned start after the traffic's start."""
    duration_ns: int | None
    size_bytes: int | None
    congestion_control: str | None
    """Null if the flow is not TCP; `unknown` in joined captures."""
    subflows: list[SubflowRecord] = Field(default_factory=list)
    """Further connections of Multipath TCP, besides the flow's own."""
    name: str | None = None
    """The configuration's name of its group or program; null without a name."""
    protocol: Literal["tcp", "udp"] = "tcp"
    of_program: bool = False
    """Whether a program sent it. Then only the captures show it."""
    carries_data: bool = True
    """False for a direction of a program's connection with less than a tenth of the other one's
    payload, as acknowledgements and requests."""

    @property
    def connections(self) -> list[tuple[str, int, str, int]]:
        """Addresses and ports of each of its connections, its own first."""
        own = [(self.src_ip, self.sport, self.dst_ip, self.dport)]
        return own + [
            (sub.src_ip or self.src_ip, sub.sport, self.dst_ip, sub.dport) for sub in self.subflows
        ]


class PeerRecord(handed_in.Record):
    host: str
    ip: str
    hops: int
    """Links on a shortest path."""
    path: list[str]
    """Nodes from the program's host."""
    return_path: list[str]


class ExecutionRecord(handed_in.Record):
    number: int
    t_start_ns: int
    """Epoch time just before its start."""
    t_end_ns: int
    """Epoch time just after its end."""
    status: int
    """Its exit status; the negative number of a signal that ended it."""
    ended_by: Literal["itself", "run", "limit"]
    """`run`: a server at the end of the run, or a client that took too long; `limit`: its own limit
    of time."""
    output_bytes: int
    """What it wrote to standard output and standard error."""
    kept_bytes: int
    """How much of that is in the run directory."""
    fault: str | None = None
    """Where it crashed, in the kernel's words."""

    @property
    def crash(self) -> str | None:
        """How a signal ended it that the run had not sent; None if none did."""
        if self.status >= 0 or self.ended_by != "itself":
            return None
        return how_ended(self.status).strip() + (f": {self.fault}" if self.fault else "")


class ControlRecord(handed_in.Record):
    """A program's TCP socket that had another congestion control than its host's."""

    host: str
    port: int
    peer_port: int
    congestion_control: str


class ProgramRecord(handed_in.Record):
    """One program of the configuration, and every execution of it."""

    name: str
    host: str
    ip: str
    command: list[str]
    server: bool
    port: int | None
    """The port of a server, if `ready` names it."""
    repeat: int
    """Requested executions."""
    start_ns: int = 0
    """Planned start of a client after the traffic's start, as drawn from the seed."""
    peers: list[PeerRecord]
    executions: list[ExecutionRecord]

    @property
    def failures(self) -> int:
        """Executions that ended by themselves with another status than 0, or took too long."""
        if self.server:
            return 0
        return sum(
            execution.status != 0 or execution.ended_by != "itself" for execution in self.executions
        )


class QueueRecord(handed_in.Record):
    """The bottleneck's queue, read back from the kernel."""

    kind: str
    rate_bps: int | None
    limit_bytes: int | None
    limit_packets: int | None
    delay_ns: int = 0
    """Between a packet's arrival and its queueing."""
    jitter_ns: int | None = None
    """How far that delay varies, up and down; null where it was not recorded."""
    drops: Drops = "at_limit"
    """Which packets it drops: arrivals that find it full, other arrivals too, or also packets that
    it had queued."""
    frame_bytes: int = 1514
    """The largest frame of its link, without the checksum."""
    overhead_bytes: int = 0
    """Preamble, checksum and gap, which take time with every frame; 0 if the link counts none."""
    least_bytes: int = 0
    """The shortest frame's time on the link in bytes, overhead included."""

    @property
    def framing(self) -> Framing:
        """Computes a frame's time on the link, in bytes."""
        return Framing(self.overhead_bytes, self.least_bytes)


class BottleneckRecord(handed_in.Record):
    """One output port whose queue is studied, and the ports that feed it."""

    switch: str | None
    """Null in joined captures, which do not show it."""
    egress: str
    ingress: list[str]
    destinations: list[str]
    """Addresses reached through the egress port."""
    queue: QueueRecord
    routed: bool = False
    """Whether it is a router, which lowers the TTL."""


class TrafficRecord(handed_in.Record):
    """When flows ran, on the captures' clock."""

    t_start_ns: int
    """Epoch time of the planned start of flows with start 0."""
    t_end_ns: int
    """Epoch time of the last flow's end."""
    duration_ns: int
    """The experiment's duration."""

    @property
    def guest_ns(self) -> int:
        """The planned start by the guest's clock: nanoseconds since its boot."""
        return self.t_start_ns - GUEST_START_NS


class ProbeRecord(handed_in.Record):
    """A series of small packets, each of which is answered."""

    probe: int
    kind: Literal["icmp", "udp"]
    src: str
    src_ip: str
    dst: str
    dst_ip: str
    sport: int = Field(description="of ICMP the identifier of its echo requests")
    dport: int = Field(description="0 for ICMP")
    dscp: int = Field(default=0, description="of its packets, and of their answers")
    payload_bytes: int
    start_ns: int = Field(description="when the first packet was due, after the traffic's start")
    every_ns: int
    packets: int = Field(description="how many packets were due")
    base_rtt_ns: int = Field(description="what a packet and its answer take without any queue")


def probe_file(flows: Path, probe: int) -> Path:
    return flows / f"probe.{probe}.out"


def read_times(flows: Path, record: ProbeRecord) -> Iterator[tuple[int, int | None]]:
    """Gives each packet's time of sending and of its answer (None without one), in ns.

    Raises InputError if the file cannot be read, or has another number of packets.
    """
    path = probe_file(flows, record.probe)
    try:
        lines = handed_in.read_text(path).split("ready\n", 1)[-1].splitlines()
        rows = [(int(sent), int(answered)) for _, sent, answered in map(str.split, lines)]
        if len(rows) != record.packets:
            raise ValueError(f"{len(rows)} packets; the manifest has {record.packets}")
    except (FileNotFoundError, ValueError) as error:
        raise InputError(f"{path}: no times of a probe: {error}") from None
    for sent_ns, answered_ns in rows:
        yield sent_ns, answered_ns or None
