"""What summary.json says of ports: losses, queues, and whether captures and counters agree.

outcast/quantities.py defines the numbers that are shown.
"""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from outcast import handed_in
from outcast.records.counters import Cause


class Measured(handed_in.Record):
    """A record with further numbers: the quantities that have a `measure`."""

    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True)
    __pydantic_extra__: dict[str, int | float | None] = Field(init=False)


class SpreadSummary(handed_in.Record):
    mean: float
    p50: float
    p90: float
    p99: float
    max: float


class PortDrops(handed_in.Record):
    """The losses of one input port of the bottleneck."""

    packets: int
    dropped: int
    longest_chain: int
    chains: dict[str, int]
    """Chains of consecutive drops, by length."""
    blackouts: int
    hops: list[int]
    """Hop counts of the flows that enter by this port."""


class PortLosses(handed_in.Record):
    """The losses of the packets that a port sends: at its queue, on its link, or at the far end."""

    node: str
    neighbour: str
    packets: int
    lost: dict[Cause, int]
    elsewhere: int
    """Packets that no captured queue dropped. `drops` lacks them."""


class LossSummary(handed_in.Record):
    """Packets lost in the whole network, of data and acknowledgements, by the kernel's counters."""

    total: int
    bottleneck: int
    """Lost at the measured queues, or in front of them by a synthetic blackout."""
    elsewhere: int
    causes: dict[Cause, int]
    ports: dict[str, PortLosses]
    """By the sending port, also of hosts; every port that sent or lost a packet."""


class CapacitySummary(handed_in.Record):
    """The queue length at which arrivals began to be dropped, estimated from the captures."""

    unit: Literal["bytes", "packets"]
    at_least: int
    below: int | None
    confidence: float
    """1 if the bounds explain every packet queued or dropped, 0.5 if they explain none."""
    configured: int | None
    """The configured limit in this unit, if it has one."""
    agrees: bool | None
    """Whether the configured limit is within the bounds, or less than a packet beyond them; null if
    none is configured, or no level explains the drops."""


class CountedOfClass(handed_in.Record):
    """Packets of a class of service in the whole run, by the captures or by the kernel's qdisc."""

    sent: int
    dropped: int


class ServiceClassSummary(handed_in.Record):
    """One class of service of a port, in the interval unless a key says otherwise."""

    dscp: list[int] | None
    """Its code points; null for all others."""
    packets: int
    dropped: int
    rate_bps: float
    queueing_ms: SpreadSummary | None
    captured: CountedOfClass
    counted: CountedOfClass | None


class QueueSummary(Measured):
    """One bottleneck's queue over the interval; its estimated capacity is of the whole captures."""

    counted: Literal["all", "forwarded"] = "all"
    """Which packets the length counts; `forwarded` for a queue that also drops packets after
    queueing them, so that it held more."""
    length_bytes: SpreadSummary | None
    sojourn_ms: SpreadSummary | None
    switch_latency_us: float
    """Usual sojourn time in µs of a packet that finds the queue empty; 0 if none does, or an event
    changed the link's delay."""
    capacity: CapacitySummary | None
    utilisation: float | None
    """Rate of the frames that left, divided by the link's rate, in the main interval; known to
    about one frame, so that it can be that much above 1."""
    marks: int | None
    classes: dict[str, ServiceClassSummary] | None = None
    """Classes of service by name; null where the queue has none."""


class PhaseSummary(handed_in.Record):
    """How long after the last departure packets came in, during blackouts and before them.

    Each list has ten shares, one for each tenth of a packet time.
    """

    packet_time_us: float
    blackouts: int
    during_lost: list[float]
    during_others: list[float]
    before_lost: list[float]
    before_others: list[float]


class NoiseInput(handed_in.Record):
    """How full frames of one input came in while the output was busy."""

    arrivals: int
    kept: float | None


class NoiseSummary(handed_in.Record):
    """How regular an output and its inputs were. A packet time is that of a full frame."""

    back_to_back: int
    """Gaps before full frames that had waited. The next fields describe these gaps; `nominal` is
    the packet time by the link's rate, null where the rate changed or is unknown."""
    packet_time_us: float | None
    of_nominal: float | None
    mean_of_nominal: float | None = None
    gap_spread: float | None
    """From the 5th to the 95th percentile of these gaps, over their median."""
    inputs: dict[str, NoiseInput]


class TcpSummary(handed_in.Record):
    """The behaviour of TCP for the flows of one hop count, seen from the bottleneck."""

    retransmissions: int
    spurious: int
    timeouts: int
    halted_s: float
    """Time waiting for these timeouts, summed over the flows, within the interval."""


class CaptureSummary(handed_in.Record):
    """Whether the captures and the counters agree; joined captures have no counters."""

    tcpdump_kernel_drops: int | None
    inferred_drops: int
    qdisc_drops: int | None
    blackout_drops: int = 0
    """Drops that the switch of a synthetic blackout counted."""
    link_down_drops: int = 0
    unmatched: int
    """Packets that left and that no capture saw come in."""
    in_flight: int
    """Packets whose fate was undecided at the end of the capture."""
    trusted: bool
    """Captures and counters agree. It says no more than that."""
    reasons: list[str]
