"""`outcast assignment`: hands out, checks and grades an exercise for students."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from outcast import cli, units
from outcast.errors import ConfigError, InputError, UntrustedError, some_of

if TYPE_CHECKING:
    from outcast.uses.classroom.classes import Class
    from outcast.uses.classroom.marking import Graded

_FORMS = ("table", "csv", "json", "moodle", "canvas")


@cli.verbs(
    "assignment",
    "outcast assignment new NETS26 --student ana --student ben",
    "outcast assignment check NETS26/handout/ana",
)
def command() -> None:
    """Hand out an exercise, check what is missing in it, grade it."""


_student = cli.several("--student ID", "A student who gets a folder.", "students")
_students_file = cli.path("--students FILE", "A file with a student's ID in each line.", "file")


def _named(students: tuple[str, ...], file: Path | None) -> list[str]:
    """The students of the command line and of the file."""
    if file is None:
        return list(students)
    from outcast.uses.classroom.documents import read_text

    lines = (line.partition("#")[0].strip() for line in read_text(file).splitlines())
    return [*students, *(line for line in lines if line)]


@cli.verb(
    "new",
    "outcast assignment new NETS26 --students ids.txt",
    "outcast assignment new NETS26 --exercise my-exercise --student ana -o course/NETS26",
    group=command,
)
@click.argument("name", metavar="NAME")
@cli.option(
    "--exercise NAME|DIR",
    "An exercise that comes with outcast, or the folder of one.",
    default="outcast",
)
@_student
@_students_file
@cli.flag("--same-parameters", "All students get the same parameters.")
@cli.output("DIR", "The class folder to make [default: NAME].")
def new(
    name: str,
    exercise: str,
    students: tuple[str, ...],
    file: Path | None,
    same_parameters: bool,
    output: Path | None,
) -> None:
    """Make the class folder NAME, with a key, and a folder for each student."""
    from outcast.uses.classroom.classes import new_class
    from outcast.uses.classroom.exercise import load_exercise

    klass = new_class(
        output or Path(name),
        name,
        load_exercise(exercise),
        _named(students, file),
        shared=same_parameters,
    )
    count = len(klass.students)
    cli.echo(f"{klass.path}: {klass.exercise.title}, for {units.counted(count, 'student')}")
    if count:
        cli.echo(f"give each student a copy of {klass.path / 'handout'}/ID")
    else:
        cli.echo(f"add students: outcast assignment handout {klass.path} --student ID")
    cli.echo(f"keep {klass.path / 'key'} to yourself, and a copy of it in a safe place")


@cli.verb("handout", "outcast assignment handout NETS26 --student dan", group=command)
@click.argument("klass", type=click.Path(path_type=Path), metavar="CLASS")
@_student
@_students_file
def handout(klass: Path, students: tuple[str, ...], file: Path | None) -> None:
    """Make the folders of further students of CLASS."""
    named = _named(students, file)
    if not named:
        raise ConfigError("--student: is missing; allowed is --student ID or --students FILE")
    from outcast.uses.classroom.classes import Class

    for folder in Class(klass).hand_out(named):
        cli.echo(str(folder.path))


@cli.verb("check", "outcast assignment check .", group=command)
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
def check(directory: Path) -> None:
    """Print what is still missing in DIR, before it is handed in."""
    from outcast.uses.classroom.check import check as look_through
    from outcast.uses.classroom.folder import Folder

    findings = look_through(Folder(directory))
    cli.echo_lines((*findings.doubtful, *findings.missing))
    if findings.missing:
        raise InputError(
            f"{directory}: {len(findings.missing) + len(findings.doubtful)} items incomplete"
        )
    if findings.doubtful:
        raise UntrustedError(f"{directory}: has runs that cannot be handed in; make them again")
    cli.echo(f"{directory}: complete")


@cli.verb("lint", "outcast assignment lint my-exercise", group=command)
@click.argument("exercise", metavar="EXERCISE")
def lint(exercise: str) -> None:
    """Make the solution of EXERCISE as a student would hand it in, and grade it.

    Exit status 2 if it does not earn all points.
    """
    from tempfile import TemporaryDirectory

    from outcast.uses.classroom import solution
    from outcast.uses.classroom.evidence import Guest
    from outcast.uses.classroom.exercise import load_exercise

    cli.end_as_interrupted()
    with TemporaryDirectory(prefix="outcast-lint-") as scratch:
        found = solution.lint(load_exercise(exercise), Guest(), Path(scratch), cli.tell)
    cli.echo_lines(found)
    if found:
        raise InputError(f"{exercise}: {len(found)} problems")
    cli.echo(f"{exercise}: the solution earns all points")


@cli.verb("solve", "outcast assignment solve NETS26 --student ana -o ana-solved", group=command)
@click.argument("klass", type=click.Path(path_type=Path), metavar="CLASS")
@cli.option("--student ID", "Whose solution.", required=True)
@cli.output("DIR", "The folder to make.", required=True)
def solve(klass: Path, student: str, output: Path) -> None:
    """Make the solution of one student of CLASS, as it would be handed in."""
    from outcast.uses.classroom import solution
    from outcast.uses.classroom.classes import Class
    from outcast.uses.classroom.evidence import Guest

    cli.end_as_interrupted()
    solved = solution.solve(Class(klass), student, output, Guest(), cli.tell)
    cli.echo(str(solved.path))


@cli.verb("pack", "outcast assignment pack . -o ada.zip", group=command)
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@cli.output("FILE", "The file to write.", required=True)
@cli.flag("--incomplete", "Pack it although something is missing.")
def pack(directory: Path, output: Path, incomplete: bool) -> None:
    """Make one small file of the student's folder DIR, to hand in.

    It has the answers, the configurations, and hashes of all captures and tables. Grading makes
    the captures again. What `check` calls incomplete is refused.
    """
    from outcast.uses.classroom import packed
    from outcast.uses.classroom.check import check
    from outcast.uses.classroom.folder import Folder

    missing = check(Folder(directory)).missing
    if missing and not incomplete:
        raise InputError(
            f"{directory}: {len(missing)} items incomplete, as {missing[0]}; outcast assignment "
            "check names all; to hand it in all the same: --incomplete"
        )
    made = packed.write(Folder(directory), output)
    runs = ", ".join(made.runs) or "none"
    cli.echo_path(made.path, f": {made.bytes / 1e3:.0f} kB, {made.files} files; runs: {runs}")


@cli.verb(
    "grade",
    "outcast assignment grade NETS26 inbox/* -o graded",
    "outcast assignment grade NETS26 inbox/* -o graded --resume --format moodle > grades.csv",
    group=command,
)
@click.argument("class_folder", type=click.Path(path_type=Path), metavar="CLASS")
@click.argument(
    "submissions", type=click.Path(path_type=Path), metavar="SUBMISSION...", nargs=-1, required=True
)
@cli.option(
    "--format",
    "How to print: for people, for programs, or for a gradebook.",
    "form",
    type=cli.Choice(_FORMS),
    default="table",
)
@cli.output("DIR", "Where feedback sheets, and the table of points to give by hand, go.")
@cli.jobs
@cli.flag("--resume", "Take what DIR has of the same submissions.")
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
    from outcast.uses.classroom import gradebook
    from outcast.uses.classroom.classes import Class
    from outcast.uses.classroom.grade import grade as grade_all

    if resume and output is None:
        raise ConfigError("--resume: only together with -o, because the grades are kept there")
    cli.end_as_interrupted()
    class_ = Class(class_folder)
    by_hand = None if output is None else output / gradebook.BY_HAND
    given = {} if by_hand is None else gradebook.read_by_hand(by_hand)
    graded = grade_all(
        class_,
        submissions,
        jobs=jobs or os.cpu_count() or 1,
        results=output,
        resume=resume,
        on_progress=cli.tell,
    )
    finished = gradebook.with_by_hand(graded, given)
    if by_hand is not None:
        _write(class_, graded, finished, by_hand)
    _print(class_, finished, form)
    if rejected := [each.place for each in finished if each.verdict == "rejected"]:
        raise UntrustedError(f"rejected: {', '.join(rejected)}")


def _write(
    class_: Class, graded: Sequence[Graded], finished: Sequence[Graded], by_hand: Path
) -> None:
    """Writes the feedback sheets, and the table of points that a person gives."""
    from outcast import files
    from outcast.uses.classroom import gradebook

    given = gradebook.read_by_hand(by_hand)
    if waiting := gradebook.write_by_hand(by_hand, gradebook.counting(graded), given):
        cli.note(f"{waiting} answers wait for points in {by_hand}; then grade with --resume")
    if class_.feedback == "none":
        cli.note("no feedback sheets, because class.yaml says `feedback: none`")
        return
    for each in gradebook.counting(finished):
        text = gradebook.feedback(class_.exercise.title, each)
        files.write_text(by_hand.with_name(f"{each.student}.md"), text)


def _print(class_: Class, graded: Sequence[Graded], form: str) -> None:
    from outcast.uses.classroom import gradebook

    exercise = class_.exercise
    runs, keys = list(exercise.runs), [question.key for question in exercise.questions]
    if form == "table":
        cli.console().print(gradebook.table(graded, runs))
        cli.echo_lines(gradebook.remarks(graded))
    elif form == "json":
        cli.echo(gradebook.as_json(graded))
    elif form == "csv":
        cli.echo(gradebook.as_csv(graded, runs, keys), nl=False)
    else:
        book = {"moodle": gradebook.moodle, "canvas": gradebook.canvas}[form]
        cli.echo(book(class_.name, graded), nl=False)
        if waiting := gradebook.waiting(graded):
            cli.note(f"not in the gradebook, because answers wait for points: {some_of(waiting)}")
