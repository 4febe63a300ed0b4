"""Grades one submission as a process of its own: `python -m outcast.assignment.worker FOLDER`.

The task comes as JSON on standard input. FOLDER gets the grade as `result.json`. Whatever a
submission does to this process, the others get their grades (`outcast.assignment.grade`).
"""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from outcast import files, handed_in
from outcast.assignment import marking
from outcast.assignment.classes import Class
from outcast.assignment.evidence import Runner
from outcast.assignment.graded import Graded
from outcast.errors import InputError
from outcast.sweep.process import interrupted_by_signals

RESULT = "result.json"
GRADED = TypeAdapter(Graded)

GUEST = "outcast.assignment.evidence:Guest"
"""The runner of replays; tests name another one."""


@dataclass(frozen=True, slots=True)
class Task:
    """One submission to grade.

    Attributes:
        class_folder: the class, with its key.
        place: the submission.
        runner: `module:class` of a Runner.
        kept: the folder of earlier grades, of which one for the same submission is taken; empty for
            none.
        basis: what else decides a grade, so that an earlier one of another basis is not taken.
        shared: a folder of measures of repeated runs, which gradings share.
    """

    class_folder: str
    place: str
    runner: str
    kept: str
    basis: str
    shared: str


def grade_one(task: Task, scratch: Path) -> Graded:
    """Grades the submission, or takes the earlier grade of the same submission.

    Raises ConfigError: the class is not valid.
    """
    place = Path(task.place)
    kept: Path | None = None
    if task.kept:
        try:
            kept = Path(task.kept) / f"{marking.digest(place)}-{task.basis}.json"
            return at_place(GRADED.validate_python(handed_in.read_json(kept)), task.place)
        except FileNotFoundError:
            pass
        except (InputError, OSError, ValueError):
            kept = None
    scratch.mkdir()
    class_, runner = Class(Path(task.class_folder)), _runner(task.runner)
    graded = marking.mark(class_, place, runner, scratch, Path(task.shared))
    # What could not be made again or computed today may be possible tomorrow.
    is_final = not graded.for_teacher and all(run.state != "unchecked" for run in graded.runs)
    if kept is not None and is_final:
        _write(kept, graded)
    return graded


def at_place(graded: Graded, place: str) -> Graded:
    """The grade as that of a submission that the teacher calls so."""
    return replace(graded, place=place)


def _runner(name: str) -> Runner:
    module, _, kind = name.partition(":")
    runner: Runner = getattr(importlib.import_module(module), kind)()
    return runner


def main() -> int:
    """Grades one submission. Returns 0 once its grade is written."""
    interrupted_by_signals()
    folder = Path(sys.argv[1])
    try:
        graded = grade_one(Task(**json.load(sys.stdin)), folder / "scratch")
    except KeyboardInterrupt:
        return 1
    _write(folder / RESULT, graded)
    return 0


def _write(path: Path, graded: Graded) -> None:
    """Writes a grade without its place, because no file of JSON holds every name of a file."""
    files.write_json(path, GRADED.dump_python(at_place(graded, ""), mode="json"))


if __name__ == "__main__":
    sys.exit(main())
