"""`outcast assignment`: an exercise for students, handed out, checked and graded."""

from __future__ import annotations

from pathlib import Path

import click

from outcast.cli import shared, terminal
from outcast.errors import InputError, UntrustedError


@click.group("assignment")
def command() -> None:
    """Hand out an assignment, see what is missing in it, grade it."""


@command.command("new")
@click.argument("name", metavar="NAME")
@click.option(
    "--student",
    default="teacher",
    show_default=True,
    metavar="ID",
    help="Whose it is; decides the seed together with NAME.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The folder [default: NAME-ID].",
)
def new(name: str, student: str, output: Path | None) -> None:
    """Make the folder of one student for the assignment NAME."""
    from outcast.assignment import folder

    identity = folder.Identity(name, student)
    made = folder.make(output or Path(f"{name}-{student}"), identity)
    terminal.echo(
        f"{made.path}: for {student}, seed {identity.seed}; begin with {made.path}/task.md"
    )


@command.command("check")
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
def check(directory: Path) -> None:
    """Say what is missing in DIR, before it is handed in."""
    from outcast.assignment.check import check as look_through
    from outcast.assignment.folder import Folder

    found = look_through(Folder(directory))
    for line in (*found.doubtful, *found.missing):
        terminal.echo(line)
    if found.missing:
        raise InputError(
            f"{directory}: {len(found.missing) + len(found.doubtful)} items incomplete"
        )
    if found.doubtful:
        raise UntrustedError(f"{directory}: runs that cannot be handed in: make them again")
    terminal.echo(f"{directory}: complete")


@command.command("grade")
@click.argument(
    "directories", type=click.Path(path_type=Path), metavar="DIR...", nargs=-1, required=True
)
@click.option(
    "--no-replay", is_flag=True, help="Do not make the runs again; then none is called genuine."
)
@shared.form
def grade(directories: tuple[Path, ...], no_replay: bool, form: str) -> None:
    """Say which runs in DIR... are genuine, which answers are right, and what was copied."""
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
    rejected = [each.place for each in graded if each.verdict == "rejected"]
    if rejected:
        raise UntrustedError(f"not to be accepted as they are: {', '.join(rejected)}")
