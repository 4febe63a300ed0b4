"""A queue for each flow: fq, with pacing or without, and sfq, which hashes flows to buckets."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import ClassVar, Literal

from outcast.experiment.limit import MOST_QUEUED
from outcast.experiment.parts import MTU_FRAME_BYTES, SizeBytes, TimeNs, described
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


_MOST_DEPTH = 127
_MOST_FLOWS = 128
"""SFQ_MAX_DEPTH and SFQ_DEFAULT_FLOWS of the kernel's net/sched/sch_sfq.c."""
# Struct tc_sfq_qopt, and the first field that tc_sfq_qopt_v1 adds: the depth.
_PARAMETERS = struct.Struct("=IiIIII")


class Sfq(base.CountsPackets):
    """tc-sfq(8): stochastic fairness queueing under a shaper (McKenney 1990)."""

    # A full queue drops the last packet of its longest flow.
    drops = "later"
    probe = {"sfq": ""}
    counters = {}

    kind: Literal["sfq"]
    buckets: int = described("the hash table's divisor; 2^n", default=4, ge=1, le=65536)
    perturb_ns: TimeNs = described("0: never rehash", default=0)

    def _require(self) -> None:
        super()._require()
        if self.buckets & (self.buckets - 1):
            raise ValueError("buckets: allowed is a power of two")
        if self.perturb_ns % 10**9 or self.perturb_ns > base.LONGEST_NS:
            raise ValueError("perturb: allowed are whole seconds up to 1000s")
        flows = min(self.buckets, _MOST_FLOWS)
        most = flows * _MOST_DEPTH
        if self.is_counted and not 2 <= (self.limit.packets or 0) <= most:
            raise ValueError(
                f"sfq with {self.buckets} buckets holds at most {most} packets, {_MOST_DEPTH} of "
                f"each of {flows} flows; allowed is a limit of 2 to {most} packets"
            )

    def tc(self) -> tuple[base.Qdisc, ...]:
        perturb_s = self.perturb_ns // 10**9
        return (
            base.Qdisc(
                "sfq", f"limit {self.limit.packets} divisor {self.buckets} perturb {perturb_s}"
            ),
        )

    def check(self, *options: bytes) -> Iterator[base.Setting]:
        quantum, perturb, limit, buckets, flows, depth = _PARAMETERS.unpack_from(options[0])
        yield base.Setting("limit_packets", self.limit.packets, limit)
        yield base.Setting("buckets", self.buckets, buckets)
        yield base.Setting("perturb_s", self.perturb_ns // 10**9, perturb)
        # tc did not get these three; the manifest records them: a turn's bytes, which is a full
        # frame of the link, flows at a time, and packets of a flow.
        yield base.Setting("quantum_bytes", quantum, quantum)
        yield base.Setting("flows", flows, flows)
        yield base.Setting("depth_packets", depth, depth)
