"""The bytes that a link carries besides a frame itself.

On Ethernet a preamble with its start delimiter (8 bytes), a check sequence (4) and a gap before the
next frame (12) go with every frame, and a frame has at least 64 bytes with its check sequence
(IEEE 802.3, clauses 3.1.1 and 4.4.2). A frame that a qdisc counts as 1514 bytes takes the time of
1538, which at 1 Gbps is 12.304 us.

The shaper counts them (`overhead` and `mpu` of struct tc_ratespec; psched_l2t_ns in the kernel's
include/net/sch_generic.h). A queue's limit does not, because the length of a packet stays what it
is (qdisc_pkt_len). A size table (tc-stab(8)) would change that length, and so every limit in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Overhead = Literal["ethernet", "none"]
"""`none`: a frame takes the time of the bytes that a qdisc counts, without its check sequence."""


@dataclass(frozen=True, slots=True)
class Framing:
    """How many bytes' time a frame takes on a link.

    `least_bytes` is the least that a frame takes, with what goes with it.
    """

    added_bytes: int
    least_bytes: int

    def wire_bytes(self, frame_bytes: int) -> int:
        """The bytes' time that a frame takes, from its length as a qdisc counts it."""
        return max(frame_bytes + self.added_bytes, self.least_bytes)


FRAMINGS: Mapping[Overhead, Framing] = {
    "ethernet": Framing(added_bytes=8 + 4 + 12, least_bytes=8 + 64 + 12),
    "none": Framing(added_bytes=0, least_bytes=0),
}
