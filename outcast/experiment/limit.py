"""A queue's limit: bytes, packets, a time, or bandwidth-delay products.

A kernel counts bytes or packets. `outcast.plan.ports.counted` converts a limit to these.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import ConfigDict

from outcast import units
from outcast.experiment.parts import MTU_FRAME_BYTES, Part, as_text

MOST_QUEUED = 1 << 30
"""The largest limit in bytes or packets, because the kernel and tc(8) count in 32 bits."""
Unit = Literal["size_bytes", "packets"]
"""The unit that a kernel's queue counts."""

_NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,12})?"
_UNITS = "packets?|p|[kKmMgG]?i?[bB]|[nuµm]?s|min|h|[bB][dD][pP]"
_PACKETS = re.compile(r"\s*([0-9]+)\s*(packets?|p)\s*")
_PRODUCTS = re.compile(rf"\s*({_NUMBER})\s*bdp\s*", re.IGNORECASE)
_ALLOWED = (
    "allowed is a size as 16KB, a number of packets as '11 packets', a time as 5ms, or "
    "bandwidth-delay products as '0.5 bdp'"
)


class Limit(Part):
    """A queue's capacity; at most one is set.

    Attributes:
        size_bytes, packets: as a kernel counts it.
        time_ns: the full frames that the port sends in this time.
        bdp: the full frames that it sends in this number of base RTTs.
    """

    # It is written as a text.
    model_config = ConfigDict(alias_generator=None)

    size_bytes: int | None = None
    packets: int | None = None
    time_ns: int | None = None
    bdp: float | None = None

    def __str__(self) -> str:
        if self.packets is not None:
            return f"{self.packets} packet{'s' if self.packets != 1 else ''}"
        if self.bdp is not None:
            return f"{self.bdp:.12g} bdp"
        if self.time_ns is not None:
            return units.format_time(self.time_ns)
        return units.format_size(self.size_bytes or 0)


def _parse(value: object) -> Limit:
    """`16KB`, `11 packets`, `5ms` or `0.5 bdp`. Raises ValueError, which says what is allowed."""
    if isinstance(value, Limit):
        return value
    limit = _read(value) if isinstance(value, str) else None
    if limit is None:
        raise ValueError(f"{value!r} is not a queue limit; {_ALLOWED}")
    least = MTU_FRAME_BYTES if limit.size_bytes is not None else 0
    amount = limit.size_bytes or limit.packets or limit.time_ns or limit.bdp or 0
    if amount <= 0 or amount < least:
        raise ValueError(
            f"{value!r} holds no full frame of {MTU_FRAME_BYTES} B and would drop every one; "
            f"{_ALLOWED}"
        )
    if max(limit.packets or 0, limit.size_bytes or 0) > MOST_QUEUED:
        raise ValueError(f"{value!r} is above what the kernel takes: 1GB, or {MOST_QUEUED} packets")
    return limit


def _read(text: str) -> Limit | None:
    if match := _PACKETS.fullmatch(text):
        return Limit(packets=int(match[1]))
    if match := _PRODUCTS.fullmatch(text):
        return Limit(bdp=float(match[1]))
    try:
        return Limit(size_bytes=units.parse_size_bytes(text))
    except ValueError:
        pass
    try:
        return Limit(time_ns=units.parse_time_ns(text))
    except ValueError:
        return None


QueueLimit = Annotated[
    Limit,
    *as_text(
        _parse,
        pattern=rf"^\s*{_NUMBER}\s*({_UNITS})\s*$",
        examples=["16KB", "11 packets", "5ms", "0.5 bdp"],
        description="what it holds; see docs/queues.md",
    ),
]
