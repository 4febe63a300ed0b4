"""CAKE without its own shaper, because ours limits the rate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from outcast import netlink
from outcast.experiment.limit import Limit, QueueLimit
from outcast.experiment.parts import TimeNs, described
from outcast.experiment.queues import base

_TCA_CAKE_FLOW_MODE = 5
_FLOW_MODES: Mapping[int | None, str] = {
    **dict(enumerate(("flowblind", "srchost", "dsthost", "hosts", "flows"))),
    7: "triple-isolate",
}
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


class Cake(base.ControlsDelay, base.CountsBytes):
    """tc-cake(8): a queue for each flow, drops as CoDel and BLUE do, under outcast's shaper.

    It marks ECN-capable packets instead of dropping them; this cannot be switched off.
    """

    # CoDel drops at the head. A full queue drops the first packets of its longest flow.
    drops = "later"
    probe = {"cake": ""}
    counters = {"cake": _of_all_tins}
    always_marks = True

    kind: Literal["cake"]
    limit: QueueLimit = described("the kernel's memory for packets, with its own headers")
    rtt_ns: TimeNs = described(
        "round-trip time of the path; the target is a 20th", default=100_000_000
    )
    isolation: Literal["flowblind", "flows", "hosts", "srchost", "dsthost", "triple-isolate"] = (
        described("what gets a queue of its own, as tc-cake(8) names it", default="flows")
    )

    @property
    def wire_limit(self) -> Limit:
        """Empty, because the limit counts the kernel's memory."""
        return Limit()

    def tc(self) -> tuple[base.Qdisc, ...]:
        words = (
            f"unlimited besteffort {self.isolation} raw rtt {self.rtt_ns // 1000}us "
            f"memlimit {self.limit.size_bytes}"
        )
        return (base.Qdisc("cake", words),)

    def check(self, *options: bytes) -> Iterator[base.Setting]:
        rtt_us = self.rtt_ns // 1000
        yield from base.numbered(
            options[0],
            memory_bytes=(self.limit.size_bytes, 10),
            rtt_us=(rtt_us, 7),
            target_us=(max(1, rtt_us // _RTT_PER_TARGET), 8),
        )
        mode = netlink.numbers(options[0]).get(_TCA_CAKE_FLOW_MODE)
        yield base.Setting("isolation", self.isolation, _FLOW_MODES.get(mode, f"mode {mode}"))
        yield from base.numbered(options[0], cake_rate_bps=(0, 2))
