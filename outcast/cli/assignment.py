"""`outcast assignment`: hands out, checks and grades an exercise for students."""

from pathlib import Path

import click

from outcast import units
from outcast.cli import assignment_grading, shared, terminal
from outcast.errors import ConfigError, InputError, UntrustedError


@shared.verbs(
    "assignment",
    "outcast assignment new NETS26 --student ana --student ben",
    "outcast assignment check NETS26/handout/ana",
)
def command() -> None:
    """Hand out an exercise, check what is missing in it, grade it."""


_student = shared.several("--student ID", "A student who gets a folder.", "students")
_students_file = shared.path("--students FILE", "A file with a student's ID in each line.", "file")


def _named(students: tuple[str, ...], file: Path | None) -> list[str]:
    """The students of the command line and of the file."""
    if file is None:
        return list(students)
    from outcast.assignment.documents import read_text

    lines = (line.partition("#")[0].strip() for line in read_text(file).splitlines())
    return [*students, *(line for line in lines if line)]


@shared.verb(
    "new",
    "outcast assignment new NETS26 --students ids.txt",
    "outcast assignment new NETS26 --exercise my-exercise --student ana -o course/NETS26",
    group=command,
)
@click.argument("name", metavar="NAME")
@shared.option(
    "--exercise NAME|DIR",
    "An exercise that comes with outcast, or the folder of one.",
    default="outcast",
)
@_student
@_students_file
@shared.flag("--same-parameters", "All students get the same parameters.")
@shared.output("DIR", "The class folder to make [default: NAME].")
def new(
    name: str,
    exercise: str,
    students: tuple[str, ...],
    file: Path | None,
    same_parameters: bool,
    output: Path | None,
) -> None:
    """Make the class folder NAME, with a key, and a folder for each student."""
    from outcast.assignment.classes import new_class
    from outcast.assignment.exercise import load_exercise

    klass = new_class(
        output or Path(name),
        name,
        load_exercise(exercise),
        _named(students, file),
        shared=same_parameters,
    )
    count = len(klass.students)
    terminal.echo(f"{klass.path}: {klass.exercise.title}, for {units.counted(count, 'student')}")
    if count:
        terminal.echo(f"give each student a copy of {klass.path / 'handout'}/ID")
    else:
        terminal.echo(f"add students: outcast assignment handout {klass.path} --student ID")
    terminal.echo(f"keep {klass.path / 'key'} to yourself, and a copy of it in a safe place")


@shared.verb("handout", "outcast assignment handout NETS26 --student dan", group=command)
@click.argument("klass", type=click.Path(path_type=Path), metavar="CLASS")
@_student
@_students_file
def handout(klass: Path, students: tuple[str, ...], file: Path | None) -> None:
    """Make the folders of further students of CLASS."""
    named = _named(students, file)
    if not named:
        raise ConfigError("--student: is missing; allowed is --student ID or --students FILE")
    for folder in assignment_grading.open_class(klass).hand_out(named):
        terminal.echo(str(folder.path))


@shared.verb("check", "outcast assignment check .", group=command)
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
def check(directory: Path) -> None:
    """Print what is still missing in DIR, before it is handed in."""
    from outcast.assignment.check import check as look_through
    from outcast.assignment.folder import Folder

    findings = look_through(Folder(directory))
    terminal.echo_lines((*findings.doubtful, *findings.missing))
    if findings.missing:
        raise InputError(
            f"{directory}: {len(findings.missing) + len(findings.doubtful)} items incomplete"
        )
    if findings.doubtful:
        raise UntrustedError(f"{directory}: has runs that cannot be handed in; make them again")
    terminal.echo(f"{directory}: complete")


@shared.verb("lint", "outcast assignment lint my-exercise", group=command)
@click.argument("exercise", metavar="EXERCISE")
def lint(exercise: str) -> None:
    """Make the solution of EXERCISE as a student would hand it in, and grade it.

    Exit status 2 if it does not earn all points.
    """
    from tempfile import TemporaryDirectory

    from outcast.assignment import lint as linting
    from outcast.assignment.evidence import Guest
    from outcast.assignment.exercise import load_exercise

    shared.end_as_interrupted()
    with TemporaryDirectory(prefix="outcast-lint-") as scratch:
        found = linting.lint(load_exercise(exercise), Guest(), Path(scratch), terminal.tell)
    terminal.echo_lines(found)
    if found:
        raise InputError(f"{exercise}: {len(found)} problems")
    terminal.echo(f"{exercise}: the solution earns all points")


@shared.verb("solve", "outcast assignment solve NETS26 --student ana -o ana-solved", group=command)
@click.argument("klass", type=click.Path(path_type=Path), metavar="CLASS")
@shared.option("--student ID", "Whose solution.", required=True)
@shared.output("DIR", "The folder to make.", required=True)
def solve(klass: Path, student: str, output: Path) -> None:
    """Make the solution of one student of CLASS, as it would be handed in."""
    from outcast.assignment import solve as solving
    from outcast.assignment.evidence import Guest

    shared.end_as_interrupted()
    solved = solving.solve(
        assignment_grading.open_class(klass), student, output, Guest(), terminal.tell
    )
    terminal.echo(str(solved.path))


for verb in (assignment_grading.pack, assignment_grading.grade):
    command.add_command(verb)
