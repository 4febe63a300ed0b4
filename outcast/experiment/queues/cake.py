"""CAKE without its own shaper, because ours limits the rate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from outcast import netlink
from outcast.experiment.limit import Limit, QueueLimit
from outcast.experiment.parts import TimeNs
from outcast.experiment.queues.base import (
    ControlsDelay,
    Counters,
    CountsBytes,
    Drops,
    Probe,
    Qdisc,
    Setting,
)

_TCA_CAKE_RATE, _TCA_CAKE_FLOW_MODE, _TCA_CAKE_RTT, _TCA_CAKE_TARGET = 2, 5, 7, 8
_TCA_CAKE_MEMORY = 10
_FLOW_MODES = ("flowblind", "srchost", "dsthost", "hosts", "flows")
_TRIPLE_ISOLATE = 7
_RTT_PER_TARGET = 20
_STATS_TINS = 10
_TIN_COUNTERS = {"dropped": 4, "marked": 8}


def _of_all_tins(raw: bytes) -> dict[str, int]:
    """The sums over TCA_CAKE_STATS_TIN_STATS; `dropped` counts all drops of cake."""
    tins = [tin for _, tin in netlink.attributes(netlink.attribute(raw, _STATS_TINS) or b"")]
    return {
        name: sum(int.from_bytes(netlink.attribute(tin, at) or b"", "little") for tin in tins)
        for name, at in _TIN_COUNTERS.items()
    }


class Cake(ControlsDelay, CountsBytes):
    """tc-cake(8): a queue for each flow, drops as CoDel and BLUE do, under a shaper of ours.

    It marks ECN-capable packets instead of dropping them; this cannot be switched off.
    """

    # CoDel drops at the head. A full queue drops the first packets of its longest flow.
    drops: ClassVar[Drops] = "later"
    probe: ClassVar[Probe] = {"cake": ""}
    counters: ClassVar[Counters] = {"cake": _of_all_tins}

    kind: Literal["cake"]
    limit: QueueLimit = Field(description="the kernel's memory for packets, with its own headers")
    rtt_ns: TimeNs = Field(
        default=100_000_000,
        alias="rtt",
        description="round-trip time of the path; the target is a 20th",
    )
    isolation: Literal["flowblind", "flows", "hosts", "srchost", "dsthost", "triple-isolate"] = (
        Field(default="flows", description="what gets a queue of its own, as tc-cake(8) names it")
    )

    @property
    def marks(self) -> bool:
        return True

    @property
    def wire_limit(self) -> Limit:
        """Empty, because the limit counts the kernel's memory."""
        return Limit()

    def tc(self) -> tuple[Qdisc, ...]:
        words = (
            f"unlimited besteffort {self.isolation} raw rtt {self.rtt_ns // 1000}us "
            f"memlimit {self.limit.size_bytes}"
        )
        return (Qdisc("cake", words),)

    def check(self, *options: bytes) -> Iterator[Setting]:
        actual = netlink.numbers(options[0])
        target_us = max(1, self.rtt_ns // 1000 // _RTT_PER_TARGET)
        yield Setting("memory_bytes", self.limit.size_bytes, actual.get(_TCA_CAKE_MEMORY))
        yield Setting("rtt_us", self.rtt_ns // 1000, actual.get(_TCA_CAKE_RTT))
        yield Setting("target_us", target_us, actual.get(_TCA_CAKE_TARGET))
        yield Setting("isolation", self.isolation, _isolation(actual.get(_TCA_CAKE_FLOW_MODE)))
        yield Setting("cake_rate_bps", 0, actual.get(_TCA_CAKE_RATE))


def _isolation(flow_mode: int | None) -> str:
    if flow_mode == _TRIPLE_ISOLATE:
        return "triple-isolate"
    if flow_mode is not None and flow_mode < len(_FLOW_MODES):
        return _FLOW_MODES[flow_mode]
    return f"mode {flow_mode}"
