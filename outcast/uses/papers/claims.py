"""What a source claims: a value of each seed, the values that count, and the family of the claim.

Every claim accepts some values, and has one that is expected without the effect, which it must not
accept. The rule that compares them with the seeds is in outcast/uses/papers/verdict.py.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from outcast.analysis import Measure, measures

LEAST_RUNS = 6
"""No verdict rests on fewer seeds of a point: five that agree have an exact p of 0.0625."""

WITHOUT = ", without the effect"
"""What the label of a point's control ends with."""


class Part(BaseModel):
    """A part of a recipe; an unknown key is refused."""

    # A claim with NaN has no side on which a seed can lie.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class _Claim(Part):
    text: str = Field(description="what the source says, in words")
    measure: Measure
    family: str = Field(description="the sentence that it belongs to, a key of families.yaml")
    apart: str = Field(default="", description="why it does not count, where it does not")
    control: str | None = Field(
        default=None,
        description="the point that shows the measure without the effect; if left out, the claim's "
        "point with the recipe's `without`",
    )

    @property
    def is_ratio(self) -> bool:
        return measures.is_logarithmic(self.measure)

    @property
    def rises(self) -> bool:
        """Whether the effect makes the value greater than it is without."""
        return True

    def value(self, of_first: float, of_second: float) -> float:
        """The claim's value of a seed, from the measures at its first and its second point."""
        return quotient(of_first, of_second)


def quotient(above: float, below: float) -> float:
    """A quotient of measures that can be 0, as counts are; two zeros are equal."""
    if below:
        return above / below
    return math.copysign(math.inf, above) if above else 1.0


class OrderClaim(_Claim):
    """The measure at one point is greater than at another. Without the effect both are equal."""

    kind: Literal["order"] = "order"
    greater: str = Field(description="a point's label")
    lesser: str = Field(description="a point's label")
    lesser_measure: Measure | None = Field(default=None, description="default: the same measure")

    @property
    def points(self) -> list[tuple[str, Measure]]:
        """The labels of the points that it compares, each with the measure taken there."""
        return [(self.greater, self.measure), (self.lesser, self.lesser_measure or self.measure)]

    @property
    def needs_control(self) -> bool:
        """Whether neither of its points shows the other one without the effect."""
        return self.greater == self.lesser

    @property
    def none(self) -> float:
        """The value without the effect."""
        return 1.0 if self.is_ratio else 0.0

    @property
    def accepted(self) -> tuple[float, float]:
        """The least and the greatest value that it accepts."""
        return self.none, math.inf

    def value(self, of_first: float, of_second: float) -> float:
        """The quotient of ratios; the difference of other measures."""
        return quotient(of_first, of_second) if self.is_ratio else of_first - of_second


class _ValueClaim(_Claim):
    """A claim about the measure at a point, or about its quotient over another point's."""

    at: str = Field(description="the point's label")
    over: str | None = Field(default=None, description="divide by the measure at this point")

    @property
    def points(self) -> list[tuple[str, Measure]]:
        labels = [self.at] if self.over is None else [self.at, self.over]
        return [(label, self.measure) for label in labels]

    @property
    def needs_control(self) -> bool:
        return self.over is None


class _EffectClaim(_ValueClaim):
    none: float = Field(description="the value that is expected without the effect")


class SizeClaim(_EffectClaim):
    """An effect has a reported size."""

    kind: Literal["size"] = "size"
    reported: float
    within: float = Field(default=1.5, gt=1, description="a factor up to which values are equal")
    loss: bool = Field(
        default=False, description="judge 1 minus the value, because near 1 no factor tells apart"
    )

    @property
    def accepted(self) -> tuple[float, float]:
        least, greatest = sorted((self.reported / self.within, self.reported * self.within))
        return least, greatest

    @property
    def rises(self) -> bool:
        return self.reported > self.none

    def value(self, of_first: float, of_second: float) -> float:
        found = quotient(of_first, of_second)
        return 1 - found if self.loss else found


class BoundClaim(_EffectClaim):
    """The measure is at least, or at most, a value.

    The value without the effect must not satisfy that. It may be the bound itself, as in "more than
    its share": then a seed has to lie beyond it.
    """

    kind: Literal["bound"] = "bound"
    at_least: float | None = None
    at_most: float | None = None

    @property
    def bound(self) -> float:
        """The value that at_least or at_most gives."""
        return self.at_least if self.at_least is not None else self.at_most or 0.0

    @property
    def accepted(self) -> tuple[float, float]:
        return (self.bound, math.inf) if self.rises else (-math.inf, self.bound)

    @property
    def rises(self) -> bool:
        return self.at_least is not None


class NoWorseClaim(_ValueClaim):
    """The measure at a point is not worse than at another by more than a margin; or it is equal.

    The margin is stated before the runs. Whether it is worse is a claim that can fail, so it needs
    no effect.
    """

    kind: Literal["no_worse", "equal"] = "no_worse"
    over: str = Field(description="the label of the point that it is compared with")
    margin: float = Field(gt=1, description="the factor by which it may be worse, or differ")
    less_is_better: bool = Field(default=False, description="as of times")

    @property
    def none(self) -> None:
        """None, because worse is possible without an effect."""

    @property
    def accepted(self) -> tuple[float, float]:
        """The least and the greatest quotient of the two that it accepts."""
        if self.kind == "equal":
            return 1 / self.margin, self.margin
        return (-math.inf, self.margin) if self.less_is_better else (1 / self.margin, math.inf)


Claim = Annotated[SizeClaim | OrderClaim | BoundClaim | NoWorseClaim, Field(discriminator="kind")]


def control_of(claim: Claim) -> str | None:
    """The label of the point that shows a claim without its effect.

    None if the claim compares two points, because then one shows the other without the effect.
    """
    if not claim.needs_control:
        return None
    return claim.control or f"{claim.points[0][0]}{WITHOUT}"


def needed_points(claim: Claim) -> list[tuple[str, Measure]]:
    """The points that a claim compares, and those of its control, each with the measure there."""
    control = control_of(claim)
    extra = [] if control is None else [(control, measure) for _, measure in claim.points]
    return [*claim.points, *extra]
