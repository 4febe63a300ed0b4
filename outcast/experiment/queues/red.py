"""Random early detection."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Literal, NamedTuple

from outcast import netlink
from outcast.experiment.parts import MTU_FRAME_BYTES, described, optional
from outcast.experiment.queues import base

TCA_RED_PARMS, TCA_RED_MAX_P = 1, 3
_MOST_BURST = 10_000
_AVERAGE_BITS = 32
"""The bits of red's average times 2^Wlog (red_check_params in include/net/red.h)."""
_SCALED_PROBABILITY = 1 << 32


class Red(base.CountsBytes):
    """tc-red(8): random early detection under a shaper (Floyd and Jacobson 1993)."""

    drops = "on_arrival"
    probe = {"red": "limit 60000 avpkt 1000 burst 20"}
    # Struct tc_red_xstats. `early` counts drops before the limit is reached, also the certain
    # ones above the maximum.
    counters = {"red": base.fields(early=("=I", 0), at_limit=("=I", 4), marked=("=I", 12))}

    kind: Literal["red"]
    min_packets: int | None = optional(
        "nothing is dropped below this average; if left out, a third of the maximum", ge=1
    )
    max_packets: int | None = optional(
        "everything is dropped above this average; if left out, a third of the limit, so that 64KB "
        "have 15 packets, and a minimum of 5",
        ge=2,
    )
    probability: float = described("of a drop at the maximum", default=0.1, gt=0, lt=1)
    weight: float = described("of the moving average", default=0.002, gt=0, lt=1)
    ecn: bool = described("mark instead of dropping", default=False)
    idle: Literal["seen", "stock"] = described(
        "`seen`: the average falls while the queue is empty (RFC 2309); `stock`: as in Linux, "
        "which does not notice that behind a shaper. In real time it is always `stock`",
        default="seen",
    )

    def _require(self) -> None:
        super()._require()
        if not self.is_counted:
            return
        least, most = self.thresholds_packets
        if not least < most:
            raise ValueError(f"min_packets: allowed is less than max_packets, which is {most}")
        if most * MTU_FRAME_BYTES > (self.limit.size_bytes or 0):
            raise ValueError(
                f"max_packets ({most} frames of {MTU_FRAME_BYTES} B) is above the limit; allowed "
                "is a larger limit"
            )
        bits = (most * MTU_FRAME_BYTES).bit_length() + self.weight_exponent
        if self.burst_packets is None or bits >= _AVERAGE_BITS:
            raise ValueError(
                f"weight {self.weight:g}: the kernel cannot keep its average with min_packets "
                f"{least} and max_packets {most}; allowed are other thresholds, or another weight"
            )
        if self.probability * 2**32 < (most - least) * MTU_FRAME_BYTES:
            raise ValueError(
                f"probability {self.probability:g}: tc-red(8) rounds it to 0; allowed is more"
            )

    @property
    def thresholds_packets(self) -> tuple[int, int]:
        """The minimum and the maximum in full frames, in proportion to the limit unless given.

        The maximum is three times the minimum, as Floyd recommends ("RED: Discussions of setting
        parameters", 1997), and the limit a few times the maximum, as tc-red(8) advises. Neither is
        more than the kernel's average holds.
        """
        most = self.max_packets
        if most is None:
            kept = ((1 << (_AVERAGE_BITS - 1 - self.weight_exponent)) - 1) // MTU_FRAME_BYTES
            third = -(-((self.limit.size_bytes or 0) // MTU_FRAME_BYTES) // 3)
            most = max(3, min(third, kept))
        # From a minimum of 1, tc-red(8) computes no small weight.
        return self.min_packets or max(2, most // 3), most

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
        least, _ = self.thresholds_packets
        bursts = range(least, least + _MOST_BURST)
        return next((n for n in bursts if self._exponent_by(n) == self.weight_exponent), None)

    def _exponent_by(self, burst: int) -> int | None:
        gap = burst + 1 - self.thresholds_packets[0]
        weights = ((n, 0.5**n) for n in range(1, 32))
        return next((n for n, w in weights if gap <= (1 - (1 - w) ** burst) / w), None)

    def tc(self) -> tuple[base.Qdisc, ...]:
        least, most = self.thresholds_packets
        words = (
            f"limit {self.limit.size_bytes} min {least * MTU_FRAME_BYTES} "
            f"max {most * MTU_FRAME_BYTES} avpkt {MTU_FRAME_BYTES} "
            f"burst {self.burst_packets} probability {self.probability} bandwidth {base.RATE}"
        )
        return (base.Qdisc("red", f"{words} ecn" if self.ecn else words),)

    def check(self, *options: bytes) -> Iterator[base.Setting]:
        actual = parameters(options[0])
        yield base.Setting("limit_bytes", self.limit.size_bytes, actual.limit_bytes)
        least, most = self.thresholds_packets
        yield base.Setting("min_bytes", least * MTU_FRAME_BYTES, actual.min_bytes)
        yield base.Setting("max_bytes", most * MTU_FRAME_BYTES, actual.max_bytes)
        yield base.Setting("weight_exponent", self.weight_exponent, actual.weight_exponent)
        probability = netlink.numbers(options[0]).get(TCA_RED_MAX_P, 0) / _SCALED_PROBABILITY
        yield base.Setting("probability", round(self.probability, 6), round(probability, 6))
        yield base.Setting("ecn", self.ecn, bool(actual.flags & 1))


class Parameters(NamedTuple):
    """Fields of struct tc_red_qopt in linux/pkt_sched.h."""

    limit_bytes: int
    min_bytes: int
    max_bytes: int
    weight_exponent: int
    flags: int


def parameters(options: bytes) -> Parameters:
    """The parameters in red's TCA_OPTIONS; zeros where there are none."""
    raw = netlink.attribute(options, TCA_RED_PARMS) or bytes(16)
    limit, minimum, maximum, weight_exponent, _, _, flags = struct.unpack("=IIIBBBB", raw)
    return Parameters(limit, minimum, maximum, weight_exponent, flags)
