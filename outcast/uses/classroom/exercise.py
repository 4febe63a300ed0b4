"""An exercise: a folder with a task sheet, configurations with gaps, questions and a solution."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from outcast import experiment
from outcast.errors import ConfigError, did_you_mean
from outcast.experiment import Experiment, OwnTopology, Source, files_of, key_of, leaves, of_text
from outcast.handed_in import FileName
from outcast.uses.classroom import documents
from outcast.uses.classroom.documents import Document, Line, Name, Part, Scalar
from outcast.uses.classroom.queries import Expression
from outcast.uses.classroom.question_kind import GAP
from outcast.uses.classroom.questions import Effect, Prediction, Question

__all__ = ["Exercise", "Question", "RunTask", "Solution", "load_exercise", "shipped"]

SHIPPED = Path(__file__).parent / "exercises"
"""The exercises that come with outcast, a folder each."""

OF_STUDENT = ("class", "student", "seed")
"""The placeholders that every exercise has besides its own parameters."""

ALWAYS_FREE = frozenset({"name", "capture", "samples", "analysis", "repetitions"})
"""Keys that change what a run records, and not what happens in it."""

_NEVER_FREE = ("engine", "seed", "sweep", "programs", "kernel", "guest", "trace", "topology")
"""Keys that a student never chooses.

Grading repeats a student's configuration, so it must not name the student's programs or files.
"""


class Parameter(Part):
    """A parameter that differs from student to student; the class's key draws it."""

    choose: tuple[int | float | str, ...] = Field(min_length=1, description="one of these")


class RunTask(Part):
    """One experiment that a student completes and runs."""

    config: FileName = Field(pattern=r"^configs/[A-Za-z0-9][A-Za-z0-9._-]*\.yaml$")
    free: tuple[str, ...] = Field(default=(), description="keys that the student may change")


class _ExerciseFile(Part):
    """exercise.yaml."""

    format: Literal["outcast-exercise-1"]
    title: Line
    minutes: int = Field(ge=1, le=10_000, description="how long a student needs")
    parameters: dict[Name, Parameter] = Field(default_factory=dict)
    runs: dict[Name, RunTask] = Field(min_length=1)
    questions: tuple[Question, ...] = Field(min_length=1)


class Solution(Part):
    """solution.yaml, which stays with the teacher.

    Attributes:
        runs: by run, what fills its gaps: keys with dots between levels, and their values.
        answers: by question, the model answer in words, or the choice of a prediction.
    """

    runs: dict[Name, dict[str, Any]] = Field(default_factory=dict)
    answers: dict[Name, str] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _may_be_empty(cls, tree: Any) -> Any:
        return {} if tree is None else tree


@dataclass(frozen=True, slots=True)
class Exercise:
    """An exercise, for one student or for all.

    Attributes:
        folder: where its files are.
        name: what class.yaml and the students' folders call it.
        parameters: by name, what a student's value is chosen from.
        runs: by name, the experiments in the order in which students make them.
        values: of every placeholder; as loaded, the first of every parameter (see `with_values`).
        questions: in the order of the task sheet, with these values in their texts.
        solution: what fills the gaps, with the same values.
    """

    folder: Path
    name: str
    title: str
    parameters: Mapping[str, tuple[Scalar, ...]]
    values: Mapping[str, Scalar]
    runs: Mapping[str, RunTask]
    questions: tuple[Question, ...]
    solution: Solution
    _asked: Document
    _solved: Document

    def with_values(self, values: Mapping[str, Scalar]) -> Exercise:
        """The exercise with a student's values in questions and solution.

        `values` has one for each name of `OF_STUDENT` and each parameter.

        Raises ConfigError: a text has a placeholder without a value, or is not valid with them.
        """
        return replace(
            self,
            values=values,
            questions=self._asked.filled(values).as_model(_ExerciseFile).questions,
            solution=self._solved.filled(values).as_model(Solution),
        )

    def text(self, name: str, **others: Scalar) -> str:
        """A file of the exercise with its values, and others in their place. Raises ConfigError."""
        path = self.folder / name
        return documents.filled(documents.read_text(path), {**self.values, **others}, path)

    def expected(self, run: str, seed: int) -> Experiment:
        """A run's experiment with its gaps filled as in the solution. Raises ConfigError."""
        return self.source(run, seed).experiment()

    def source(self, run: str, seed: int) -> Source:
        """As `expected`, before it is validated."""
        name = self.runs[run].config
        text = self.text(name, seed=seed)
        source = of_text(text, self.folder / name, own_folder=self.folder)
        return source.changed({**self.solution.runs.get(run, {}), "seed": seed})


def shipped() -> list[str]:
    return sorted(path.parent.name for path in SHIPPED.glob("*/exercise.yaml"))


def load_exercise(name_or_path: str | Path, name: str | None = None) -> Exercise:
    """Reads an exercise and checks all of it.

    `name` is what it is called; None is the folder's name.

    Raises ConfigError: there is no such exercise, or a file of it is not valid. The text has the
    file, the line, what is wrong and what is allowed.
    """
    folder = Path(name_or_path)
    if isinstance(name_or_path, str) and name_or_path in shipped():
        folder = SHIPPED / name_or_path
    if not folder.is_dir():
        raise ConfigError(
            f"{name_or_path}: no such exercise; allowed are {', '.join(shipped())}, or a folder "
            f"with exercise.yaml{did_you_mean(str(name_or_path), shipped())}"
        )
    return _checked(folder, name or folder.resolve().name)


