"""The queues of the ports, as tc(8) has them."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from outcast import units
from outcast.experiment.parts import (
    MOST_QUEUED,
    MTU_FRAME_BYTES,
    ByteLimit,
    PacketLimit,
    Part,
    QueueLimit,
    SizeBytes,
    TimeNs,
)


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

    def check_burst(self, rate_bps: int) -> None:
        """Raises ValueError where at this rate the burst that the kernel keeps holds no frame.

        It keeps a time, in whole ticks of 64 ns and in 32 bits (PSCHED_SHIFT in net/pkt_sched.h).
        """
        ticks = (self.burst_bytes * 8 * 10**9 - 1) // (_TICK_NS * rate_bps)
        if ticks >= 1 << 32:
            raise ValueError(
                f"{units.format_size(self.burst_bytes)} is longer than the kernel counts at "
                f"{units.format_rate(rate_bps)}; allowed is less"
            )
        kept = ticks * _TICK_NS * rate_bps // (8 * 10**9)
        if kept < MTU_FRAME_BYTES:
            raise ValueError(
                f"at {units.format_rate(rate_bps)} the kernel keeps {kept} B of "
                f"{units.format_size(self.burst_bytes)}, less than a full frame; allowed is more"
            )


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


class _CountsPackets(_Shaped):
    kind: str
    limit: PacketLimit

    @model_validator(mode="after")
    def _counts_packets(self) -> _CountsPackets:
        if self.limit.packets is None:
            raise ValueError(f"{self.kind} counts packets; allowed is a limit as '11 packets'")
        return self


class Pfifo(_CountsPackets):
    """tc-pfifo(8): taildrop counted in packets, under a shaper at the link's rate."""

    kind: Literal["pfifo"]


class Bfifo(_Shaped):
    """tc-bfifo(8): taildrop counted in bytes, under a shaper at the link's rate."""

    kind: Literal["bfifo"]
    limit: ByteLimit

    @model_validator(mode="after")
    def _counts_bytes(self) -> Bfifo:
        if self.limit.size_bytes is None:
            raise ValueError("bfifo counts bytes; allowed is a limit as 16KB")
        return self


class Red(_Shaped):
    """tc-red(8): random early detection under a shaper (Floyd and Jacobson 1993)."""

    kind: Literal["red"]
    limit: ByteLimit
    min_packets: int = Field(default=5, ge=1, description="no drop below this average")
    max_packets: int = Field(default=15, ge=2, description="every packet dropped above it")
    probability: float = Field(default=0.1, gt=0, lt=1, description="of a drop at the maximum")
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
        bits = (self.max_packets * MTU_FRAME_BYTES).bit_length() + self.weight_exponent
        if self.burst_packets is None or bits >= _AVERAGE_BITS:
            raise ValueError(
                f"weight {self.weight:g}: no average of it can be kept with min_packets "
                f"{self.min_packets} and max_packets {self.max_packets}; allowed are "
                "other thresholds, or another weight"
            )
        if self.probability * 2**32 < (self.max_packets - self.min_packets) * MTU_FRAME_BYTES:
            raise ValueError(f"probability {self.probability:g}: tc-red(8) takes it for 0")
        return self

    @property
    def weight_exponent(self) -> int:
        """The kernel's Wlog: its weight is 2^-Wlog."""
        return round(-math.log2(self.weight))

    @property
    def burst_packets(self) -> int | None:
        """The `burst` from which tc-red(8) works out this weight; it takes no weight itself.

        See tc_red_eval_ewma in iproute2's tc/tc_red.c, which is repeated here. None where no burst
        gives this weight.
        """
        bursts = range(self.min_packets, self.min_packets + _MOST_BURST)
        return next((n for n in bursts if self._exponent_by(n) == self.weight_exponent), None)

    def _exponent_by(self, burst: int) -> int | None:
        gap = burst + 1 - self.min_packets
        weights = ((n, 0.5**n) for n in range(1, 32))
        return next((n for n, w in weights if gap <= (1 - (1 - w) ** burst) / w), None)


class EcnThreshold(_Shaped):
    """DCTCP's marking: CE at once from a queue length on (Alizadeh et al. 2010, section 3.1).

    The kernel's red with its average set to the present length and both thresholds to the same
    one. What cannot carry the mark is only taildropped.
    """

    kind: Literal["ecn_threshold"]
    limit: QueueLimit
    threshold: QueueLimit = Field(
        description="marks what finds this much queued, or more; packets count as full frames"
    )

    @model_validator(mode="after")
    def _marks_below_the_limit(self) -> EcnThreshold:
        if self.threshold_bytes >= (self.limit.packets or 0) * MTU_FRAME_BYTES + (
            self.limit.size_bytes or 0
        ):
            raise ValueError("the threshold is to be below the limit, or nothing is ever marked")
        return self

    @property
    def threshold_bytes(self) -> int:
        """The threshold as the kernel counts it."""
        if self.threshold.packets is not None:
            return self.threshold.packets * MTU_FRAME_BYTES
        return self.threshold.size_bytes or 0


class Sfq(_CountsPackets):
    """tc-sfq(8): stochastic fairness queueing under a shaper (McKenney 1990)."""

    kind: Literal["sfq"]
    buckets: int = Field(default=4, ge=1, le=65536, description="the hash table's divisor; 2^n")
    perturb_ns: TimeNs = Field(default=0, alias="perturb", description="0: never rehash")

    @model_validator(mode="after")
    def _fits_sfq(self) -> Sfq:
        if self.buckets & (self.buckets - 1):
            raise ValueError("buckets is to be a power of two")
        if self.perturb_ns % 10**9 or self.perturb_ns > _LONGEST_NS:
            raise ValueError("perturb is to be in whole seconds, up to 1000s")
        flows = min(self.buckets, _SFQ_FLOWS)
        most = flows * _SFQ_DEPTH
        if not 2 <= (self.limit.packets or 0) <= most:
            raise ValueError(
                f"sfq with {self.buckets} buckets holds at most {most} packets, {_SFQ_DEPTH} of "
                f"each of {flows} flows; allowed is a limit of 2 to {most} packets"
            )
        return self


