"""Makes one run, as a process of its own: `python -m outcast.sweep.worker FOLDER`.

The task comes as JSON on standard input. FOLDER gets the run directory (`run`) and, last,
`ended.json`, which says why there is no result, or null. The process that started us puts our
standard error into `stderr` there. A process of its own can be ended at any time, and its crash
does not end the sweep.
"""

from __future__ import annotations

import json
import signal
import sys
import traceback
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import NoReturn

from outcast import experiment
from outcast.errors import RunError
from outcast.files import write_json
from outcast.records.run_directory import RunDirectory
from outcast.sweep import captures
from outcast.sweep.store import RESULT, problems
from outcast.sweep.task import Failure, Task, load_executor

ENDED = "ended.json"


def run_task(task: Task, folder: Path) -> Failure | None:
    """Makes the run in `folder`. Returns why there is no result; None if there is one."""
    config = folder / "task.yaml"
    config.write_text(task.config, encoding="utf-8")
    directory = RunDirectory(folder / RESULT)
    try:
        load_executor(task.executor)(experiment.load(config), directory.path)
        captures.reduce(directory, task.captures)
        if wrong := problems(directory):
            raise RunError(f"the result does not verify: {wrong[0]}")
    except Exception as error:  # the sweep goes on after any error and reports it
        traceback.print_exc()
        return Failure.of(error)
    return None


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    """Treats a signal like Ctrl-C, because the engines then remove what they have made."""
    raise KeyboardInterrupt


def main() -> int:
    """Runs one task. Returns 0 once `ended.json` is written, whether or not the run failed."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _stop)
    folder = Path(sys.argv[1])
    try:
        failure = run_task(Task(**json.load(sys.stdin)), folder)
    except KeyboardInterrupt:
        return 1
    write_json(folder / ENDED, asdict(failure) if failure else None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
