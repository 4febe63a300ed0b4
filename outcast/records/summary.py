"""summary.json, the main numbers of a run, as a typed model.

outcast/quantities.py defines the numbers that are shown, and docs/analysis.md explains the others.
Keys by number count from 0; ports and programs are keys by their name. A part is null or empty
where the run has nothing of its kind, or where captures alone cannot show it.
"""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field

from outcast import handed_in
from outcast.experiment import GroupKind
from outcast.experiment.engine import EngineName
from outcast.records.port_summaries import (
    CaptureSummary,
    LossSummary,
    Measured,
    NoiseSummary,
    PhaseSummary,
    PortDrops,
    QueueSummary,
    SpreadSummary,
    TcpSummary,
)

Share = Annotated[float, "share"]
"""A value from 0 to 1. Intervals of its average over a sweep's runs do not go beyond."""
SHORT_BYTES = 100_000
LONG_BYTES = 10_000_000
"""Flows below SHORT_BYTES are short, flows above LONG_BYTES long (the TCPRand paper, figure 11)."""


class ClassSummary(Measured):
    """The flows of one hop count.

    `timeouts` and `retransmits` are the kernel's own counts. Over the whole duration they are those
    of the sending hosts (`TcpExtTCPTimeouts`, `TcpRetransSegs`), and null if one also sends flows
    of another class or group. Over a part they are those of sockets, from the samples nearest to
    its ends, and null without samples. They are null in the windows.

    `halted_s` is the time waiting for timeouts, summed over the flows. `srtt_ms` and `cwnd` (in
    segments) are from samples of active flows' sockets.
    """

    flows: int
    mean_goodput_bps: float
    min_goodput_bps: float
    timeouts: int | None
    retransmits: int | None
    halted_s: float | None = None
    active_s: float | None = None
    """The flows' active time in the interval, summed over the flows."""
    rtt_ms: SpreadSummary | None = None
    """Round trips from the input port to the receiver and back; needs `capture: {ports: all}`."""
    rtt_untimed: float | None = None
    """Share of the flows' time without a timed segment under way."""
    srtt_ms: SpreadSummary | None = None
    cwnd: SpreadSummary | None = None


class TimesSummary(handed_in.Record):
    """Flow completion times: from the planned start to the last byte."""

    flows: int
    finished: int
    mean_ms: float | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    max_ms: float | None


class GroupSummary(ClassSummary):
    """The flows of one group; `UDP` stands for flows without a congestion control.

    In windows, all that needs the packets is null or empty.
    """

    congestion_controls: list[str]
    packets: int | None = None
    dropped: int | None = None
    queueing_ms: SpreadSummary | None = None
    retransmissions_seen: int | None = None
    timeouts_seen: int | None = None
    chains: dict[str, int] = Field(default_factory=dict)
    times: TimesSummary | None = None
    """Completion times of its flows with a size, from the planned start to the last new byte at the
    bottleneck; of programs' flows, from their first packet there to the last."""


class CompareSummary(handed_in.Record):
    """Two groups' mean goodput, compared."""

    by: GroupKind
    groups: tuple[str, str]
    mean_goodput_bps: tuple[float | None, float | None]
    ratio: float | None


Groups = dict[str, dict[str, GroupSummary]]
"""The groups of every kind of grouping, by its name and then by their labels."""


class Window(handed_in.Record):
    """Goodput over one interval of the run."""

    start_s: float
    end_s: float
    jain_index: Share | None
    total_goodput_bps: float
    classes: dict[str, ClassSummary]
    outcast_ratio: float | None
    """Null if there is only one class, or if the class with the fewest hops got nothing."""
    groups: Groups = Field(default_factory=dict)
    compare: CompareSummary | None = None

    def grouped(self, kind: str) -> dict[str, GroupSummary]:
        """The groups of one kind; none without flows."""
        return self.groups.get(kind, {})


class StreamSummary(handed_in.Record):
    """The streams of datagrams of one workload together.

    Rates are sums, of payload, each over the time in which its stream was to send. Delays are null
    if no capture saw the streams.
    """

    sent_bps: float
    received_bps: float
    min_received_bps: float
    jain_index: Share | None
    """Jain's index over the streams' received rates."""
    loss_share: Share | None
    """Datagrams lost, of those sent; null if links deliver packets twice, too."""
    delay_ms: SpreadSummary | None
    jitter_ms: float | None


class CompletionSummary(handed_in.Record):
    """The generated flows of one workload."""

    kind: str
    flows: int
    unfinished: int
    """TCP flows that had not ended at the end of the experiment."""
    not_started: int
    failed: int
    goodput_bps: float
    """Rate of the bytes that arrived, from the first start to the end of the last flow, or to the
    end of the experiment if a flow did not end; of streams alone, the sum of what they received."""
    datagrams_sent: int | None
    datagrams_lost: int | None
    streams: StreamSummary | None = None
    """The streams of datagrams; null if the workload sends TCP."""
    retransmits: int | None
    timeouts: int | None
    """Null before Linux 6.7, which does not count them."""
    latest_start_ms: float
    """The longest time from a planned start to the actual one."""
    times: dict[str, TimesSummary]
    """By size: `all`, `short` (below 100 KB), `medium`, `long` (above 10 MB); 1 KB is 1000
    bytes."""


