"""Tries an exercise on several students before it is handed out.

The solution is run with each student's parameters and seeds. Then every model answer is looked at
over all of them: whether it is there, whether it is stable, and whether it tells students apart.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from outcast.analysis.statistics import Interval
from outcast.assignment.exercise import Exercise
from outcast.assignment.expression import Expression
from outcast.assignment.identity import Key
from outcast.assignment.lint_runs import Outcome, Place, jobs_of, made
from outcast.assignment.questions import Effect, Number, Packets, Question, Right, Text
from outcast.assignment.replayed import Runner
from outcast.view.terminal import forms

_DIGITS = 3
"""The significant digits with which reports show rates and times."""

MOST_SHARE = 0.5
"""If one answer is right for a larger share of the students, the question tells too few apart."""


@dataclass(frozen=True, slots=True)
class Line:
    """The findings about one question; `values` are the right answers in a few words."""

    key: str
    kind: str
    values: str
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Linted:
    """The findings about an exercise; `problems` are those of runs and changes."""

    questions: tuple[Line, ...]
    problems: tuple[str, ...]
    runs: int

    @property
    def all_problems(self) -> list[str]:
        """Everything that is wrong, in lines that begin with the question or the run."""
        return [
            *self.problems,
            *(f"{line.key}: {problem}" for line in self.questions for problem in line.problems),
        ]


def lint(
    exercise: Exercise,
    runner: Runner,
    scratch: Path,
    seeds: int = 10,
    jobs: int = 1,
    on_progress: Callable[[str], None] = lambda text: None,
) -> Linted:
    """Runs the solution for so many students, and looks at every question.

    Each has a seed and parameters of their own. Runs go to `scratch`, and are removed as soon as
    they are evaluated.
    """
    # The same exercise gives the same students, so a second lint shows what a change did.
    key = Key(hashlib.sha256(f"lint {exercise.name}".encode()).digest())
    students = [f"student{number}" for number in range(1, seeds + 1)]
    tasks = [job for student in students for job in jobs_of(exercise, key, student, scratch)]
    outcomes = made(tasks, runner, jobs, on_progress)
    problems = [
        f"{job.name}: {problem}" for job in tasks if (problem := outcomes[job.place].problem)
    ]
    lines = tuple(_line(exercise, question, students, outcomes) for question in exercise.questions)
    return Linted(lines, tuple(problems), len(tasks))


def _line(
    exercise: Exercise,
    question: Question,
    students: Sequence[str],
    outcomes: Mapping[Place, Outcome],
) -> Line:
    if isinstance(question, Effect):
        values, problems = _of_effect(exercise, question, students, outcomes)
    elif isinstance(question, Text):
        values, problems = "", _of_words(exercise, question)
    elif isinstance(question.answer, Expression) and question.run is not None:
        given = [
            outcomes[student, question.run, None].right.get(question.key, ())
            for student in students
        ]
        values, problems = _of_answers(question, students, given)
    else:
        values, problems = "", []
    return Line(question.key, question.kind, values, tuple(problems))


def _of_words(exercise: Exercise, question: Text) -> list[str]:
    words = len(exercise.solution.answers.get(question.key, "").split())
    if not words:
        return ["solution.yaml has no model answer"]
    if words < question.least_words:
        return [f"the model answer has {words} words; asked are {question.least_words}"]
    return []


def _of_answers(
    question: Question, students: Sequence[str], given: Sequence[Right | str]
) -> tuple[str, list[str]]:
    """The computed answers of all students in a few words, and what is wrong with them."""
    for answers in given:
        if isinstance(answers, str):
            return "", [answers]
    known = [answers for answers in given if not isinstance(answers, str)]
    absent = [student for student, answers in zip(students, known, strict=True) if not answers]
    problems = []
    if absent:
        listed = ", ".join(absent[:3]) + (", ..." if len(absent) > 3 else "")
        problems.append(f"has no answer for {len(absent)} of {len(students)} ({listed})")
    present = [answers for answers in known if answers]
    if not present:
        return "", problems
    if isinstance(question, Number):
        values, wrong = _of_numbers(question, present)
    elif isinstance(question, Packets):
        values, wrong = _of_ranges(question, present)
    else:
        values, wrong = _of_choices(question, present)
    return values, [*problems, *wrong]


def _of_numbers(question: Number, known: Sequence[Right]) -> tuple[str, list[str]]:
    numbers = [[value for value in answers if isinstance(value, float)] for answers in known]
    flat = [value for answers in numbers for value in answers]
    least, greatest = min(flat), max(flat)
    problems = []
    if least < 0 < greatest:
        problems.append(f"its sign changes: from {least:.4g} to {greatest:.4g}")
    too_exact = next((value for value in flat if question.reach(value) < _rounding(value)), None)
    if too_exact is not None:
        problems.append(
            f"tolerance: {question.reach(too_exact):.2g} at {too_exact:.4g} is narrower than the "
            f"rounding of a report to {_DIGITS} digits, {_rounding(too_exact):.2g}"
        )
    ranges = [
        [(value - question.reach(value), value + question.reach(value)) for value in answers]
        for answers in numbers
    ]
    # Some answer fits the most students; it is a right value, or the lower end of what is taken.
    ends = [low for answers in ranges for low, _ in answers]
    best, fits = _best([*flat, *ends], ranges, lambda end, low, high: low <= end <= high)
    problems += _fits_too_many(f"{best:.4g}", fits, len(known))
    return f"{least:.4g} to {greatest:.4g}", problems


def _rounding(value: float) -> float:
    """Half of the last digit that a report shows; 0 for whole numbers, which it shows in full."""
    if value == round(value):
        return 0.0
    return 0.5 * 10.0 ** (math.floor(math.log10(abs(value))) - _DIGITS + 1)


def _of_ranges(question: Packets, known: Sequence[Right]) -> tuple[str, list[str]]:
    spans = [[span for span in answers if isinstance(span, tuple)] for answers in known]
    problems = []
    widest = max(min(last - first for first, last in answers) for answers in spans)
    if widest > question.widest:
        problems.append(f"widest: {question.widest:g} is narrower than an answer of {widest:.4g}")
    begins = [first for answers in spans for first, _ in answers]
    begin, fits = _best(
        begins, spans, lambda at, first, last: at <= first and last <= at + question.widest
    )
    problems += _fits_too_many(f"from {begin:.4g}", fits, len(known))
    return f"begins at {min(begins):.4g} to {max(begins):.4g}", problems


def _best(
    candidates: Sequence[float],
    ranges: Sequence[Sequence[tuple[float, float]]],
    fits: Callable[[float, float, float], bool],
) -> tuple[float, int]:
    """The first candidate that is right for the most students, and for how many."""
    counts = [
        sum(any(fits(at, *part) for part in of_student) for of_student in ranges)
        for at in candidates
    ]
    most = max(counts)
    return candidates[counts.index(most)], most


def _fits_too_many(answer: str, fits: int, students: int) -> list[str]:
    if fits <= max(1, MOST_SHARE * students):
        return []
    return [
        f"one answer ({answer}) is right for {fits} of {students} students, because the tolerance "
        "is wide or their values are alike"
    ]


def _of_choices(question: Question, known: Sequence[Right]) -> tuple[str, list[str]]:
    counts = Counter(name for answers in known for name in answers)
    told = ", ".join(f"{name} for {count}" for name, count in counts.most_common())
    return told, [f"the answer changes from student to student: {told}"] * (len(counts) > 1)


def _of_effect(
    exercise: Exercise,
    question: Effect,
    students: Sequence[str],
    outcomes: Mapping[Place, Outcome],
) -> tuple[str, list[str]]:
    run = question.run or ""
    groups = [
        students[begin : begin + question.seeds]
        for begin in range(0, len(students) - question.seeds + 1, question.seeds)
    ] or [students]

    def intervals(effect: Effect, variant: int | None) -> list[Interval]:
        def measured(name: str, which: int | None, group: Sequence[str]) -> list[float]:
            places = [(student, name, which) for student in group]
            return [outcomes[place].measured.get(effect.key, math.nan) for place in places]

        ours = [measured(effect.run or "", variant, group) for group in groups]
        theirs = [measured(effect.against, None, group) for group in groups]
        return [effect.interval(*pair) for pair in zip(ours, theirs, strict=True)]

    problems = []
    of_solution = intervals(question, None)
    if not all(_passes(question, interval) for interval in of_solution):
        problems.append(f"the solution does not pass: {_told(of_solution)}")
    # A change may pass one question of several: a tiny buffer is short, and costs goodput.
    others = [other for other in exercise.effects(run) if other.seeds == question.seeds]
    for variant, changes in enumerate(exercise.solution.non_remedies.get(run, ())):
        tried = [[_passes(other, each) for each in intervals(other, variant)] for other in others]
        if any(all(of_group) for of_group in zip(*tried, strict=True)):
            told = _told(intervals(question, variant))
            problems.append(f"passes with non_remedies.{variant} ({changes}): {told}")
    return _told(of_solution), problems


def _passes(question: Effect, interval: Interval) -> bool:
    return question.mark(None, question.right_of(interval)).state == "right"


def table(linted: Linted) -> Table:
    """The table for the terminal, with a line for each question."""
    heads = ("question", "kind", "right answers", "")
    rows = forms.table(*heads, left=heads, wrapped=None)
    for line in linted.questions:
        rows.add_row(line.key, line.kind, line.values, "wrong" if line.problems else "ok")
    return rows


def _told(intervals: Sequence[Interval]) -> str:
    return "; ".join(
        "no interval"
        if interval.low is None or interval.high is None
        else f"{interval.low:.3g} to {interval.high:.3g}"
        for interval in intervals
    )
