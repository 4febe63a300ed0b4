"""The rate of a link: a number, or a trace of rates that change during the run."""

from __future__ import annotations

from typing import Annotated

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
