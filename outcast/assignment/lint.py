"""Tries an exercise on several students before it is handed out.

The solution is run with each student's parameters and seeds. Then every model answer is looked at
over all of them: whether it is there, whether it is stable, and whether it tells students apart.
"""

from __future__ import annotations

import hashlib
import math
import multiprocessing
import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from rich.table import Table

from outcast.analysis.statistics import Interval
from outcast.assignment.exercise import Exercise
from outcast.assignment.expression import Expression
from outcast.assignment.identity import Key
from outcast.assignment.questions import (
    Effect,
    Number,
    Packets,
    Question,
    Right,
    Text,
)
from outcast.assignment.replayed import Runner
from outcast.assignment.right import right_answers
from outcast.errors import OutcastError
from outcast.experiment import Experiment
from outcast.records.run import Run
from outcast.reproduce import measures
from outcast.view.terminal import forms

_DIGITS = 3
"""The significant digits with which reports show rates and times."""

MOST_SHARE = 0.5
"""If one answer is right for a larger share of the students, the question tells too few apart."""


@dataclass(frozen=True, slots=True)
class Line:
    """The findings about one question.

    Attributes:
        key, kind: of the question.
        values: the right answers over the students, in a few words; empty if none are computed.
        problems: what is wrong; empty if nothing is.
    """

    key: str
    kind: str
    values: str
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Linted:
    """The findings about an exercise.

    Attributes:
        questions: a line for each.
        problems: what is wrong with runs and changes, beside the questions.
        runs: how many runs were made.
    """

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


