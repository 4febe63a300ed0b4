"""The events of the guest's kernel, of a run that has ended."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

import outcast
from outcast import files
from outcast.api import make_again, opened, scratch_folder
from outcast.errors import ConfigError, UntrustedError
from outcast.experiment import Trace
from outcast.records import RunDirectory, table_name
from outcast.uses.why.recorded_events import EVENTS as OF_WHY

DEFAULT_EVENTS = (*OF_WHY, "tcp:tcp_probe", "qdisc:qdisc_enqueue", "qdisc:qdisc_dequeue")
"""`outcast why` needs these, and those of segments received and of queues."""


@dataclass(frozen=True)
class KernelTrace:
    """A run with tables of its kernel's events.

    Attributes:
        run: the run; `run.table("trace/tcp_probe")` is a table of events.
        events: every event that was recorded, with its number of rows.
        captures: how many captures of the run made again were equal to the byte; None if the
            tables were there already.
    """

    run: outcast.Run
    events: Mapping[str, int]
    captures: int | None

    def table_file(self, event: str) -> Path:
        """The file of an event's table."""
        return self.run.directory.trace / f"{table_name(event)}.parquet"


def trace(
    source: str | os.PathLike[str],
    events: Sequence[str] | None = None,
    directory: str | os.PathLike[str] | None = None,
    *,
    allow_programs: bool = False,
    progress: bool | None = None,
) -> KernelTrace:
    """Records events of the guest's kernel in a run that has ended, by making it again.

    The run made again has to have the same captures to the byte, so its events are those of the run
    that ended. Events that were recorded before are kept.

    Args:
        source: a run directory, or an archive.
        events: tracepoints as `tcp:tcp_probe`; None records those of queues and of TCP.
        directory: a new or empty folder for the run made again, which an archive needs; None adds
            the tables to the run directory.
        allow_programs: as in `replay`.
        progress: as in `outcast.run`.

    Raises:
        ConfigError: there is no such event, or an archive has no folder to go to.
        InputError: the run cannot be made again.
        UntrustedError: the run made again is not the same run, or events were lost. Then no table
            is written.
        OutcastError: the run failed, as in `run`.
    """
    names = _checked(DEFAULT_EVENTS if events is None else tuple(events))
    path = Path(source)
    if directory is None and not path.is_dir():
        raise ConfigError(
            f"{path}: is no run directory; the events of an archive need a folder: -o DIR"
        )
    known = _recorded(RunDirectory(path)) if path.is_dir() else {}
    if directory is None and known and set(names) <= set(known):
        return KernelTrace(outcast.open_run(path), known, None)
    wanted = (*known, *(event for event in names if event not in known))
    with opened(path) as earlier, scratch_folder() as scratch:
        target = scratch / "again" if directory is None else Path(directory)
        explanation = make_again(
            earlier,
            str(source),
            target,
            kept=directory is not None,
            allow_programs=allow_programs,
            progress=progress,
            events=wanted,
        )
        if not explanation.equal:
            shutil.rmtree(target, ignore_errors=True)
            raise UntrustedError(
                f"{source}: the run made again is another one, so there are no tables: "
                f"{explanation.difference}; outcast replay --explain says more"
            )
        if directory is None:
            _put_in_place(RunDirectory(target).trace, RunDirectory(path).trace)
            if (path / "report.html").exists():
                # The report has lanes of what the events show.
                outcast.open_run(path).write_report()
    where = path if directory is None else target
    recorded = _recorded(RunDirectory(where))
    return KernelTrace(outcast.open_run(where), recorded, explanation.captures)


def _recorded(directory: RunDirectory) -> dict[str, int]:
    """The events whose tables are there, with their numbers of rows."""
    traced = directory.read_traced()
    return {
        event: rows
        for event, rows in (traced.events if traced is not None else {}).items()
        if (directory.trace / f"{table_name(event)}.parquet").exists()
    }


def _checked(events: tuple[str, ...]) -> tuple[str, ...]:
    """The events, each once. Raises ConfigError for what cannot be the name of an event."""
    try:
        return Trace(events=tuple(dict.fromkeys(events))).events
    except ValidationError as error:
        first = error.errors()[0]
        name = first["input"] if isinstance(first["input"], str) else ",".join(events)
        raise ConfigError(
            f"events: {name!a}: allowed are names as tcp:tcp_probe, with commas between"
        ) from None


def _put_in_place(made: Path, target: Path) -> None:
    """Copies a folder of tables to its place. Raises OSError."""
    beside = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        shutil.copytree(made, beside)
        shutil.rmtree(target, ignore_errors=True)
        beside.rename(target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    files.hand_over(target.parent)
