"""A measure of a run, and the kinds of measures by name; the files beside this one add theirs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from outcast.analysis.statistics import Limits
from outcast.experiment import GroupKind
from outcast.records.run import Run
from outcast.units import parse_time_ns

Interval = Literal["whole", "all_active", "second_half"] | tuple[str, str]
"""The part of a run that a measure covers; docs/steady-state.md has each recipe's, and why.

`all_active` is the time in which all flows are active, and `second_half` its second half. Two times
as `[100ms, 500ms]` count from when all flows are active.
"""


class Measure(BaseModel):
    """A number taken from one run; `kind` is a name of MEASURES."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kind: str
    hops: int | None = Field(default=None, description="the class, by its hop count")
    interval: Interval | None = Field(
        default=None, description="the part of the run; if left out, the recipe's interval"
    )
    length: int | None = Field(default=None, description="the length of a chain of drops")
    group: int | None = Field(default=None, description="the group of flows, by its index")
    below: str | None = Field(default=None, description="only flows below this size")
    above: str | None = Field(default=None, description="only flows above this size")
    by: GroupKind | None = Field(default=None, description="a kind of grouping, with `label`")
    label: str | None = Field(default=None, description="a group of that kind")
    over: str | None = Field(default=None, description="another group of that kind")
    within_ms: int | None = Field(default=None, description="so long after a blackout's start")

    @model_validator(mode="after")
    def _a_group_has_a_kind(self) -> Measure:
        if (self.by is None) != (self.label is None) or (self.over and self.label is None):
            raise ValueError("by and label: allowed are both, with or without over, or neither")
        return self

    @field_validator("interval")
    @classmethod
    def _from_before_to(cls, interval: Interval | None) -> Interval | None:
        return ordered(interval)


def ordered(interval: Interval | None) -> Interval | None:
    """The interval. Raises ValueError if it ends before it begins."""
    if isinstance(interval, tuple):
        begin, end = interval
        if parse_time_ns(begin) >= parse_time_ns(end):
            raise ValueError(f"interval: {begin} is not before {end}")
    return interval


SHARE = (0.0, 1.0)
NOT_NEGATIVE = (0.0, math.inf)
Function = Callable[[Run, Measure], float]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of measure.

    Attributes:
        limits: the least and the greatest value. No interval goes beyond.
        is_logarithmic: whether it is a ratio, so that its logarithm is averaged.
        has_interval: whether it covers the measure's interval. Others count in the whole captures.
    """

    function: Function
    limits: Limits
    is_logarithmic: bool = False
    has_interval: bool = False


MEASURES: dict[str, Kind] = {}
"""Every kind of measure, by its name."""


def measure(*, limits: Limits, **properties: Any) -> Callable[[Function], Function]:
    """Adds a function to the measures under its own name, with these attributes of a Kind."""

    def add(function: Function) -> Function:
        MEASURES[function.__name__] = Kind(function, limits, **properties)
        return function

    return add
