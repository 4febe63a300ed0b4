"""Tries exercises and stores which answers to expect: `python -m scripts.exercise_ranges [NAME]`.

It does what `outcast assignment lint` does, and puts the ranges of the right answers into
docs/results/measured.json, from where `python -m scripts.fill_numbers` takes them into
docs/teaching.md. Each exercise takes some minutes. An exercise with problems is not stored.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import stored
from outcast.assignment import lint as linting
from outcast.assignment.exercise import load_exercise, shipped
from outcast.assignment.replayed import Guest

STUDENTS = 6
JOBS = 2


def table(linted: linting.Linted) -> list[list[str]]:
    """The rows of the page's table: questions with answers that are computed."""
    rows = [[f"`{line.key}`", line.values] for line in linted.questions if line.values]
    return [["question", f"right answers of {STUDENTS} students"], *rows]


def main(names: list[str]) -> int:
    """Tries the exercises of these names, or all. Returns the exit status."""
    status = 0
    # What is stored for one exercise is no change of the code that tries the next.
    made_by = stored.state_of_code()
    for name in names or shipped():
        with TemporaryDirectory(prefix="outcast-ranges-") as scratch:
            linted = linting.lint(
                load_exercise(name), Guest(), Path(scratch), STUDENTS, JOBS, print
            )
        for row in table(linted):
            print(": ".join(row))
        if linted.all_problems:
            print("\n".join(linted.all_problems), file=sys.stderr)
            status = 2
            continue
        entry = stored.Entry(
            f"outcast assignment lint {name} --seeds {STUDENTS}", made_by, table(linted)
        )
        stored.store(f"exercise {name}", entry)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
