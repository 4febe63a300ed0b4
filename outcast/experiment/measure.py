"""What is captured, and how it is summed up."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from outcast.experiment.parts import Part, TimeNs


class Capture(Part):
    """Which ports tcpdump listens at."""

    ports: Literal["bottleneck", "all"] | list[str] = Field(
        default="bottleneck",
        description="bottleneck: its output and all its inputs; all: every switch port both "
        "ways; or names as s1-eth2, both ways, besides the bottleneck",
    )


class Analysis(Part):
    """How the captures are summed up."""

    windows_ns: tuple[Annotated[TimeNs, Field(gt=0)], ...] = Field(
        default=(), alias="windows", description="from the start; goodput is summed up in each"
    )
    bin_ns: TimeNs = Field(
        default=100_000_000, alias="bin", gt=0, description="of the curves over time"
    )
