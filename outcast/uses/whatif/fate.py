"""`outcast fate`: from when on an outcome of a run was decided."""

import shlex
from pathlib import Path
from typing import Any

import click

from outcast import cli


@cli.verb(
    "fate",
    "outcast fate results/fig3c --at 0:500ms:25ms --futures 20 --outcome starved",
    "outcast fate results/fig3c --at 0:100ms:10ms --futures 10 --outcome 'share(lone) < 0.5'",
)
@click.argument("directory", type=click.Path(path_type=Path), metavar="RUN")
@cli.option(
    "--at FROM:TO:STEP",
    "When new noise begins: instants after the traffic's start, without TO.",
    "at",
    required=True,
)
@cli.option("--futures K", "How many futures each instant has.", type=int, default=10)
@cli.option(
    "--outcome WORDS",
    "What may become of the run: starved, 'share(lone) < 0.5', 'ratio > 2 and jain < 0.9'.",
    required=True,
)
@cli.work("futures", "Continue with the futures in the folder.")
@cli.allow_programs
@cli.output("DIR", "The futures' folder [default: RUN-futures].")
def command(
    directory: Path,
    at: str,
    futures: int,
    outcome: str,
    allow_programs: bool,
    output: Path | None,
    **work: Any,
) -> None:
    """Ask from when on an outcome of RUN was decided.

    A future is the same run up to an instant. From then on its noise is drawn from another seed.
    RUN is a run directory of the virtual engine, whose noise is random. What comes out is also in
    its fate.json, fate.png and report.

    Exit status 1 if a future failed.
    """
    from outcast.uses.whatif import decision as fate
    from outcast.uses.whatif import words as view
    from outcast.uses.whatif.futures import instants

    cli.end_as_interrupted()
    arguments = (directory, instants(at), futures, outcome, output)
    decision = fate.fate(*arguments, **work, allow_programs=allow_programs, progress=True)
    cli.console().print(view.decision_table(decision))
    cli.echo_lines(view.sentences(decision))
    cli.echo(f"a future again: {view.again(decision, shlex.quote(str(directory)))}")
