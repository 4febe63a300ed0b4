"""The virtual engine's kernel and root, made where a run needs them."""

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

from outcast.api.kernel import build_shown
from outcast.api.progress import is_shown, note
from outcast.engines import processor, shipped
from outcast.engines.guest import helpers
from outcast.engines.kernel import build as kernel_build
from outcast.engines.kernel import cache as kernels
from outcast.engines.root import build, cache, mininet_package
from outcast.engines.root.cache import Root
from outcast.engines.root.lock import Kind
from outcast.errors import FeatureMissingError, KernelError, RootError
from outcast.experiment import Experiment
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


def provide(experiment: Experiment, progress: bool | None = None) -> None:
    """Makes the virtual engine's kernel and root if the experiment can use them and they lack.

    Before that, the experiment is planned, because a wrong one should not be refused after
    minutes. A root that is there is compared with the list of its files.

    Args:
        experiment: its engine says whether they are needed, or `auto` could use them.
        progress: whether to show it; None shows it on a terminal and in a notebook.

    Raises:
        ConfigError: the experiment cannot be planned.
        RootError: the root is damaged, whichever engine is asked for.
        FeatureMissingError, RootError, KernelError, CommandError, GuestError: as `build.build` of
            the root and of the kernel; but where the engine is `auto` and packages, sources,
            programs or the processor are missing, nothing is raised.
    """
    if experiment.engine == "realtime":
        return
    if unfit := processor.misfit():
        if experiment.engine == "virtual":
            raise FeatureMissingError(unfit)
        note(progress, f"the virtual engine cannot be used: {unfit}")
        return
    _verify_roots(experiment)
    lacking = _lacking_roots(experiment)
    lacks_kernel = _lacks_kernel(experiment)
    if not lacking and not lacks_kernel:
        return
    if not experiment.sweep:
        # The points of a sweep are planned by the sweep.
        if not mininet_package.is_there():
            provide_mininet(progress)
            lacking = [kind for kind in lacking if kind != "runtime"]
        from outcast.plan.make import make_plan

        make_plan(experiment)
    show = is_shown(progress)
    unfit = shipped.misfit("kernels", kernels.pinned_key())
    if unfit:
        note(progress, unfit)
    try:
        if lacking:
            note(progress, "making the guest's root first; this takes a minute, once")
        for kind in lacking:
            build_root_shown(kind) if show else build.build(kind)
        if lacks_kernel:
            note(progress, "building the virtual engine's kernel first; this takes minutes, once")
            build_shown() if show else kernel_build.build()
    except (FeatureMissingError, KernelError, RootError) as error:
        if experiment.engine == "virtual":
            raise
        note(progress, f"the virtual engine cannot be used: {error}")


def provide_mininet(progress: bool | None = None) -> None:
    """Makes the guest's root, from which Mininet comes where this Python has none of its own.

    Args:
        progress: as for `provide`.

    Raises:
        FeatureMissingError, RootError: as `build.build` of the root.
    """
    note(progress, "planning needs Mininet, which the guest's root has: making that first, once")
    if is_shown(progress):
        build_root_shown()
    else:
        build.build()


def _verify_roots(experiment: Experiment) -> None:
    if experiment.guest.root == "host":
        return
    for kind in ("runtime", "build"):
        root = cache.find(kind)
        if root is not None:
            cache.verify(root)


def _lacking_roots(experiment: Experiment) -> list[Kind]:
    if experiment.guest.root == "host":
        return []
    compiler = cache.pinned_key("build")
    lacking: list[Kind] = [] if cache.find() is not None else ["runtime"]
    # Once our programs are compiled, nothing needs the compiler.
    if compiler is not None and helpers.find(compiler) is None and cache.find("build") is None:
        lacking.append("build")
    return lacking


def _lacks_kernel(experiment: Experiment) -> bool:
    selected = experiment.kernel is not None and experiment.kernel.build is not None
    return not selected and kernels.find() is None