class Fq(_CountsPackets):
    """tc-fq(8): a queue for each flow, served in turn, under a shaper; without pacing."""

    paces: ClassVar[bool] = False
    kind: Literal["fq"]
    flow_limit: int = Field(
        default=100, ge=1, le=MOST_QUEUED, description="packets that one flow can have queued"
    )
    quantum_bytes: SizeBytes = Field(
        default=2 * MTU_FRAME_BYTES, alias="quantum", description="that a flow sends in its turn"
    )

    @model_validator(mode="after")
    def _quantum_fits(self) -> Fq:
        if not 1 <= self.quantum_bytes <= 1 << 20:
            raise ValueError("quantum is to be from 1B to 1MB")
        return self


class PacingFq(Fq):
    """fq as a sender's port has it with `pacing: fq`: each packet waits for its time (tc-fq(8))."""

    paces: ClassVar[bool] = True


class _ControlsDelay(_Shaped):
    """What drops by the time that packets were queued; the kernel takes whole microseconds."""

    @model_validator(mode="after")
    def _whole_microseconds(self) -> _ControlsDelay:
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if name.endswith("_ns") and (not 1000 <= value <= _LONGEST_NS or value % 1000):
                raise ValueError(f"{field.alias} is to be in whole microseconds, 1us to 1000s")
        return self


class Codel(_ControlsDelay, _CountsPackets):
    """tc-codel(8): drops at the head when packets stay too long (RFC 8289), under a shaper."""

    kind: Literal["codel"]
    target_ns: TimeNs = Field(default=5_000_000, alias="target", description="target sojourn time")
    interval_ns: TimeNs = Field(
        default=100_000_000, alias="interval", description="above the target before a drop; an RTT"
    )
    ecn: bool = Field(default=False, description="mark instead of dropping")


class FqCodel(_ControlsDelay, _CountsPackets):
    """tc-fq_codel(8): CoDel on a queue for each hashed flow (RFC 8290), under a shaper."""

    kind: Literal["fq_codel"]
    flows: int = Field(default=1024, ge=1, le=65536, description="queues that flows are hashed to")
    quantum_bytes: SizeBytes = Field(
        default=MTU_FRAME_BYTES, alias="quantum", description="that a queue sends in its turn"
    )
    target_ns: TimeNs = Field(default=5_000_000, alias="target", description="target sojourn time")
    interval_ns: TimeNs = Field(
        default=100_000_000, alias="interval", description="above the target before a drop; an RTT"
    )
    ecn: bool = Field(default=False, description="mark instead of dropping")

    @model_validator(mode="after")
    def _quantum_fits(self) -> FqCodel:
        if not 256 <= self.quantum_bytes <= 1 << 20:
            raise ValueError("quantum is to be from 256B to 1MB")
        return self


class Pie(_ControlsDelay, _CountsPackets):
    """tc-pie(8): drops arrivals at random, the more the longer the delay (RFC 8033)."""

    kind: Literal["pie"]
    target_ns: TimeNs = Field(default=15_000_000, alias="target", description="target sojourn time")
    update_ns: TimeNs = Field(
        default=15_000_000, alias="update", description="between changes of the probability"
    )
    alpha: int = Field(default=2, ge=0, le=32, description="weight of the delay's distance")
    beta: int = Field(default=20, ge=0, le=32, description="weight of the delay's change")
    ecn: bool = Field(default=False, description="mark instead of dropping")

    @model_validator(mode="after")
    def _whole_milliseconds(self) -> Pie:
        if self.update_ns % 1_000_000:
            raise ValueError("update is to be in whole milliseconds: the kernel counts jiffies")
        return self


class Cake(_ControlsDelay):
    """tc-cake(8): flows kept apart, and drops by delay as CoDel and BLUE, under a shaper of ours.

    It marks where it can, whatever is asked for.
    """

    kind: Literal["cake"]
    limit: ByteLimit = Field(description="the kernel's memory for packets, headers and all")
    rtt_ns: TimeNs = Field(
        default=100_000_000, alias="rtt", description="of the path; the target is a 20th of it"
    )
    isolation: Literal["flowblind", "flows", "hosts", "srchost", "dsthost", "triple-isolate"] = (
        Field(default="flows", description="what is kept apart, as tc-cake(8) names it")
    )

    @model_validator(mode="after")
    def _counts_bytes(self) -> Cake:
        if self.limit.size_bytes is None:
            raise ValueError("cake counts bytes of memory; allowed is a limit as 4MB")
        return self


_LONGEST_NS = 1000 * 10**9
"""The kernel keeps these times in 32 bits of microseconds or less."""
_TICK_NS = 64
_MOST_BURST = 10_000
_AVERAGE_BITS = 32
"""Red's average holds a length times 2^Wlog (red_check_params in include/net/red.h)."""
_SFQ_DEPTH = 127
_SFQ_FLOWS = 128
"""SFQ_MAX_DEPTH and SFQ_DEFAULT_FLOWS of the kernel's net/sched/sch_sfq.c."""

Queue = Annotated[
    Tbf | Htb | Pfifo | Bfifo | Red | EcnThreshold | Sfq | Fq | Codel | FqCodel | Pie | Cake,
    Field(discriminator="kind"),
]
