"""Drop-tail: a queue drops an arrival that would exceed its limit, and nothing else.

The kernel has two such qdiscs. pfifo's limit counts packets, bfifo's counts bytes (tc-pfifo(8),
tc-bfifo(8)).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import ClassVar, Literal

from outcast.experiment.limit import Limit, QueueLimit
from outcast.experiment.queues import base


class _DropTail(base.QueueKind):
    """A kind whose packets stand in a pfifo or a bfifo."""

    drops = "at_limit"
    counters = {}

    @property
    def wire_limit(self) -> Limit:
        limit: Limit = self.limit  # type: ignore[attr-defined]
        return limit

    def tc(self) -> tuple[base.Qdisc, ...]:
        return (base.Qdisc(fifo(self.wire_limit), fifo_options(self.wire_limit)),)

    def limit_options(self) -> bytes | None:
        return fifo_options(self.wire_limit)

    def check(self, *options: bytes) -> Iterator[base.Setting]:
        yield check_limit(self.wire_limit, options[0])


class Tbf(_DropTail):
    """tc-tbf(8): a token bucket with a drop-tail queue, limited in bytes or packets."""

    probe = {"tbf": "rate 1mbit burst 5kb limit 10kb"}
    shaper_kind: ClassVar[Literal["tbf", "htb"]] = "tbf"

    kind: Literal["tbf"]
    limit: QueueLimit


class Htb(_DropTail):
    """tc-htb(8): a class at the link's rate with a drop-tail queue, limited in bytes or packets."""

    probe = {"htb": "default 1"}
    shaper_kind: ClassVar[Literal["tbf", "htb"]] = "htb"

    kind: Literal["htb"]
    limit: QueueLimit


class Pfifo(base.CountsPackets, _DropTail):
    """tc-pfifo(8): drop-tail with a limit in packets, under a shaper at the link's rate."""

    probe = {"pfifo": "limit 10"}

    kind: Literal["pfifo"]


class Bfifo(base.CountsBytes, _DropTail):
    """tc-bfifo(8): drop-tail with a limit in bytes, under a shaper at the link's rate."""

    probe = {"bfifo": "limit 10000"}

    kind: Literal["bfifo"]


def fifo(limit: Limit) -> str:
    """The name of the qdisc whose limit counts what this limit counts."""
    return "bfifo" if limit.packets is None else "pfifo"


def fifo_options(limit: Limit) -> bytes:
    """The limit as struct tc_fifo_qopt of linux/pkt_sched.h."""
    return struct.pack("=I", limit.packets or limit.size_bytes or 0)


def check_limit(limit: Limit, options: bytes) -> base.Setting:
    """The limit as requested and as shown in struct tc_fifo_qopt of linux/pkt_sched.h."""
    unit = "bytes" if limit.packets is None else "packets"
    actual = int.from_bytes(options[:4], "little")
    return base.Setting(f"limit_{unit}", limit.packets or limit.size_bytes, actual)
