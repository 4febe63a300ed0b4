"""`outcast pack` and `outcast replay`: a run as one archive, which others make again."""

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
    "pack",
    "outcast pack results/fig3c -o fig3c.zip",
    "outcast pack results/fig3c -o fig3c.zip --captures hashes",
)
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@shared.output("FILE", "The archive to write, a zip file.", required=True)
@shared.option(
    "--captures",
    "Whether the captures go in, or only their hashes. A replay needs no more than these.",
    type=shared.Choice(["keep", "hashes"]),
    default="keep",
)
@shared.count_of_runs("Of a sweep: how many runs go in whole, with captures [default: 3].")
def pack(directory: Path, output: Path, **options: Any) -> None:
    """Make one archive of the run or sweep in DIR, for others to read and to replay.

    It holds the configuration, the plan, the manifest with all hashes, captures, tables, figures
    and the report. docs/archive.md has the format.
    """
    from outcast.api import archives
    from outcast.archive.contents import listed

    packed = archives.pack(directory, output, **options)
    for text in packed.notes:
        shared.note(text)
    if packed.left_out:
        shared.note(f"left out, because the run did not write it: {listed(packed.left_out)}")
    size_mb = packed.path.stat().st_size / 1e6
    terminal.echo_path(packed.path, f", {packed.files} files, {size_mb:.1f} MB")


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
def replay(source: Path, output: Path | None, explain: bool, as_json: bool, **how: Any) -> None:
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
