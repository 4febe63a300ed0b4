"""`outcast run`: one experiment, from its configuration to its figures."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from outcast.cli import shared, terminal
from outcast.errors import InputError, UntrustedError

if TYPE_CHECKING:
    from rich.console import Console

    from outcast.plan.planned import Planned
    from outcast.records.run_directory import RunDirectory


@shared.verb(
    "run",
    "outcast run configs/fig3c.yaml -o results/fig3c",
    "outcast run configs/fig3c.yaml --set queue.limit=64KB --set seed=2",
)
@click.argument("config", type=click.Path(path_type=Path))
@shared.engine
@shared.overrides
@shared.output("DIR", "The run directory [default: results/NAME-DATE-TIME].")
@shared.flag(
    "--verify-replay", "Run twice, and compare the captures byte by byte (virtual engine)."
)
@shared.path(
    "--replay-of DIR|FILE",
    "Compare the captures with those of an earlier run or archive, from here or elsewhere. "
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
    from outcast.api import making

    shared.end_as_interrupted()
    chosen = shared.chosen(config, engine, overrides)
    with ExitStack() as stack:
        earlier = None if replay_of is None else _earlier(replay_of, chosen, stack)
        path = making.make(chosen, output, progress=True, on_analysed=_show)
        # Only now, because the run imports most of this while its guest is busy.
        from outcast.api.runs import Run

        run, console = Run(path), terminal.console()
        shared.print_drawn(path)
        if earlier is not None:
            _compare(earlier, run.directory, console)
    if verify_replay:
        from outcast.records.run_directory import RunDirectory

        with TemporaryDirectory(prefix="outcast-replay-") as folder:
            again = making.make(chosen, Path(folder) / "again", progress=False)
            _compare(run.directory, RunDirectory(again), console)
    if not run.trusted:
        raise UntrustedError(
            f"{run.path}: captures and counters do not agree: {'; '.join(run.reasons)}"
        )


def _show(directory: RunDirectory) -> None:
    """Prints the result, before its figures are drawn."""
    from outcast.records.run import Run
    from outcast.view.terminal import tables

    terminal.console().print(tables.screen(Run(directory), notes_shown=True))


def _earlier(path: Path, chosen: Planned, stack: ExitStack) -> RunDirectory:
    """The run to compare with, opened for as long as the stack is; refused if it cannot be."""
    from outcast.api import archives, making
    from outcast.records import kept_captures
    from outcast.sweep import store

    earlier = stack.enter_context(archives.opened(path))
    kept_captures.digests(earlier)
    if key := store.other_key(earlier, making.resolve(chosen, progress=True)):
        raise InputError(
            f"{earlier.config}: has another {key}; allowed is a run of the same configuration"
        )
    return earlier


def _compare(first: RunDirectory, second: RunDirectory, console: Console) -> None:
    from outcast.records import replay

    count = replay.require_equal(first, second)
    console.print(f"replay: {count} captures, equal byte by byte")
