"""Progress of runs and sweeps, on standard error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from itertools import count
from typing import TYPE_CHECKING, Any

from outcast.view.terminal.console import NotebookLine, PlainConsole, Progress

if TYPE_CHECKING:
    from rich.console import Console

    from outcast.records.run_directory import RunDirectory
    from outcast.sweep.scheduler import Observer
    from outcast.sweep.scheduler import Progress as SweepProgress


def is_shown(progress: bool | None) -> bool:
    """Whether progress is shown; None shows it on a terminal and in a notebook."""
    if progress is not None:
        return progress
    console = PlainConsole(stderr=True)
    return console.is_terminal or console.is_jupyter


@contextmanager
def of_run(progress: bool | None) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """A function that takes a run's events."""
    if not is_shown(progress):
        yield lambda event: None
        return
    with Progress(PlainConsole(stderr=True)) as display:
        yield display


def without_line(
    on_event: Callable[[Mapping[str, Any]], None], then: Callable[[RunDirectory], None]
) -> Callable[[RunDirectory], None]:
    """`then`, during which a display of events has no moving line."""

    def call(directory: RunDirectory) -> None:
        with on_event.silent() if isinstance(on_event, Progress) else nullcontext():
            then(directory)

    return call


@contextmanager
def of_sweep(progress: bool | None) -> Iterator[Observer]:
    display = SweepDisplay(PlainConsole(stderr=True, quiet=not is_shown(progress)))
    with display.bar:
        yield display


@contextmanager
def of_count(progress: bool | None, what: str, total: int) -> Iterator[Callable[[], None]]:
    """A function to call after each of `total` pieces of work."""
    console = PlainConsole(stderr=True)
    done = count(1)
    if is_shown(progress) and console.is_jupyter:
        line = NotebookLine()
        yield lambda: line.update(f"{what}: {next(done)} of {total}")
    elif is_shown(progress) and console.is_terminal:
        with console.status(f"{what}: 0 of {total}") as status:
            yield lambda: status.update(f"{what}: {next(done)} of {total}")
    else:
        yield lambda: None


def note(progress: bool | None, text: str) -> None:
    """Prints a line for good where progress is shown."""
    if is_shown(progress):
        PlainConsole(stderr=True).print(text, soft_wrap=True)


class SweepDisplay:
    """Shows the scheduler's news (see `outcast.sweep.scheduler.Observer`), while `bar` is on."""

    def __init__(self, console: Console) -> None:
        # It takes some time to import, and only sweeps need it.
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        self._console = console
        self._shown: tuple[int, int] | None = None
        columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        self.bar = Bar(
            *(*columns, TextColumn("{task.description}")),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self.bar.add_task("starting", total=None)

    def note(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def update(self, progress: SweepProgress, places: int) -> None:
        done = progress.finished_before + progress.finished
        text = describe(progress, progress.eta_s(places))
        self.bar.update(self._task, completed=done, total=progress.total, description=text)
        counts = (progress.finished, len(progress.failures))
        if not self._console.is_terminal and counts != self._shown:
            elapsed_s = time.monotonic() - progress.began
            self.note(f"{elapsed_s:6.1f} s  {done}/{progress.total}  {text}")
        self._shown = counts


def describe(progress: SweepProgress, eta_s: float | None) -> str:
    """The progress in words: `about 3 min left, 1 failed, 2 running`."""
    parts = []
    if eta_s is not None and progress.left:
        parts.append(f"about {format_duration(eta_s)} left")
    counts = {"failed": len(progress.failures), "running": len(progress.running)}
    return ", ".join(parts + [f"{count} {what}" for what, count in counts.items() if count])


def format_duration(seconds: float) -> str:
    """A duration for people: `40 s`, `12 min`, `3.5 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
