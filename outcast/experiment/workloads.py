"""Traffic that a model generates, besides the flows or instead of them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema

from outcast.errors import did_you_mean
from outcast.experiment import sizes as distributions
from outcast.experiment.links import MOST_MTU_BYTES
from outcast.experiment.parts import (
    SENT_DSCP,
    Dscp,
    Duration,
    OwnFamily,
    Part,
    RateBps,
    Receiver,
    Senders,
    SizeBytes,
    Start,
    described,
    optional,
    readable_file,
)

DATAGRAM_HEADERS_BYTES = 28
"""IPv4 and UDP."""

_SizePoints = tuple[tuple[float, float], ...]


def _parse_sizes(value: object, info: ValidationInfo) -> object:
    """Keeps a published name. Replaces a file by its points, so that config.yaml has them."""
    if isinstance(value, str):
        if value in distributions.PUBLISHED:
            return value
        if not value.endswith(".csv"):
            known = ", ".join(distributions.PUBLISHED)
            raise ValueError(
                f"{value!r} is unknown; allowed are {known} or a file's name as X.csv"
                f"{did_you_mean(value, distributions.PUBLISHED)}"
            )
        return distributions.read(readable_file(value, info))
    if isinstance(value, (list, tuple)):
        try:
            distributions.check([(float(size), float(share)) for size, share in value])
        except TypeError:
            raise ValueError("allowed are points, each of bytes and a cumulative share") from None
    return value


SizesOf = Annotated[
    str | _SizePoints,
    BeforeValidator(_parse_sizes),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "examples": [*distributions.PUBLISHED, "FILE.csv"]},
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

    def distribution(self) -> distributions.Sizes:
        """The distribution from which sizes are drawn. Raises ValueError where no size is left."""
        distribution = (
            distributions.published(self.sizes)
            if isinstance(self.sizes, str)
            else distributions.Sizes(self.sizes)
        )
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
