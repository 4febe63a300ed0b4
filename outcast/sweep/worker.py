"""Makes runs one after another, as a process of its own: `python -m outcast.sweep.worker`.

Each line of standard input is a JSON object with a `folder` and a `task`. The folder gets the run
directory (`run`), what the run said (`stderr`) and, last, `ended.json`. The
process ends with its input, or if no line comes for IDLE_S. A process of its own can be ended at
any time, and its crash does not end the sweep. It stays for the next run, because imports take
longer than the analysis of a short run.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import sys
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

from outcast import engines, experiment, workflow
from outcast.engines.virtual import VirtualEngine
from outcast.experiment import Experiment
from outcast.files import write_json
from outcast.plan.model import Planned
from outcast.records.interventions import Interventions
from outcast.records.run_directory import RunDirectory
from outcast.sweep.pool import ENDED, Failure, Task, interrupted_by_signals
from outcast.sweep.store import RESULT, reduce

IDLE_S = 60.0
"""A worker of Dask outlives the sweep, and its processes are not to keep their memory."""
MOST_BYTES = 512 << 20
"""A process with more memory than this after a run does not stay, so that it is given back."""


class Executor(Protocol):
    """Makes a whole run directory at a new path. If it fails, it raises OutcastError."""

    def __call__(
        self, experiment: Experiment, target: Path, interventions: Interventions | None = None, /
    ) -> None: ...


def execute(
    requested: Experiment, target: Path, interventions: Interventions | None = None, /
) -> None:
    """The Executor of a real sweep: it runs and analyses an experiment and draws nothing."""
    planned = Planned(requested)
    engine: engines.Engine = engines.choose(planned)
    if interventions is not None:
        engine = VirtualEngine(interventions=interventions)
    workflow.execute(planned, engine, target, lambda event: None, draw=False)


def run_task(task: Task, folder: Path) -> Failure | None:
    """Makes the run in `folder`. Returns why it has no result, or None."""
    config = folder / "task.yaml"
    config.write_text(task.config, encoding="utf-8")
    directory = RunDirectory(folder / RESULT)
    try:
        module, _, function = task.executor.partition(":")
        make: Executor = getattr(importlib.import_module(module), function)
        requested = experiment.load(config)
        changes = [task.interventions] if task.interventions else []
        make(requested, directory.path, *map(Interventions.model_validate_json, changes))
        reduce(directory, task.captures)
    except Exception as error:  # the sweep goes on after any error and reports it
        traceback.print_exc()
        return Failure.of(error)
    return None


def _write_to(file: Path) -> None:
    """Makes a file our standard output and our standard error."""
    sys.stdout.flush()
    sys.stderr.flush()
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    for number in (1, 2):
        os.dup2(descriptor, number)
    os.close(descriptor)


def _serve() -> None:
    """Makes runs until the input ends, or until another process should go on."""
    stays = True
    while stays and select.select([sys.stdin], [], [], IDLE_S)[0]:
        line = sys.stdin.readline()
        if not line:
            return
        fields = json.loads(line)
        folder = Path(fields["folder"])
        _write_to(folder / "stderr")
        failure = run_task(Task(**fields["task"]), folder)
        # What an error has left behind in this process must not reach the next run.
        used_pages = int(Path("/proc/self/statm").read_text().split()[1])
        stays = failure is None and used_pages * os.sysconf("SC_PAGE_SIZE") <= MOST_BYTES
        _write_to(Path(os.devnull))
        write_json(folder / ENDED, {"failure": failure and asdict(failure), "stays": stays})


def main() -> int:
    """Serves. Returns 0 once the last `ended.json` is written, whether or not a run failed."""
    interrupted_by_signals()
    try:
        _serve()
    except KeyboardInterrupt:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
