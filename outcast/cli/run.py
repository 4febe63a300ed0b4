"""`outcast run`: one experiment, from its configuration to its figures."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import click
from rich.console import Console

from outcast.cli import shared, terminal
from outcast.errors import UntrustedError
from outcast.records.run_directory import RunDirectory


@click.command(
    "run",
    epilog=shared.examples(
        "outcast run configs/fig3c.yaml -o results/fig3c",
        "outcast run configs/fig3c.yaml --set queue.limit=64KB --set seed=2",
    ),
)
@click.argument("config", type=click.Path(path_type=Path))
@click.option(
    "--engine",
    type=shared.Choice(["auto", "realtime", "virtual"]),
    help="Where the run takes place; overrides `engine` in CONFIG.",
)
@shared.overrides
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The run directory [default: results/NAME-DATE-TIME].",
)
@click.option(
    "--verify-replay",
    is_flag=True,
    help="Run twice, and compare the captures byte by byte (virtual engine).",
)
@click.option(
    "--replay-of",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Compare the captures with those of an earlier run, from here or elsewhere. "
    "Say what differs first.",
)
def command(
    config: Path,
    engine: str | None,
    overrides: tuple[str, ...],
    output: Path | None,
    verify_replay: bool,
    replay_of: Path | None,
) -> None:
    """Run the experiment that CONFIG describes.

    Builds the network, verifies its settings, captures the traffic, analyses and draws it.

    Exit status 4 if the captures and counters contradict each other.
    """
    from outcast import experiment
    from outcast import workflow as execute
    from outcast.cli.kernel import provide
    from outcast.engines import choice
    from outcast.plan.make import make_plan
    from outcast.records import replay
    from outcast.sweep import measured
    from outcast.view.terminal import tables
    from outcast.view.terminal.progress import Progress

    shared.end_as_interrupted()
    if engine is not None:
        overrides = (*overrides, f"engine={engine}")
    source = experiment.read(config, overrides)
    wanted = source.experiment()
    make_plan(wanted, where=source.where)
    target = output or execute.default_directory(wanted)
    execute.require_free(target)
    if replay_of is not None:
        replay.require_finished(RunDirectory(replay_of))
    provide(wanted)
    chosen = choice.choose(wanted)
    if replay_of is not None:
        replay.require_comparable(RunDirectory(replay_of), execute.resolve(wanted, chosen.name))
    with Progress(terminal.console(stderr=True)) as progress:
        outcome = execute.execute(wanted, chosen, target, progress)
    measured.note(measured.of_single_run(outcome.directory, wanted), measured.default_file())
    console = terminal.console()
    console.print(tables.render(outcome.directory))
    shared.print_drawn(outcome.figures)
    if replay_of is not None:
        _compare(RunDirectory(replay_of), outcome.directory, console)
    if verify_replay:
        with TemporaryDirectory(prefix="outcast-replay-") as folder:
            again = execute.execute(wanted, chosen, Path(folder) / "again", lambda event: None)
            _compare(outcome.directory, again.directory, console)
    if outcome.distrust:
        raise UntrustedError(f"{target}: not to be trusted: {'; '.join(outcome.distrust)}")


def _compare(one: RunDirectory, other: RunDirectory, console: Console) -> None:
    from outcast.records import replay

    count = replay.require_equal(one, other)
    console.print(f"replay: {count} captures, equal byte by byte")