def _checked(folder: Path, name: str) -> Exercise:
    template = Document.read(folder / "exercise.yaml")
    parameters = _parameters(template)
    values: dict[str, Scalar] = {"class": "class", "student": "student", "seed": 1}
    values |= {key: choices[0] for key, choices in parameters.items()}
    document = template.filled(values)
    spec = document.as_model(_ExerciseFile)
    solved = Document.read(folder / "solution.yaml")
    exercise = Exercise(
        folder=folder,
        name=name,
        title=spec.title,
        parameters=parameters,
        values=values,
        runs=spec.runs,
        questions=spec.questions,
        solution=solved.filled(values).as_model(Solution),
        _asked=template,
        _solved=solved,
    )
    for at, message in _contradictions(exercise):
        raise document.refusal(at, message)
    for at, message in _unsolved(exercise):
        raise solved.refusal(at, message)
    exercise.text("task.md")
    for run in exercise.runs:
        _require_config(exercise, run)
    return exercise


def _parameters(document: Document) -> dict[str, tuple[Scalar, ...]]:
    """The parameters, which have to be known before any other text can be filled in."""
    tree = document.tree.get("parameters") or {}
    if not isinstance(tree, dict):
        raise document.refusal(("parameters",), "allowed is {NAME: {choose: [...]}}")
    parameters: dict[str, tuple[Scalar, ...]] = {}
    for key, part in tree.items():
        if key in OF_STUDENT:
            raise document.refusal(("parameters", key), "is the name of something else")
        try:
            parameters[str(key)] = Parameter.model_validate(part).choose
        except ValidationError:
            raise document.refusal(
                ("parameters", str(key)), "allowed is {choose: [VALUE, ...]}, with numbers or words"
            ) from None
    return parameters


def _contradictions(exercise: Exercise) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Says what is wrong in exercise.yaml although each key is valid: the place, and what."""
    experiment_keys = set(map(key_of, Experiment.model_fields))
    allowed_free = sorted(experiment_keys - set(_NEVER_FREE) - ALWAYS_FREE)
    for run, task in exercise.runs.items():
        for key in task.free:
            if key not in allowed_free:
                yield ("runs", run, "free"), f"{key}: allowed are {', '.join(allowed_free)}"
    seen: set[str] = set()
    for index, question in enumerate(exercise.questions):
        at: tuple[str | int, ...] = ("questions", index)
        if question.key in seen:
            yield (*at, "key"), f"{question.key}: two questions have this key"
        seen.add(question.key)
        named: list[tuple[str, str | None]] = [("run", question.run)]
        if isinstance(question, Effect):
            named.append(("against", question.against))
        for key, name in named:
            if name and name not in exercise.runs:
                near = did_you_mean(name, exercise.runs)
                known = ", ".join(exercise.runs)
                yield (*at, key), f"{name}: no such run; allowed are {known}{near}"
        try:
            if isinstance(question.answer, Expression):
                question.answer.require_sound()
                if question.run is None:
                    yield at, f"{question.key}: run is missing, because the answer is computed"
            elif question.NEEDS_ANSWER and question.answer is None:
                yield at, f"{question.key}: answer is missing"
            question.require_sound()
        except ValueError as error:
            yield at, f"{question.key}: {error}"


def _unsolved(exercise: Exercise) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Says what is wrong in solution.yaml although each key is valid."""
    keys = [question.key for question in exercise.questions]
    for part, tree, allowed in (
        ("runs", exercise.solution.runs, list(exercise.runs)),
        ("answers", exercise.solution.answers, keys),
    ):
        for name in tree:
            if name not in allowed:
                known = f"allowed are {', '.join(allowed)}{did_you_mean(name, allowed)}"
                yield (part, name), f"is unknown; {known}"
    for question in exercise.questions:
        answer = exercise.solution.answers.get(question.key)
        if isinstance(question, Prediction) and answer and answer not in question.choices:
            known = ", ".join(question.choices)
            yield ("answers", question.key), f"{answer}: allowed is one of {known}"


_SEED_LINE = re.compile(r"^seed: *\{\{ *seed *\}\} *(#.*)?$", re.MULTILINE)


def _require_config(exercise: Exercise, run: str) -> None:
    """Raises ConfigError if a run's configuration is not valid with the solution's values."""
    path = exercise.folder / exercise.runs[run].config
    if len(_SEED_LINE.findall(documents.read_text(path))) != 1:
        raise ConfigError(
            f"{path}: a line `seed: {{{{seed}}}}` is needed, once and at the top level"
        )
    source = exercise.source(run, 1)
    config = source.experiment()
    if gap_lines(experiment.dump(config)):
        raise ConfigError(f"{path}: solution.yaml leaves a gap ({GAP}) in runs: {run}")
    named = [field for field in Experiment.model_fields if _names_file(config, field)]
    # The experiment has the points of a distribution in place of their file.
    if any(str(leaf).endswith(".csv") for leaf in leaves(source.tree.get("workloads"))):
        named.append("workloads")
    for key in named:
        raise ConfigError(
            f"{path}: {key}: names a file; allowed are configurations without files of your own, "
            "because grading repeats a student's run from its configuration alone"
        )
    if config.engine != "virtual":
        raise ConfigError(
            f"{path}: engine is {config.engine}; allowed is virtual, because a run has to be "
            "repeatable to the byte"
        )


def _names_file(config: Experiment, key: str) -> bool:
    part = getattr(config, key)
    return isinstance(part, OwnTopology) or bool(files_of(part))


def gap_lines(text: str) -> list[int]:
    """The lines of a configuration that still have a gap, counted from 1."""
    lines = text.splitlines()
    return [number for number, line in enumerate(lines, 1) if GAP in line.partition("#")[0]]
