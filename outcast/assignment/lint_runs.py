"""The runs of a lint, each made and evaluated in turn, or several at a time."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from outcast.assignment.exercise import Exercise
from outcast.assignment.expression import Expression
from outcast.assignment.identity import Key
from outcast.assignment.questions import Effect, Question, Right
from outcast.assignment.replayed import Runner
from outcast.errors import OutcastError
from outcast.experiment import Experiment
from outcast.records.run import Run
from outcast.reproduce import measures

Place = tuple[str, str, int | None]
"""A student, a run, and a non-remedy or None."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run to be made and evaluated; `variant` is the index of a non-remedy, or None."""

    student: str
    run: str
    variant: int | None
    config: Experiment
    questions: tuple[Question, ...]
    effects: tuple[Effect, ...]
    target: Path

    @property
    def place(self) -> Place:
        """What tells it from the other runs."""
        return self.student, self.run, self.variant

    @property
    def name(self) -> str:
        """The run in a message."""
        change = "" if self.variant is None else f", non_remedies.{self.variant}"
        return f"{self.run} of {self.student}{change}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answers that one run gave, by question; a text says why there are none.

    `problem` says why the run gave nothing, or that captures and counters do not agree.
    """

    right: Mapping[str, Right | str] = field(default_factory=dict)
    measured: Mapping[str, float] = field(default_factory=dict)
    problem: str = ""


def jobs_of(exercise: Exercise, key: Key, student: str, scratch: Path) -> Iterator[Job]:
    """The runs of one student: the solution's, and those of changes that are no remedies."""
    identity = key.issued("lint", student, exercise)
    own = exercise.with_values(identity.values)
    for run in own.runs:
        effects = tuple(
            question
            for question in own.questions
            if isinstance(question, Effect) and run in (question.run, question.against)
        )
        questions = tuple(
            question
            for question in own.questions
            if question.run == run and isinstance(question.answer, Expression)
        )
        variants = list(enumerate(own.solution.non_remedies.get(run, ())))
        for variant, changes in [(None, None), *variants]:
            yield Job(
                student=student,
                run=run,
                variant=variant,
                # One seed for all runs of a student, because effects are of pairs with equal seeds.
                config=own.source(run, identity.seed, changes).experiment(),
                questions=questions if variant is None else (),
                effects=effects,
                target=scratch / f"{student}-{run}-{'solution' if variant is None else variant}",
            )


def made(
    tasks: Sequence[Job], runner: Runner, jobs: int, on_progress: Callable[[str], None]
) -> Mapping[Place, Outcome]:
    """Makes the runs, so many at a time, and evaluates them."""
    outcomes: dict[Place, Outcome] = {}
    if jobs == 1:
        for number, job in enumerate(tasks, 1):
            on_progress(f"run {number} of {len(tasks)}: {job.name}")
            outcomes[job.place] = _evaluated(job, runner)
        return outcomes
    # A new interpreter for each worker, because a forked one would share open files and threads.
    pool = ProcessPoolExecutor(
        jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_end_when_interrupted
    )
    try:
        futures: list[Future[Outcome]] = [pool.submit(_evaluated, job, runner) for job in tasks]
        for number, (job, future) in enumerate(zip(tasks, futures, strict=True), 1):
            outcomes[job.place] = future.result()
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


def _evaluated(job: Job, runner: Runner) -> Outcome:
    """Makes a run, takes from it what is asked, and removes it."""
    if _is_interrupted:
        raise KeyboardInterrupt
    try:
        run = Run(runner.run(job.config, job.target))
        right: dict[str, Right | str] = {}
        for question in job.questions:
            try:
                right[question.key] = question.right_answers(run) or ()
            except OutcastError as error:
                right[question.key] = str(error).removeprefix(f"{job.target}: ")
        measured = {question.key: measures.take(run, question.measure) for question in job.effects}
        doubt = "" if run.trusted else f"captures and counters do not agree: {run.reasons[0]}"
        return Outcome(right, measured, doubt)
    except OutcastError as error:
        return Outcome(problem=str(error))
    finally:
        shutil.rmtree(job.target, ignore_errors=True)
