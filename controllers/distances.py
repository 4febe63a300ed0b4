"""Distances in a graph.

By hand, and without networkx, which has to import all of its algorithms for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable


def distances(start: str, neighbours: Callable[[str], Iterable[str]]) -> dict[str, int]:
    """The fewest links from a node to each that it reaches, the nearest first."""
    found = {start: 0}
    for node in (reached := [start]):
        for neighbour in neighbours(node):
            if neighbour not in found:
                found[neighbour] = found[node] + 1
                reached.append(neighbour)
    return found
