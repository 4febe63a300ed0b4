"""`outcast assignment pack` and `grade`: what comes after a student has finished."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from outcast.cli import shared, terminal
from outcast.errors import ConfigError, InputError, UntrustedError, some_of

if TYPE_CHECKING:
    from outcast.assignment.classes import Class
    from outcast.assignment.graded import Graded

_FORMS = ("table", "csv", "json", "moodle", "canvas")


@shared.verb("pack", "outcast assignment pack . -o ada.zip")
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@shared.output("FILE", "The file to write.", required=True)
@shared.flag("--incomplete", "Pack it although something is missing.")
def pack(directory: Path, output: Path, incomplete: bool) -> None:
    """Make one small file of the student's folder DIR, to hand in.

    It has the answers, the configurations, and hashes of all captures and tables. Grading makes
    the captures again. What `check` calls incomplete is refused.
    """
    from outcast.assignment import packed
    from outcast.assignment.check import check
    from outcast.assignment.folder import Folder

    missing = check(Folder(directory)).missing
    if missing and not incomplete:
        raise InputError(
            f"{directory}: {len(missing)} items incomplete, as {missing[0]}; outcast assignment "
            "check names all; to hand it in all the same: --incomplete"
        )
    made = packed.write(Folder(directory), output)
    runs = ", ".join(made.runs) or "none"
    terminal.echo_path(made.path, f": {made.bytes / 1e3:.0f} kB, {made.files} files; runs: {runs}")


@shared.verb(
    "grade",
    "outcast assignment grade NETS26 inbox/* -o graded",
    "outcast assignment grade NETS26 inbox/* -o graded --resume --format moodle > grades.csv",
)
@click.argument("class_folder", type=click.Path(path_type=Path), metavar="CLASS")
@click.argument(
    "submissions", type=click.Path(path_type=Path), metavar="SUBMISSION...", nargs=-1, required=True
)
@shared.option(
    "--format",
    "How to print: for people, for programs, or for a gradebook.",
    "form",
    type=shared.Choice(_FORMS),
    default="table",
)
@shared.output("DIR", "Where feedback sheets, and the table of points to give by hand, go.")
@shared.jobs
@shared.flag("--resume", "Take what DIR has of the same submissions.")
def grade(
    class_folder: Path,
    submissions: tuple[Path, ...],
    form: str,
    output: Path | None,
    jobs: int | None,
    resume: bool,
) -> None:
    """Grade what was handed in, folders or packed files, with the key in CLASS.

    Exit status 4 if a submission is rejected.
    """
    from outcast.assignment import by_hand
    from outcast.assignment.grade import grade as grade_all

    if resume and output is None:
        raise ConfigError("--resume: only together with -o, because the grades are kept there")
    shared.end_as_interrupted()
    class_ = open_class(class_folder)
    given = {} if output is None else by_hand.read(output / by_hand.FILE)
    graded = grade_all(
        class_,
        submissions,
        jobs=jobs or os.cpu_count() or 1,
        results=output,
        resume=resume,
        on_progress=terminal.tell,
    )
    finished = by_hand.apply(graded, given)
    if output is not None:
        _write(class_, graded, finished, output)
    _print(class_, finished, form)
    rejected = [each.place for each in finished if each.verdict == "rejected"]
    if rejected:
        raise UntrustedError(f"rejected: {', '.join(rejected)}")


def open_class(path: Path) -> Class:
    """A class folder. Warns if its key can be read by others."""
    from outcast.assignment.classes import Class

    class_ = Class(path)
    if class_.key_is_open:
        key = shlex.quote(str(path / "key"))
        shared.note(f"other users of this machine can read the class's key; chmod 600 {key}")
    return class_


def _write(
    class_: Class, graded: Sequence[Graded], finished: Sequence[Graded], output: Path
) -> None:
    """Writes the feedback sheets, and the table of points that a person gives."""
    from outcast import files
    from outcast.assignment import by_hand, gradebooks, sheets

    given = by_hand.read(output / by_hand.FILE)
    counting = gradebooks.counting(graded)
    waiting = by_hand.write(output / by_hand.FILE, counting, given)
    if waiting:
        shared.note(
            f"{waiting} answers wait for points in {output / by_hand.FILE}; fill them in, and "
            "grade again with --resume"
        )
    if class_.feedback == "none":
        shared.note("no feedback sheets, because class.yaml says `feedback: none`")
        return
    for each in gradebooks.counting(finished):
        text = sheets.feedback(class_.exercise.title, each)
        files.write_text(output / f"{each.student}.md", text)


def _print(class_: Class, graded: Sequence[Graded], form: str) -> None:
    from outcast.assignment import gradebooks, sheets

    exercise = class_.exercise
    runs, keys = list(exercise.runs), [question.key for question in exercise.questions]
    if form == "table":
        terminal.console().print(sheets.table(graded, runs))
        terminal.echo_lines(sheets.remarks(graded))
    elif form == "json":
        terminal.echo(sheets.as_json(graded))
    elif form == "csv":
        terminal.echo(sheets.as_csv(graded, runs, keys), nl=False)
    else:
        book = {"moodle": gradebooks.moodle, "canvas": gradebooks.canvas}[form]
        terminal.echo(book(class_.name, graded), nl=False)
        if waiting := gradebooks.waiting(graded):
            shared.note(
                f"not in the gradebook, because answers wait for points: {some_of(waiting)}"
            )
