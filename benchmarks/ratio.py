r"""Measures the outcast ratio of variants of an experiment over several seeds.

    .venv/bin/python benchmarks/ratio.py configs/fig3c.yaml --seeds 10 --jobs 2 -o FOLDER \
        --variant '12 rivals' --variant '6 rivals: flows.1.hosts=6'

Prints for each variant the ratio of every seed, the geometric mean with a 95 % interval
over the seeds, the median, the mean goodput of each class, and in how many runs
captures and counters agree. The mean is geometric because the ratio is positive and skewed.
Finished runs in FOLDER are not repeated. A variant is `NAME` or `NAME: KEY=VALUE KEY=VALUE ...`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from outcast.analysis.statistics import Interval, central

OUTCAST = Path(__file__).parents[1] / ".venv/bin/outcast"
BUSY_DEADLINE_S = 300.0
"""How long to wait for the end of another realtime run on this machine."""


def run(config: Path, target: Path, settings: list[str]) -> dict[str, Any] | str:
    """Makes a run if it is not there. Returns its summary, or the error in words."""
    if not (target / "summary.json").exists():
        argv = [str(OUTCAST), "run", str(config), "-o", str(target)]
        for setting in settings:
            argv += ["--set", setting]
        end = time.monotonic() + BUSY_DEADLINE_S
        while True:
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            if "another realtime run" not in done.stderr or time.monotonic() > end:
                break
            time.sleep(2)
        if done.returncode:
            return done.stderr.strip().splitlines()[-1]
    summary: dict[str, Any] = json.loads((target / "summary.json").read_text())
    return summary


def shown(interval: Interval, digits: int) -> str:
    """The value with its interval, as `5.20 [4.30, 6.30]`."""
    bounds = [interval.value, interval.low, interval.high]
    value, low, high = ("-" if bound is None else f"{bound:.{digits}f}" for bound in bounds)
    return f"{value} [{low}, {high}]"


def report(name: str, summaries: list[dict[str, Any]], errors: list[str]) -> None:
    """Prints one variant's lines."""
    ratios = [summary["outcast_ratio"] for summary in summaries if summary["outcast_ratio"]]
    print(f"{name}: {len(summaries)} runs, {len(errors)} failed")
    for error in errors:
        print(f"  {error}")
    if not ratios:
        return
    print(f"  ratios {' '.join(f'{ratio:.2f}' for ratio in ratios)}")
    print(
        f"  geometric mean {shown(central(ratios, 'geometric'), 2)}, "
        f"median {statistics.median(ratios):.2f}"
    )
    for hops in summaries[0]["classes"]:
        means = [summary["classes"][hops]["mean_goodput_bps"] / 1e6 for summary in summaries]
        print(f"  {hops}-hop mean {shown(central(means), 1)} Mbps")
    total = statistics.fmean(summary["total_goodput_bps"] / 1e6 for summary in summaries)
    jain = statistics.fmean(summary["jain_index"] for summary in summaries)
    agree = sum(summary["capture"]["trusted"] for summary in summaries)
    wall = [sum(summary["wall_s"].values()) for summary in summaries]
    print(
        f"  total {total:.1f} Mbps, Jain {jain:.3f}, captures and counters agree "
        f"in {agree} of {len(summaries)}, wall {statistics.median(wall):.1f} s (median)"
    )


def main() -> int:
    """Makes the runs and prints the variants."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("config", type=Path)
    parser.add_argument("--variant", action="append", required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    failed = False
    with ThreadPoolExecutor(arguments.jobs) as pool:
        jobs = []
        for variant in arguments.variant:
            name, _, settings = variant.partition(":")
            for seed in range(1, arguments.seeds + 1):
                target = arguments.output / f"{name.strip().replace(' ', '-')}-{seed}"
                with_seed = [*settings.split(), f"seed={seed}"]
                jobs.append((name, pool.submit(run, arguments.config, target, with_seed)))
        for name in dict.fromkeys(name for name, _ in jobs):
            results = [job.result() for other, job in jobs if other == name]
            errors = [result for result in results if isinstance(result, str)]
            failed = failed or bool(errors)
            report(name, [result for result in results if not isinstance(result, str)], errors)
            sys.stdout.flush()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
