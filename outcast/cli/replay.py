"""`outcast replay`: makes a packed run again, and says whether it is equal."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from outcast.cli import shared, terminal
from outcast.errors import ReplayError


@click.command(
    "replay",
    epilog=shared.examples(
        "outcast replay fig3c.zip",
        "outcast replay fig3c.zip --explain -o results/again",
    ),
)
@click.argument("source", type=click.Path(path_type=Path), metavar="FILE|DIR")
@click.option(
    "--explain",
    "with_explanation",
    is_flag=True,
    help="If the runs differ, say when and where they part, and what differs between the machines.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
@shared.allow_programs
@shared.output("DIR", "Keep the new run in this folder.")
def command(
    source: Path,
    with_explanation: bool,
    as_json: bool,
    allow_programs: bool,
    output: Path | None,
) -> None:
    """Make the run in FILE, an archive, or in DIR again, and compare all captures byte by byte.

    The new run has the configuration and the seed of the old one, and the virtual engine makes it.

    Exit status 1 if the captures differ.
    """
    from outcast.api import archives

    shared.end_as_interrupted()
    outcome = archives.replay(source, output, allow_programs=allow_programs, progress=True)
    if as_json:
        document = {
            "equal": outcome.equal,
            "captures": outcome.captures,
            "difference": outcome.difference,
            "explanation": asdict(outcome.explanation),
            "directory": outcome.directory,
        }
        terminal.echo(json.dumps(document, indent=1, default=str))
    elif with_explanation:
        for line in outcome.explanation.lines():
            terminal.echo(line)
    elif outcome.equal:
        terminal.echo(f"equal: {outcome.captures} captures")
    if output is not None and not as_json:
        shared.print_drawn(output)
    if not outcome.equal:
        more = "" if with_explanation or as_json else "; --explain says more"
        raise ReplayError(f"{source}: not equal: {outcome.difference}{more}")
