"""Drop-tail: a queue drops an arrival that would exceed its limit, and nothing else.

The kernel has two such qdiscs. pfifo's limit counts packets, bfifo's counts bytes (tc-pfifo(8),
tc-bfifo(8)). A qdisc of the user's own stands here too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from outcast import netlink
from outcast.experiment.limit import Limit, QueueLimit
from outcast.experiment.parts import described
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


_Word = Annotated[int, Field(ge=0, lt=1 << 32)]
_Type = Annotated[int, Field(ge=1, lt=1 << 14)]
"""An attribute's type has 14 bits (NLA_TYPE_MASK in linux/netlink.h)."""


class Custom(base.Shaped):
    """Any qdisc of the run's kernel by its name, under a shaper; see docs/own-kernel-code.md.

    It is set up by rtnetlink, because tc(8) does not know it. Its settings are the parameters of
    its module (`kernel.modules`), or `options`.
    """

    # Nothing is known about it, so nothing is promised.
    drops = "later"
    # Only the kernel knows the qdisc, so only setting it up shows whether it is there.
    probe = {}
    counters = {}
    always_marks = True

    kind: Literal["custom"]
    qdisc: str = described("its `id` in struct Qdisc_ops", pattern=r"^[A-Za-z0-9_]{1,15}$")
    options: tuple[_Word, ...] | dict[_Type, _Word] = described(
        "TCA_OPTIONS: a list is a struct of 32-bit numbers, a mapping has the number of each "
        "attribute; what the qdisc shows has to agree",
        default=(),
    )

    @property
    def wire_limit(self) -> Limit:
        return Limit()

    def tc(self) -> tuple[base.Qdisc, ...]:
        if isinstance(self.options, Mapping):
            attributes = sorted(self.options.items())
            encoded = b"".join(netlink.encode(kind, _word(number)) for kind, number in attributes)
        else:
            encoded = b"".join(map(_word, self.options))
        return (base.Qdisc(self.qdisc, encoded),)

    def check(self, *options: bytes) -> Iterator[base.Setting]:
        if isinstance(self.options, Mapping):
            actual = netlink.numbers(options[0])
            for kind, number in sorted(self.options.items()):
                yield base.Setting(f"attribute {kind}", number, actual.get(kind))
        else:
            words = options[0][: len(options[0]) // 4 * 4]
            numbers = [number for (number,) in struct.iter_unpack("=I", words)]
            for place, number in enumerate(self.options):
                yield base.Setting(
                    f"option {place}", number, (numbers[place : place + 1] or [None])[0]
                )


def _word(number: int) -> bytes:
    return struct.pack("=I", number)
