"""CoDel on each of many queues, to which flows are hashed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from outcast.experiment.parts import MTU_FRAME_BYTES, SizeBytes, described
from outcast.experiment.queues import base
from outcast.experiment.queues.codel import RunsCodel


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
