"""CoDel on each of many queues, to which flows are hashed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from outcast import netlink
from outcast.experiment.parts import MTU_FRAME_BYTES, SizeBytes
from outcast.experiment.queues.base import (
    Counters,
    Drops,
    Probe,
    Qdisc,
    Setting,
    fields,
)
from outcast.experiment.queues.codel import RunsCodel

_TCA_FQ_CODEL_FLOWS, _TCA_FQ_CODEL_QUANTUM = 5, 6


class FqCodel(RunsCodel):
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

    @model_validator(mode="after")
    def _quantum_fits(self) -> FqCodel:
        if not 256 <= self.quantum_bytes <= 1 << 20:
            raise ValueError("quantum: allowed is 256B to 1MB")
        return self

    def tc(self) -> tuple[Qdisc, ...]:
        words = (
            f"limit {self.limit.packets} flows {self.flows} quantum {self.quantum_bytes} "
            f"{self.codel_words}"
        )
        return (Qdisc("fq_codel", words),)

    def check(self, *options: bytes) -> Iterator[Setting]:
        yield from super().check(*options)
        actual = netlink.numbers(options[0])
        yield Setting("flows", self.flows, actual.get(_TCA_FQ_CODEL_FLOWS))
        yield Setting("quantum_bytes", self.quantum_bytes, actual.get(_TCA_FQ_CODEL_QUANTUM))
