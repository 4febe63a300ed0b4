"""Questions that the teacher marks: an answer in words, and a picture that is handed in."""

from __future__ import annotations

import abc
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from outcast import handed_in
from outcast.assignment.questions.base import GAP, Marked, QuestionKind, Right
from outcast.errors import InputError

_MOST_CHARACTERS = 20_000

_BEGINNINGS = {".png": b"\x89PNG\r\n\x1a\n", ".jpg": b"\xff\xd8\xff", ".pdf": b"%PDF-"}
"""How files of each type begin (PNG, section 5.2; JPEG, ITU-T T.81, B.1.1; PDF, 7.5.2)."""


class ByHand(QuestionKind):
    """A question whose answers the teacher marks."""

    @abc.abstractmethod
    def task_of_teacher(self, answer: Any) -> str:
        """What the teacher does with an answer, in words."""

    def mark(self, answer: Any, right: Right | None) -> Marked:
        return self.missing() if answer is None else self.by_hand(self.task_of_teacher(answer))


class Text(ByHand):
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

    def task_of_teacher(self, answer: Any) -> str:
        return "the teacher reads it"


class Picture(ByHand):
    """A picture or scan in the student's folder. Its presence, type and size are checked."""

    PUBLIC = ("most_mb",)

    kind: Literal["picture"]
    most_mb: int = Field(default=2, ge=1, le=20, description="the largest file, in MB")

    def blank(self) -> list[str]:
        return [
            f"#   the name of a file in this folder ({', '.join(_BEGINNINGS)}), of at most "
            f"{self.most_mb} MB",
            f"{self.key}: {GAP}",
        ]

    def read(self, value: Any, folder: Path) -> str:
        """The file's name, relative to the folder."""
        types = ", ".join(_BEGINNINGS)
        if not isinstance(value, str) or Path(value).suffix.lower() not in _BEGINNINGS:
            raise ValueError(f"{str(value)[:40]!r}: allowed is the name of a file ({types})")
        name = handed_in.require_file_name(value)
        path = folder / name
        if path.is_symlink() or any(
            (folder / part).is_symlink() for part in Path(name).parents[:-1]
        ):
            raise ValueError(f"{name}: allowed is a file, not a link")
        try:
            content = handed_in.read_bytes(path, self.most_mb << 20)
        except FileNotFoundError:
            raise ValueError(f"{name}: there is no such file") from None
        except InputError as error:
            raise ValueError(str(error).removeprefix(f"{folder}/")) from None
        suffix = path.suffix.lower()
        if not content.startswith(_BEGINNINGS[suffix]):
            raise ValueError(f"{name}: is no {suffix[1:].upper()} file")
        return name

    def task_of_teacher(self, answer: Any) -> str:
        return f"the teacher looks at {answer}"
