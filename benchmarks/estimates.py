"""Says how far estimates of a run's time were from what runs of this machine took.

    .venv/bin/python benchmarks/estimates.py [FILE]

Reads what runs took (`~/.cache/outcast/measured.jsonl`, or FILE) and makes nothing. For each size
of run it prints the median of the seconds, what the model says alone, as for a first run, and what
the runs before it gave. Below are the quotients of seconds and estimate: the median, and between
which two nine of ten runs lie. A busy machine makes them larger.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median, quantiles

from outcast.sweep import measured
from outcast.sweep.measured import Measurement, Size


def spread(quotients: list[float]) -> str:
    """The median of quotients and the bounds of nine in ten."""
    if len(quotients) < 2:
        return "too few runs"
    cuts = quantiles(quotients, n=20, method="inclusive")
    return f"{median(quotients):.2f} [{cuts[0]:.2f}, {cuts[-1]:.2f}] of {len(quotients)} runs"


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("file", type=Path, nargs="?", default=measured.default_file())
    runs = measured.read_measurements(parser.parse_args().file)
    of_model: list[float] = []
    of_earlier: list[float] = []
    rows: dict[Size, list[Measurement]] = defaultdict(list)
    for place, run in enumerate(runs):
        rows[run.size].append(run)
        of_model.append(run.wall_s / measured.estimate(run.size, run.captures, []).wall_s)
        earlier = measured.estimate(run.size, run.captures, runs[:place])
        if earlier.known:
            of_earlier.append(run.wall_s / earlier.wall_s)
    print("engine    ports  Gbit through  runs  took s  model s")
    for size, alike in sorted(rows.items(), key=lambda row: (row[0].engine, row[0].ports)):
        print(
            f"{size.engine:8} {size.ports:6} {size.bits / 1e9:13.2f} "
            f"{len(alike):5} {median(run.wall_s for run in alike):7.1f} "
            f"{measured.estimate(size, 'keep', []).wall_s:8.1f}"
        )
    print(f"took / model: {spread(of_model)}")
    print(f"took / from earlier runs: {spread(of_earlier)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
