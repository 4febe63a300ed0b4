"""Proportional integral controllers: PIE, and DualPI2 with its queue for L4S."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from outcast import netlink
from outcast.experiment.parts import TimeNs, described
from outcast.experiment.queues import base


class Pie(base.ControlsDelay, base.CountsPackets):
    """tc-pie(8): drops arrivals at random, more often the longer the delay (RFC 8033)."""

    drops = "on_arrival"
    probe = {"pie": ""}
    # Struct tc_pie_xstats; `dropped` counts all drops.
    counters = {"pie": base.fields(dropped=("=I", 24), at_limit=("=I", 28), marked=("=I", 36))}

    kind: Literal["pie"]
    target_ns: TimeNs = described("target sojourn time", default=15_000_000)
    update_ns: TimeNs = described("between changes of the probability", default=15_000_000)
    alpha: int = described("weight of the delay's distance from the target", default=2, ge=0, le=32)
    beta: int = described("weight of the delay's change", default=20, ge=0, le=32)
    ecn: bool = described("mark instead of dropping", default=False)

    def _require(self) -> None:
        super()._require()
        if self.update_ns % 1_000_000:
            raise ValueError(
                "update: allowed are whole milliseconds, because the kernel counts jiffies"
            )

    def tc(self) -> tuple[base.Qdisc, ...]:
        words = (
            f"limit {self.limit.packets} target {self.target_ns // 1000}us "
            f"tupdate {self.update_ns // 1000}us alpha {self.alpha} beta {self.beta} "
            f"{base.ecn_word(self.ecn)}"
        )
        return (base.Qdisc("pie", words),)

    def check(self, *options: bytes) -> Iterator[base.Setting]:
        yield from base.numbered(
            options[0],
            limit_packets=(self.limit.packets, 2),
            target_us=(self.target_ns // base.TICK_NS * base.TICK_NS // 1000, 1),
            update_us=(self.update_ns // 1000, 3),
            alpha=(self.alpha, 4),
            beta=(self.beta, 5),
            ecn=(self.ecn, 6),
        )


_LIMIT, _MEMORY_LIMIT, _TARGET, _UPDATE, _ALPHA, _BETA = 1, 2, 3, 4, 5, 6
_STEP_US, _COUPLING, _ECN_MASK = 8, 10, 14
_NO_MEMORY_LIMIT = _MOST_PROBABILITY = 2**32 - 1
_LONGEST_NS = 4 * 10**9
"""The kernel keeps the update interval and the step in nanoseconds, in 32 bits."""
_PER_HZ = 256
"""The kernel takes the gains in 256ths of a hertz, and keeps them for delays in 64 ns."""
_ECN_MASKS = {"l4s_ect": 1, "any_ect": 3}


class DualPi2(base.ControlsDelay, base.CountsPackets):
    """DualPI2 (RFC 9332), from Linux 6.17 on: a queue for L4S coupled to one for all else.

    A PI controller computes a probability from the delay. Classic packets are dropped or marked
    with its square. L4S packets are marked with the coupling times it, and after a short wait.
    Both queues are under a shaper.
    """

    # It is set up by rtnetlink, because Debian 12's tc(8) does not know it. The attributes' numbers
    # are those of linux/pkt_sched.h; the arithmetic is that of net/sched/sch_dualpi2.c.

    # A packet is dropped by the probability when it leaves the queue. A full queue drops arrivals.
    drops = "later"
    probe = {"dualpi2": netlink.encode(_LIMIT, (1000).to_bytes(4, "little"))}
    # Struct tc_dualpi2_xstats. `marked` includes `marked_by_step`. A packet that is marked by the
    # probability and by the step counts twice in `marked`.
    counters = {
        "dualpi2": base.fields(
            marked=("=I", 24),
            marked_by_step=("=I", 28),
            classic_packets=("=I", 12),
            l4s_packets=("=I", 16),
        )
    }
    always_marks = True
    since = "6.17"

    kind: Literal["dualpi2"]
    target_ns: TimeNs = described("target sojourn time of classic packets", default=15_000_000)
    update_ns: TimeNs = described("between changes of the probability", default=16_000_000)
    alpha_hz: float = described(
        "gain of the delay's distance from the target, in Hz",
        default=0.16,
        alias="alpha",
        ge=1 / _PER_HZ,
        le=1000,
    )
    beta_hz: float = described(
        "gain of the delay's change, in Hz", default=3.2, alias="beta", ge=1 / _PER_HZ, le=1000
    )
    coupling: int = described(
        "L4S packets are marked with this times the probability", default=2, ge=1, le=255
    )
    step_ns: TimeNs = described(
        "L4S packets that waited longer than this are marked", default=1_000_000
    )
    l4s: Literal["l4s_ect", "any_ect"] = described(
        "what is L4S: `l4s_ect`: ECT(1) and CE; `any_ect`: ECT(0) too, as DCTCP sends",
        default="l4s_ect",
    )

    def _require(self) -> None:
        super()._require()
        if max(self.update_ns, self.step_ns) > _LONGEST_NS:
            raise ValueError("update and step: allowed is 4s or less")

    def tc(self) -> tuple[base.Qdisc, ...]:
        numbers = {
            _LIMIT: self.limit.packets or 0,
            # No limit, because small packets could use up the memory before the limit is reached.
            _MEMORY_LIMIT: _NO_MEMORY_LIMIT,
            _TARGET: self.target_ns // 1000,
            _UPDATE: self.update_ns // 1000,
            _ALPHA: round(self.alpha_hz * _PER_HZ),
            _BETA: round(self.beta_hz * _PER_HZ),
            _STEP_US: self.step_ns // 1000,
        }
        options = b"".join(
            netlink.encode(kind, number.to_bytes(4, "little")) for kind, number in numbers.items()
        )
        options += netlink.encode(_COUPLING, bytes([self.coupling]))
        options += netlink.encode(_ECN_MASK, bytes([_ECN_MASKS[self.l4s]]))
        return (base.Qdisc("dualpi2", options),)

    def check(self, *options: bytes) -> Iterator[base.Setting]:
        yield from base.numbered(
            options[0],
            limit_packets=(self.limit.packets, _LIMIT),
            memory_limit_bytes=(_NO_MEMORY_LIMIT, _MEMORY_LIMIT),
            target_us=(self.target_ns // 1000, _TARGET),
            update_us=(self.update_ns // 1000, _UPDATE),
            alpha_256ths_hz=(_shown_gain(self.alpha_hz), _ALPHA),
            beta_256ths_hz=(_shown_gain(self.beta_hz), _BETA),
            coupling=(self.coupling, _COUPLING),
            step_us=(self.step_ns // 1000, _STEP_US),
        )
        masks = {mask: name for name, mask in _ECN_MASKS.items()}
        mask = netlink.numbers(options[0]).get(_ECN_MASK, 0)
        yield base.Setting("l4s", self.l4s, masks.get(mask, f"mask {mask}"))


def _shown_gain(gain_hz: float) -> int:
    """A gain as the kernel shows it, which cuts it to its own units there and back."""
    kept = (round(gain_hz * _PER_HZ) * _MOST_PROBABILITY >> 2) // 10**9
    return (kept * 10**9 << 2) // _MOST_PROBABILITY
