"""A queue's limit: bytes, packets, a time, or bandwidth-delay products.

A kernel counts bytes or packets. What a limit comes to there follows from the port: its rate, the
size of its full frames, and the base RTT of the flows that cross it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction
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


@dataclass(frozen=True, slots=True)
class Drain:
    """How a port empties its queue.

    Attributes:
        frame_bytes: the largest frame, as a qdisc counts it.
        wire_bytes: what such a frame takes on the link.
        base_rtt_ns: what one bandwidth-delay product lasts.
    """

    rate_bps: int
    frame_bytes: int
    wire_bytes: int
    base_rtt_ns: int

    def frames(self, time_ns: Fraction) -> Fraction:
        """How many full frames the port sends in a time."""
        return time_ns * self.rate_bps / (8 * 10**9 * self.wire_bytes)


class Limit(Part):
    """A queue's capacity; at most one is set.

    Attributes:
        size_bytes, packets: as a kernel counts it.
        time_ns: what the port sends in so long a time, in full frames.
        bdp: bandwidth-delay products: what it sends in this number of base RTTs.
    """

    # It is written as a text.
    model_config = ConfigDict(alias_generator=None)

    size_bytes: int | None = None
    packets: int | None = None
    time_ns: int | None = None
    bdp: float | None = None

    def __str__(self) -> str:
        """As people write it."""
        if self.packets is not None:
            return f"{self.packets} packet{'s' if self.packets != 1 else ''}"
        if self.bdp is not None:
            return f"{self.bdp:.12g} bdp"
        if self.time_ns is not None:
            return units.format_time(self.time_ns)
        return units.format_size(self.size_bytes or 0)

    def counted(self, counts: Collection[Unit], drain: Drain) -> Limit:
        """The limit in a unit that a queue counts; of both, a time comes to bytes.

        It is rounded down, so that a queue never lasts longer than the requested time.

        Raises ValueError: it holds no full frame there, or more than a kernel counts.
        """
        if any(getattr(self, unit) is not None for unit in counts):
            return self
        frames = self._frames(drain)
        if frames < 1:
            raise ValueError(
                f"{self} is {float(frames * drain.frame_bytes):.0f} B at "
                f"{units.format_rate(drain.rate_bps)}{self._of_rtt(drain)}, which holds no full "
                f"frame of {drain.frame_bytes} B; allowed is more, or a limit of this port's own"
            )
        if frames * drain.frame_bytes > MOST_QUEUED:
            raise ValueError(
                f"{self} is {float(frames * drain.frame_bytes):.3g} B at "
                f"{units.format_rate(drain.rate_bps)}{self._of_rtt(drain)}, more than the 1GB that "
                "a kernel counts; allowed is less"
            )
        if "size_bytes" in counts:
            return Limit(size_bytes=int(frames * drain.frame_bytes))
        return Limit(packets=int(frames))

    def _frames(self, drain: Drain) -> Fraction:
        if self.packets is not None:
            return Fraction(self.packets)
        if self.size_bytes is not None:
            return Fraction(self.size_bytes, drain.frame_bytes)
        products = Fraction(f"{self.bdp or 0:.12f}")
        return drain.frames(Fraction(self.time_ns or 0) + products * drain.base_rtt_ns)

    def _of_rtt(self, drain: Drain) -> str:
        return "" if self.bdp is None else f" and a base RTT of {drain.base_rtt_ns / 1e6:.4g} ms"


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
