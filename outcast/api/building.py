"""The virtual engine's kernel and the guest's roots, built with their progress shown."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.progress import Progress as Bar

from outcast.api.progress import is_shown
from outcast.engines.kernel import build as kernels
from outcast.engines.kernel.cache import Kernel
from outcast.engines.root import build as roots
from outcast.engines.root.cache import Root
from outcast.engines.root.lock import Kind
from outcast.engines.workshop import Progress
from outcast.view.terminal.console import NotebookLine, PlainConsole

_KERNEL_STAGES = {
    "wait": "waiting for another process that builds it",
    "fetch": "fetching the compiler and",
    "unpack": "unpacking",
    "configure": "configuring",
    "compile": "compiling",
    "check": "booting it",
}
_LEAST_SHARE = 0.03
"""The compiler's time cannot be estimated before this share of its work."""
_ROOTS: dict[Kind, str] = {"runtime": "the guest's root", "build": "the root with the compiler"}
_ROOT_STAGES = {
    "wait": "waiting for another process that makes",
    "fetch": "fetching packages for",
    "wheels": "fetching wheels for",
    "compile": "compiling the Python code of",
    "check": "checking",
}


def build_kernel(progress: bool | None = True, **options: Any) -> Kernel:
    """Builds, and shows the progress on standard error; `options` are those of `build.build`."""
    if not is_shown(progress):
        return kernels.build(**options)
    with _display() as show:
        began: dict[str, float] = {}

        def on_progress(progress: Progress) -> None:
            text = _KERNEL_STAGES[progress.stage]
            since = began.setdefault(progress.stage, time.monotonic())
            if progress.stage != "compile":
                text = f"{text} {progress.detail}".rstrip()
            elif progress.done > _LEAST_SHARE * progress.total:
                to_do = progress.total / progress.done - 1
                minutes = math.ceil((time.monotonic() - since) * to_do / 60)
                text += f", {minutes} min left" if minutes else ""
            show(text, progress.done, progress.total)

        return kernels.build(on_progress=on_progress, **options)


def build_root(kind: Kind = "runtime", progress: bool | None = True, **options: Any) -> Root:
    """Makes a root, and shows the progress on standard error."""
    if not is_shown(progress):
        return roots.build(kind, **options)
    with _display() as show:

        def on_progress(progress: Progress) -> None:
            show(f"{_ROOT_STAGES[progress.stage]} {_ROOTS[kind]}", progress.done, progress.total)

        return roots.build(kind, on_progress=on_progress, **options)


@contextmanager
def _display() -> Iterator[Callable[[str, int, int], None]]:
    """A display of one step: what it does, and how many of how many parts are done."""
    console = PlainConsole(stderr=True)
    notebook = NotebookLine() if console.is_jupyter else None
    steps: set[str] = set()
    with Bar(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task("", total=None)

        def show(text: str, done: int, total: int) -> None:
            bar.update(task, description=text, completed=done, total=total or None)
            if notebook is not None:
                notebook.update(f"{text} {done or ''}")
            elif not console.is_terminal and text not in steps:
                console.print(text)
            steps.add(text)

        yield show
