"""Makes a run and notes when each of its phases begins; benchmarks/against.py starts it.

    python benchmarks/single.py STORED run CONFIG [OPTION]...

It runs the `outcast` of the interpreter's path with these words. At the beginning of each phase it
notes the time, the processor time of everything, and that of outcast's own first process. What the
guest and the drawing processes take is the difference. Last it counts the page faults.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

PHASES = {
    "start": "interpreter, imports, plan",
    "boot": "the guest's boot",
    "setup": "set-up",
    "verify": "verification",
    "capture_start": "captures start",
    "connect": "flows connect",
    "traffic": "traffic",
    "capture_end": "captures end",
    "done": "the guest's end",
    "analysis": "analysis",
    "figures": "figures",
    "report": "report",
    "sealed": "to the command's end",
}
"""A phase's name, by the event that it begins with, in order."""


@dataclass(frozen=True)
class Inside:
    """What was noted of a run.

    Attributes:
        phases: by the name of a phase, its wall time and the processor time of everything, in s.
        own_s: the processor time of outcast's own first process.
        faults: the page faults of all processes.
    """

    phases: Mapping[str, tuple[float, float]]
    own_s: float
    faults: int


_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def _children_s(of: int) -> float:
    """Processor time of all living descendants of a process and of those they have waited for."""
    parents: dict[int, list[int]] = {}
    used: dict[int, float] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                line = Path(f"/proc/{name}/stat").read_text(errors="replace")
            except OSError:
                continue
            fields = line.rpartition(")")[2].split()
            parents.setdefault(int(fields[1]), []).append(int(name))
            used[int(name)] = sum(map(int, fields[11:15])) * _TICK_S
    total, pending = 0.0, list(parents.get(of, ()))
    while pending:
        process = pending.pop()
        total += used[process]
        pending += parents.get(process, ())
    return total


def _used() -> tuple[float, float, float]:
    """Now, by the wall clock and in processor seconds: of everything, and of this process."""
    own = time.process_time()
    reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (
        time.monotonic(),
        own + reaped.ru_utime + reaped.ru_stime + _children_s(os.getpid()),
        own,
    )


def _inside(stored: Path, words: Sequence[str]) -> int:
    """Runs the `outcast` of this interpreter's path and stores when each phase began."""
    marks: dict[str, tuple[float, float, float]] = {}
    from outcast import workflow

    original = workflow.execute

    def execute(planned: Any, engine: Any, target: Path, on_event: Any, **options: Any) -> Any:
        def noting(event: Mapping[str, Any]) -> None:
            # The mark comes first, because what listens may work in this event.
            if event.get("event") in ("phase", "done"):
                marks[str(event.get("phase") or "done")] = _used()
            on_event(event)

        marks["boot"] = _used()
        outcome = original(planned, engine, target, noting, **options)
        marks["sealed"] = _used()
        return outcome

    workflow.execute = execute
    from outcast.cli import invoke

    status = invoke(list(words))
    marks["end"] = _used()
    faults = sum(
        resource.getrusage(who).ru_minflt
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    stored.write_text(json.dumps({"marks": marks, "faults": faults}))
    return status


def read(stored: Path, began_s: float) -> Inside:
    """What was stored of a run whose process began at this time of the monotonic clock."""
    noted = json.loads(stored.read_text())
    marks = {"start": (began_s, 0.0, 0.0), **noted["marks"]}
    names = [*(name for name in PHASES if name in marks), "end"]
    phases = {
        name: (marks[then][0] - marks[name][0], marks[then][1] - marks[name][1])
        for name, then in pairwise(names)
    }
    return Inside(phases, marks["end"][2], noted["faults"])


if __name__ == "__main__":
    sys.exit(_inside(Path(sys.argv[1]), sys.argv[2:]))
