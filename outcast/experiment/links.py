"""The links: rates, delays, and how far they are from exact."""

from __future__ import annotations

from pydantic import Field, model_validator

from outcast import units
from outcast.experiment.parts import MTU_FRAME_BYTES, Part, RateBps, TimeNs


class Links(Part):
    """Every link of the network."""

    rate_bps: RateBps = Field(alias="rate", gt=0, description="both directions of every link")
    delay_ns: TimeNs | None = Field(
        default=None,
        alias="delay",
        description="of every link, one way, with the processing of the node that sends on it; "
        "default 25us in the virtual engine, where nodes take no time of their own, else 0",
    )
    jitter_ns: TimeNs | None = Field(
        default=None,
        alias="jitter",
        description="the delay varies by up to this, either way; default in the virtual engine as "
        "much as keeps packets in order (docs/virtual.md says why), else 0",
    )
    clock_offset_ppm: float = Field(
        default=0.0,
        ge=0,
        le=1000,
        description="every port's rate is off by up to this, as its oscillator; drawn by the seed",
    )

    @model_validator(mode="after")
    def _jitter_keeps_order(self) -> Links:
        jitter_ns = self.jitter_ns or 0
        if jitter_ns and (self.delay_ns is None or jitter_ns > self.greatest_jitter_ns()):
            raise ValueError(
                f"jitter {units.format_time(jitter_ns)}: allowed is up to the delay, which is to "
                f"be given, and up to half a full frame's time "
                f"({units.format_time(self._half_frame_ns())}), beyond which packets would "
                "overtake each other"
            )
        return self

    def greatest_jitter_ns(self) -> int:
        """The jitter that keeps packets in order, and delays above zero."""
        return min(self.delay_ns or 0, self._half_frame_ns())

    def _half_frame_ns(self) -> int:
        return MTU_FRAME_BYTES * 8 * 10**9 // self.rate_bps // 2
