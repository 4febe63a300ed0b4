"""What a fat-tree's run could gain at most if its parts ran at the same time.

    outcast run CONFIG --set 'trace.events=["net:netif_rx"]' -o RUN
    python benchmarks/parallel/windows.py RUN [--lookahead-ns 5000]

Each packet that a switch or a host receives counts as one unit of work. Time is cut into windows of
the look-ahead, since parts that far apart cannot reach one another within one. In a window, the
part with the most work decides how long it takes. Messages and waiting cost nothing here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import outcast


def pod_of(node: str) -> str:
    """The pod of a host or switch of a fat-tree, or `core`."""
    return "core" if node.startswith("c") else "pod " + node[1:].split("_")[0]


def work(parts: np.ndarray, windows: np.ndarray) -> np.ndarray:
    """Receptions by part and window, in the windows that have any."""
    table = np.zeros((parts.max() + 1, windows.max() + 1), dtype=np.int64)
    np.add.at(table, (parts, windows), 1)
    return table[:, table.sum(axis=0) > 0]


def main() -> None:
    """Prints the bounds for four ways to cut the network."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--lookahead-ns", type=int, default=5000)
    given = parser.parse_args()
    table = outcast.Run(given.run).table("trace/netif_rx").drop_nulls(["host", "port"])
    during = table.filter(table["t_ns"] >= 0)
    nodes, times = during["host"].to_numpy(), during["t_ns"].to_numpy()
    names, index = np.unique(nodes, return_inverse=True)
    windows = times // given.lookahead_ns
    core = [name for name in names if pod_of(name) == "core"]
    pods = sorted({pod_of(name) for name in names} - {"core"})
    shared = {name: pods[i * len(pods) // len(core)] for i, name in enumerate(core)}
    cuts: dict[str, Callable[[str], str]] = {
        "each pod, and the core switches": pod_of,
        "each pod, core switches shared out": lambda name: shared.get(name, pod_of(name)),
        "pod 0, and the rest": lambda name: str(pod_of(name) == "pod 0"),
        "pod 0 with the core, and the rest": lambda name: str(pod_of(name) in ("pod 0", "core")),
    }
    used = len(np.unique(windows))
    print(f"{len(times)} receptions, {len(times) / used:.2f} in a window with any, {used} windows")
    crossings = 2 * np.isin(nodes, core).sum() / used
    print(f"crossings between pods and core in such a window: {crossings:.2f}")
    at_switch = ~np.char.startswith(nodes.astype(str), "h")
    instants = np.stack([index[at_switch], times[at_switch]])
    _, counts = np.unique(instants, axis=1, return_counts=True)
    together = counts[counts > 1].sum() / counts.sum()
    print(f"received at a switch at the same nanosecond as another there: {together:.2%}")
    for title, part in cuts.items():
        labels = [part(name) for name in names]
        kinds = sorted(set(labels))
        table_of_work = work(np.array([kinds.index(label) for label in labels])[index], windows)
        total = table_of_work.sum()
        both = np.maximum(table_of_work.max(axis=0), -(-table_of_work.sum(axis=0) // 2))
        print(
            f"{title}: {len(kinds)} guests, the largest has "
            f"{table_of_work.sum(axis=1).max() / total:.0%} of the work, "
            f"{(table_of_work > 0).sum(axis=0).mean():.2f} have any in a window; speed-up at most "
            f"{total / table_of_work.max(axis=0).sum():.2f}, on two cores {total / both.sum():.2f}"
        )


if __name__ == "__main__":
    main()
