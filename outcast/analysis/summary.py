"""What a run comes down to: summary.json, as a typed model."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ClassSummary(_Part):
    """The flows of one hop count.

    `timeouts` and `retransmits` are the kernel's own counts (`TcpExtTCPTimeouts`,
    `TcpRetransSegs`) at the sending hosts over the whole run; null where a host sends flows of
    more than one class, and in the windows.
    """

    flows: int
    mean_goodput_bps: float
    min_goodput_bps: float
    timeouts: int | None
    retransmits: int | None


class Window(_Part):
    """Goodput over one interval of the run."""

    start_s: float = Field(description="after the traffic's start")
    end_s: float
    jain_index: float | None
    total_goodput_bps: float
    classes: dict[str, ClassSummary]
    outcast_ratio: float | None = Field(
        description="mean of the class with the most hops over that with the fewest; null where "
        "there is one class only or the class with the fewest hops got nothing"
    )


class PortDrops(_Part):
    """What one input port of the bottleneck lost."""

    packets: int
    dropped: int
    longest_chain: int
    chains: dict[str, int] = Field(description="chains of consecutive drops, by length")
    blackouts: int = Field(description="chains during which packets of other ports got through")
    hops: list[int] = Field(description="hop counts of the flows that enter by this port")


class CaptureSummary(_Part):
    """Whether the captures and the counters agree."""

    tcpdump_kernel_drops: int
    inferred_drops: int
    qdisc_drops: int
    unmatched: int = Field(description="packets that left without having been seen coming in")
    in_flight: int = Field(description="packets whose fate the captures' end hides")
    trusted: bool
    reasons: list[str] = Field(description="why not trusted")


class Summary(_Part):
    """The whole of summary.json."""

    name: str
    engine: Literal["realtime", "virtual"]
    duration_s: float
    interval: Literal["whole", "all active"] = Field(
        description="what the figures below cover: the whole duration, or the time during which "
        "all flows were active"
    )
    start_s: float
    end_s: float
    jain_index: float | None
    total_goodput_bps: float
    classes: dict[str, ClassSummary]
    outcast_ratio: float | None
    windows: dict[str, Window] = Field(description="by their length, as `100ms`")
    drops: dict[str, PortDrops] = Field(description="by input port")
    flow_chains: dict[str, dict[str, int]] = Field(
        description="by hop count: chains of consecutive drops of one flow, by length"
    )
    capture: CaptureSummary
    wall_s: dict[str, float]
