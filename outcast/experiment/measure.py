"""What is captured, and how it is summed up."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from outcast.experiment.parts import Part, TimeNs

SHORTEST_SAMPLES_NS = 10**6


class Capture(Part):
    """Which ports tcpdump listens at."""

    ports: Literal["bottleneck", "all"] | list[str] = Field(
        default="bottleneck",
        description="bottleneck: its output and all its inputs; all: every switch port both "
        "ways; or names as s1-eth2, both ways, besides the bottleneck",
    )


class Samples(Part):
    """Sockets and queues while flows run."""

    every_ns: TimeNs | None = Field(
        default=None,
        alias="every",
        description="0ms takes none; if left out, 10ms in the virtual engine and 100ms in the "
        "realtime one",
    )

    @model_validator(mode="after")
    def _not_too_often(self) -> Samples:
        if self.every_ns is not None and 0 < self.every_ns < SHORTEST_SAMPLES_NS:
            raise ValueError("every: from 1ms on, or 0ms for none")
        return self


class Analysis(Part):
    """How the captures are summed up."""

    windows_ns: tuple[Annotated[TimeNs, Field(gt=0)], ...] = Field(
        default=(), alias="windows", description="from the start; goodput is summed up in each"
    )
    bin_ns: TimeNs = Field(
        default=100_000_000,
        alias="bin",
        gt=0,
        description="of the curves over time; if left out, no more than the duration",
    )

    def within(self, duration_ns: int) -> Analysis:
        """With the default bin cut to the duration; a bin that was given stays."""
        if "bin_ns" in self.model_fields_set or self.bin_ns <= duration_ns:
            return self
        return self.model_copy(update={"bin_ns": duration_ns})
