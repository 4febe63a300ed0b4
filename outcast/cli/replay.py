"""`outcast replay`: makes a packed run again, and says whether it is equal."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from outcast.cli import shared, terminal
from outcast.errors import ReplayError

if TYPE_CHECKING:
    from outcast.api.sweep_archives import SweepReplay


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
    "with_explanation",
)
@shared.flag("--json", "Print the outcome as JSON.", "as_json")
@shared.allow_programs
@shared.count_of_runs("Of a sweep: how many runs to make again, drawn at random", default=5)
@shared.jobs
@shared.output("DIR", "Keep the new run in this folder.")
def command(
    source: Path,
    with_explanation: bool,
    as_json: bool,
    allow_programs: bool,
    runs: str | None,
    jobs: int | None,
    output: Path | None,
) -> None:
    """Make the run in FILE, an archive, or in DIR again, and compare all captures byte by byte.

    The new run has the configuration and the seed of the old one, and the virtual engine makes it.

    Of a sweep some runs are made again, or all. Their captures and all values are compared.

    Exit status 1 if something differs.
    """
    from outcast.api import archives, sweep_archives

    shared.end_as_interrupted()
    if sweep_archives.is_sweep(source):
        count = shared.runs_of(runs, sweep_archives.SAMPLE)
        again = sweep_archives.replay_sweep(
            source, output, runs=count, jobs=jobs, allow_programs=allow_programs, progress=True
        )
        _tell(source, again, with_explanation, as_json)
        return
    shared.require_no_sweep({"--runs": runs, "--jobs": jobs}, source)
    outcome = archives.replay(source, output, allow_programs=allow_programs, progress=True)
    if as_json:
        names = ("equal", "captures", "difference", "explanation", "directory")
        document = {name: getattr(outcome, name) for name in names}
        document["explanation"] = asdict(outcome.explanation)
        terminal.echo(json.dumps(document, indent=1, default=str))
    elif with_explanation:
        terminal.echo_lines(outcome.explanation.lines())
    elif outcome.equal:
        terminal.echo(f"equal: {outcome.captures} captures")
    if output is not None and not as_json:
        shared.print_drawn(output)
    if not outcome.equal:
        more = "" if with_explanation or as_json else "; --explain says more"
        raise ReplayError(f"{source}: not equal: {outcome.difference}{more}")


def _tell(source: Path, again: SweepReplay, with_explanation: bool, as_json: bool) -> None:
    """Says how runs of a sweep compare. Raises ReplayError if they differ."""
    compared = again.compared
    of_all = f"{len(again.runs)} of {again.planned} runs"
    lines = [each.line() for each in compared.differing]
    if as_json:
        document = {"equal": again.equal, "directory": again.directory, **asdict(again)}
        terminal.echo(json.dumps(document, indent=1, default=str))
    elif again.equal:
        counts = f"{compared.captures} captures, {compared.values} values"
        terminal.echo(f"equal: {of_all}, {counts}")
    else:
        terminal.echo("\n".join(lines if with_explanation else lines[:_SHOWN]))
    if not again.equal:
        more = "" if with_explanation or as_json or len(lines) <= _SHOWN else "; --explain has all"
        differing = len({each.run for each in compared.differing})
        raise ReplayError(
            f"{source}: not equal: {len(lines)} differences in {differing} runs; "
            f"{of_all} made again{more}"
        )


_SHOWN = 5
