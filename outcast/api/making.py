"""Makes runs, and runs single commands in an experiment's network.

The libraries that read a run's results are imported later, while the run goes on.
"""

from __future__ import annotations

import base64
import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from outcast.api import progress as displays
from outcast.api.experiments import require_experiment
from outcast.emulation.commands import leave_working_folder
from outcast.errors import ConfigError, RunError, how_ended
from outcast.experiment import Experiment
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
    """Makes a run, as `outcast.run` and every replay do. Raises as `outcast.run`."""
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
    """The pool of a Dask scheduler's workers, or of `jobs` processes here; None is one a core.

    Raises as `outcast.sweep.dask_pool.connect`.
    """
    if scheduler is not None:
        from outcast.sweep.dask_pool import connect

        return connect(scheduler)
    from outcast.sweep.pool import LocalPool

    cores = os.cpu_count() or 1
    jobs = jobs or cores
    return LocalPool(jobs, threads=max(1, cores // jobs))


DEADLINE_S = 600.0

OnOutput = Callable[[Literal["out", "err"], bytes], None]


@dataclass(frozen=True)
class Executed:
    """A command that has ended.

    Attributes:
        status: its exit status; negative for the signal that ended it, as in `subprocess`.
        stdout, stderr: what it wrote.
        crash: the signal that ended it, and where, if the guest's kernel says it; or None.
    """

    status: int
    stdout: bytes
    stderr: bytes
    crash: str | None = None


def exec_in(
    experiment: Experiment,
    command: Sequence[str],
    host: str | None = None,
    *,
    deadline_s: float = DEADLINE_S,
    on_output: OnOutput | None = None,
    progress: bool | None = None,
) -> Executed:
    """Builds an experiment's network and runs one command in one of its hosts.

    The experiment's flows, workloads and clients do not run. Its servers do, and the command
    begins when all are ready. Events count from its start. Nothing is captured or kept.

    Args:
        experiment: what `load` returned.
        command: the program and its arguments; `{h1}` is the address of host h1.
        host: where it runs; None is the topology's first host.
        deadline_s: how long the command may take, by the engine's clock.
        on_output: gets the command's output as it comes. The result then has none of it.
        progress: whether to say that the guest is made first, or why the realtime engine runs.

    Raises:
        ConfigError: the network cannot be built, or has no such host.
        FeatureMissingError: no engine can run this here, or there is no such program.
        OutcastError: the network failed, or the command did not end in time.
    """
    from outcast import workflow
    from outcast.api import guest
    from outcast.engines import choose

    planned = Planned(require_experiment(experiment))
    if not command:
        raise ConfigError("COMMAND: is missing; allowed is a program and its arguments")
    written: dict[str, bytearray] = {"out": bytearray(), "err": bytearray()}
    ended: list[Mapping[str, Any]] = []

    def on_event(event: Mapping[str, Any]) -> None:
        if event.get("event") == "ended":
            ended.append(event)
        elif event.get("event") == "output":
            data = base64.b64decode(event["data"])
            if on_output is not None:
                on_output(event["stream"], data)
            else:
                written[event["stream"]] += data

    with absolute_search_paths():
        guest.provide(planned, progress)
        engine = choose(planned, lambda why: displays.note(progress, why))
        within_ns = int(deadline_s * 1e9)
        workflow.execute_command(planned, engine, host, command, within_ns, on_event)
    if not ended:
        raise RunError("the command's end was not told")
    status, fault = int(ended[0]["status"]), ended[0]["fault"]
    crash = how_ended(status).strip() + (f": {fault}" if fault else "") if status < 0 else None
    return Executed(status, bytes(written["out"]), bytes(written["err"]), crash)
