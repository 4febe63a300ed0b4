"""An answer in words, which the teacher reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from outcast.assignment.questions.base import GAP, Marked, QuestionKind, Right

_MOST_CHARACTERS = 20_000


class Text(QuestionKind):
    """An explanation. The program only counts its words."""

    PUBLIC = ("least_words",)

    kind: Literal["text"]
    least_words: int = Field(
        default=15, ge=1, le=1000, description="fewer words count as no answer"
    )

    def blank(self) -> list[str]:
        return [f"#   at least {self.least_words} words", f"{self.key}: |", f"  {GAP}"]

    def read(self, value: Any, folder: Path) -> str:
        if not isinstance(value, str):
            raise ValueError(f"allowed are at least {self.least_words} words")
        text = value.strip()
        if len(text) > _MOST_CHARACTERS:
            raise ValueError(f"longer than {_MOST_CHARACTERS} characters")
        if len(text.split()) < self.least_words:
            raise ValueError(f"fewer than {self.least_words} words")
        return text

    def mark(self, answer: Any, right: Right | None) -> Marked:
        if answer is None:
            return self.missing()
        return self.by_hand("the teacher reads it")
