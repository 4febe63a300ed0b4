"""The guest's roots, made with their progress shown."""

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

from outcast.engines.root import build
from outcast.engines.root.cache import Root
from outcast.engines.root.lock import Kind
from outcast.view.terminal.console import NotebookLine, PlainConsole

_NAMES: dict[Kind, str] = {"runtime": "the guest's root", "build": "the root with the compiler"}
_STAGES = {
    "fetch": "fetching packages for",
    "wheels": "fetching wheels for",
    "compile": "compiling the Python code of",
    "check": "checking",
}


def build_root_shown(kind: Kind = "runtime", **options: Any) -> Root:
    """Makes a root, and shows the progress on standard error.

    Args:
        kind: which root.
        options: those of `build.build`.
    """
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
            text = f"{_STAGES[progress.stage]} {_NAMES[kind]}"
            bar.update(
                task, description=text, completed=progress.done, total=progress.total or None
            )
            if notebook is not None:
                notebook.update(f"{text} {progress.done or ''}")
            elif not console.is_terminal and text != shown:
                console.print(text)
            shown = text

        return build.build(kind, on_progress=on_progress, **options)
