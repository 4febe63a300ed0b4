"""The synthetic blackout: a switch that loses consecutive packets of one port."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from outcast.experiment.parts import Part, TimeNs


class Blackout(Part):
    """A switch that drops everything that one of its ports receives in ON periods.

    The times between ON periods are exponentially distributed and drawn from the seed (the Outcast
    paper, section 4.3).
    """

    at: str = Field(description="a port, as s1-eth2, that is an input of the bottleneck")
    drops: int = Field(ge=1, le=10_000, description="consecutive packets dropped in an ON period")
    by: Literal["time", "packets"] = Field(
        default="time",
        description="time: an ON period lasts as long as this many full frames take on the link "
        "(the paper's way); packets: it lasts until this many have been dropped",
    )
    off_mean_ns: TimeNs = Field(
        default=5_000_000, alias="off_mean", gt=0, description="mean time between ON periods"
    )
