"""Random early detection, and DCTCP's marking at a threshold by the same qdisc."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Literal, NamedTuple

from outcast import netlink
from outcast.experiment.limit import Limit, QueueLimit
from outcast.experiment.parts import MTU_FRAME_BYTES, described, optional
from outcast.experiment.queues import base
from outcast.experiment.queues.drop_tail import check_limit, fifo, fifo_options

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
    raw = netlink.attribute(options, TCA_RED_PARMS) or bytes(16)
    limit, minimum, maximum, weight_exponent, _, _, flags = struct.unpack("=IIIBBBB", raw)
    return Parameters(limit, minimum, maximum, weight_exponent, flags)


_TCA_RED_STAB, _TCA_RED_FLAGS = 2, 4
_ECN, _NODROP = 1, 8
_HARD_DROP, _ADAPTIVE = 2, 4
_ALWAYS = 0xFFFFFFFF
_FORGETS = bytes([31]) * 256


class EcnThreshold(base.Shaped):
    """DCTCP's marking: CE on every arrival from a queue length on (Alizadeh et al. 2010, section
    3.1).

    This is the kernel's red with the present length as its average and two equal thresholds.
    Packets that cannot carry the mark are dropped only at the limit (drop-tail).
    """

    # tc(8) cannot set these options. With a weight of 1 (Wlog 0), the average that red compares
    # is the present queue length, and with both thresholds at one length red marks every arrival
    # from there on, and none below (red_calc_qavg and red_action in the kernel's
    # include/net/red.h). TC_RED_NODROP keeps red from dropping packets that cannot carry the mark.
    # The packets stand in a fifo below red, whose limit alone drops.
    #
    # red counts what is queued before the arriving packet. It also ages its average while the queue
    # is idle. A table of idle times that is 31 everywhere resets the average to 0 after any idle
    # time, however short.
    drops = "at_limit"
    probe = Red.probe
    counters = Red.counters
    always_marks = True

    kind: Literal["ecn_threshold"]
    limit: QueueLimit
    threshold: QueueLimit = described(
        "an arrival that finds this much queued is marked; packets count as full frames"
    )

    def _require(self) -> None:
        super()._require()
        if not self.is_counted:
            return
        if self.threshold_bytes >= (self.limit.packets or 0) * MTU_FRAME_BYTES + (
            self.limit.size_bytes or 0
        ):
            raise ValueError("threshold: allowed is less than the limit, or nothing is ever marked")

    @property
    def threshold_bytes(self) -> int:
        """The threshold in bytes, as the kernel counts it."""
        if self.threshold.packets is not None:
            return self.threshold.packets * MTU_FRAME_BYTES
        return self.threshold.size_bytes or 0

    @property
    def wire_limit(self) -> Limit:
        return self.limit

    def tc(self) -> tuple[base.Qdisc, ...]:
        threshold = self.threshold_bytes
        options = netlink.encode(
            TCA_RED_PARMS, struct.pack("=IIIBBBB", 0, threshold, threshold, 0, 0, 0, 0)
        )
        options += netlink.encode(_TCA_RED_STAB, _FORGETS)
        options += netlink.encode(TCA_RED_MAX_P, struct.pack("=I", _ALWAYS))
        # Struct nla_bitfield32: the values of the flags, and which flags are set or cleared.
        known = _ECN | _HARD_DROP | _ADAPTIVE | _NODROP
        options += netlink.encode(_TCA_RED_FLAGS, struct.pack("=II", _ECN | _NODROP, known))
        return base.Qdisc("red", options), base.Qdisc(fifo(self.limit), fifo_options(self.limit))

    def limit_options(self) -> bytes | None:
        return fifo_options(self.limit)

    def check(self, *options: bytes) -> Iterator[base.Setting]:
        marks, holds = options
        actual = parameters(marks)
        yield base.Setting("threshold_bytes", self.threshold_bytes, actual.min_bytes)
        yield base.Setting(
            "threshold_bytes of certain marking", self.threshold_bytes, actual.max_bytes
        )
        yield base.Setting("weight_exponent", 0, actual.weight_exponent)
        flags, _ = struct.unpack("=II", netlink.attribute(marks, _TCA_RED_FLAGS) or bytes(8))
        yield base.Setting("ecn", True, bool(flags & _ECN))
        yield base.Setting("drops what cannot be marked", False, not flags & _NODROP)
        yield check_limit(self.limit, holds)
