"""Drop-tail: a queue drops an arrival that would exceed its limit, and nothing else.

The kernel has two such qdiscs. pfifo's limit counts packets, bfifo's counts bytes (tc-pfifo(8),
tc-bfifo(8)).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import ClassVar

from outcast.experiment.limit import Limit
from outcast.experiment.queues.base import Counters, Drops, Qdisc, QueueKind, Setting


class DropTail(QueueKind):
    """A kind whose packets stand in a pfifo or a bfifo."""

    drops: ClassVar[Drops] = "at_limit"
    counters: ClassVar[Counters] = {}

    @property
    def wire_limit(self) -> Limit:
        limit: Limit = self.limit  # type: ignore[attr-defined]
        return limit

    def tc(self) -> tuple[Qdisc, ...]:
        return (Qdisc(fifo(self.wire_limit), fifo_options(self.wire_limit)),)

    def limit_options(self) -> bytes | None:
        return fifo_options(self.wire_limit)

    def check(self, *shown: bytes) -> Iterator[Setting]:
        yield check_limit(self.wire_limit, shown[0])


def fifo(limit: Limit) -> str:
    """The name of the qdisc whose limit counts what this limit counts."""
    return "bfifo" if limit.packets is None else "pfifo"


def fifo_options(limit: Limit) -> bytes:
    """The limit as struct tc_fifo_qopt of linux/pkt_sched.h."""
    return struct.pack("=I", limit.packets or limit.size_bytes or 0)


def check_limit(limit: Limit, shown: bytes) -> Setting:
    """The limit as requested and as shown in struct tc_fifo_qopt of linux/pkt_sched.h."""
    unit = "bytes" if limit.packets is None else "packets"
    actual = int.from_bytes(shown[:4], "little")
    return Setting(f"limit_{unit}", limit.packets or limit.size_bytes, actual)
