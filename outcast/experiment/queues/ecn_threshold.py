"""DCTCP's marking at a queue threshold: the kernel's red, with options that tc(8) cannot set.

With a weight of 1 (Wlog 0), the average that red compares is the present queue length. With both
thresholds at the same length, red marks every arrival from there on, and none below (red_calc_qavg
and red_action in the kernel's include/net/red.h). TC_RED_NODROP keeps red from dropping packets
that cannot carry the mark. The packets stand in a fifo below red, whose limit alone drops.

red counts what is queued before the arriving packet. red also ages its average while the queue is
idle. A table of idle times that is 31 everywhere resets the average to 0 after any idle time,
however short.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Literal

from outcast import netlink
from outcast.experiment.limit import Limit, QueueLimit
from outcast.experiment.parts import MTU_FRAME_BYTES, described
from outcast.experiment.queues import base, red
from outcast.experiment.queues.drop_tail import check_limit, fifo, fifo_options

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

    drops = "at_limit"
    probe = red.Red.probe
    counters = red.Red.counters
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
            red.TCA_RED_PARMS, struct.pack("=IIIBBBB", 0, threshold, threshold, 0, 0, 0, 0)
        )
        options += netlink.encode(_TCA_RED_STAB, _FORGETS)
        options += netlink.encode(red.TCA_RED_MAX_P, struct.pack("=I", _ALWAYS))
        # Struct nla_bitfield32: the values of the flags, and which flags are set or cleared.
        known = _ECN | _HARD_DROP | _ADAPTIVE | _NODROP
        options += netlink.encode(_TCA_RED_FLAGS, struct.pack("=II", _ECN | _NODROP, known))
        return base.Qdisc("red", options), base.Qdisc(fifo(self.limit), fifo_options(self.limit))

    def limit_options(self) -> bytes | None:
        return fifo_options(self.limit)

    def check(self, *options: bytes) -> Iterator[base.Setting]:
        marks, holds = options
        actual = red.parameters(marks)
        yield base.Setting("threshold_bytes", self.threshold_bytes, actual.min_bytes)
        yield base.Setting(
            "threshold_bytes of certain marking", self.threshold_bytes, actual.max_bytes
        )
        yield base.Setting("weight_exponent", 0, actual.weight_exponent)
        flags, _ = struct.unpack("=II", netlink.attribute(marks, _TCA_RED_FLAGS) or bytes(8))
        yield base.Setting("ecn", True, bool(flags & _ECN))
        yield base.Setting("drops what cannot be marked", False, not flags & _NODROP)
        yield check_limit(self.limit, holds)
