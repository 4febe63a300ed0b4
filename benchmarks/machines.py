"""Which settings give the same result on unlike machines in real time: a table of docs/limits.md.

    sudo .venv/bin/python -m benchmarks.machines [--runs 5] [--seconds 10] [-o DIR] [--write]

Makes runs in real time that DIR does not have yet, of each of SETTINGS on three machines: this
one with nothing else to do, one core of it (as taskset(1) does), and this one with every core kept
busy by a process that counts. Nothing else should run meanwhile. The order is by rounds, so that a
machine that changes over an hour changes for all alike.

A setting agrees if the interval of the ratio's geometric mean on each machine overlaps that on
each other machine, no mean is over twice another, and no interval reaches beyond twice or half of
its mean.
The bounds were chosen before this command made any run. `--write` puts the table into
docs/results/measured.json.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import combinations
from pathlib import Path
from statistics import fmean

from benchmarks import stored
from benchmarks.busy import busy
from outcast.analysis.statistics import Interval, central
from outcast.records.run import Run
from outcast.uses.papers.index import interval_text

ROOT = Path(__file__).parents[1]
NAME = "machines"
SETTINGS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "fat-tree, 16 KB": ("configs/fattree-12.yaml", {}),
    "fat-tree, 64 KB": ("configs/fattree-12.yaml", {"queue.limit": "64KB"}),
    "fat-tree, 128 KB": ("configs/fattree-12.yaml", {"queue.limit": "128KB"}),
    "linear, 16 KB": ("configs/linear-12.yaml", {}),
    "linear, 64 KB": ("configs/linear-12.yaml", {"queue.limit": "64KB"}),
    "linear, 128 KB": ("configs/linear-12.yaml", {"queue.limit": "128KB"}),
}
"""The config and what is changed of it, by the title of the row."""
APART = 2.0
"""The highest ratio of two means that agree, and of a mean and its bounds."""


@contextmanager
def one_core() -> Iterator[None]:
    """Keeps this process, and what it starts, on one core while the block lasts."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def all_busy() -> Iterator[None]:
    """Keeps every core busy while the block lasts."""
    with busy(len(os.sched_getaffinity(0))):
        yield


MACHINES: Mapping[str, Callable[[], AbstractContextManager[None]]] = {
    "nothing else to do": nullcontext,
    "one core": one_core,
    "busy": all_busy,
}


def make(title: str, machine: str, seed: int, seconds: float, folder: Path) -> Run:
    """Makes a run if it is not there yet."""
    name = f"{title} {machine}".replace(",", "").replace(" ", "-")
    target = folder / f"{name}-s{seed}"
    config, changed = SETTINGS[title]
    settings = {"seed": seed, "duration": f"{seconds:g}s", "analysis": {}, **changed}
    return stored.made(config, settings, target, MACHINES[machine])


def ratios(runs: Sequence[Run]) -> list[float]:
    """The outcast ratios of runs. A lone flow with nothing is counted as infinitely outcast."""
    return [math.inf if (ratio := run.summary.outcast_ratio) is None else ratio for run in runs]


def mean(runs: Sequence[Run]) -> Interval:
    """The geometric mean of the runs' ratios, without a value if one of them is 0 or infinite."""
    values = ratios(runs)
    if not all(0 < value < math.inf for value in values):
        return Interval(len(values), None, None, None)
    return central(values, "geometric")


def agree(machines: Sequence[Sequence[Run]]) -> bool:
    """Whether a setting gives the same result on all machines, as the module's text says."""
    means = [mean(runs) for runs in machines]
    return all(_alike(first, second) for first, second in combinations(means, 2))


def _alike(first: Interval, second: Interval) -> bool:
    ours, theirs = _bounded(first), _bounded(second)
    if ours is None or theirs is None:
        return False
    (value, low, high), (other_value, other_low, other_high) = ours, theirs
    overlap = low <= other_high and other_low <= high
    return overlap and max(value, other_value) <= APART * min(value, other_value)


def _bounded(mean: Interval) -> tuple[float, float, float] | None:
    """The mean and its bounds; None without bounds, or where they are too far from it."""
    if mean.value is None or mean.low is None or mean.high is None:
        return None
    if mean.high > APART * mean.value or mean.value > APART * mean.low:
        return None
    return mean.value, mean.low, mean.high


def cells(title: str, machine: str, runs: Sequence[Run]) -> list[str]:
    """The row of a setting on a machine."""
    parts = [part for run in runs for part in run.summary.noise.values()]
    spreads = [part.gap_spread for part in parts if part.gap_spread is not None]
    interval = mean(runs)
    return [
        title,
        machine,
        interval_text(interval.value, interval.low, interval.high),
        f"{min(ratios(runs)):.3g} to {max(ratios(runs)):.3g}",
        f"{fmean(spreads):.3f}" if spreads else "-",
        f"{fmean(run.summary.total_goodput_bps for run in runs) / 1e6:.1f}",
    ]


HEAD = (
    *("setting", "machine", "ratio", "least to greatest", "spread of gaps"),
    "total goodput, Mbps",
)


def main() -> None:
    """Makes what is missing and prints the table."""
    parser = stored.parser(__doc__)
    parser.add_argument("--runs", type=int, default=5, help="of each row")
    parser.add_argument("--seconds", type=float, default=10.0, help="of traffic in each run")
    parser.add_argument("-o", type=Path, default=ROOT / "results/machines", dest="folder")
    arguments = parser.parse_args()
    made: dict[tuple[str, str], list[Run]] = {}
    for seed in range(1, arguments.runs + 1):
        for title in SETTINGS:
            for machine in MACHINES:
                run = make(title, machine, seed, arguments.seconds, arguments.folder)
                made.setdefault((title, machine), []).append(run)
                print(f"{title}, {machine}, {seed}: {run.summary.outcast_ratio}", flush=True)
    agreeing = [
        title for title in SETTINGS if agree([made[title, machine] for machine in MACHINES])
    ]
    entry = stored.Entry(
        f"python -m benchmarks.machines --runs {arguments.runs} "
        f"--seconds {arguments.seconds:g} --write",
        f"{stored.state_of_code()}; {stored.machine()}",
        [HEAD, *(cells(title, machine, runs) for (title, machine), runs in made.items())],
        {"agree": "; ".join(agreeing) or "none of them", "runs": str(arguments.runs)},
    )
    stored.tell(NAME, entry, write=arguments.write)
    print(f"agree: {entry.values['agree']}")


if __name__ == "__main__":
    main()