@dataclass(frozen=True, slots=True)
class _Job:
    """One run to be made and evaluated.

    Attributes:
        variant: the index of a non-remedy; None for the solution.
    """

    student: str
    run: str
    variant: int | None
    config: Experiment
    questions: tuple[Question, ...]
    effects: tuple[Effect, ...]
    target: Path

    @property
    def name(self) -> str:
        """The run in a message."""
        change = "" if self.variant is None else f", non_remedies.{self.variant}"
        return f"{self.run} of {self.student}{change}"


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The answers that one run gave.

    Attributes:
        right: by question, the right answers; a text says why there are none.
        measured: by effect question, the measure.
        problem: why the run gave nothing, or is not trusted; empty if it is.
    """

    right: Mapping[str, Right | str] = field(default_factory=dict)
    measured: Mapping[str, float] = field(default_factory=dict)
    problem: str = ""


def lint(
    exercise: Exercise,
    runner: Runner,
    scratch: Path,
    seeds: int = 10,
    jobs: int = 1,
    on_progress: Callable[[str], None] = lambda text: None,
) -> Linted:
    """Runs the solution for so many students, and looks at every question.

    Args:
        exercise: what `load_exercise` returned, so that its files are valid.
        runner: makes the runs.
        scratch: a folder for runs, which are removed as soon as they are evaluated.
        seeds: how many students; each has a seed and parameters of its own.
        jobs: how many runs are made at a time.
        on_progress: is told about each run.
    """
    # The same exercise gives the same students, so a second lint shows what a change did.
    key = Key(hashlib.sha256(f"lint {exercise.name}".encode()).digest())
    students = [f"student{number}" for number in range(1, seeds + 1)]
    tasks = [job for student in students for job in _jobs(exercise, key, student, scratch)]
    outcomes = dict(zip(map(_place, tasks), _made(tasks, runner, jobs, on_progress), strict=True))
    problems = [
        f"{job.name}: {outcomes[_place(job)].problem}"
        for job in tasks
        if outcomes[_place(job)].problem
    ]
    lines = tuple(_line(exercise, question, students, outcomes) for question in exercise.questions)
    return Linted(lines, tuple(problems), len(tasks))


_Place = tuple[str, str, int | None]
"""A student, a run, and a non-remedy or None."""


def _place(job: _Job) -> _Place:
    return job.student, job.run, job.variant


def _jobs(exercise: Exercise, key: Key, student: str, scratch: Path) -> Iterator[_Job]:
    identity = key.issued("lint", student, exercise)
    own = exercise.with_values(identity.values)
    for run in own.runs:
        named = [question for question in own.questions if isinstance(question, Effect)]
        effects = tuple(question for question in named if run in (question.run, question.against))
        questions = tuple(
            question
            for question in own.questions
            if question.run == run and isinstance(question.answer, Expression)
        )
        solution = own.solution.runs.get(run, {})
        variants = list(enumerate(own.solution.non_remedies.get(run, ())))
        for variant, changes in [(None, solution), *variants]:
            yield _Job(
                student=student,
                run=run,
                variant=variant,
                # One seed for all runs of a student, because effects are of pairs with equal seeds.
                config=exercise.changed(
                    run, identity.values, identity.seed, {**solution, **changes}
                ),
                questions=questions if variant is None else (),
                effects=effects,
                target=scratch / f"{student}-{run}-{'solution' if variant is None else variant}",
            )


def _made(
    tasks: Sequence[_Job], runner: Runner, jobs: int, on_progress: Callable[[str], None]
) -> list[_Outcome]:
    if jobs == 1:
        outcomes = []
        for number, job in enumerate(tasks, 1):
            on_progress(f"run {number} of {len(tasks)}: {job.name}")
            outcomes.append(_evaluated(job, runner))
        return outcomes
    # A new interpreter for each worker, because a forked one would share open files and threads.
    pool = ProcessPoolExecutor(
        jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_end_when_interrupted
    )
    try:
        futures: list[Future[_Outcome]] = [pool.submit(_evaluated, job, runner) for job in tasks]
        outcomes = []
        for number, (job, future) in enumerate(zip(tasks, futures, strict=True), 1):
            outcomes.append(future.result())
            on_progress(f"run {number} of {len(tasks)}: {job.name}")
        return outcomes
    except BaseException:
        for worker in multiprocessing.active_children():
            if worker.pid is not None:
                os.kill(worker.pid, signal.SIGINT)
        raise
    finally:
        pool.shutdown(cancel_futures=True)


_is_interrupted = False
"""In a worker: whether it was told to end. The pool would go on with the next run otherwise."""


def _end_when_interrupted() -> None:
    signal.signal(signal.SIGINT, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    global _is_interrupted
    _is_interrupted = True
    raise KeyboardInterrupt


def _evaluated(job: _Job, runner: Runner) -> _Outcome:
    """Makes a run, takes from it what is asked, and removes it."""
    if _is_interrupted:
        raise KeyboardInterrupt
    try:
        run = Run(runner.run(job.config, job.target))
        right: dict[str, Right | str] = {}
        for question in job.questions:
            try:
                right[question.key] = right_answers(question, run) or ()
            except OutcastError as error:
                right[question.key] = str(error).removeprefix(f"{job.target}: ")
        measured = {question.key: measures.take(run, question.measure) for question in job.effects}
        doubt = "" if run.trusted else f"is not trusted: {run.reasons[0]}"
        return _Outcome(right, measured, doubt)
    except OutcastError as error:
        return _Outcome(problem=str(error))
    finally:
        shutil.rmtree(job.target, ignore_errors=True)


def _line(
    exercise: Exercise,
    question: Question,
    students: Sequence[str],
    outcomes: Mapping[_Place, _Outcome],
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
    outcomes: Mapping[_Place, _Outcome],
) -> tuple[str, list[str]]:
    run = question.run or ""
    groups = [
        students[begin : begin + question.seeds]
        for begin in range(0, len(students) - question.seeds + 1, question.seeds)
    ] or [students]

    def intervals(effect: Effect, variant: int | None) -> list[Interval]:
        def measured(name: str, which: int | None, group: Sequence[str]) -> list[float]:
            return [
                outcomes[student, name, which].measured.get(effect.key, math.nan)
                for student in group
            ]

        return [
            effect.interval(
                measured(effect.run or "", variant, group), measured(effect.against, None, group)
            )
            for group in groups
        ]

    problems = []
    of_solution = intervals(question, None)
    if not all(_passes(question, interval) for interval in of_solution):
        problems.append(f"the solution does not pass: {_told(of_solution)}")
    # A change may pass one question of several: a tiny buffer is short, and costs goodput.
    others = [other for other in exercise.effects(run) if other.seeds == question.seeds]
    for variant, changes in enumerate(exercise.solution.non_remedies.get(run, ())):
        tried = [
            [_passes(other, interval) for interval in intervals(other, variant)] for other in others
        ]
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
