"""The virtual engine's kernel, built with its progress shown."""

from __future__ import annotations

from typing import Any

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.progress import Progress as Bar

from outcast.engines.kernel import build
from outcast.engines.kernel.cache import Kernel
from outcast.view.terminal.console import NotebookLine, PlainConsole

_STAGES = {
    "search": "looking for the source",
    "fetch": "fetching",
    "compiler": "making the compiler's root",
    "unpack": "unpacking",
    "configure": "configuring",
    "compile": "compiling",
    "check": "booting it",
}


def build_shown(**options: Any) -> Kernel:
    """Builds, and shows the progress on standard error; `options` are those of `build.build`."""
    console = PlainConsole(stderr=True)
    notebook = NotebookLine() if console.is_jupyter else None
    shown = ""
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

        def on_progress(progress: build.Progress) -> None:
            nonlocal shown
            text = _STAGES[progress.stage]
            if progress.stage != "compile" and progress.detail:
                text += f" {progress.detail}"
            bar.update(
                task, description=text, completed=progress.done, total=progress.total or None
            )
            if notebook is not None:
                notebook.update(f"{text} {progress.done or ''}")
            elif not console.is_terminal and text != shown:
                console.print(text)
            shown = text

        return build.build(on_progress=on_progress, **options)
