"""`outcast replay`: makes a packed run again, and says whether it is equal."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from outcast.cli import shared, terminal
from outcast.errors import ReplayError

_SHOWN = 5


@shared.verb(
    "replay",
    "outcast replay fig3c.zip",
    "outcast replay fig3c.zip --explain -o results/again",
    "outcast replay limits.zip --runs all",
)
@click.argument("source", type=click.Path(path_type=Path), metavar="FILE|DIR")
@shared.flag(
    "--explain",
    "If the runs differ, say when and where they part, and what differs between the machines.",
)
@shared.flag("--json", "Print the outcome as JSON.", "as_json")
@shared.allow_programs
@shared.count_of_runs("Of a sweep: how many runs to make again, drawn at random [default: 5].")
@shared.jobs
@shared.output("DIR", "Keep the new run in this folder.")
def command(source: Path, output: Path | None, explain: bool, as_json: bool, **how: Any) -> None:
    """Make the run in FILE, an archive, or in DIR again, and compare all captures byte by byte.

    The new run has the configuration and the seed of the old one, and the virtual engine makes it.

    Of a sweep some runs are made again, or all. Their captures and all values are compared.

    Exit status 1 if something differs.
    """
    from outcast.api import archives

    shared.end_as_interrupted()
    again = archives.replay(source, output, **how, progress=True)
    explanation = again.explanation
    of_sweep = f"{len(again.runs)} of {again.planned} runs"
    if as_json:
        document = {"equal": again.equal, "difference": again.difference, **asdict(again)}
        terminal.echo(json.dumps(document, indent=1, default=str))
    elif explanation is None and again.differing:
        terminal.echo_lines(again.differing if explain else again.differing[:_SHOWN])
    elif explanation is None:
        terminal.echo(f"equal: {of_sweep}, {again.captures} captures, {again.values} values")
    elif explain:
        terminal.echo_lines(explanation.lines())
    elif again.equal:
        terminal.echo(f"equal: {again.captures} captures")
    if explanation is not None and output is not None and not as_json:
        shared.print_drawn(output)
    if not again.equal:
        more = "" if explain or as_json else "; --explain says more"
        count = len(again.differing)
        what = again.difference
        if explanation is None:
            what = f"{count} differences; {of_sweep} made again"
        raise ReplayError(f"{source}: not equal: {what}{more}")
