"""The rate of a link: a number, or a trace of rates; and the bytes that it carries besides a frame.

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
from typing import Annotated, Literal

from pydantic import (
    PlainSerializer,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    WrapValidator,
)

from outcast import units
from outcast.experiment.parts import UNIT_SCHEMA, KernelRateBps, Part, UserFile, described
from outcast.handed_in import first_problem

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


class RateTrace(Part):
    """A rate that changes during the run, as a file says."""

    trace: UserFile = described("a CSV of times and rates, or a mahimahi trace; see docs/events.md")
    repeat: bool = described(
        "whether a CSV begins again at its last row's time; else its last rate goes on. A mahimahi "
        "trace always begins again",
        default=False,
    )


def _rate_or_trace(value: object, _handler: object, info: ValidationInfo) -> object:
    """`{trace: FILE}` is a trace, anything else a rate."""
    if isinstance(value, RateTrace):
        return value
    if not isinstance(value, dict):
        return _RATE.validate_python(value)
    try:
        return RateTrace.model_validate(value, context=info.context)
    except ValidationError as error:
        raise ValueError(f"{first_problem(error)}; allowed are trace and repeat") from None


def _written_rate(value: object) -> object:
    if isinstance(value, RateTrace):
        return value.model_dump(mode="json")
    return units.format_rate(value) if isinstance(value, int) else value


_RATE = TypeAdapter(KernelRateBps)
_RATE_SCHEMA = {
    "anyOf": [
        {"type": "string", "pattern": UNIT_SCHEMA["rate"]},
        {
            "type": "object",
            "properties": {"trace": {"type": "string"}, "repeat": {"type": "boolean"}},
            "required": ["trace"],
            "additionalProperties": False,
        },
        {"type": "null"},
    ]
}


RateOrTrace = Annotated[
    int | RateTrace | None,
    WrapValidator(_rate_or_trace),
    PlainSerializer(_written_rate),
    WithJsonSchema(_RATE_SCHEMA),
]
