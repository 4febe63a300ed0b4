"""A sweep's progress: one line that changes on a terminal, else line by line."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from outcast.sweep.scheduler import Progress

_MOST_NAMED = 2
"""Names of running runs that fit into the line."""


class Display:
    """Shows the scheduler's news (see `outcast.sweep.scheduler.Observer`)."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._shown: tuple[int, int] | None = None
        columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        self._bar = Bar(
            *(*columns, TextColumn("{task.description}")),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=None)

    def __enter__(self) -> Display:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        self._bar.stop()

    def note(self, text: str) -> None:
        """See Observer."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def update(self, progress: Progress, places: int) -> None:
        """See Observer."""
        done = progress.finished_before + progress.finished
        text = describe(progress, progress.eta_s(places))
        self._bar.update(self._task, completed=done, total=progress.total, description=text)
        counts = (progress.finished, len(progress.failures))
        if not self._console.is_terminal and counts != self._shown:
            elapsed_s = time.monotonic() - self._began
            self.note(f"{elapsed_s:6.1f} s  {done}/{progress.total}  {text}")
        self._shown = counts


def describe(progress: Progress, eta_s: float | None) -> str:
    """The progress in words: `about 3 min left, 1 failed; running a, b and 2 more`."""
    parts = []
    if eta_s is not None and progress.left:
        parts.append(f"about {format_duration(eta_s)} left")
    if progress.failures:
        parts.append(f"{len(progress.failures)} failed")
    text = ", ".join(parts)
    names = list(progress.running)
    if names:
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        running = f"running {', '.join(names[:_MOST_NAMED])}{more}"
        text = f"{text}; {running}" if text else running
    return text


def format_duration(seconds: float) -> str:
    """A duration for people: `40 s`, `12 min`, `3.5 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
