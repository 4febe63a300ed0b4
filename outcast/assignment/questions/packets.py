"""A range of packets or of time, by which the student points at something in a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from outcast.assignment.questions.base import (
    GAP,
    QuestionKind,
    Right,
    as_number,
)


class Packets(QuestionKind):
    """A range that has to contain what the answer's query selects.

    The query gives a row with two columns for each thing that may be pointed at: where it begins
    and where it ends, in `unit`.
    """

    PUBLIC = ("unit", "widest")
    NEEDS_ANSWER = True

    kind: Literal["packets"]
    unit: str = Field(
        default="ms after the traffic's start",
        min_length=1,
        max_length=60,
        description="what the numbers count",
    )
    widest: float = Field(
        gt=0, description="the widest range that counts; otherwise the whole run would be right"
    )

    def blank(self) -> list[str]:
        return [
            f"#   a range no wider than {self.widest:g}, in {self.unit}",
            f"{self.key}:",
            f"  from: {GAP}",
            f"  to: {GAP}",
        ]

    def read(self, value: Any, folder: Path) -> tuple[float, float]:
        if not isinstance(value, dict) or set(value) != {"from", "to"}:
            raise ValueError("allowed is {from: NUMBER, to: NUMBER}")
        begin, end = (as_number(value[key], "12.5") for key in ("from", "to"))
        if end < begin:
            raise ValueError(f"ends at {end:g}, before it begins at {begin:g}")
        if end - begin > self.widest:
            raise ValueError(f"is {end - begin:g} wide; allowed is at most {self.widest:g}")
        return begin, end

    def right_from(self, rows: list[tuple[Any, ...]]) -> Right:
        spans = []
        for row in rows:
            if len(row) != 2 or not all(
                isinstance(value, (int, float)) and value == value for value in row
            ):
                raise ValueError("its query has to give two numbers a row: the begin and the end")
            spans.append((float(row[0]), float(row[1])))
        return tuple(spans)

    def require_sound(self) -> None:
        if isinstance(self.answer, (float, str)):
            raise ValueError("answer: allowed is {sql: ...}")

    def is_right(self, answer: Any, right: Right) -> bool:
        begin, end = answer
        spans = [span for span in right if isinstance(span, tuple)]
        return any(begin <= first and last <= end for first, last in spans)
