"""Places the nodes of a network that has no layers, so that links are short and labels apart."""

from __future__ import annotations

from collections.abc import Mapping

import networkx as nx
import numpy as np
import numpy.typing as npt

_F64 = npt.NDArray[np.float64]

_LINK = 1.5
"""The wanted length of a link; 1 is the place of a short label in a row."""
_ROUNDS = 200
_MOST_BY_DISTANCE = 200
"""With more nodes it takes longer than all other drawing, so neighbours attract instead."""
_HEIGHT = 0.42
"""The height of a label."""


def place(graph: nx.Graph[str], labels: Mapping[str, str]) -> dict[str, tuple[float, float]]:
    """A place for each node of a connected graph; no coordinate is negative.

    Nodes n links apart are drawn about n link lengths apart (Kamada and Kawai, An algorithm for
    drawing general undirected graphs, 1989). Then overlapping labels are moved apart.
    """
    nodes = list(graph)
    if len(nodes) == 1:
        return {nodes[0]: (0.0, 0.0)}
    if len(nodes) <= _MOST_BY_DISTANCE:
        placed = nx.kamada_kawai_layout(graph, weight=None)
    else:
        placed = nx.spring_layout(graph, weight=None, seed=1)
    places = np.array([placed[node] for node in nodes])
    links = [np.linalg.norm(placed[a] - placed[b]) for a, b in graph.edges]
    places = _upright(places * (_LINK / float(np.mean(links))))
    widths = np.array([0.14 * len(labels[node]) + 0.4 for node in nodes])
    places = _apart(places, widths)
    places -= places.min(axis=0)
    return {node: (float(x), float(y)) for node, (x, y) in zip(nodes, places.round(4), strict=True)}


def _upright(places: _F64) -> _F64:
    """Turns the picture so that its longest axis lies level, and its first node is at the left."""
    places = places - places.mean(axis=0)
    _, _, axes = np.linalg.svd(places, full_matrices=False)
    turned: _F64 = places @ axes.T
    for axis in (0, 1):
        extreme = turned[np.argmax(np.abs(turned[:, axis]) > 1e-6), axis]
        if extreme > 0:
            turned[:, axis] *= -1
    return turned


def _apart(places: _F64, widths: _F64) -> _F64:
    need_x = (widths[:, None] + widths[None]) / 2
    for _ in range(_ROUNDS):
        offset = places[:, None] - places[None]
        over_x = need_x - np.abs(offset[..., 0])
        over_y = _HEIGHT - np.abs(offset[..., 1])
        over = (over_x > 1e-6) & (over_y > 1e-6)
        np.fill_diagonal(over, False)
        if not over.any():
            break
        # Of two at the same place, the earlier goes left and down.
        order = np.sign(np.arange(len(places))[:, None] - np.arange(len(places))[None])
        sign = np.where(offset == 0, order[..., None], np.sign(offset))
        by_x = over & (over_x * 0.5 < over_y)
        by_y = over & ~by_x
        step = np.stack([by_x * over_x, by_y * over_y], axis=2) * sign
        places = places + 0.55 * step.sum(axis=1)
    return places
