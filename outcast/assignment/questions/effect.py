"""The effect of a change, judged over several seeds with an interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from outcast.analysis import statistics
from outcast.analysis.statistics import Interval
from outcast.assignment.documents import Name, RunMeasure
from outcast.assignment.questions.base import Marked, QuestionKind, Right
from outcast.reproduce import measures


class Effect(QuestionKind):
    """Whether the student's own configuration changes a measure, against another run.

    Both configurations are repeated with the same seeds, and each pair of runs gives one value: the
    quotient of the two measures if the measure is a ratio, or else their difference. The interval
    of these values has to lie wholly beyond `below` or `above`.
    """

    PUBLIC = ("against", "measure", "below", "above", "seeds")
    HAS_SLOT = False

    kind: Literal["effect"]
    against: Name = Field(description="the run that `run` is compared with")
    measure: RunMeasure = Field(description="a measure of runs, as `outcast_ratio`")
    below: float | None = Field(
        default=None,
        description="the interval has to end below this: 0.5 for a ratio that is halved",
    )
    above: float | None = Field(default=None, description="the interval has to begin above this")
    seeds: int = Field(default=5, ge=3, le=20, description="how many pairs of runs")

    def blank(self) -> list[str]:
        return ["#   nothing to write here: the run is the answer"]

    def read(self, value: Any, folder: Path) -> None:
        raise ValueError("has no answer in words, because the run is the answer")

    def require_sound(self) -> None:
        if self.answer is not None:
            raise ValueError("answer: an effect has none, because the runs decide")
        if self.run is None or self.run == self.against:
            raise ValueError("run: allowed is another run than `against`")
        if (self.below is None) == (self.above is None):
            raise ValueError("below, above: allowed is one of them")
        least = 0.0 if self.is_ratio else -math.inf
        if (self.below if self.below is not None else self.above or 0.0) <= least:
            raise ValueError("below, above: a quotient is above 0")

    @property
    def is_ratio(self) -> bool:
        """Whether quotients are averaged, and not differences."""
        return measures.is_logarithmic(self.measure)

    def interval(self, ours: Sequence[float], theirs: Sequence[float]) -> Interval:
        """The effect's size with its 95 % interval, from pairs of runs with equal seeds.

        Without bounds if a run has no value, because a remedy that stops all traffic is none.
        """
        pairs = list(zip(ours, theirs, strict=True))
        least = 0.0 if self.is_ratio else -math.inf
        if not all(math.isfinite(value) and value > least for pair in pairs for value in pair):
            return Interval(len(pairs), None, None, None)
        if self.is_ratio:
            return statistics.central([mine / other for mine, other in pairs], "geometric")
        return statistics.central([mine - other for mine, other in pairs])

    def right_of(self, interval: Interval) -> Right:
        """The interval as `mark` takes it; without bounds it is infinitely wide."""
        low = -math.inf if interval.low is None else interval.low
        return ((low, math.inf if interval.high is None else interval.high),)

    def mark(self, answer: Any, right: Right | None) -> Marked:
        """`right` is the interval from `right_of`; `answer` is not looked at."""
        if not right or not isinstance(right[0], tuple):
            return self.missing("no run to repeat")
        low, high = right[0]
        what = "quotient" if self.is_ratio else "difference"
        told = f"over {self.seeds} seeds the {what} lies between {self._text(low)} and "
        told += self._text(high)
        if self.below is not None:
            comment = f"{told}; asked is below {self._text(self.below)}"
            return self.judged(high < self.below, comment)
        above = self.above or 0.0
        return self.judged(low > above, f"{told}; asked is above {self._text(above)}")

    def _text(self, value: float) -> str:
        """A value of the measure as people read it, with its unit."""
        if self.measure.kind.endswith("_bps"):
            return f"{value / 1e6:.3g} Mbps"
        unit = " ms" if self.measure.kind.endswith("_ms") else ""
        return f"{value:.3g}{unit}"
