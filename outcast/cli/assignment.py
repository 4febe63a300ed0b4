"""`outcast assignment`: hands out, checks and grades an exercise for students."""

from __future__ import annotations

from pathlib import Path

import click

from outcast.cli import shared, terminal
from outcast.errors import InputError, UntrustedError


@click.group("assignment", epilog=shared.examples("outcast assignment new spring --student ada"))
def command() -> None:
    """Hand out an assignment, check what is missing in it, grade it."""


@command.command(
    "new",
    epilog=shared.examples("outcast assignment new spring --student ada -o handed-out/ada"),
)
@click.argument("name", metavar="NAME")
@click.option(
    "--student",
    default="teacher",
    show_default=True,
    metavar="ID",
    help="The student who gets the folder. ID and NAME decide the seed.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The folder to make [default: NAME-ID].",
)
def new(name: str, student: str, output: Path | None) -> None:
    """Make one student's folder for the assignment NAME."""
    from outcast.assignment import old_folder as folder

    identity = folder.Identity(name, student)
    path = folder.make_folder(output or Path(f"{name}-{student}"), identity).path
    terminal.echo(f"{path}: for {student}, seed {identity.seed}; begin with {path}/task.md")


@command.command("check", epilog=shared.examples("outcast assignment check spring-ada"))
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
def check(directory: Path) -> None:
    """Print what is still missing in DIR, before it is handed in."""
    from outcast.assignment.old_check import check as look_through
    from outcast.assignment.old_folder import Folder

    findings = look_through(Folder(directory))
    for line in (*findings.doubtful, *findings.missing):
        terminal.echo(line)
    if findings.missing:
        raise InputError(
            f"{directory}: {len(findings.missing) + len(findings.doubtful)} items incomplete"
        )
    if findings.doubtful:
        raise UntrustedError(f"{directory}: has runs that cannot be handed in; make them again")
    terminal.echo(f"{directory}: complete")


@command.command(
    "grade", epilog=shared.examples("outcast assignment grade handed-in/* --format csv")
)
@click.argument(
    "directories", type=click.Path(path_type=Path), metavar="DIR...", nargs=-1, required=True
)
@click.option(
    "--no-replay", is_flag=True, help="Do not repeat the runs; then no run is called genuine."
)
@shared.form
def grade(directories: tuple[Path, ...], no_replay: bool, form: str) -> None:
    """Print which runs in DIR... are genuine, which answers are right, and what was copied.

    Exit status 4 if a folder is rejected.
    """
    from outcast.assignment import table
    from outcast.assignment.grade import grade as grade_all
    from outcast.assignment.replayed import Guest

    graded = grade_all(
        directories,
        None if no_replay else Guest(),
        lambda text: terminal.tell(f"grading {text}"),
    )
    if form == "csv":
        terminal.echo(table.as_csv(graded), nl=False)
    elif form == "json":
        terminal.echo(table.as_json(graded))
    else:
        console = terminal.console()
        console.print(table.render(graded))
        for line in table.notes(graded):
            console.print(line, soft_wrap=True)
    rejected = [folder.place for folder in graded if folder.verdict == "rejected"]
    if rejected:
        raise UntrustedError(f"rejected: {', '.join(rejected)}")
