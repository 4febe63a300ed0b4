"""The teacher's table: on the terminal, as CSV with a line per submission, and as JSON with all."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence

from rich.table import Table

from outcast.assignment import tasks
from outcast.assignment.grade import Graded


def render(graded: Sequence[Graded]) -> Table:
    """A line per submission."""
    table = Table(box=None, pad_edge=False)
    for heading in ("student", "verdict", *(task.name for task in tasks.TASKS)):
        table.add_column(heading, no_wrap=True)
    table.add_column("answers", justify="right", no_wrap=True)
    for each in graded:
        table.add_row(
            *(_student(each), each.verdict, *_states(each)),
            f"{each.right}/{len(each.answered)}" if each.answered else "",
        )
    return table


def notes(graded: Sequence[Graded]) -> list[str]:
    """What the table has no room for, in lines, each beginning with the folder."""
    lines = []
    for each in graded:
        wrong = [
            found.key for found in each.answered if found.answer is not None and not found.right
        ]
        if wrong:
            lines.append(f"{each.place}: wrong: {', '.join(wrong)}")
        lines += [f"{each.place}: {note}" for note in each.notes]
    return lines


def as_csv(graded: Sequence[Graded]) -> str:
    """A line per submission with every answer; `right` counts them."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    keys = [answered.key for answered in next((g.answered for g in graded if g.answered), ())]
    writer.writerow(
        ["student", "folder", "seed", "verdict", *(task.name for task in tasks.TASKS), "right"]
        + [f"{key}{ending}" for key in keys for ending in ("", ".right")]
        + ["notes"]
    )
    for each in graded:
        cells: list[object] = []
        for answered in each.answered:
            cells += ["" if answered.answer is None else answered.answer, int(answered.right)]
        seed = each.identity.seed if each.identity else ""
        writer.writerow(
            [
                *(_student(each), each.place, seed, each.verdict, *_states(each), each.right),
                *(cells or [""] * (2 * len(keys))),
                " | ".join(each.notes),
            ]
        )
    return stream.getvalue()


def as_json(graded: Sequence[Graded]) -> str:
    """Everything, the answers in words and the right values with it."""
    return json.dumps(
        [
            {
                "student": _student(each),
                "folder": each.place,
                "seed": each.identity.seed if each.identity else None,
                "verdict": each.verdict,
                "runs": {
                    run.task.name: {"state": run.state, "seed": run.seed, "reasons": run.reasons}
                    for run in each.runs
                },
                "right": each.right,
                "answers": {
                    answered.key: {
                        "answer": answered.answer,
                        "known": answered.known,
                        "right": answered.right,
                    }
                    for answered in each.answered
                },
                "texts": dict(each.texts or {}),
                "notes": each.notes,
            }
            for each in graded
        ],
        indent=1,
    )


def _student(each: Graded) -> str:
    return each.identity.student if each.identity else each.place


def _states(each: Graded) -> list[str]:
    states = {run.task.name: run.state for run in each.runs}
    return [states.get(task.name, "") for task in tasks.TASKS]
