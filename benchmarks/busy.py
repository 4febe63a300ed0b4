"""The same experiment in both engines on a busy machine: the table of docs/limits.md.

    sudo .venv/bin/python -m benchmarks.busy [--runs 3] [-o DIR] [--write]

Keeps every core busy with a process that counts, and makes runs of configs/linear-12.yaml that DIR
does not have yet, in real time (as root) and in virtual time, at 100 Mbps and at 1 Gbps. Prints the
times between full frames' departures at the bottleneck, in units of the time that a frame takes on
the link. While the queue is not empty, this is 1. `--write` puts the table into
docs/results/measured.json.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean

import numpy as np
import numpy.typing as npt
import polars as pl

from benchmarks import stored
from outcast.records.run import Run
from outcast.uses.papers.verdict import number

ROOT = Path(__file__).parents[1]
NAME = "busy-machine"
FRAME_BITS = 8 * 1514
PAYLOAD = 1448
CASES = (
    ("realtime", "100mbit", 10**8, "2s"),
    ("virtual", "100mbit", 10**8, "2s"),
    ("realtime", "1gbit", 10**9, "2s"),
    # A virtual second at 1 Gbps takes several seconds.
    ("virtual", "1gbit", 10**9, "500ms"),
)
"""The engine, the links' rate as configured and in bit/s, and the duration."""
HEAD = (
    *("engine, link", "5 %", "median", "95 %", "99 %", "within 1 % of 1"),
    *("total goodput, Mbps", "outcast ratios of the runs"),
)


@contextmanager
def busy(cores: int) -> Iterator[None]:
    """Keeps this number of cores busy while the context lasts."""
    code = "while True: pass"
    spinning = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(cores)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def make(engine: str, rate: str, duration: str, seed: int, target: Path) -> Run:
    """Makes a run if it is not there yet."""
    settings = {
        "engine": engine,
        "seed": seed,
        "duration": duration,
        "analysis": {},
        "links.rate": rate,
        # In real time, tc's own shapers count a frame's bytes alone.
        "links.overhead": "none",
    }
    return stored.made("configs/linear-12.yaml", settings, target)


def gaps(run: Run, rate_bps: int) -> npt.NDArray[np.float64]:
    """The times between departures of full frames, in units of a frame's time on the link."""
    frame_ns = FRAME_BITS * 1e9 / rate_bps
    departures = run.table("packets").filter(verdict="forwarded", payload=PAYLOAD).sort("t_out")
    return (departures.select(pl.col("t_out").diff().drop_nulls())["t_out"] / frame_ns).to_numpy()


def row(title: str, runs: Sequence[Run], rate_bps: int) -> list[str]:
    """A row of the table: all gaps of the runs together, and each run's ratio."""
    every = np.concatenate([gaps(run, rate_bps) for run in runs])
    total_bps = fmean(run.summary.total_goodput_bps for run in runs)
    ratios = [number(run.summary.outcast_ratio or 0.0) for run in runs]
    return [
        title,
        *(f"{share:.3f}" for share in np.quantile(every, (0.05, 0.5, 0.95, 0.99))),
        f"{100 * np.mean(np.abs(every - 1) < 0.01):.1f} %",
        f"{total_bps / 1e6:.1f}",
        ", ".join(ratios),
    ]


def main() -> None:
    """Makes what is missing and prints the table."""
    parser = stored.parser(__doc__)
    parser.add_argument("--runs", type=int, default=3, help="of each row")
    parser.add_argument("-o", type=Path, default=ROOT / "results/busy", dest="folder")
    arguments = parser.parse_args()
    table: list[Sequence[str]] = [HEAD]
    virtual: list[Run] = []
    with busy(os.cpu_count() or 1):
        for engine, rate, rate_bps, duration in CASES:
            runs = [
                make(engine, rate, duration, seed, arguments.folder / f"{engine}-{rate}-s{seed}")
                for seed in range(1, arguments.runs + 1)
            ]
            virtual += runs if engine == "virtual" else []
            table.append(row(f"{engine}, {rate}", runs, rate_bps))
            print(" | ".join(table[-1]), flush=True)
    entry = stored.Entry(
        f"python -m benchmarks.busy --runs {arguments.runs} --write",
        f"{stored.state_of(virtual)}; {stored.machine()}, all of them busy",
        table,
    )
    stored.tell(NAME, entry, write=arguments.write)


if __name__ == "__main__":
    main()
