"""The synthetic blackout: a switch that loses consecutive packets of one port."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from outcast.experiment.parts import Part, TimeNs


class Blackout(Part):
    """A switch that in ON periods drops all that one of its ports receives (the Outcast paper,
    section 4.3); the time between is exponentially distributed and drawn by the seed.
    """

    at: str = Field(description="the port, as s1-eth2; an input of the bottleneck")
    drops: int = Field(ge=1, le=10_000, description="consecutive packets of an ON period")
    by: Literal["time", "packets"] = Field(
        default="time",
        description="time: an ON period is as long as so many full frames take on the link, as in "
        "the paper; packets: it lasts until so many have been dropped",
    )
    off_mean_ns: TimeNs = Field(
        default=5_000_000, alias="off_mean", gt=0, description="mean time between ON periods"
    )
