"""What happens to packets on a link: losses, lateness, a policer, a random delay."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import (
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from outcast import units
from outcast.experiment.parts import KernelRateBps, Part, SizeBytes, TimeNs, described

MOST_DELAY_NS = 10**9
MOST_LOSS = 0.5
"""With more, a TCP connection hardly comes up, and a run would end by a deadline."""


def _loss(value: object, share: ValidatorFunctionWrapHandler) -> float:
    """A link's loss. Says what a share is, because people write `1%`."""
    try:
        return float(share(value))
    except ValidationError:
        raise ValueError(
            f"{value!r} is not a loss; allowed is a share from 0 to {MOST_LOSS}, as 0.01 for 1 %"
        ) from None


Loss = Annotated[float, Field(ge=0, le=MOST_LOSS), WrapValidator(_loss)]
Share = Annotated[float, Field(ge=0, le=MOST_LOSS)]


class BurstLoss(Part):
    """Losses in a row: a chain of two states, of which one loses every packet (Gilbert 1960)."""

    p: float = described("the chance, at each packet, that a burst begins; at most r", gt=0, lt=1)
    r: float = described(
        "the chance, at each packet, that a burst ends: its mean is 1/r", gt=0, le=1
    )

    @property
    def share(self) -> float:
        """The share of the packets that are lost."""
        return self.p / (self.p + self.r)

    def _require(self) -> None:
        if self.share > MOST_LOSS:
            raise ValueError(
                f"p / (p + r) = {self.share:.3g} of the packets would be lost; allowed is up to "
                f"{MOST_LOSS}"
            )


class Policer(Part):
    """A bucket of tokens that drops what finds it empty, and holds no packet."""

    rate_bps: KernelRateBps = described("of IP packets, without headers below")
    burst_bytes: SizeBytes = described("what the bucket holds", gt=0)


class Late(Part):
    """Packets that come late, so that those behind them overtake."""

    share: Share = described("of the packets, at random and independently")
    by_ns: TimeNs = described("how much later", gt=0, le=MOST_DELAY_NS)


class RandomDelay(Part):
    """A delay that is drawn for each packet, as tc-netem(8) draws it: never below 0."""

    mean_ns: TimeNs = Field(gt=0, le=MOST_DELAY_NS)
    spread_ns: TimeNs = described("what the distribution scales", gt=0)
    distribution: Literal["uniform", "normal", "pareto", "paretonormal"] = "normal"
    in_order: bool = described(
        "whether a packet that would overtake another waits for it", default=True
    )

    def _require(self) -> None:
        if self.spread_ns > self.mean_ns:
            raise ValueError(
                f"spread: {units.format_time(self.spread_ns)}: allowed is up to the mean, which "
                f"is {units.format_time(self.mean_ns)}"
            )
