"""The sizes of flows: piecewise linear cumulative distributions, read from CSV files.

A file has a line `bytes,cumulative` for each point; lines that begin with # name the source.
Between two points sizes are uniform, as in the ns-2 scripts of pFabric and its successors. All
flows of the first point's share have the first point's size.
"""

from __future__ import annotations

import csv
import math
import random
from bisect import bisect_left
from collections.abc import Sequence
from importlib import resources
from itertools import pairwise
from pathlib import Path

from outcast import handed_in
from outcast.errors import InputError

_MOST_BYTES = 1 << 20

PUBLISHED = ("web-search", "data-mining")
"""The distributions that come with the package; their files name the source."""

Point = tuple[float, float]
"""A size in bytes, and the share of flows that have at most this size."""


class Sizes:
    """A distribution of flow sizes.

    Attributes:
        points: ascending sizes in bytes with the cumulative share up to each; the last share is 1.
    """

    def __init__(self, points: Sequence[Point]) -> None:
        """Raises ValueError where the points are no cumulative distribution."""
        check(points)
        self.points = tuple((float(size), float(share)) for size, share in points)
        self._shares = [share for _, share in self.points]

    def quantile(self, share: float) -> int:
        """The size in whole bytes that this share of flows does not exceed."""
        above = bisect_left(self._shares, share)
        size, upper = self.points[min(above, len(self.points) - 1)]
        if above == 0:
            return round(size)
        below, lower = self.points[above - 1]
        if upper == lower:
            return round(below)
        return round(below + (size - below) * (share - lower) / (upper - lower))

    def sample(self, draw: random.Random) -> int:
        """A random size in bytes."""
        return self.quantile(draw.random())

    def mean_bytes(self) -> float:
        """The mean size in bytes."""
        first_size, first_share = self.points[0]
        return first_size * first_share + sum(
            (above[1] - below[1]) * (below[0] + above[0]) / 2
            for below, above in pairwise(self.points)
        )

    def share_up_to(self, size_bytes: float) -> float:
        """The share of flows with at most this many bytes."""
        if size_bytes < self.points[0][0]:
            return 0.0
        for below, above in pairwise(self.points):
            if size_bytes < above[0]:
                part = (size_bytes - below[0]) / (above[0] - below[0])
                return below[1] + part * (above[1] - below[1])
        return 1.0

    def up_to(self, largest_bytes: float) -> Sizes:
        """The distribution of the flows with at most this many bytes.

        Raises ValueError where there are no such flows.
        """
        share = self.share_up_to(largest_bytes)
        if share == 0:
            raise ValueError(
                f"no flow has {largest_bytes:.0f} B or less; the smallest has "
                f"{self.points[0][0]:.0f} B"
            )
        kept = [(size, part / share) for size, part in self.points if size < largest_bytes]
        return Sizes([*kept, (min(largest_bytes, self.points[-1][0]), 1.0)])


def check(points: Sequence[Point]) -> None:
    """Raises ValueError, which says what is wrong, where these are no cumulative distribution."""
    if not points:
        raise ValueError("a distribution of sizes needs at least one point")
    before = (1.0, 0.0)
    for number, (size, share) in enumerate(points, 1):
        if not before[0] <= size < math.inf:
            raise ValueError(f"point {number}: {size:g} B; allowed is {before[0]:g} B and more")
        if not before[1] <= share <= 1:
            raise ValueError(
                f"point {number}: a cumulative share of {share:g}; allowed is from {before[1]:g} "
                "to 1, never falling"
            )
        before = (size, share)
    if before[1] != 1:
        raise ValueError(f"the last cumulative share is {before[1]:g}; allowed is 1")


def read(path: Path) -> tuple[Point, ...]:
    """The points of a CSV file. Raises ValueError, which says what is wrong with it."""
    try:
        return parse(handed_in.read_text(path, _MOST_BYTES), str(path))
    except FileNotFoundError:
        raise ValueError(f"{path}: cannot be read: there is no such file") from None
    except InputError as error:
        raise ValueError(str(error)) from None


def parse(text: str, where: str) -> tuple[Point, ...]:
    """The points of a CSV file's text. Raises ValueError, whose text begins with `where`."""
    try:
        rows = list(csv.reader(text.splitlines()))
    except csv.Error as error:
        raise ValueError(f"{where}: not CSV: {error}") from None
    points = []
    for number, row in enumerate(rows, 1):
        if not row or row[0].startswith("#") or row == ["bytes", "cumulative"]:
            continue
        try:
            size, share = (float(value) for value in row)
        except ValueError:
            raise ValueError(
                f"{where}:{number}: {','.join(row)!r}; allowed is a size in bytes and a cumulative "
                "share, as 1460,0.5"
            ) from None
        points.append((size, share))
    try:
        check(points)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return tuple(points)


def published(name: str) -> Sizes:
    """The distribution with one of the names in PUBLISHED."""
    file = resources.files("outcast.experiment") / "data" / f"{name}.csv"
    return Sizes(parse(file.read_text(encoding="utf-8"), name))
