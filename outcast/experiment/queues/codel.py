"""CoDel, alone and on each of many queues (fq_codel, CAKE)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from outcast import netlink
from outcast.experiment.limit import Limit, QueueLimit
from outcast.experiment.parts import MTU_FRAME_BYTES, SizeBytes, TimeNs, described
from outcast.experiment.queues import base

_UNIT_NS = 1024


class RunsCodel(base.ControlsDelay, base.CountsPackets):
    """A queue with the settings of CoDel (RFC 8289)."""

    target_ns: TimeNs = described("target sojourn time", default=5_000_000)
    interval_ns: TimeNs = described(
        "how long above the target before a drop; an RTT", default=100_000_000
    )
    ecn: bool = described("mark instead of dropping", default=False)

    @property
    def codel_words(self) -> str:
        return (
            f"target {self.target_ns // 1000}us interval {self.interval_ns // 1000}us "
            f"{base.ecn_word(self.ecn)}"
        )

    def check(self, *options: bytes) -> Iterator[base.Setting]:
        # fq_codel's first attributes have the same numbers.
        yield from base.numbered(
            options[0],
            limit_packets=(self.limit.packets, 2),
            target_us=(_shown_us(self.target_ns), 1),
            interval_us=(_shown_us(self.interval_ns), 3),
            ecn=(self.ecn, 4),
        )


class Codel(RunsCodel):
    """tc-codel(8): drops at the head while sojourn times exceed a target (RFC 8289); shaped."""

    drops = "later"
    probe = {"codel": ""}
    # Struct tc_codel_xstats.
    counters = {
        "codel": base.fields(at_limit=("=I", 20), marked=("=I", 24), marked_at_threshold=("=I", 32))
    }

    kind: Literal["codel"]

    def tc(self) -> tuple[base.Qdisc, ...]:
        return (base.Qdisc("codel", f"limit {self.limit.packets} {self.codel_words}"),)


def _shown_us(time_ns: int) -> int:
    """What the kernel shows of a time that it keeps in units of 1024 ns (net/codel.h)."""
    return time_ns // _UNIT_NS * _UNIT_NS // 1000


class FqCodel(RunsCodel):
    """tc-fq_codel(8): flows are hashed to queues, each with CoDel (RFC 8290), under a shaper."""

    # CoDel drops at the head. A full queue drops the first packets of its longest flow.
    drops = "later"
    probe = {"fq_codel": ""}
    # Struct tc_fq_codel_xstats.
    counters = {
        "fq_codel": base.fields(
            at_limit=("=I", 8),
            marked=("=I", 12),
            new_flows=("=I", 16),
            marked_at_threshold=("=I", 28),
            at_memory_limit=("=I", 36),
        )
    }

    kind: Literal["fq_codel"]
    flows: int = described("queues that flows are hashed to", default=1024, ge=1, le=65536)
    quantum_bytes: SizeBytes = described("what a queue sends in its turn", default=MTU_FRAME_BYTES)

    def _require(self) -> None:
        super()._require()
        if not 256 <= self.quantum_bytes <= 1 << 20:
            raise ValueError("quantum: allowed is 256B to 1MB")

    def tc(self) -> tuple[base.Qdisc, ...]:
        words = (
            f"limit {self.limit.packets} flows {self.flows} quantum {self.quantum_bytes} "
            f"{self.codel_words}"
        )
        return (base.Qdisc("fq_codel", words),)

    def check(self, *options: bytes) -> Iterator[base.Setting]:
        yield from super().check(*options)
        own = {"flows": (self.flows, 5), "quantum_bytes": (self.quantum_bytes, 6)}
        yield from base.numbered(options[0], **own)


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
