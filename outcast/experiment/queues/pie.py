"""The proportional integral controller, enhanced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

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
