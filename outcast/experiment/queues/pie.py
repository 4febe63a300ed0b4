"""The proportional integral controller, enhanced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from outcast import netlink
from outcast.experiment.parts import TimeNs
from outcast.experiment.queues.base import (
    TICK_NS,
    ControlsDelay,
    Counters,
    CountsPackets,
    Drops,
    Probe,
    Qdisc,
    Setting,
    ecn_word,
    fields,
)

_TCA_PIE_TARGET, _TCA_PIE_LIMIT, _TCA_PIE_UPDATE = 1, 2, 3
_TCA_PIE_ALPHA, _TCA_PIE_BETA, _TCA_PIE_ECN = 4, 5, 6


class Pie(ControlsDelay, CountsPackets):
    """tc-pie(8): drops arrivals at random, more often the longer the delay (RFC 8033)."""

    drops: ClassVar[Drops] = "on_arrival"
    probe: ClassVar[Probe] = {"pie": ""}
    # Struct tc_pie_xstats; `dropped` counts all drops.
    counters: ClassVar[Counters] = {
        "pie": fields(dropped=("=I", 24), at_limit=("=I", 28), marked=("=I", 36))
    }

    kind: Literal["pie"]
    target_ns: TimeNs = Field(default=15_000_000, alias="target", description="target sojourn time")
    update_ns: TimeNs = Field(
        default=15_000_000, alias="update", description="between changes of the probability"
    )
    alpha: int = Field(
        default=2, ge=0, le=32, description="weight of the delay's distance from the target"
    )
    beta: int = Field(default=20, ge=0, le=32, description="weight of the delay's change")
    ecn: bool = Field(default=False, description="mark instead of dropping")

    @model_validator(mode="after")
    def _whole_milliseconds(self) -> Pie:
        if self.update_ns % 1_000_000:
            raise ValueError(
                "update: allowed are whole milliseconds, because the kernel counts jiffies"
            )
        return self

    def tc(self) -> tuple[Qdisc, ...]:
        words = (
            f"limit {self.limit.packets} target {self.target_ns // 1000}us "
            f"tupdate {self.update_ns // 1000}us alpha {self.alpha} beta {self.beta} "
            f"{ecn_word(self.ecn)}"
        )
        return (Qdisc("pie", words),)

    def check(self, *options: bytes) -> Iterator[Setting]:
        actual = netlink.numbers(options[0])
        target_us = self.target_ns // TICK_NS * TICK_NS // 1000
        yield Setting("limit_packets", self.limit.packets, actual.get(_TCA_PIE_LIMIT))
        yield Setting("target_us", target_us, actual.get(_TCA_PIE_TARGET))
        yield Setting("update_us", self.update_ns // 1000, actual.get(_TCA_PIE_UPDATE))
        yield Setting("alpha", self.alpha, actual.get(_TCA_PIE_ALPHA))
        yield Setting("beta", self.beta, actual.get(_TCA_PIE_BETA))
        yield Setting("ecn", self.ecn, bool(actual.get(_TCA_PIE_ECN)))
