"""Fair queueing, with pacing or without."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from outcast.experiment.limit import MOST_QUEUED
from outcast.experiment.parts import MTU_FRAME_BYTES, SizeBytes, described
from outcast.experiment.queues import base


class Fq(base.CountsPackets):
    """tc-fq(8): a queue for each flow, served in turn, under a shaper; without pacing."""

    drops = "on_arrival"
    probe = {"fq": ""}
    # Struct tc_fq_qd_stats.
    counters = {
        "fq": base.fields(
            at_flow_limit=("=Q", 32), flows=("=I", 64), marked_at_threshold=("=Q", 80)
        )
    }
    paces: ClassVar[bool] = False

    kind: Literal["fq"]
    flow_limit: int = described(
        "packets that one flow can have queued", default=100, ge=1, le=MOST_QUEUED
    )
    quantum_bytes: SizeBytes = described(
        "what a flow sends in its turn", default=2 * MTU_FRAME_BYTES
    )

    def _require(self) -> None:
        super()._require()
        if not 1 <= self.quantum_bytes <= 1 << 20:
            raise ValueError("quantum: allowed is 1B to 1MB")

    def tc(self) -> tuple[base.Qdisc, ...]:
        words = (
            f"limit {self.limit.packets} flow_limit {self.flow_limit} "
            f"quantum {self.quantum_bytes} {'pacing' if self.paces else 'nopacing'}"
        )
        return (base.Qdisc("fq", words),)

    def check(self, *options: bytes) -> Iterator[base.Setting]:
        yield from base.numbered(
            options[0],
            limit_packets=(self.limit.packets, 1),
            flow_limit_packets=(self.flow_limit, 2),
            quantum_bytes=(self.quantum_bytes, 3),
            pacing=(self.paces, 5),
        )


class PacingFq(Fq):
    """fq at a sender's port with `pacing: fq`: each packet waits for its time (tc-fq(8))."""

    paces: ClassVar[bool] = True
