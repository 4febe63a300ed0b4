"""The teacher's table: on the terminal, as CSV with a line per submission, and as JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence

from rich.table import Table

from outcast.assignment import old_tasks as tasks
from outcast.assignment.grade import Graded


def render(graded: Sequence[Graded]) -> Table:
    """The table for the terminal, with a line per submission."""
    table = Table(box=None, pad_edge=False)
    for heading in ("student", "verdict", *(task.name for task in tasks.TASKS)):
        table.add_column(heading, no_wrap=True)
    table.add_column("answers", justify="right", no_wrap=True)
    for submission in graded:
        table.add_row(
            *(_student(submission), submission.verdict, *_states(submission)),
            f"{submission.right}/{len(submission.answered)}" if submission.answered else "",
        )
    return table


def notes(graded: Sequence[Graded]) -> list[str]:
    """The remarks that do not fit into the table. Each line begins with the folder."""
    lines = []
    for submission in graded:
        wrong = [
            answered.key
            for answered in submission.answered
            if answered.answer is not None and not answered.right
        ]
        if wrong:
            lines.append(f"{submission.place}: wrong answers: {', '.join(wrong)}")
        lines += [f"{submission.place}: {note}" for note in submission.notes]
    return lines


def as_csv(graded: Sequence[Graded]) -> str:
    """A line per submission with every answer; `right` is the number of right answers."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    keys = [answered.key for answered in next((g.answered for g in graded if g.answered), ())]
    writer.writerow(
        ["student", "folder", "seed", "verdict", *(task.name for task in tasks.TASKS), "right"]
        + [f"{key}{ending}" for key in keys for ending in ("", ".right")]
        + ["notes"]
    )
    for submission in graded:
        cells: list[object] = []
        for answered in submission.answered:
            cells += ["" if answered.answer is None else answered.answer, int(answered.right)]
        writer.writerow(
            [
                _student(submission),
                submission.place,
                submission.identity.seed if submission.identity else "",
                submission.verdict,
                *_states(submission),
                submission.right,
                *(cells or [""] * (2 * len(keys))),
                " | ".join(submission.notes),
            ]
        )
    return stream.getvalue()


def as_json(graded: Sequence[Graded]) -> str:
    """Everything, with the answers in words and the right values."""
    return json.dumps(
        [
            {
                "student": _student(submission),
                "folder": submission.place,
                "seed": submission.identity.seed if submission.identity else None,
                "verdict": submission.verdict,
                "runs": {
                    run.task.name: {"state": run.state, "seed": run.seed, "reasons": run.reasons}
                    for run in submission.runs
                },
                "right": submission.right,
                "answers": {
                    answered.key: {
                        "answer": answered.answer,
                        "known": answered.known,
                        "right": answered.right,
                    }
                    for answered in submission.answered
                },
                "texts": dict(submission.texts or {}),
                "notes": submission.notes,
            }
            for submission in graded
        ],
        indent=1,
    )


def _student(submission: Graded) -> str:
    return submission.identity.student if submission.identity else submission.place


def _states(submission: Graded) -> list[str]:
    states = {run.task.name: run.state for run in submission.runs}
    return [states.get(task.name, "") for task in tasks.TASKS]
