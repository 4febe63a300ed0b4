"""The kinds of measures, by name; measures.py and drop_measures.py add theirs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from outcast.analysis.statistics import Limits
from outcast.records.run import Run
from outcast.uses.papers.claims import Measure

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
        has_floor: whether flows that got nothing count as if one segment had arrived.
    """

    function: Function
    limits: Limits
    is_logarithmic: bool = False
    has_interval: bool = False
    has_floor: bool = False


MEASURES: dict[str, Kind] = {}
"""Every kind of measure, by its name."""


def measure(*, limits: Limits, **properties: Any) -> Callable[[Function], Function]:
    """Adds a function to the measures under its own name, with these attributes of a Kind."""

    def add(function: Function) -> Function:
        MEASURES[function.__name__] = Kind(function, limits, **properties)
        return function

    return add
