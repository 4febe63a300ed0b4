"""Shows where the time of a single run goes, from the command to the report, phase by phase.

    .venv/bin/python benchmarks/single.py [COMMIT] [--repetitions 5] [--config CONFIG] [--keep DIR]

Each run is the `outcast run` of a new process, from its start to its end; benchmarks/against.py has
what a manifest tells. With COMMIT the same is done in that commit's files, in turns, so that a busy
machine disturbs both alike. Prints for each phase, as medians, the wall time, the processor time of
everything, and that of outcast's own first process. What the guest and the drawing processes take
is the difference. Last come the page faults, and what remains beside the traffic. Exit status 1 if
the captures of the two states differ.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[1]

PHASES = {
    "start": "interpreter, imports, plan",
    "boot": "the guest's boot",
    "setup": "set-up",
    "verify": "verification",
    "capture_start": "captures start",
    "traffic": "traffic",
    "capture_end": "captures end",
    "done": "the guest's end",
    "analysis": "analysis",
    "figures": "figures",
    "report": "report",
    "sealed": "to the command's end",
}
"""A phase's name, by the event that it begins with, in order."""

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
    total, left = 0.0, list(parents.get(of, ()))
    while left:
        process = left.pop()
        total += used[process]
        left += parents.get(process, ())
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


def _inside(stored: Path, words: list[str]) -> int:
    """Runs the `outcast` of this interpreter's path and stores when each phase began."""
    marks: dict[str, tuple[float, float, float]] = {}
    from outcast import workflow

    original = workflow.execute

    def execute(experiment: Any, engine: Any, target: Path, on_event: Any, **options: Any) -> Any:
        def noting(event: Mapping[str, Any]) -> None:
            # The mark comes first, because what listens may work in this event.
            if event.get("event") in ("phase", "done"):
                marks[str(event.get("phase") or "done")] = _used()
            on_event(event)

        marks["boot"] = _used()
        outcome = original(experiment, engine, target, noting, **options)
        marks["sealed"] = _used()
        return outcome

    workflow.execute = execute
    from outcast.cli import invoke

    status = invoke(words)
    marks["end"] = _used()
    faults = sum(
        resource.getrusage(who).ru_minflt
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    stored.write_text(json.dumps({"marks": marks, "faults": faults}))
    return status


def measure(checkout: Path, config: str, run: Path) -> dict[str, tuple[float, float, float]]:
    """Makes a run. Returns what each phase took, and `whole`; `faults` are page faults."""
    stored = run.with_suffix(".json")
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        [
            *(sys.executable, "-P", str(Path(__file__).resolve()), "--inside", str(stored)),
            *("run", config, "--engine", "virtual", "-o", str(run)),
        ],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        check=False,
    )
    ended, after = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{checkout}: outcast run {config}: {done.stderr.strip()}")
    read = json.loads(stored.read_text())
    marks = {"start": (began, 0.0, 0.0), **read["marks"]}
    names = [*(name for name in PHASES if name in marks), "end"]
    used = {
        name: tuple(late - early for late, early in zip(marks[then], marks[name], strict=True))
        for name, then in pairwise(names)
    }
    whole = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    used["whole"] = (ended - began, whole, marks["end"][2])
    used["faults"] = (read["faults"],) * 3
    return used


def main() -> int:
    """Measures in turns and prints the table."""
    if sys.argv[1:2] == ["--inside"]:
        return _inside(Path(sys.argv[2]), sys.argv[3:])
    sys.path.insert(0, str(ROOT))
    from benchmarks.against import captures, unpack

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("commit", nargs="?")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--config", default="configs/fig3c.yaml")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the last runs there")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="outcast-single-") as name:
        scratch = asked.keep or Path(name)
        states = {"here": ROOT}
        if asked.commit:
            (Path(name) / "before").mkdir()
            states = {"before": unpack(asked.commit, Path(name) / "before"), **states}
        taken: dict[str, list[dict[str, tuple[float, float, float]]]] = {}
        hashes: dict[str, dict[str, str]] = {}
        # The first round compiles, and is not counted.
        for number in range(asked.repetitions + 1):
            for state, checkout in states.items():
                run = scratch / f"{state}-{number}"
                used = measure(checkout, asked.config, run)
                hashes[state] = captures(run)
                if number:
                    taken.setdefault(state, []).append(used)
    heads = ("wall", "processor", "of it outcast itself")
    print("seconds, medians of", asked.repetitions, "runs of", asked.config)
    print(f"{'':30}" + "".join(f"{f'{state}: {head}':30}" for state in taken for head in heads))
    for phase, title in {**PHASES, "whole": "everything", "faults": "page faults"}.items():
        cells = [
            median(used[phase][column] for used in runs)
            for runs in taken.values()
            for column in range(1 if phase == "faults" else len(heads))
            if phase in runs[0]
        ]
        digits = 0 if phase == "faults" else 2
        print(f"{title:30}" + "".join(f"{cell:<30.{digits}f}" for cell in cells))
    for state, runs in taken.items():
        beside = median(used["whole"][0] - used["traffic"][0] for used in runs)
        print(f"{state}: {beside:.1f} s of wall time beside the traffic")
    print(f"load {os.getloadavg()[0]:.1f} at the end")
    if len({tuple(sorted(hashed.items())) for hashed in hashes.values()}) > 1:
        print("the captures of the two states differ")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
