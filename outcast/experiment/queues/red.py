"""Random early detection."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import ClassVar, Literal, NamedTuple

from pydantic import Field, model_validator

from outcast import netlink
from outcast.experiment.parts import MTU_FRAME_BYTES, ByteLimit, Limit
from outcast.experiment.queues.base import (
    RATE,
    Counters,
    Drops,
    Probe,
    Qdisc,
    Setting,
    Shaped,
    fields,
)

TCA_RED_PARMS, TCA_RED_MAX_P = 1, 3
_MOST_BURST = 10_000
_AVERAGE_BITS = 32
"""red keeps its average times 2^Wlog in so many bits (red_check_params in include/net/red.h)."""
_SCALED_PROBABILITY = 1 << 32


class Red(Shaped):
    """tc-red(8): random early detection under a shaper (Floyd and Jacobson 1993)."""

    drops: ClassVar[Drops] = "on_arrival"
    probe: ClassVar[Probe] = {"red": "limit 60000 avpkt 1000 burst 20"}
    # Struct tc_red_xstats. `early` counts drops before the limit is reached, also the certain
    # ones above the maximum.
    counters: ClassVar[Counters] = {
        "red": fields(early=("=I", 0), at_limit=("=I", 4), marked=("=I", 12))
    }

    kind: Literal["red"]
    limit: ByteLimit
    min_packets: int = Field(default=5, ge=1, description="nothing is dropped below this average")
    max_packets: int = Field(
        default=15, ge=2, description="everything is dropped above this average"
    )
    probability: float = Field(default=0.1, gt=0, lt=1, description="of a drop at the maximum")
    weight: float = Field(default=0.002, gt=0, lt=1, description="of the moving average")
    ecn: bool = Field(default=False, description="mark instead of dropping")
    idle: Literal["seen", "stock"] = Field(
        default="seen",
        description="`seen`: the average falls while the queue is empty (RFC 2309); `stock`: as in "
        "Linux, which does not notice that behind a shaper. In real time it is always `stock`",
    )

    @model_validator(mode="after")
    def _thresholds_fit(self) -> Red:
        if self.limit.size_bytes is None:
            raise ValueError("red's limit counts bytes; allowed is a limit as 64KB")
        if not self.min_packets < self.max_packets:
            raise ValueError("min_packets: allowed is less than max_packets")
        if self.max_packets * MTU_FRAME_BYTES > self.limit.size_bytes:
            raise ValueError(
                f"max_packets ({self.max_packets} frames of {MTU_FRAME_BYTES} B) is above the limit"
            )
        bits = (self.max_packets * MTU_FRAME_BYTES).bit_length() + self.weight_exponent
        if self.burst_packets is None or bits >= _AVERAGE_BITS:
            raise ValueError(
                f"weight {self.weight:g}: the kernel cannot keep its average with min_packets "
                f"{self.min_packets} and max_packets {self.max_packets}; allowed are "
                "other thresholds, or another weight"
            )
        if self.probability * 2**32 < (self.max_packets - self.min_packets) * MTU_FRAME_BYTES:
            raise ValueError(
                f"probability {self.probability:g}: tc-red(8) rounds it to 0; allowed is more"
            )
        return self

    @property
    def weight_exponent(self) -> int:
        """The kernel's Wlog: its weight is 2^-Wlog."""
        return round(-math.log2(self.weight))

    @property
    def burst_packets(self) -> int | None:
        """The `burst` from which tc-red(8) computes this weight, because it takes no weight.

        The computation is that of tc_red_eval_ewma in iproute2's tc/tc_red.c. None where no burst
        gives this weight.
        """
        bursts = range(self.min_packets, self.min_packets + _MOST_BURST)
        return next((n for n in bursts if self._exponent_by(n) == self.weight_exponent), None)

    def _exponent_by(self, burst: int) -> int | None:
        gap = burst + 1 - self.min_packets
        weights = ((n, 0.5**n) for n in range(1, 32))
        return next((n for n, w in weights if gap <= (1 - (1 - w) ** burst) / w), None)

    @property
    def wire_limit(self) -> Limit:
        return self.limit

    def tc(self) -> tuple[Qdisc, ...]:
        words = (
            f"limit {self.limit.size_bytes} min {self.min_packets * MTU_FRAME_BYTES} "
            f"max {self.max_packets * MTU_FRAME_BYTES} avpkt {MTU_FRAME_BYTES} "
            f"burst {self.burst_packets} probability {self.probability} bandwidth {RATE}"
        )
        return (Qdisc("red", f"{words} ecn" if self.ecn else words),)

    def check(self, *shown: bytes) -> Iterator[Setting]:
        actual = parameters(shown[0])
        yield Setting("limit_bytes", self.limit.size_bytes, actual.limit_bytes)
        yield Setting("min_bytes", self.min_packets * MTU_FRAME_BYTES, actual.min_bytes)
        yield Setting("max_bytes", self.max_packets * MTU_FRAME_BYTES, actual.max_bytes)
        yield Setting("weight_exponent", self.weight_exponent, actual.weight_exponent)
        probability = netlink.numbers(shown[0]).get(TCA_RED_MAX_P, 0) / _SCALED_PROBABILITY
        yield Setting("probability", round(self.probability, 6), round(probability, 6))
        yield Setting("ecn", self.ecn, bool(actual.flags & 1))


class Parameters(NamedTuple):
    """Fields of struct tc_red_qopt in linux/pkt_sched.h."""

    limit_bytes: int
    min_bytes: int
    max_bytes: int
    weight_exponent: int
    flags: int


def parameters(shown: bytes) -> Parameters:
    """The parameters in red's TCA_OPTIONS; zeros where there are none."""
    raw = netlink.attribute(shown, TCA_RED_PARMS) or bytes(16)
    limit, minimum, maximum, weight_exponent, _, _, flags = struct.unpack("=IIIBBBB", raw)
    return Parameters(limit, minimum, maximum, weight_exponent, flags)
