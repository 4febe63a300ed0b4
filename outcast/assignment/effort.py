"""How long grading takes, told before it begins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from outcast.assignment.classes import Class
from outcast.assignment.questions import Effect
from outcast.networks import resolve as networks
from outcast.plan import make as run_plan
from outcast.sweep import measured
from outcast.sweep.display import format_duration
from outcast.sweep.measured import Size


def told(class_: Class, submissions: int, jobs: int, measurements: Path | None = None) -> str:
    """The runs that grading makes again, and how long they take, in one line.

    `measurements` is the file of runs that say how fast this machine is; None is the user's.

    Raises ConfigError: the class is not valid, or a run of its exercise cannot be planned.
    """
    own, shared = _sizes(class_)
    known = measured.read_measurements(measurements or measured.default_file())
    expected = measured.forecast([*own * submissions, *shared], "drop", jobs, known)
    how = f"as {expected.known} measured runs say" if expected.known else "by a model"
    of_all = f", and up to {len(shared)} once for all" if shared else ""
    return (
        f"grading {submissions} submissions makes up to {len(own)} runs again for each{of_all}: "
        f"about {format_duration(expected.wall_s)}, {jobs} at a time, {how}"
    )


def _sizes(class_: Class) -> tuple[list[Size], list[Size]]:
    """The sizes of the runs of one submission, and of those that submissions share.

    A student's remedy is repeated for each student. Equal ones are made once, but nobody knows that
    before.
    """
    sizes = dict(_of_runs(class_))
    repeats: dict[str, int] = {}
    against: dict[str, int] = {}
    for question in class_.exercise.questions:
        if isinstance(question, Effect):
            assert question.run is not None
            repeats[question.run] = question.seeds
            against[question.against] = question.seeds
    own = [*sizes.values(), *_repeated(sizes, repeats)]
    parameters = {tuple(class_.issued(student).parameters.items()) for student in class_.students}
    return own, _repeated(sizes, against) * max(1, len(parameters))


def _of_runs(class_: Class) -> Iterator[tuple[str, Size]]:
    for run in class_.exercise.runs:
        source = class_.exercise.source(run, 1)
        experiment = networks.with_network(source.experiment(), source)
        yield run, measured.size_of(experiment, "virtual", run_plan.make_plan(experiment))


def _repeated(sizes: dict[str, Size], times: dict[str, int]) -> list[Size]:
    return [sizes[run] for run, count in times.items() for _ in range(count)]
