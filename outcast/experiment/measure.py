"""What is captured, what is sampled, and how the captures are summed up."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from outcast.experiment.parts import Part, TimeNs

GroupKind = Literal["name", "hops", "congestion_control", "port", "sender"]
"""The kinds of grouping that outcast/plan/grouping.py knows."""
SHORTEST_SAMPLES_NS = 10**6


class Capture(Part):
    """The ports at which tcpdump listens."""

    ports: Literal["bottleneck", "all"] | list[str] = Field(
        default="bottleneck",
        description="bottleneck: its output and all its inputs; all: every switch port in both "
        "directions; or a list of names as s1-eth2, in both directions, besides the bottleneck",
    )


class Samples(Part):
    """How often sockets and queues are read while flows run."""

    every_ns: TimeNs | None = Field(
        default=None,
        alias="every",
        description="time between samples; 0ms: none. Default: 10ms in the virtual engine, 100ms "
        "in the realtime one",
    )

    @model_validator(mode="after")
    def _not_too_often(self) -> Samples:
        if self.every_ns is not None and 0 < self.every_ns < SHORTEST_SAMPLES_NS:
            raise ValueError("every: allowed is 1ms or more, or 0ms for no samples")
        return self


class Analysis(Part):
    """How the captures are summed up."""

    windows_ns: tuple[Annotated[TimeNs, Field(gt=0)], ...] = Field(
        default=(),
        alias="windows",
        description="times from when all flows are active, for each of which goodput is summed up",
    )
    bin_ns: TimeNs = Field(
        default=100_000_000,
        alias="bin",
        gt=0,
        description="width of a point of the curves over time; if left out, at most the duration",
    )

    group_by: GroupKind | None = Field(
        default=None,
        description="by what tables and figures group flows; if left out, by name where any flow "
        "has one, else by hops. See docs/groups.md",
    )
    compare: tuple[str, str] | None = Field(
        default=None,
        description="two groups; the headline is the first one's mean goodput over the second's. "
        "If left out, the classes with the most and the fewest hops",
    )

    @field_validator("compare")
    @classmethod
    def _two_groups(cls, compare: tuple[str, str] | None) -> tuple[str, str] | None:
        if compare is not None and compare[0] == compare[1]:
            raise ValueError(f"{compare[0]!r} twice; allowed are two different groups")
        return compare

    def within(self, duration_ns: int) -> Analysis:
        """A copy whose default bin is at most the duration; a bin that was given is kept."""
        if "bin_ns" in self.model_fields_set or self.bin_ns <= duration_ns:
            return self
        return self.model_copy(update={"bin_ns": duration_ns})
