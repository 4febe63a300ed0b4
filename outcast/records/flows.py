"""Flows, the programs that sent some of them, and the queues that they crossed, as records."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from outcast import handed_in
from outcast.errors import how_ended
from outcast.experiment.queues.base import Drops
from outcast.experiment.rate import Framing

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
    """What the configuration calls its group, or its program; null without a name."""
    protocol: Literal["tcp", "udp"] = "tcp"
    of_program: bool = False
    """Whether a program sent it, so that only the captures show it."""
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
    """A host that a program talks to, and the paths between the two hosts."""

    host: str
    ip: str
    hops: int
    """Links on a shortest path."""
    path: list[str]
    """Nodes from the program's host."""
    return_path: list[str]


class ExecutionRecord(handed_in.Record):
    """One execution of a program."""

    number: int
    t_start_ns: int
    """Epoch time just before it was started."""
    t_end_ns: int
    """Epoch time at which it had ended."""
    status: int
    """Its exit status; negative for the signal that ended it, or by which the run ended a client
    that was late."""
    ended_by: Literal["itself", "run", "limit"]
    """`run`: a server at the end of the run, or a client that took too long; `limit`: its own limit
    of time."""
    output_bytes: int
    """Written to standard output and standard error."""
    kept_bytes: int
    """How many of these are in the run directory."""
    fault: str | None = None
    """Where it crashed, in the kernel's words."""

    @property
    def crash(self) -> str | None:
        """How a signal that was not ours ended it, in one line; None if none did."""
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
    """Where a server listens, if `ready` names it."""
    repeat: int
    """Requested executions."""
    start_ns: int = 0
    """When a client was to begin, after the traffic's start, as drawn from the seed."""
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
    """By how much that delay varies, up and down; null where it was not recorded."""
    drops: Drops = "at_limit"
    """Which packets it drops: arrivals that find it full, other arrivals too, or also packets that
    it had queued."""
    frame_bytes: int = 1514
    """The largest frame of its link, without the checksum."""
    overhead_bytes: int = 0
    """What takes time on the link with every frame besides its bytes."""
    least_bytes: int = 0
    """The least that a frame takes, overhead included."""

    @property
    def framing(self) -> Framing:
        """How many bytes' time a frame takes on the link."""
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
    """A router, which lowers the TTL."""


class TrafficRecord(handed_in.Record):
    """When flows ran, on the captures' clock."""

    t_start_ns: int
    """Epoch time of the planned start of flows with start 0."""
    t_end_ns: int
    """Epoch time at which the last flow had ended."""
    duration_ns: int
    """The experiment's duration."""

    @property
    def guest_ns(self) -> int:
        """Their planned start by the guest's clock: nanoseconds since its boot."""
        return self.t_start_ns - GUEST_START_NS
