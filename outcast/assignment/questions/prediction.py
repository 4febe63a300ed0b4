"""The student's expectation, sealed before the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from outcast.assignment.parts import Line, Name
from outcast.assignment.questions.base import (
    Marked,
    QuestionKind,
    Right,
    choice_lines,
    require_choice,
)


class Prediction(QuestionKind):
    """A prediction. The seed of the runs that come after it follows from it.

    It earns its points for having been made before the run, not for being right.
    """

    PUBLIC = ("choices", "before")

    kind: Literal["prediction"]
    choices: dict[Name, Line] = Field(min_length=2, description="what can be expected")
    before: tuple[Name, ...] = Field(
        min_length=1, description="the runs whose seed follows from the prediction"
    )

    def blank(self) -> list[str]:
        return choice_lines(self.key, self.choices)

    def read(self, value: Any, folder: Path) -> str:
        return require_choice(value, self.choices)

    def require_sound(self) -> None:
        if self.answer is not None:
            raise ValueError("answer: a prediction has none, because any earns its points")

    def mark(self, answer: Any, right: Right | None) -> Marked:
        """`right` is not None if a run with the prediction's seed was handed in."""
        if answer is None:
            return self.missing()
        if right is None:
            return self.missing("no run was made after this prediction")
        return self.judged(True, "made before the run")
