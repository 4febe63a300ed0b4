"""A number, in a unit and within a tolerance."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from outcast.assignment.questions.base import GAP, QuestionKind, Right, as_number


class Number(QuestionKind):
    """A number that the student reads from a run or computes."""

    PUBLIC = ("unit",)
    NEEDS_ANSWER = True

    kind: Literal["number"]
    unit: str = Field(default="", max_length=60, description="its unit, as `Mbps`; empty for none")
    tolerance: tuple[float | str, ...] = Field(
        default=(0.0,),
        description="how far an answer may be off: `2%`, or `0.5` in the unit, or a list of both, "
        "of which the wider one counts",
    )

    @field_validator("tolerance", mode="before")
    @classmethod
    def _one_or_several(cls, value: Any) -> Any:
        return value if isinstance(value, (list, tuple)) else (value,)

    @field_validator("tolerance")
    @classmethod
    def _shares_and_numbers(cls, value: tuple[float | str, ...]) -> tuple[float | str, ...]:
        if not value:
            raise ValueError("allowed is 2%, 0.5 or a list of both")
        for part in value:
            if (_share(part) if isinstance(part, str) else part) < 0:
                raise ValueError(f"{part}: allowed are numbers from 0")
        return value

    def reach(self, value: float) -> float:
        """How far an answer may be from this right value, in the unit."""
        return max(
            _share(part) * abs(value) if isinstance(part, str) else part for part in self.tolerance
        )

    def blank(self) -> list[str]:
        return [f"{self.key}: {GAP}  # {self.unit or 'a number without a unit'}"]

    def read(self, value: Any, folder: Path) -> float:
        return as_number(value, "12.5" + (self.unit and f" for 12.5 {self.unit}"))

    def right_from(self, rows: list[tuple[Any, ...]]) -> Right:
        values = [row[0] for row in rows if row[0] is not None]
        for value in values:
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise ValueError(f"its query gives {str(value)[:40]!r}, which is not a number")
        # A NaN stands for no value, as in a mean of nothing.
        return tuple(float(value) for value in values if value == value)

    def require_sound(self) -> None:
        if isinstance(self.answer, str):
            raise ValueError("answer: allowed is a number, {sql: ...} or {measure: ...}")

    def is_right(self, answer: Any, right: Right) -> bool:
        values = [value for value in right if isinstance(value, float)]
        return any(abs(answer - value) <= self.reach(value) for value in values)


_SHARE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?%")


def _share(text: str) -> float:
    """The number that a percentage stands for: 0.02 for `2%`. Raises ValueError."""
    match = _SHARE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:40]!r}: allowed is a percentage, as 2%")
    return float(match[1]) / 100
