"""Whether an undone drop gives the run without it, and what a what-if costs (docs/whatif.md).

    .venv/bin/python -m benchmarks.whatif [--write]

Twenty short runs of figure 3(c), each of its own seed. In each a packet that got through, by lot,
is dropped; then the run with that drop is made again without it. Prints how many of these have the
first run's captures, byte by byte, and the median of the processor time of a what-if over that of
the run, both whole, in this process and in those that it starts. `--write` puts them into
docs/results/measured.json.
"""

from __future__ import annotations

import random
import resource
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import polars as pl

import outcast
from benchmarks import stored
from outcast.records import kept_captures

RUNS = 20
CONFIG = Path(__file__).parents[1] / "configs/fig3c.yaml"


def processor_s() -> float:
    """The processor time of this process and of its children that have ended."""
    parts = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(part.ru_utime + part.ru_stime for part in parts)


_Result = TypeVar("_Result")


def timed(call: Callable[[], _Result]) -> tuple[_Result, float]:
    """What a call returns, and the processor time that it took."""
    before = processor_s()
    result = call()
    return result, processor_s() - before


def pair(folder: Path, seed: int) -> tuple[bool, float, str]:
    """Whether undoing a planted drop gave the run before, its cost in runs, and what made it."""
    experiment = outcast.load(CONFIG, {"seed": seed, "duration": "100ms", "analysis.windows": []})
    run, run_s = timed(lambda: outcast.run(experiment, folder / "run", progress=False))
    start_ns = run.manifest.traffic.t_start_ns
    packets = run.table("packets", whole=True).with_row_index()
    through = packets.filter(pl.col("t_in") > start_ns, verdict="forwarded")["index"]
    packet = random.Random(seed).choice(through.to_list())
    forced, forced_s = timed(lambda: run.whatif(packet, "drop", folder / "forced", progress=False))
    undone = forced.run.whatif(packet, "forward", folder / "undone", progress=False)
    first, forced_captures, last = (
        kept_captures.digests(made.directory) for made in (run, forced.run, undone.run)
    )
    return first == last != forced_captures, forced_s / run_s, stored.state_of([run])


def main() -> None:
    """Prints what was found."""
    parser = stored.parser(__doc__)
    write = parser.parse_args().write
    pairs = []
    for seed in range(RUNS + 1):
        with tempfile.TemporaryDirectory() as folder:
            pairs.append(pair(Path(folder), seed))
        print(seed, *pairs[-1][:2], flush=True)
    # The first one imports and compiles.
    pairs = pairs[1:]
    cost = statistics.median(ratio for _, ratio, _ in pairs)
    values = {"undone": f"{sum(equal for equal, _, _ in pairs)} of {RUNS}", "cost": f"{cost:.2f}"}
    print(values)
    if write:
        entry = stored.Entry("python -m benchmarks.whatif", pairs[0][2], values=values)
        stored.store("whatif", entry)


if __name__ == "__main__":
    main()
