"""One of several choices."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from outcast.assignment.parts import Line, Name
from outcast.assignment.questions.base import (
    QuestionKind,
    Right,
    choice_lines,
    require_choice,
)


class Choice(QuestionKind):
    """A question whose answers are given; one of them is right."""

    PUBLIC = ("choices",)
    NEEDS_ANSWER = True

    kind: Literal["choice"]
    choices: dict[Name, Line] = Field(
        min_length=2, description="each choice's name and its text; answers.yaml takes the name"
    )

    def blank(self) -> list[str]:
        return choice_lines(self.key, self.choices)

    def read(self, value: Any, folder: Path) -> str:
        return require_choice(value, self.choices)

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
