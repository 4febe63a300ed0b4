"""CoDel on each of many queues, to which flows are hashed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from outcast import netlink
from outcast.experiment.parts import MTU_FRAME_BYTES, SizeBytes, TimeNs
from outcast.experiment.queues.base import (
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
from outcast.experiment.queues.codel import (
    TCA_CODEL_ECN,
    TCA_CODEL_INTERVAL,
    TCA_CODEL_LIMIT,
    TCA_CODEL_TARGET,
    shown_us,
)

_TCA_FQ_CODEL_FLOWS, _TCA_FQ_CODEL_QUANTUM = 5, 6


class FqCodel(ControlsDelay, CountsPackets):
    """tc-fq_codel(8): flows are hashed to queues, each with CoDel (RFC 8290), under a shaper."""

    # CoDel drops at the head. A full queue drops the first packets of its longest flow.
    drops: ClassVar[Drops] = "later"
    probe: ClassVar[Probe] = {"fq_codel": ""}
    # Struct tc_fq_codel_xstats.
    counters: ClassVar[Counters] = {
        "fq_codel": fields(
            at_limit=("=I", 8),
            marked=("=I", 12),
            new_flows=("=I", 16),
            marked_at_threshold=("=I", 28),
            at_memory_limit=("=I", 36),
        )
    }

    kind: Literal["fq_codel"]
    flows: int = Field(default=1024, ge=1, le=65536, description="queues that flows are hashed to")
    quantum_bytes: SizeBytes = Field(
        default=MTU_FRAME_BYTES, alias="quantum", description="what a queue sends in its turn"
    )
    target_ns: TimeNs = Field(default=5_000_000, alias="target", description="target sojourn time")
    interval_ns: TimeNs = Field(
        default=100_000_000,
        alias="interval",
        description="how long above the target before a drop; an RTT",
    )
    ecn: bool = Field(default=False, description="mark instead of dropping")

    @model_validator(mode="after")
    def _quantum_fits(self) -> FqCodel:
        if not 256 <= self.quantum_bytes <= 1 << 20:
            raise ValueError("quantum: allowed is 256B to 1MB")
        return self

    def tc(self) -> tuple[Qdisc, ...]:
        words = (
            f"limit {self.limit.packets} flows {self.flows} "
            f"quantum {self.quantum_bytes} target {self.target_ns // 1000}us "
            f"interval {self.interval_ns // 1000}us {ecn_word(self.ecn)}"
        )
        return (Qdisc("fq_codel", words),)

    def check(self, *shown: bytes) -> Iterator[Setting]:
        actual = netlink.numbers(shown[0])
        yield Setting("limit_packets", self.limit.packets, actual.get(TCA_CODEL_LIMIT))
        yield Setting("target_us", shown_us(self.target_ns), actual.get(TCA_CODEL_TARGET))
        yield Setting("interval_us", shown_us(self.interval_ns), actual.get(TCA_CODEL_INTERVAL))
        yield Setting("ecn", self.ecn, bool(actual.get(TCA_CODEL_ECN)))
        yield Setting("flows", self.flows, actual.get(_TCA_FQ_CODEL_FLOWS))
        yield Setting("quantum_bytes", self.quantum_bytes, actual.get(_TCA_FQ_CODEL_QUANTUM))
