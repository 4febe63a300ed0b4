r"""Whether who comes second in a packet time is lost, over the runs of a sweep.

    outcast sweep configs/fig3c.yaml --set engine=virtual --set noise.profile=exact \
        --set links.jitter=4us --set duration=300ms --set 'analysis.windows=[]' \
        --set repetitions=20 -o results/second
    python -m benchmarks.second_comers results/second

prints, over all runs, the least, the median and the greatest of what docs/teaching.md explains. The
lone flow's port is the one with the fewest flows.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import outcast
from outcast.view.figures.phase import contests_by_port


def shares(directory: Path) -> dict[str, float]:
    """The shares of one run, in percent, by what they are of."""
    run = outcast.open_run(directory)
    hops = {port: part.hops for port, part in run.summary.drops.items()}
    found: dict[str, float] = {"times as much as the lone flow": run.summary.outcast_ratio or 0.0}
    for port, seen in contests_by_port(run, run.manifest.bottlenecks[0]).items():
        name = "lone flow's" if hops[port] == [2] else "rivals'"
        drops = run.summary.drops[port]
        found[f"{name} packets that were lost (%)"] = 100 * drops.dropped / drops.packets
        found[f"{name} that came second (%)"] = 100 * float(seen.second.mean())
        for second, word in ((True, "second"), (False, "first")):
            lost = seen.lost_share(second)
            if lost is not None:
                found[f"{name} lost, of those that came {word} (%)"] = 100 * lost
    phase = next(iter(run.summary.phase.values()))
    found["losing port's in the first tenth of a packet time (%)"] = 100 * phase.during_lost[0]
    found["other port's in the first tenth (%)"] = 100 * phase.during_others[0]
    flows = run.table("flows")
    for name, rows in (("lone flow", flows["hops"] == 2), ("rival", flows["hops"] > 2)):
        waited_s = flows.filter(rows)["halted_s"].to_list()
        found[f"part of the run that a {name} waits for timeouts (%)"] = (
            100 * statistics.mean(waited_s) / run.summary.duration_s
        )
    return found


def main() -> None:
    """Prints the ranges over the runs of the sweep that is named on the command line."""
    runs = sorted(path.parent for path in Path(sys.argv[1]).glob("runs/*/summary.json"))
    found = [shares(run) for run in runs]
    print(f"over {len(found)} runs | least | median | greatest")
    for what in found[0]:
        values = [run[what] for run in found if what in run]
        print(f"{what} | {min(values):.3g} | {statistics.median(values):.3g} | {max(values):.3g}")


if __name__ == "__main__":
    main()
