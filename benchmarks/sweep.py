"""Measures how much faster a sweep is with several runs at a time.

    .venv/bin/python benchmarks/sweep.py [--runs 24] [--jobs 2] [--config CONFIG] [-o DIR]

Makes the same sweep of virtual runs (RUNS repetitions) with one run at a time and with JOBS runs,
each into a new folder. The machine should do nothing else. Prints both times, the runs per minute
and the ratio. Exit status 1 if the datasets differ.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
OUTCAST = ROOT / ".venv/bin/outcast"


def measure(config: Path, runs: int, jobs: int, target: Path) -> float:
    """Makes the sweep. Returns the seconds it took."""
    argv = [str(OUTCAST), "sweep", str(config), "--jobs", str(jobs), "-o", str(target)]
    argv += ["--set", "engine=virtual", "--set", f"repetitions={runs}"]
    argv += ["--set", "sweep.captures=drop"]
    began = time.monotonic()
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    took_s = time.monotonic() - began
    if done.returncode:
        sys.exit(f"{' '.join(argv)}: {done.stderr.strip()}")
    print(
        f"--jobs {jobs}: {runs} runs in {took_s:.1f} s, {60 * runs / took_s:.1f} a minute",
        flush=True,
    )
    return took_s


def main() -> int:
    """Makes both sweeps and compares them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=24)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--config", type=Path, default=ROOT / "configs/fig3c.yaml")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.output or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start", flush=True)
        alone_s = measure(arguments.config, arguments.runs, 1, folder / "jobs-1")
        parallel_s = measure(arguments.config, arguments.runs, arguments.jobs, folder / "jobs-n")
        for name in ("runs.parquet", "run_flows.parquet"):
            if (folder / "jobs-1" / name).read_bytes() != (folder / "jobs-n" / name).read_bytes():
                sys.exit(f"{name} differs between the two sweeps")
    print(f"throughput with --jobs {arguments.jobs}: {alone_s / parallel_s:.2f} times that with 1")
    return 0


if __name__ == "__main__":
    sys.exit(main())
