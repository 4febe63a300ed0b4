"""Progress of a run, a sweep or a kernel's build, and who gets it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from itertools import count
from typing import TYPE_CHECKING, Any

from outcast.view.terminal.console import NotebookLine, PlainConsole, Progress

if TYPE_CHECKING:
    from outcast.records.run_directory import RunDirectory
    from outcast.sweep.scheduler import Observer


def is_shown(progress: bool | None) -> bool:
    """Returns what was requested; None asks for progress on a terminal and in a notebook only."""
    if progress is not None:
        return progress
    console = PlainConsole(stderr=True)
    return console.is_terminal or console.is_jupyter


@contextmanager
def of_run(progress: bool | None) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Gives a function that takes a run's events."""
    if not is_shown(progress):
        yield lambda event: None
        return
    with Progress(PlainConsole(stderr=True)) as display:
        yield display


def without_line(
    on_event: Callable[[Mapping[str, Any]], None], then: Callable[[RunDirectory], None]
) -> Callable[[RunDirectory], None]:
    """`then`, during which a display of events takes its moving line away."""

    def call(directory: RunDirectory) -> None:
        with on_event.silent() if isinstance(on_event, Progress) else nullcontext():
            then(directory)

    return call


@contextmanager
def of_sweep(progress: bool | None) -> Iterator[Observer]:
    """Gives an observer of a sweep."""
    from outcast.sweep.display import Display

    display = Display(PlainConsole(stderr=True, quiet=not is_shown(progress)))
    with display.bar:
        yield display


@contextmanager
def of_count(progress: bool | None, what: str, total: int) -> Iterator[Callable[[], None]]:
    """Gives what to call after each piece of work, which `what` names."""
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
