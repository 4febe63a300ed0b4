"""Traffic that a model generates, and the sizes of its flows.

Sizes are piecewise linear cumulative distributions in CSV files. A file has a line
`bytes,cumulative` for each point; lines that begin with # name the source. Between two points sizes
are uniform, as in the ns-2 scripts of pFabric and its successors. All flows of the first point's
share have the first point's size.
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
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema

from outcast import handed_in
from outcast.errors import InputError, did_you_mean
from outcast.experiment.links import MOST_MTU_BYTES
from outcast.experiment.parts import (
    SENT_DSCP,
    Dscp,
    Duration,
    GroupName,
    OwnFamily,
    Part,
    RateBps,
    Receiver,
    Senders,
    SizeBytes,
    Start,
    TimeNs,
    described,
    optional,
    readable_file,
)
from outcast.experiment.transport import GroupTransport

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
        check(points)
        self.points = tuple((float(size), float(share)) for size, share in points)
        self._shares = [share for _, share in self.points]

    def quantile(self, share: float) -> int:
        above = bisect_left(self._shares, share)
        size, upper = self.points[min(above, len(self.points) - 1)]
        if above == 0:
            return round(size)
        below, lower = self.points[above - 1]
        if upper == lower:
            return round(below)
        return round(below + (size - below) * (share - lower) / (upper - lower))

    def sample(self, draw: random.Random) -> int:
        return self.quantile(draw.random())

    def mean_bytes(self) -> float:
        first_size, first_share = self.points[0]
        return first_size * first_share + sum(
            (above[1] - below[1]) * (below[0] + above[0]) / 2
            for below, above in pairwise(self.points)
        )

    def share_up_to(self, size_bytes: float) -> float:
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
    file = resources.files("outcast.experiment") / "data" / f"{name}.csv"
    return Sizes(parse(file.read_text(encoding="utf-8"), name))


DATAGRAM_HEADERS_BYTES = 28
"""IPv4 and UDP."""

_SizePoints = tuple[tuple[float, float], ...]


def _parse_sizes(value: object, info: ValidationInfo) -> object:
    """Keeps a published name. Replaces a file by its points, so that config.yaml has them."""
    if isinstance(value, str):
        if value in PUBLISHED:
            return value
        if not value.endswith(".csv"):
            known = ", ".join(PUBLISHED)
            raise ValueError(
                f"{value!r} is unknown; allowed are {known} or a file's name as X.csv"
                f"{did_you_mean(value, PUBLISHED)}"
            )
        return read(readable_file(value, info))
    if isinstance(value, (list, tuple)):
        try:
            check([(float(size), float(share)) for size, share in value])
        except TypeError:
            raise ValueError("allowed are points, each of bytes and a cumulative share") from None
    return value


SizesOf = Annotated[
    str | _SizePoints,
    BeforeValidator(_parse_sizes),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "examples": [*PUBLISHED, "FILE.csv"]},
                {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
            ]
        }
    ),
]


class _Workload(Part):
    start_ns: Start = 0
    addressing: OwnFamily = None
    dscp: Dscp = described(SENT_DSCP, default=0)


class _Lasting(_Workload):
    duration_ns: Duration = None


class _Sized(_Lasting):
    load: float = described(
        "offered load of each receiver, as a share of its link's rate", ge=1e-6, le=1
    )
    sizes: SizesOf = described(
        "web-search, data-mining, a file with lines bytes,cumulative, or such points"
    )
    largest_bytes: SizeBytes | None = optional("larger flows are not drawn", gt=0)

    def _require(self) -> None:
        self.distribution()

    def distribution(self) -> Sizes:
        """The distribution from which sizes are drawn. Raises ValueError where no size is left."""
        distribution = published(self.sizes) if isinstance(self.sizes, str) else Sizes(self.sizes)
        if self.largest_bytes is None:
            return distribution
        return distribution.up_to(self.largest_bytes)


class Background(_Sized):
    """Every host sends flows to random other hosts.

    The gaps are exponentially distributed with mean F/B, for flows of mean size F and load B (the
    Outcast paper, section 3.2.5).
    """

    kind: Literal["background"]


class Poisson(_Sized):
    """Flows start as one Poisson process: to one host, or between random pairs of hosts."""

    kind: Literal["poisson"]
    source: str | list[str] | None = optional(
        "a class as '2-hop', a host's name, or a list; if left out, all hosts", alias="from"
    )
    to: str | None = optional("a host's name; if left out, any other host")


class Shuffle(_Workload):
    """All to all: every host sends to every other in a random order, several at a time."""

    kind: Literal["shuffle"]
    hosts: int | None = optional("number of hosts, from the first on; if left out, all", ge=2)
    size_bytes: SizeBytes = described("bytes of each pair", alias="bytes", gt=0)
    concurrent: int = described("flows that a host sends at a time", default=1, ge=1, le=1000)


class Incast(_Workload):
    """Synchronised reads over connections that stay open.

    The receiver asks all senders for a block. When all blocks have arrived, it asks for the next
    ones (the TCPRand paper, section 8.1).
    """

    kind: Literal["incast"]
    to: Receiver = None
    senders: int | None = optional("number of hosts, from the first on; if left out, all", ge=1)
    block_bytes: SizeBytes = described("bytes of each sender in a round", gt=0)
    rounds: int = described("how often all senders get a request", ge=1, le=100_000)


class ConstantRate(_Lasting):
    """UDP at a constant bit rate from each sender, whose first packet has a random phase."""

    kind: Literal["constant_rate"]
    source: Senders
    to: Receiver = None
    rate_bps: RateBps = described("rate of each sender's payload", gt=0)
    datagram_bytes: SizeBytes = described(
        "payload bytes of a packet, up to 28 below the links' mtu, or 48 with IPv6",
        default=1470,
        ge=1,
        le=MOST_MTU_BYTES - DATAGRAM_HEADERS_BYTES,
    )


Workload = Annotated[
    Background | Poisson | Shuffle | Incast | ConstantRate, Field(discriminator="kind")
]


class FlowGroup(Part):
    """Flows with the same settings, from hosts that are named or of a class."""

    name: GroupName | None = optional(
        "what tables and figures call these flows; entries with the same name form one group. See "
        "docs/groups.md"
    )
    source: Senders
    to: str | list[str] | None = optional(
        "a host's name; if left out, the topology's receiver; or a list with as many names as "
        "`from`: the first sends to the first, and so on"
    )
    hosts: int | None = optional(
        "how many hosts of the class; if left out, all. Those that another entry names, or an "
        "earlier class has, do not count",
        ge=1,
    )
    per_host: int = described("flows from each host", default=1, ge=1, le=1000)
    start_ns: TimeNs = described("time after the start of the first flows", default=0)
    stagger_ns: TimeNs = described("time between the starts of two flows", default=0)
    duration_ns: Duration = None
    size_bytes: SizeBytes | None = optional(
        "bytes to send, instead of a duration", alias="bytes", gt=0
    )
    addressing: OwnFamily = None
    dscp: Dscp = described(SENT_DSCP, default=0)
    transport: GroupTransport | None = optional(
        "this group's settings that differ from `transport`"
    )

    def _require(self) -> None:
        if self.duration_ns is not None and self.size_bytes is not None:
            raise ValueError("duration and bytes: allowed is one of the two")
        if isinstance(self.to, list) and (
            not isinstance(self.source, list) or len(self.source) != len(self.to)
        ):
            raise ValueError("to: a list is allowed where `from` is a list of the same length")
