"""Compares what runs cost here with what they cost at another commit, in turns.

    .venv/bin/python benchmarks/against.py COMMIT [--repetitions 5] [--runs 6] [--config CONFIG]
        [--write]

The commit is unpacked into a folder of its own and runs with this environment's packages. One
single run and one sweep of both states are made in turns, so that a busy machine disturbs both
alike. Prints processor time (of outcast and the guest together) and wall time: medians, and the
median of the ratios of neighbours. Exit status 1 if the captures of the two states differ.
`--write` puts the table into docs/results/measured.json, from which `python -m
scripts.fill_numbers` fills the page.
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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from outcast.files import sha256, write_text

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs/results/measured.json"
NAME = "cost"


@dataclass(frozen=True)
class Cost:
    """What a command took: seconds of processors, also of its children, and of the wall clock."""

    processor_s: float
    wall_s: float


def unpack(commit: str, folder: Path) -> Path:
    """A commit's files in a folder."""
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", commit], capture_output=True, check=True
    ).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
    return folder


def outcast(checkout: Path, *words: str) -> Cost:
    """Runs an `outcast` of a checkout. Exits where it fails."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        [sys.executable, "-P", "-m", "outcast", *words],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        check=False,
    )
    wall_s, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{checkout}: outcast {' '.join(words)}: {done.stderr.strip()}")
    processor_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(processor_s, wall_s)


def captures(run: Path) -> dict[str, str]:
    """The hash of each capture of a run."""
    return {path.name: sha256(path) for path in sorted((run / "captures").iterdir())}


def line(what: str, before: Sequence[Cost], after: Sequence[Cost], each: int) -> list[str]:
    """A row of the table: what `each` runs took, for one run."""

    def of(costs: Sequence[Cost], name: str) -> str:
        return f"{median(getattr(cost, name) for cost in costs) / each:.1f}"

    def ratio(name: str) -> str:
        pairs = zip(before, after, strict=True)
        return f"{median(getattr(new, name) / getattr(old, name) for old, new in pairs):.2f}"

    cells = [what]
    for name in ("processor_s", "wall_s"):
        cells += [of(before, name), of(after, name), ratio(name)]
    return cells


def main() -> int:
    """Measures both states in turns."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("commit")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--runs", type=int, default=6, help="of each sweep")
    parser.add_argument("--config", default="configs/fig3c.yaml")
    parser.add_argument("--write", action="store_true", help="store the table for the docs")
    asked = parser.parse_args()
    rows: dict[str, tuple[list[Cost], list[Cost]]] = {}
    with tempfile.TemporaryDirectory(prefix="outcast-against-") as name:
        scratch = Path(name)
        (scratch / "before").mkdir()
        states = (unpack(asked.commit, scratch / "before"), ROOT)
        hashes: list[dict[str, str]] = [{}, {}]
        # The first round compiles, and is not counted.
        for number in range(asked.repetitions + 1):
            for place, checkout in enumerate(states):
                run = scratch / f"run-{number}-{place}"
                single = outcast(
                    checkout, "run", asked.config, "--engine", "virtual", "-o", str(run)
                )
                hashes[place] = captures(run)
                for jobs in (1, 2) if number else ():
                    several = outcast(
                        *(checkout, "sweep", asked.config, "--jobs", str(jobs)),
                        *("--set", "engine=virtual", "--set", f"repetitions={asked.runs}"),
                        *("--set", "sweep.captures=drop"),
                        *("-o", str(scratch / f"sweep-{number}-{place}-{jobs}")),
                    )
                    what = f"a run of a sweep, {jobs} at a time"
                    rows.setdefault(what, ([], []))[place].append(several)
                if number:
                    rows.setdefault("a single run, with figures", ([], []))[place].append(single)
    head = ["", "processor, before", "after", "ratio", "wall, before", "after", "ratio"]
    table = [head]
    table += [
        line(what, *costs, asked.runs if "sweep" in what else 1) for what, costs in rows.items()
    ]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))
    print(f"in seconds, medians of {asked.repetitions}; load {os.getloadavg()[0]:.1f} at the end")
    if asked.write:
        store(asked.commit, table, f"--repetitions {asked.repetitions} --runs {asked.runs}")
    if hashes[0] != hashes[1]:
        print("the captures of the two states differ")
        return 1
    print("the captures of the two states are equal")
    return 0


def store(commit: str, table: list[list[str]], options: str) -> None:
    """Puts the table among the stored results."""
    known = json.loads(RESULTS.read_text(encoding="utf-8"))
    state = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    known[NAME] = {
        "command": f"benchmarks/against.py {commit} {options} --write",
        "state": f"commit {state} against {commit}, {os.cpu_count()} cores",
        "table": table,
    }
    write_text(RESULTS, json.dumps(known, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