class ProgramSummary(handed_in.Record):
    host: str
    server: bool
    asked: int
    executions: int
    failures: int
    time_ms: SpreadSummary | None


class ProbeSummary(handed_in.Record):
    """The round trips of one probe, of what it sent in the interval."""

    kind: Literal["icmp", "udp"]
    src: str
    dst: str
    dscp: int = 0
    payload_bytes: int
    every_ms: float
    sent: int
    lost: int
    base_rtt_ms: float
    rtt_ms: SpreadSummary | None

    @property
    def title(self) -> str:
        """Its name in tables and figures."""
        marked = f", DSCP {self.dscp}" if self.dscp else ""
        return f"{self.src} to {self.dst} ({self.kind}{marked})"


class FairnessSummary(handed_in.Record):
    windows: int
    mean: float | None
    min: float | None


class ChangeSummary(handed_in.Record):
    t_s: float
    flows: int
    fair_after_s: float | None
    """Time until Jain's index reaches 0.9 in one of the shortest sliding windows, counted to that
    window's end; null if the next change came first."""


class SynchronisationSummary(handed_in.Record):
    """Correlation of the congestion windows of each pair of flows over the samples."""

    flows: int
    samples: int
    mean: float
    min: float
    max: float


class LimitSummary(handed_in.Record):
    """What kept a flow from sending more, as shares of its time."""

    network: float
    receiver: float | None
    """Null for Multipath TCP, as `send_buffer`: its kernel does not show them."""
    send_buffer: float | None
    application: float
    timeout: float
    pacing: float = 0.0
    at_least: bool = False
    """`send_buffer` is a lower bound, because samples are few."""

    @property
    def untold(self) -> float:
        """The share of receiver and send buffer together, where only their sum is known."""
        if self.receiver is not None or self.send_buffer is not None:
            return 0.0
        return max(0.0, 1 - self.network - self.application - self.timeout - self.pacing)


class SamplesSummary(handed_in.Record):
    """How sockets and queues were sampled."""

    every_s: float
    taken: int
    missed: int
    longest_ms: float


class Summary(handed_in.Versioned, Measured):
    """The whole of summary.json."""

    format: int = 1
    name: str
    engine: EngineName | None
    """Null for joined captures, which no engine made."""
    duration_s: float
    interval: Literal["whole", "all active", "asked"]
    """What numbers cover: the whole duration, the time in which all flows were active, or
    `analysis.from` and `to`. `losses`, `completions`, `programs`, `times`, `convergence`, `noise`
    and `capture` are of the whole run."""
    start_s: float
    end_s: float
    jain_index: Share | None
    """Of the flows of `flows`; null without any, as with generated traffic only."""
    stationary: bool | None = None
    total_goodput_bps: float
    classes: dict[str, ClassSummary]
    outcast_ratio: float | None
    windows_from: Literal["start", "all active"]
    """From when windows count: the instant from which all flows are active, or the traffic's start
    where they never are."""
    windows: dict[str, Window]
    """By length, for example `100ms`; `start_s` and `end_s` say where each lies."""
    drops: dict[str, PortDrops]
    losses: LossSummary | None = None
    """Losses of every port of the network; null in joined captures."""
    flow_chains: dict[str, dict[str, int]]
    tcp: dict[str, TcpSummary]
    queue: dict[str, QueueSummary]
    phase: dict[str, PhaseSummary]
    noise: dict[str, NoiseSummary] = Field(default_factory=dict)
    fairness: dict[str, FairnessSummary]
    """By length of the sliding windows; empty if no two flows were ever active."""
    convergence: list[ChangeSummary]
    synchronisation: SynchronisationSummary | None
    limited: dict[str, LimitSummary] = Field(default_factory=dict)
    """By planned flow's number; from samples of the senders' sockets."""
    samples: SamplesSummary | None
    completions: dict[str, CompletionSummary] | None = None
    programs: dict[str, ProgramSummary] | None = None
    probes: dict[str, ProbeSummary] | None = None
    warnings: list[str]
    """The manifest's warnings, and one if a single flow held the link against all others."""
    capture: CaptureSummary
    wall_s: dict[str, float]
    group_by: GroupKind = "hops"
    groups: Groups = Field(default_factory=dict)
    """By `hops`, `congestion_control`, `port`, `sender`, and `name` if any flow has one; then by
    label. Empty without flows."""
    compare: CompareSummary | None = None
    """The groups of `analysis.compare`, or the classes with the most and the fewest hops."""

    @property
    def whole_run(self) -> str:
        """Words beside numbers of the whole duration; empty if the interval is that too."""
        return "" if self.interval == "whole" else f" from 0 to {self.duration_s:g} s"

    def grouped(self, kind: str) -> dict[str, GroupSummary]:
        """The groups of one kind; none without flows."""
        return self.groups.get(kind, {})


def _shares(kind: object) -> set[str]:
    """The names of the fields of a record, and of its inner records, that are a Share."""
    if not (isinstance(kind, type) and issubclass(kind, handed_in.Record)):
        return set().union(*map(_shares, get_args(kind)))
    fields = kind.model_fields
    own = {name for name in fields if Share in get_args(fields[name].annotation)}
    return own.union(*(_shares(field.annotation) for field in fields.values()))


SHARES = frozenset(_shares(Summary))
"""The names of the fields of summary.json that are a Share, at any depth."""
