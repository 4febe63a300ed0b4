"""The kinds of questions.

A kind is registered by its place in `Question`. This makes it available to
exercise.yaml, answers.yaml, the checks and the marking.
"""

from __future__ import annotations

import abc
import math
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, field_validator

from outcast import handed_in
from outcast.analysis import Interval, central, measures
from outcast.errors import InputError
from outcast.uses.classroom.documents import Line, Name, RunMeasure
from outcast.uses.classroom.question_kind import GAP, Marked, QuestionKind, Right, as_number


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
        # NaN means no value, as in the mean of an empty set.
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


class Packets(QuestionKind):
    """A range that has to contain an object that the answer's query selects.

    The query gives a row for each such object, with its beginning and its end in `unit`.
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


_MOST_CHARACTERS = 20_000

_BEGINNINGS = {".png": b"\x89PNG\r\n\x1a\n", ".jpg": b"\xff\xd8\xff", ".pdf": b"%PDF-"}
"""How files of each type begin (PNG, section 5.2; JPEG, ITU-T T.81, B.1.1; PDF, 7.5.2)."""


class ByHand(QuestionKind):
    """A question whose answers the teacher marks."""

    @abc.abstractmethod
    def task_of_teacher(self, answer: Any) -> str:
        """The teacher's task with an answer, in words."""

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
        if path.resolve() != folder.resolve() / name:
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
        """Whether quotients are averaged instead of differences."""
        return measures.is_logarithmic(self.measure)

    def interval(self, ours: Sequence[float], theirs: Sequence[float]) -> Interval:
        """The effect's size with its 95 % interval, from pairs of runs with equal seeds.

        It has no bounds if a run has no value: a remedy that stops all traffic does not help.
        """
        pairs = list(zip(ours, theirs, strict=True))
        least = 0.0 if self.is_ratio else -math.inf
        if not all(math.isfinite(value) and value > least for pair in pairs for value in pair):
            return Interval(len(pairs), None, None, None)
        if self.is_ratio:
            return central([mine / other for mine, other in pairs], "geometric")
        return central([mine - other for mine, other in pairs])

    def right_of(self, interval: Interval) -> Right:
        """The interval as `mark` takes it; without bounds it is infinitely wide."""
        low = -math.inf if interval.low is None else interval.low
        return ((low, math.inf if interval.high is None else interval.high),)

    def mark(self, answer: Any, right: Right | None) -> Marked:
        """`right` is the interval from `right_of`; `answer` is ignored."""
        if not right or not isinstance(right[0], tuple):
            return self.missing("no run to repeat")
        low, high = right[0]
        what = "quotient" if self.is_ratio else "difference"
        found = f"over {self.seeds} seeds the {what} lies between {self._text(low)} and "
        found += self._text(high)
        if self.below is not None:
            comment = f"{found}; wanted is below {self._text(self.below)}"
            return self.judged(high < self.below, comment)
        above = self.above or 0.0
        return self.judged(low > above, f"{found}; wanted is above {self._text(above)}")

    def _text(self, value: float) -> str:
        """A value of the measure as people read it, with its unit."""
        if self.measure.kind.endswith("_bps"):
            return f"{value / 1e6:.3g} Mbps"
        unit = " ms" if self.measure.kind.endswith("_ms") else ""
        return f"{value:.3g}{unit}"


Question = Annotated[
    Number | Choice | Text | Packets | Picture | Prediction | Effect,
    Field(discriminator="kind"),
]

KINDS: tuple[type[QuestionKind], ...] = get_args(get_args(Question)[0])
"""The classes of all kinds."""
