"""Questions with choices: one of them is right, or is the student's expectation before a run."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from outcast.assignment.documents import Line, Name
from outcast.assignment.questions.base import GAP, Marked, QuestionKind, Right


class OfChoices(QuestionKind):
    """A question that is answered by the name of one of its choices."""

    choices: dict[Name, Line] = Field(
        min_length=2, description="each choice's name and its text; answers.yaml takes the name"
    )

    def blank(self) -> list[str]:
        lines = []
        for name, text in self.choices.items():
            start, more = f"#   {name}: ", "#       "
            lines += textwrap.wrap(text, 96, initial_indent=start, subsequent_indent=more)
        return [*lines, f"{self.key}: {GAP}"]

    def read(self, value: Any, folder: Path) -> str:
        # YAML reads `yes` and `no` as booleans.
        word = {True: "yes", False: "no"}.get(value, value) if isinstance(value, bool) else value
        if not isinstance(word, str) or word not in self.choices:
            raise ValueError(f"{str(value)[:40]!r}: allowed is one of {', '.join(self.choices)}")
        return word


class Choice(OfChoices):
    """A question whose answers are given; one of them is right."""

    PUBLIC = ("choices",)
    NEEDS_ANSWER = True

    kind: Literal["choice"]

    def right_from(self, rows: list[tuple[Any, ...]]) -> Right:
        names = [row[0] for row in rows if row[0] is not None]
        for name in names:
            if name not in self.choices:
                raise ValueError(
                    f"its query gives {str(name)[:40]!r}; allowed is one of "
                    f"{', '.join(self.choices)}"
                )
        return tuple(names)

    def require_sound(self) -> None:
        if isinstance(self.answer, float) or (
            isinstance(self.answer, str) and self.answer not in self.choices
        ):
            raise ValueError(
                f"answer: allowed is one of {', '.join(self.choices)}, or {{sql: ...}}"
            )


class Prediction(OfChoices):
    """A prediction, which earns its points for having been made, not for being right."""

    PUBLIC = ("choices",)

    kind: Literal["prediction"]

    def require_sound(self) -> None:
        if self.answer is not None:
            raise ValueError("answer: a prediction has none, because any earns its points")

    def mark(self, answer: Any, right: Right | None) -> Marked:
        return self.missing() if answer is None else self.judged(True)
