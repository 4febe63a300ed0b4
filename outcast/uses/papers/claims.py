"""What a source claims: a measure of a run, and the values of it that count.

Every claim accepts some values of its measure, and has one that is expected without the effect. The
rule that compares them with runs is in outcast/uses/papers/verdict.py.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from outcast.analysis import Measure

LEAST_RUNS = 5
"""No verdict rests on fewer runs of a point, each with a seed of its own."""

WITHOUT = ", without the effect"
"""What the label of a point's control ends with."""


class Part(BaseModel):
    """A part of a recipe; an unknown key is refused."""

    # A claim with NaN has no side on which an interval can lie.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class _Claim(Part):
    text: str = Field(description="what the source says, in words")
    measure: Measure


class OrderClaim(_Claim):
    """The measure at one point is greater than at another. Without the effect both are equal."""

    kind: Literal["order"] = "order"
    greater: str = Field(description="a point's label")
    lesser: str = Field(description="a point's label")
    lesser_measure: Measure | None = Field(default=None, description="default: the same measure")
    control: str | None = Field(
        default=None, description="as of a size; only where both measures are of one point"
    )

    @property
    def at(self) -> str:
        return self.greater

    @property
    def points(self) -> list[tuple[str, Measure]]:
        """The labels of the points that it compares, each with the measure taken there."""
        return [(self.greater, self.measure), (self.lesser, self.lesser_measure or self.measure)]

    @property
    def needs_control(self) -> bool:
        """Whether neither of its points shows the other one without the effect."""
        return self.greater == self.lesser

    def without_effect(self, logarithmic: bool) -> float:
        """The value of the difference, or of ratios the quotient, that is expected without it."""
        return 1.0 if logarithmic else 0.0

    def accepted(self, logarithmic: bool) -> tuple[float, float]:
        """The least and the greatest value that it accepts."""
        return self.without_effect(logarithmic), math.inf

    def rises(self) -> bool:
        """Whether the effect makes the measure greater than it is without."""
        return True

    @model_validator(mode="after")
    def _two_values(self) -> OrderClaim:
        if self.greater == self.lesser and self.lesser_measure in (None, self.measure):
            raise ValueError(f"{self.text!r}: compares {self.greater!r} with itself")
        return self


class _ValueClaim(_Claim):
    """A claim about the measure at a point, or about its quotient over another point's."""

    at: str = Field(description="the point's label")
    over: str | None = Field(default=None, description="divide by the mean at this point")

    @property
    def points(self) -> list[tuple[str, Measure]]:
        labels = [self.at] if self.over is None else [self.at, self.over]
        return [(label, self.measure) for label in labels]


class _EffectClaim(_ValueClaim):
    """A claim that names the value which is expected without the effect."""

    none: float = Field(description="the value that is expected without the effect")
    control: str | None = Field(
        default=None,
        description="the point that shows the measure without the effect; if left out, the claim's "
        "point with the recipe's `without`",
    )

    @property
    def needs_control(self) -> bool:
        return self.over is None

    def without_effect(self, _logarithmic: bool) -> float:
        """The value that the measure is expected to have without the effect."""
        return self.none

    @model_validator(mode="after")
    def _quotient_of_equals(self) -> _EffectClaim:
        if self.over is not None and self.none != 1:
            raise ValueError(
                f"none: {self.none:g}; a quotient of two points is 1 without an effect"
            )
        return self

    def _vacuous(self, allowed: str) -> ValueError:
        return ValueError(
            f"{self.text!r}: vacuous, because it holds at {self.none:g}, its value without the "
            f"effect; allowed is {allowed}"
        )


class SizeClaim(_EffectClaim):
    """An effect has a reported size. The measure is compared with the value without an effect."""

    kind: Literal["size"] = "size"
    reported: float
    within: float = Field(default=1.5, gt=1, description="a factor up to which values are equal")

    def accepted(self, _logarithmic: bool = False) -> tuple[float, float]:
        """The least and the greatest value that count as the reported size."""
        least, greatest = sorted((self.reported / self.within, self.reported * self.within))
        return least, greatest

    def rises(self) -> bool:
        return self.reported > self.none

    @model_validator(mode="after")
    def _needs_the_effect(self) -> SizeClaim:
        least, greatest = self.accepted()
        if least <= self.none <= greatest:
            raise self._vacuous(f"a none below {least:g} or above {greatest:g}")
        return self


class BoundClaim(_EffectClaim):
    """The measure is at least, or at most, a value.

    The value without the effect must not satisfy that. It may be the bound itself, as in "more than
    its share": then the whole interval has to lie beyond it.
    """

    kind: Literal["bound"] = "bound"
    at_least: float | None = None
    at_most: float | None = None

    @property
    def bound(self) -> float:
        """The value that at_least or at_most gives."""
        return self.at_least if self.at_least is not None else self.at_most or 0.0

    def accepted(self, _logarithmic: bool) -> tuple[float, float]:
        return (self.bound, math.inf) if self.rises() else (-math.inf, self.bound)

    def rises(self) -> bool:
        return self.at_least is not None

    @model_validator(mode="after")
    def _one_bound(self) -> BoundClaim:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("exactly one of at_least and at_most is needed")
        if self.none > self.bound if self.rises() else self.none < self.bound:
            kind, side = ("at_least", "from") if self.rises() else ("at_most", "up to")
            raise self._vacuous(f"{kind} {side} {self.none:g}")
        return self


class NoWorseClaim(_ValueClaim):
    """The measure at a point is not worse than at another by more than a margin.

    The margin is stated before the runs. Whether it is worse is a claim that can fail, so it needs
    no effect.
    """

    kind: Literal["no_worse"] = "no_worse"
    over: str = Field(description="the label of the point that it is compared with")
    margin: float = Field(gt=1, description="the factor by which it may be worse")
    less_is_better: bool = Field(default=False, description="as of times")

    def without_effect(self, _logarithmic: bool) -> float:
        """The quotient of equal points, because worse is possible without an effect."""
        return 1.0

    def accepted(self, _logarithmic: bool = False) -> tuple[float, float]:
        """The least and the greatest quotient of the two that count as no worse."""
        return (0.0, self.margin) if self.less_is_better else (1 / self.margin, math.inf)

    def rises(self) -> bool:
        return not self.less_is_better


Claim = Annotated[SizeClaim | OrderClaim | BoundClaim | NoWorseClaim, Field(discriminator="kind")]


def control_of(claim: Claim) -> str | None:
    """The label of the point that shows a claim without its effect.

    None if the claim compares two points, because then one shows the other without the effect.
    """
    if isinstance(claim, NoWorseClaim) or not claim.needs_control:
        return None
    return claim.control or f"{claim.at}{WITHOUT}"


def needed_points(claim: Claim) -> list[tuple[str, Measure]]:
    """The points that a claim compares, and those of its control, each with the measure there."""
    control = control_of(claim)
    extra = [] if control is None else [(control, measure) for _, measure in claim.points]
    return [*claim.points, *extra]
