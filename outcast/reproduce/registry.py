"""The kinds of measures, by name; measures.py and drop_measures.py add theirs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from outcast.analysis.statistics import Limits
from outcast.records.run import Run
from outcast.reproduce.claims import Measure

SHARE = (0.0, 1.0)
Function = Callable[[Run, Measure], float]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of measure.

    Attributes:
        is_logarithmic: whether it is a ratio, so that its logarithm is averaged.
        has_interval: whether it covers the measure's interval. Others count in the whole captures.
        has_floor: whether flows that got nothing count as if one segment had arrived.
        limits: the least and the greatest value; rates and counts start at 0.
    """

    function: Function
    is_logarithmic: bool = False
    has_interval: bool = False
    has_floor: bool = False
    limits: Limits = (0.0, math.inf)


MEASURES: dict[str, Kind] = {}
"""Every kind of measure, by its name."""


def measure(**properties: Any) -> Callable[[Function], Function]:
    """Adds a function to the measures under its own name, with these attributes of a Kind."""

    def add(function: Function) -> Function:
        MEASURES[function.__name__] = Kind(function, **properties)
        return function

    return add
