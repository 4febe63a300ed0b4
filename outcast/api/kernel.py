"""The virtual engine's kernel, built where a run needs it."""

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

from outcast.api.progress import is_shown, note
from outcast.engines.kernel import build, cache
from outcast.engines.kernel.cache import Kernel
from outcast.errors import FeatureMissingError, KernelError
from outcast.experiment import Experiment
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


def provide(experiment: Experiment, progress: bool | None = None) -> None:
    """Builds the virtual engine's kernel if the experiment can use it and it is not built yet.

    Args:
        experiment: its engine says whether the kernel is needed, or `auto` could use it.
        progress: whether to show it; None shows it on a terminal and in a notebook.

    Raises:
        FeatureMissingError, KernelError, CommandError, GuestError: as `build.build`; but where the
            engine is `auto` and the sources or programs are missing, nothing is raised.
    """
    selected = experiment.kernel is not None and experiment.kernel.build is not None
    if experiment.engine == "realtime" or selected or cache.find() is not None:
        return
    note(progress, "building the virtual engine's kernel first; this takes minutes, once")
    try:
        if is_shown(progress):
            build_shown()
        else:
            build.build()
    except (FeatureMissingError, KernelError) as error:
        if experiment.engine == "virtual":
            raise
        note(progress, f"the virtual engine cannot be used: {error}")
