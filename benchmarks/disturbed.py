"""Checks that a disturbed sweep of real runs gives the same dataset as an undisturbed one.

    .venv/bin/python benchmarks/disturbed.py [--runs 24] [--kills 5] [--config CONFIG] [-o DIR]

Makes the sweep (virtual runs, RUNS repetitions, two at a time) three times:

- undisturbed;
- killed with SIGKILL at KILLS random moments, and resumed after each;
- over Dask, with a scheduler and two workers on the loopback, one of which is killed during a run.

Exit status 1 if a dataset differs from the first one in any byte.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
OUTCAST = ROOT / ".venv/bin/outcast"
PYTHON = ROOT / ".venv/bin/python"
DEADLINE_S = 3600.0


def begin(config: Path, runs: int, target: Path, *options: str) -> subprocess.Popen[str]:
    """Starts the sweep, or continues it."""
    argv = [str(OUTCAST), "sweep", str(config), "-o", str(target), "--set", "engine=virtual"]
    argv += ["--set", f"repetitions={runs}", "--set", "sweep.captures=drop", *options]
    return subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> None:
    """Waits for a sweep's end, and exits if the sweep failed."""
    _, stderr = process.communicate(timeout=DEADLINE_S)
    if process.returncode:
        sys.exit(f"{process.args!r}: status {process.returncode}: {stderr.strip()}")


def finished(target: Path) -> int:
    """The number of runs with a result."""
    return len(list(target.glob("runs/*")))


def wait_for_runs(process: subprocess.Popen[str], target: Path, count: int) -> None:
    """Waits until `count` runs have a result."""
    end = time.monotonic() + DEADLINE_S
    while finished(target) < count:
        if process.poll() is not None or time.monotonic() > end:
            sys.exit(f"{target}: {count} results did not come: {process.communicate()[1]}")
        time.sleep(0.05)


def killed(config: Path, runs: int, kills: int, target: Path) -> None:
    """Makes the sweep and kills it `kills` times, each time at another number of results."""
    draw = random.Random(1)
    for after in sorted(draw.sample(range(1, runs - 1), kills)):
        process = begin(config, runs, target, "--jobs", "2", "--resume")
        wait_for_runs(process, target, after)
        time.sleep(draw.uniform(0.0, 4.0))
        process.kill()
        process.wait()
        print(f"killed with {finished(target)} of {runs} results", flush=True)
    finish(begin(config, runs, target, "--jobs", "2", "--resume"))


@contextmanager
def dask(folder: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Starts a scheduler and two workers. Yields its address and the workers' processes."""
    file = folder / "scheduler.json"
    with ExitStack() as stack:

        def start(name: str, *argv: str) -> subprocess.Popen[bytes]:
            log = stack.enter_context((folder / f"{name}.log").open("wb"))
            module = f"distributed.cli.dask_{name.split('-')[0]}"
            process = subprocess.Popen(
                [str(PYTHON), "-m", module, *argv, "--host", "127.0.0.1", "--no-dashboard"],
                cwd=folder,
                stdout=log,
                stderr=log,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        start("scheduler", "--port", "0", "--scheduler-file", str(file))
        end = time.monotonic() + 60
        while not (file.exists() and '"address"' in file.read_text()):
            if time.monotonic() > end:
                sys.exit("Dask's scheduler did not start within 60 s")
            time.sleep(0.05)
        address = file.read_text().split('"address": "')[1].split('"')[0]
        workers = [
            start(name, address, "--nthreads", "1", "--no-nanny", "--memory-limit", "0")
            for name in ("worker-1", "worker-2")
        ]
        yield address, workers


def over_dask(config: Path, runs: int, target: Path) -> None:
    """Makes the sweep over two workers, and kills one of them after some results."""
    with tempfile.TemporaryDirectory() as scratch, dask(Path(scratch)) as (address, workers):
        process = begin(config, runs, target, "--scheduler", address)
        wait_for_runs(process, target, runs // 4)
        time.sleep(random.Random(2).uniform(0.5, 2.0))
        workers[0].send_signal(signal.SIGKILL)
        print(f"one worker killed with {finished(target)} of {runs} results", flush=True)
        finish(process)


def main() -> int:
    """Makes the three sweeps and compares them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=24)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--config", type=Path, default=ROOT / "configs/fig3c.yaml")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    config, runs = arguments.config, arguments.runs
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.output or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        whole = folder / "whole"
        print(f"{os.cpu_count()} cores; the sweep undisturbed", flush=True)
        finish(begin(config, runs, whole, "--jobs", "2"))
        killed(config, runs, arguments.kills, folder / "killed")
        over_dask(config, runs, folder / "dask")
        for other in ("killed", "dask"):
            for name in ("runs.parquet", "run_flows.parquet"):
                if (folder / other / name).read_bytes() != (whole / name).read_bytes():
                    sys.exit(f"{other}: {name} differs")
            print(f"{other}: {finished(folder / other)} runs, the same dataset, byte for byte")
    return 0


if __name__ == "__main__":
    sys.exit(main())
