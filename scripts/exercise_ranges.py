"""Stores which answers to expect of a class: `python -m scripts.exercise_ranges [NAME]`.

The solution of each exercise is run for several students. The ranges of the right answers go into
docs/results/measured.json, from where `python -m scripts.fill_numbers` takes them into
docs/teaching.md. Each exercise takes some minutes.
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import stored
from outcast.analysis.run_measures import measures
from outcast.records.run import Run
from outcast.uses.classroom.evidence import Guest
from outcast.uses.classroom.exercise import Exercise, load_exercise, shipped
from outcast.uses.classroom.folder import Key
from outcast.uses.classroom.question_kind import Right
from outcast.uses.classroom.questions import Effect, Question

STUDENTS = 6


def told(answers: Sequence[Right]) -> str:
    """The right answers of all students, in a few words."""
    flat = [answer for right in answers for answer in right]
    if names := Counter(answer for answer in flat if isinstance(answer, str)):
        return ", ".join(f"{name} for {count}" for name, count in names.most_common())
    begins = [answer[0] for answer in flat if isinstance(answer, tuple)]
    numbers = begins or [answer for answer in flat if isinstance(answer, float)]
    ends = f"{min(numbers):.4g} to {max(numbers):.4g}"
    return f"begins at {ends}" if begins else ends


def ranges(exercise: Exercise) -> list[list[str]]:
    """The rows of the page's table: questions with answers that are computed."""
    key = Key(hashlib.sha256(f"lint {exercise.name}".encode()).digest())
    right: dict[str, list[Right]] = {}
    measured: dict[tuple[str, str], list[float]] = {}
    for number in range(1, STUDENTS + 1):
        identity = key.issued("lint", f"student{number}", exercise)
        own = exercise.with_values(identity.values)
        for name in own.runs:
            print(f"{exercise.name}: {name} of {identity.student}", flush=True)
            with TemporaryDirectory(prefix="outcast-ranges-") as scratch:
                config = own.expected(name, identity.seed)
                run = Run(Guest().run(config, Path(scratch) / "run"))
                for question in own.questions:
                    if isinstance(question, Effect):
                        value = measures.take(run, question.measure)
                        measured.setdefault((question.key, name), []).append(value)
                    elif question.run == name and (found := question.right_answers(run)):
                        right.setdefault(question.key, []).append(found)
    rows = [
        [f"`{question.key}`", _row(question, right, measured)] for question in exercise.questions
    ]
    return [["question", f"right answers of {STUDENTS} students"], *(row for row in rows if row[1])]


def _row(
    question: Question, right: dict[str, list[Right]], measured: dict[tuple[str, str], list[float]]
) -> str:
    if not isinstance(question, Effect):
        return told(right[question.key]) if question.key in right else ""
    ours, theirs = (
        measured[question.key, name or ""][: question.seeds]
        for name in (question.run, question.against)
    )
    interval = question.interval(ours, theirs)
    return f"{interval.low:.3g} to {interval.high:.3g}"


def main(names: list[str]) -> int:
    """Tries the exercises of these names, or all. Returns the exit status."""
    made_by = stored.state_of_code()
    for name in names or shipped():
        table = ranges(load_exercise(name))
        command = f"python -m scripts.exercise_ranges {name}"
        stored.store(f"exercise {name}", stored.Entry(command, made_by, table))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
