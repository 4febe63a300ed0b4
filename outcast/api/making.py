"""Makes runs. The libraries that read a run's results are imported later, while it goes on."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from outcast.api import progress as displays
from outcast.emulation.commands import leave_working_folder
from outcast.plan.model import Planned
from outcast.records.run_directory import RunDirectory

if TYPE_CHECKING:
    from outcast.engines.guest.kernels import Kernel
    from outcast.records.interventions import Interventions
    from outcast.sweep.pool import Pool


def make(
    planned: Planned,
    directory: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    on_analysed: Callable[[RunDirectory], None] | None = None,
) -> Path:
    """Makes a run, as `outcast.run` does, and returns its folder. Raises as that does."""
    from outcast import workflow

    if directory is not None:
        *places, last = [Path(directory)]
    else:
        *places, last = workflow.default_directories(planned.experiment)
    for target in places:
        with contextlib.suppress(workflow.TakenError):
            execute(planned, target, progress, on_analysed=on_analysed)
            return target
    execute(planned, last, progress, on_analysed=on_analysed)
    return last


def execute(
    planned: Planned,
    target: Path,
    progress: bool | None = None,
    *,
    draw: bool = True,
    kernel: Kernel | None = None,
    interventions: Interventions | None = None,
    on_analysed: Callable[[RunDirectory], None] | None = None,
) -> RunDirectory:
    """Makes a run, as `outcast.run` and every replay do.

    Raises as `outcast.run`.
    """
    from outcast import workflow
    from outcast.api.guest import provide
    from outcast.engines import Engine, choose
    from outcast.engines.virtual import VirtualEngine

    workflow.require_free(target)
    with absolute_search_paths():
        engine: Engine
        provide(planned, progress)
        if kernel is None and interventions is None:
            engine = choose(planned, lambda why: displays.note(progress, why))
        else:
            engine = VirtualEngine(kernel, interventions)
            engine.require(*planned.by(engine.name))
        with displays.of_run(progress) as on_event:
            return workflow.execute(
                planned,
                engine,
                target,
                on_event,
                draw=draw,
                on_analysed=on_analysed and displays.without_line(on_event, on_analysed),
            ).directory


@contextmanager
def absolute_search_paths() -> Iterator[None]:
    """Leaves the working folder out of PATH and PYTHONPATH while programs are started."""
    names = ("PATH", "PYTHONPATH")
    before = {name: os.environ.get(name) for name in names}
    leave_working_folder(os.environ)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def pool_of(jobs: int | None, scheduler: str | None) -> Pool:
    """The pool of a Dask scheduler's workers, or of processes here; None is one a core.

    Raises as `outcast.sweep.dask_pool.connect`.
    """
    if scheduler is not None:
        from outcast.sweep.dask_pool import connect

        return connect(scheduler)
    from outcast.sweep.pool import LocalPool

    cores = os.cpu_count() or 1
    jobs = jobs or cores
    return LocalPool(jobs, threads=max(1, cores // jobs))
