"""The queues of the ports, as tc(8) has them."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from outcast.experiment.parts import MTU_FRAME_BYTES, Part, QueueLimit, SizeBytes, TimeNs


class _Queue(Part):
    where: Literal["every_port", "bottleneck"] = Field(
        default="every_port", description="which switch ports get this queue"
    )
    burst_bytes: SizeBytes = Field(
        default=1600, alias="burst", description="of the shaper; at least a frame"
    )

    @model_validator(mode="after")
    def _burst_holds_a_frame(self) -> _Queue:
        if self.burst_bytes < MTU_FRAME_BYTES:
            raise ValueError(
                f"burst {self.burst_bytes} B is below the frame size and would drop every full "
                f"frame; allowed is {MTU_FRAME_BYTES} B and more"
            )
        return self


class Tbf(_Queue):
    """tc-tbf(8): a token bucket with a taildrop queue, limited in bytes or packets."""

    kind: Literal["tbf"]
    limit: QueueLimit


class Htb(_Queue):
    """tc-htb(8): one class at the link's rate with a taildrop leaf, in bytes or packets."""

    kind: Literal["htb"]
    limit: QueueLimit


class _Shaped(_Queue):
    shaper: Literal["tbf", "htb"] = Field(
        default="tbf", description="what limits the rate; the queue is its child"
    )


class Pfifo(_Shaped):
    """tc-pfifo(8): taildrop counted in packets, under a shaper at the link's rate."""

    kind: Literal["pfifo"]
    limit: QueueLimit

    @model_validator(mode="after")
    def _counts_packets(self) -> Pfifo:
        if self.limit.packets is None:
            raise ValueError("pfifo counts packets; allowed is a limit as '11 packets'")
        return self


class Bfifo(_Shaped):
    """tc-bfifo(8): taildrop counted in bytes, under a shaper at the link's rate."""

    kind: Literal["bfifo"]
    limit: QueueLimit

    @model_validator(mode="after")
    def _counts_bytes(self) -> Bfifo:
        if self.limit.size_bytes is None:
            raise ValueError("bfifo counts bytes; allowed is a limit as 16KB")
        return self


class Red(_Shaped):
    """tc-red(8): random early detection under a shaper (Floyd and Jacobson 1993)."""

    kind: Literal["red"]
    limit: QueueLimit
    min_packets: int = Field(default=5, ge=1, description="no drop below this average")
    max_packets: int = Field(default=15, ge=2, description="every packet dropped above it")
    probability: float = Field(default=0.1, gt=0, le=1, description="of a drop at the maximum")
    weight: float = Field(default=0.002, gt=0, lt=1, description="of the moving average")
    ecn: bool = Field(default=False, description="mark instead of dropping")

    @model_validator(mode="after")
    def _thresholds_fit(self) -> Red:
        if self.limit.size_bytes is None:
            raise ValueError("red's hard limit is in bytes; allowed is a limit as 64KB")
        if not self.min_packets < self.max_packets:
            raise ValueError("min_packets is to be below max_packets")
        if self.max_packets * MTU_FRAME_BYTES > self.limit.size_bytes:
            raise ValueError(
                f"max_packets ({self.max_packets} frames of {MTU_FRAME_BYTES} B) is above the limit"
            )
        return self

    @property
    def weight_exponent(self) -> int:
        """The kernel's Wlog: its weight is 2^-Wlog."""
        return round(-math.log2(self.weight))


class Sfq(_Shaped):
    """tc-sfq(8): stochastic fairness queueing under a shaper (McKenney 1990)."""

    kind: Literal["sfq"]
    limit: QueueLimit
    buckets: int = Field(default=4, ge=1, le=65536, description="the hash table's divisor; 2^n")
    perturb_ns: TimeNs = Field(default=0, alias="perturb", description="0: never rehash")

    @model_validator(mode="after")
    def _fits_sfq(self) -> Sfq:
        if self.limit.packets is None:
            raise ValueError("sfq counts packets; allowed is a limit as '11 packets'")
        if self.buckets & (self.buckets - 1):
            raise ValueError("buckets is to be a power of two")
        if self.perturb_ns % 10**9:
            raise ValueError("perturb is to be in whole seconds")
        return self


Queue = Annotated[Tbf | Htb | Pfifo | Bfifo | Red | Sfq, Field(discriminator="kind")]
