"""A qdisc of the user's own: any that the run's kernel has, by its name."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field

from outcast import netlink
from outcast.experiment.limit import Limit
from outcast.experiment.parts import described
from outcast.experiment.queues import base

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
