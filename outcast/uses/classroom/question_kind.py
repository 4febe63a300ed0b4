"""Every kind of question has keys, lines in answers.yaml, and a marking."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from outcast.errors import InputError
from outcast.records import Run
from outcast.uses.classroom.documents import Line, Name, Part
from outcast.uses.classroom.queries import Expression

GAP = "FILL_IN"
"""The mark in configurations and answers that a student replaces."""

Span = tuple[float, float]
"""A range with its ends, or an interval."""

Right = tuple[float | str | Span, ...]
"""All right answers of a question, because a question can have several.

Numbers for `number`, names of choices for `choice`, ranges for `packets`. For `effect` it is the
interval of the effect's size.
"""

State = Literal["right", "partly", "wrong", "missing", "by_hand"]
"""
right, wrong: compared with the right answer.
partly: a person gave some of its points.
missing: there is no answer, or nothing to compare it with.
by_hand: the teacher gives the points.
"""


@dataclass(frozen=True, slots=True)
class Marked:
    """The marks of one question. The comment is for the student, without the right answer."""

    key: str
    points: float
    most_points: float
    comment: str
    state: State


def _kind_of_answer(value: Any) -> str:
    if isinstance(value, (dict, Expression)):
        return "expression"
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return "value" if is_number else "word"


Answer = Annotated[
    Annotated[Expression, Tag("expression")]
    | Annotated[float, Tag("value")]
    | Annotated[str, Tag("word")],
    Discriminator(_kind_of_answer),
]
"""How a right answer is computed, or the right answer itself."""


class QuestionKind(Part, abc.ABC):
    """A question. Each kind is a class with its own `kind`, in a file of its own.

    `Answer` stands for what `read` returns and `mark` takes; it differs from kind to kind.
    """

    PUBLIC: ClassVar[tuple[str, ...]] = ()
    """The kind's own keys that a student may see. The others stay with the teacher."""
    NEEDS_ANSWER: ClassVar[bool] = False
    """Whether the exercise has to say how the right answer is computed."""
    HAS_SLOT: ClassVar[bool] = True
    """Whether the student writes something into answers.yaml."""

    kind: str
    key: Name = Field(description="its name, which stands in answers.yaml and in gradebooks")
    asked: Line = Field(description="the question, in a line or two")
    points: float = Field(ge=0, le=1000, description="what a right answer earns")
    hint: Line | None = Field(default=None, description="where or how to look; students see it")
    run: Name | None = Field(default=None, description="the run that the question is about")
    answer: Answer | None = Field(
        default=None, description="how the right answer is computed, or the answer itself"
    )

    @abc.abstractmethod
    def blank(self) -> list[str]:
        """The lines of answers.yaml that hold the gap, below the question's comment."""

    @abc.abstractmethod
    def read(self, value: Any, folder: Path) -> Any:
        """The student's answer from the value in answers.yaml.

        Args:
            value: what stands there; neither a gap nor nothing, see `is_blank`.
            folder: the student's folder, for files that an answer names.

        Raises:
            ValueError: it is no answer. The text says what is wrong and what is allowed.
        """

    def mark(self, answer: Any, right: Right | None) -> Marked:
        """Marks an answer.

        Args:
            answer: what `read` returned; None without an answer.
            right: the right answers; None if they are not known, as without the run.
        """
        if answer is None:
            return self.missing()
        if right is None:
            return self.missing(NO_RUN)
        if not right:
            return self.by_hand(NO_ANSWER)
        return self.judged(self.is_right(answer, right))

    def is_right(self, answer: Any, right: Right) -> bool:
        """Whether an answer is one of the right ones, of which there is at least one."""
        return answer in right

    def is_blank(self, value: Any) -> bool:
        """Whether a value of answers.yaml is no answer yet."""
        if isinstance(value, dict):
            return not value or any(self.is_blank(inner) for inner in value.values())
        return value is None or (isinstance(value, str) and (GAP in value or not value.strip()))

    def right_answers(self, run: Run | None) -> Right | None:
        """All right answers from the run that it names, analysed here; empty if the run has none.

        None if the question has no right answer, or needs a run that is not there. Runs and seeds
        decide an effect or a prediction instead.

        Raises InputError: the question's query does not fit the run's tables.
        """
        if not isinstance(self.answer, Expression):
            return None if self.answer is None else (self.answer,)
        if run is None:
            return None
        try:
            return self.right_from(self.answer.rows(run))
        except (InputError, ValueError) as error:
            why = str(error).removeprefix(f"{run.directory.path}: ")
            raise InputError(f"{run.directory.path}: {self.key}: {why}") from None

    def right_from(self, rows: list[tuple[Any, ...]]) -> Right:
        """The right answers from the rows of a query. Raises ValueError if they are no answers."""
        raise ValueError(f"a question of the kind {self.kind} has no query")

    def require_sound(self) -> None:
        """Raises ValueError if the keys contradict each other. A student's copy is not checked."""

    def handed_out(self) -> dict[str, Any]:
        """The question as a student gets it, without the answer and all that leads to it."""
        shared = ("kind", "key", "asked", "points", "hint", "run")
        tree = self.model_dump(mode="json", exclude_none=True)
        return {key: tree[key] for key in (*shared, *self.PUBLIC) if key in tree}

    def missing(self, comment: str = "not answered") -> Marked:
        """No points, because something is not there."""
        return Marked(self.key, 0.0, self.points, comment, "missing")

    def judged(self, is_right: bool, comment: str = "") -> Marked:
        """All points or none."""
        points = self.points if is_right else 0.0
        return Marked(self.key, points, self.points, comment, "right" if is_right else "wrong")

    def by_hand(self, comment: str) -> Marked:
        """No points yet, because the teacher gives them."""
        return Marked(self.key, 0.0, self.points, comment, "by_hand")


NO_RUN = "nothing to compare it with, because the run is missing or not accepted"
NO_ANSWER = "this run has nothing that fits the question, so the teacher decides"
"""An honest run can lack what is requested, as a blackout, and its student is not to blame."""


def as_number(value: Any, example: str) -> float:
    """The number that an answer is. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{str(value)[:40]!r} is not a number; allowed is {example}, for example")
    return float(value)
