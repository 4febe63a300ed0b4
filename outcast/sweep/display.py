"""A sweep's progress: one line that changes on a terminal, else line by line."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from outcast.sweep.scheduler import Progress


class Display:
    """Shows the scheduler's news (see `outcast.sweep.scheduler.Observer`), while `bar` is on."""

    def __init__(self, console: Console) -> None:
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
        """See Observer."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def update(self, progress: Progress, places: int) -> None:
        """See Observer."""
        done = progress.finished_before + progress.finished
        text = describe(progress, progress.eta_s(places))
        self.bar.update(self._task, completed=done, total=progress.total, description=text)
        counts = (progress.finished, len(progress.failures))
        if not self._console.is_terminal and counts != self._shown:
            elapsed_s = time.monotonic() - progress.began
            self.note(f"{elapsed_s:6.1f} s  {done}/{progress.total}  {text}")
        self._shown = counts


def describe(progress: Progress, eta_s: float | None) -> str:
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
