"""`outcast sweep`: many runs of one configuration."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from outcast import units
from outcast.cli import shared, terminal
from outcast.errors import RunError, StoppedError, UntrustedError

if TYPE_CHECKING:
    from outcast.api.sweeps import Prepared
    from outcast.sweep.scheduler import Limits, Result

_MOST_NOTES = 3


def _limits(keep_free: str, deadline: str | None) -> Limits:
    from outcast.sweep.scheduler import Limits

    free_bytes = shared.parsed("--keep-free", keep_free, units.parse_size_bytes)
    deadline_s = (
        shared.parsed("--deadline", deadline, units.parse_time_ns) / 1e9 if deadline else None
    )
    return Limits(keep_free_bytes=free_bytes, deadline_s=deadline_s)


@shared.verb(
    "sweep",
    "outcast sweep configs/fig3c.yaml --set sweep.queue.limit='[16KB, 64KB]' "
    "--set repetitions=10 -o results/limits",
    "outcast sweep results/limits/sweep.yaml --resume -o results/limits",
)
@click.argument("config", type=click.Path(path_type=Path))
@shared.engine
@shared.overrides
@shared.flag("--dry-run", "Show the runs; run nothing.")
@shared.work(
    "runs",
    "Continue the sweep in the folder.",
)
@shared.output("DIR", "The sweep's folder [default: results/NAME-sweep].")
@shared.gathered(
    "limits",
    _limits,
    shared.option(
        "--keep-free SIZE",
        "Start no run that could leave less free space on the disk.",
        default="1GB",
    ),
    shared.option(
        "--deadline TIME",
        "Start no run that would end after this time, as 480min; --resume continues later.",
    ),
)
def command(
    config: Path,
    engine: str | None,
    overrides: tuple[str, ...],
    dry_run: bool,
    output: Path | None,
    limits: Limits,
    **work: Any,
) -> None:
    """Run every combination of the values in CONFIG's `sweep:`, each with its repetitions.

    --set can give the lists of values as well. Exit status 1 if a run failed or the sweep was
    stopped, 4 if captures and counters of a run do not agree.
    """
    from outcast import experiment
    from outcast.api import guest, sweeps
    from outcast.plan.model import Planned

    shared.end_as_interrupted()
    if engine is not None:
        overrides = (*overrides, f"engine={engine}")
    source = experiment.read(config, overrides)
    whole = source.experiment()
    if whole.sweep is None:
        shared.note(
            f"{config} has no `sweep:`, so this is one point; --set sweep.KEY=[A,B] adds some"
        )
    if not dry_run:
        guest.provide(Planned(whole), progress=True)
    prepared = sweeps.prepare(source, output, **work)
    _show_plan(terminal.console(), prepared)
    if dry_run:
        return
    try:
        result = sweeps.carry_out(prepared, limits, progress=True)
    except KeyboardInterrupt:
        raise StoppedError(f"interrupted; {_how_to_go_on(prepared.path)}") from None
    except RunError as error:
        # What is finished is kept, whatever ended the sweep.
        if (prepared.path / "sweep.yaml").exists():
            raise RunError(f"{error}; {_how_to_go_on(prepared.path)}") from None
        raise
    _conclude(result)


def _show_plan(console: Console, prepared: Prepared) -> None:
    from outcast.sweep.points import as_text, canonical, swept_keys

    planned, missing = prepared.plan, prepared.left
    points = [run.point for run in planned.runs]
    settings = {canonical(point.settings) for point in points}
    engines = Counter(run.engine for run in planned.runs)
    counts = [units.counted(len(points), "run"), units.counted(len(settings), "point")]
    counts.append(units.counted(planned.experiment.repetitions, "repetition"))
    by_engine = ", ".join(f"{count} {engine}" for engine, count in engines.items())
    lines = [f"{counts[0]} into {prepared.path}: {counts[1]}, {counts[2]}; {by_engine}"]
    for key in swept_keys(points):
        values = dict.fromkeys(as_text(point.settings.get(key)) for point in points)
        lines.append(f"  {key}: {', '.join(values)}")
    if len(missing) < len(points):
        lines.append(f"{len(points) - len(missing)} are finished, {len(missing)} are left")
    notes = [f"note, of {units.counted(n, 'point')}: {text}" for text, n in planned.warned.items()]
    lines += notes[:_MOST_NOTES]
    if len(notes) > _MOST_NOTES:
        lines.append(
            f"{len(notes) - _MOST_NOTES} more such notes; each run has its own as warnings"
        )
    console.print("\n".join(lines), soft_wrap=True)


def _how_to_go_on(target: Path) -> str:
    config = shlex.quote(str(target / "sweep.yaml"))
    return f"to go on: outcast sweep {config} --resume -o {shlex.quote(str(target))}"


def _conclude(result: Result) -> None:
    """Says how it ended. Raises what the exit status comes from."""
    progress, path = result.progress, result.directory.path
    done = progress.finished_before + progress.finished
    terminal.echo(f"{done} of {progress.total} runs finished; outcast results {path}")
    for name, failure in progress.failures.items():
        terminal.echo(f"failed: {name}: {failure.kind}: {failure.message}")
    if progress.stopped is not None:
        raise RunError(
            f"stopped with {len(progress.waiting)} runs left: {progress.stopped}; "
            f"{_how_to_go_on(path)}"
        )
    if progress.failures:
        raise RunError(f"{len(progress.failures)} runs failed; {_how_to_go_on(path)}")
    if result.disagreeing:
        raise UntrustedError(
            f"captures and counters of {len(result.disagreeing)} runs do not agree: "
            f"{', '.join(result.disagreeing)}"
        )
