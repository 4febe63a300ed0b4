"""Grades one submission in Gradescope's container: `python -m ... /autograder`.

Whatever happens, results/results.json is written, because Gradescope shows nothing else.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from outcast import files, handed_in
from outcast.assignment import gradebooks, worker
from outcast.assignment.autograder import CLASS
from outcast.assignment.classes import Class
from outcast.assignment.grade import grade
from outcast.assignment.graded import Graded
from outcast.errors import InputError, OutcastError

METADATA = "submission_metadata.json"


def run(folder: Path, runner: str = worker.GUEST) -> str:
    """The text of results.json for the submission in the folder.

    Args:
        folder: with `source` (the unpacked autograder), `submission` and submission_metadata.json.
        runner: see `worker.Task`.
    """
    try:
        class_ = Class(folder / "source" / CLASS)
        (graded,) = grade(class_, [folder / "submission"], runner=runner, on_progress=print)
        users = _users(folder / METADATA)
    except (OutcastError, OSError) as error:
        # The teacher sees the text in Gradescope's log, and the student that nothing was graded.
        print(error, file=sys.stderr)
        text = "The autograder failed; please tell your teacher."
        return json.dumps({"score": 0.0, "output": text}) + "\n"
    shown = graded
    if graded.student is not None and not is_of(graded.student, users):
        shown = Graded(None, "", "rejected", notes=("this was issued to another student",))
    return gradebooks.gradescope(shown, shows_points=class_.feedback == "points")


def is_of(student: str, users: Sequence[dict[str, Any]]) -> bool:
    """Whether a student is one of those who handed in, by e-mail address or student ID.

    Gradescope does not know our names of students, and a name can be the part before the `@`. The
    name in Gradescope does not count, because everyone can change their own.
    """
    known = {
        name.lower()
        for user in users
        for value in (user.get("email"), user.get("sid"))
        if isinstance(value, str)
        for name in (value, value.partition("@")[0])
    }
    return student.lower() in known


def _users(path: Path) -> list[dict[str, Any]]:
    """Those who handed in (submission_metadata.json, users). Raises InputError."""
    try:
        tree = handed_in.read_json(path)
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    users = tree.get("users") if isinstance(tree, dict) else None
    if not isinstance(users, list) or not all(isinstance(user, dict) for user in users):
        raise InputError(f"{path}: users: allowed is a list of users")
    return users


def main(folder: Path) -> int:
    """Writes results/results.json. Returns 0."""
    (folder / "results").mkdir(exist_ok=True)
    files.write_text(folder / "results" / "results.json", run(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
