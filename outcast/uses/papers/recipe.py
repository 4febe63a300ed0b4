"""A recipe: one experiment of a source, what the source reports, and how we judge the result.

A recipe is data (`recipes/*.yaml`), so that no number behind a verdict stands in code.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, model_validator

from outcast.analysis import Measure, kinds
from outcast.errors import ConfigError, did_you_mean
from outcast.uses.papers import own_measures  # noqa: F401 - recipes name its measures
from outcast.uses.papers.claims import LEAST_RUNS, WITHOUT, Claim, Part, control_of

FOLDER = Path(__file__).parent / "recipes"


class Fates(Part):
    """Each run of a point is made again, once for each of some other fates of its packets."""

    kind: Literal["flip", "keep", "noise", "blackout", "nudge"] = Field(
        description="packets by lot that are dropped or forwarded instead, or keep their fate; new "
        "noise everywhere; drops of blackouts undone, together and one by one; or a packet after "
        "each blackout held for 1 us"
    )
    each: int = Field(ge=1, description="how many packets or blackouts of each run")
    hops: int | None = Field(default=None, description="the class that has the blackouts")


class Point(Part):
    """One setting of an experiment, which runs with several seeds."""

    label: str = Field(description="its name in the source's legend or on its axis")
    config: str | None = Field(
        default=None, description="a file of configs/ or configs/paper/, without its ending"
    )
    payload_min: int | None = Field(
        default=None, ge=1, le=1448, description="a computation instead of a run (TCPRand, 3.2)"
    )
    set: dict[str, Any] = Field(default_factory=dict, description="dotted keys and their values")
    x: float | None = Field(default=None, description="its place on a numeric axis")
    series: str = Field(default="", description="the curve or kind of bar that it belongs to")
    fates: Fates | None = Field(default=None, description="what its runs are made again with")

    @model_validator(mode="after")
    def _config_or_payload(self) -> Point:
        if (self.config is None) == (self.payload_min is None):
            raise ValueError("a point has either a config or a payload_min")
        return self


class Mode(Part):
    """How much to run: the seeds for each point, and settings that shorten each run."""

    repetitions: int = Field(ge=LEAST_RUNS)
    most_fates: int | None = Field(default=None, ge=1, description="the most fates `each`")
    set: dict[str, Any] = Field(default_factory=dict)


class Picture(Part):
    """The figure; `kind` names a function in outcast/uses/papers/pictures/."""

    kind: str
    panels: list[str] = Field(default_factory=list, description="labels of points; default: all")
    measure: Measure | None = None
    x: str = ""
    y: str = ""


class Recipe(Part):
    """One of the sources' experiments, or one of our own (docs/findings.md)."""

    id: str
    title: str
    source: str = Field(description="paper and section, figure or page")
    reported: str = Field(description="the number or the shape that the source reports")
    interval: kinds.Interval = Field(
        description="the part of each run that measures cover: the source's own, or the second "
        "half where the source names none"
    )
    differs: str = Field(default="", description="known differences from the source's set-up")
    departs: dict[str, str] = Field(
        default_factory=dict,
        description="keys whose values are not those of sources.yaml, each with the reason",
    )
    reason: str = Field(default="", description="why the result differs, if that is known")
    unjudged: str = Field(
        default="", description="what the source also says and no claim judges, with the reason"
    )
    points: Annotated[tuple[Point, ...], Field(min_length=1)]
    without: dict[str, Any] = Field(
        default_factory=dict,
        description="settings that take the effect away; with them, the point of each claim that "
        "needs a control has one",
    )
    quick: Mode
    full: Mode
    claims: Annotated[tuple[Claim, ...], Field(min_length=1)]
    picture: Picture

    @model_validator(mode="before")
    @classmethod
    def _measures_have_the_interval(cls, tree: Any) -> Any:
        """Gives every measure that names no interval that of the recipe."""
        has_interval = isinstance(tree, Mapping) and "interval" in tree
        return _with_interval(tree, tree["interval"]) if has_interval else tree

    @property
    def controls(self) -> tuple[Point, ...]:
        """The points that show claims without their effect, and are no points of the source."""
        if not self.without:
            return ()
        names = {control_of(claim) for claim in self.claims}
        return tuple(
            point.model_copy(
                update={"label": label, "set": _changed(point.set, self.without), "x": None}
            )
            for point in self.points
            if (label := f"{point.label}{WITHOUT}") in names
        )

    @property
    def every_point(self) -> tuple[Point, ...]:
        return (*self.points, *self.controls)

    @property
    def has_runs(self) -> bool:
        """Whether a point of it is a run; otherwise all are computations."""
        return any(point.config is not None for point in self.points)

    def points_of(self, mode: Mode) -> Iterator[Point]:
        """Every point, with as many fates as the mode allows."""
        for point in self.every_point:
            if point.fates is None or mode.most_fates is None:
                yield point
                continue
            each = min(point.fates.each, mode.most_fates)
            fates = point.fates.model_copy(update={"each": each})
            yield point.model_copy(update={"fates": fates})

    def settings(self, point: Point, mode: Mode) -> dict[str, Any]:
        """The overrides of a point's configuration. Those of the point win over the mode's."""
        return {**mode.set, **point.set}


def _changed(settings: Mapping[str, Any], without: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with others in their place: `queue` also takes that of `queue.limit`."""
    kept = {
        key: value
        for key, value in settings.items()
        if not any(key == new or key.startswith(f"{new}.") for new in without)
    }
    return {**kept, **without}


def _with_interval(tree: object, interval: object) -> object:
    """A copy of YAML's data in which every measure has an interval."""
    if isinstance(tree, list):
        return [_with_interval(part, interval) for part in tree]
    if not isinstance(tree, Mapping):
        return tree
    return {
        key: {"interval": interval, **part}
        if key in ("measure", "lesser_measure") and isinstance(part, Mapping)
        else _with_interval(part, interval)
        for key, part in tree.items()
    }


@functools.cache
def load_all() -> Mapping[str, Recipe]:
    """All recipes by their identifiers, in the order of the sources."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.yaml"))]
    recipes = [Recipe.model_validate(yaml.safe_load(text)) for text in texts]
    return MappingProxyType({recipe.id: recipe for recipe in sorted(recipes, key=_order)})


def _order(recipe: Recipe) -> tuple[int, int, str]:
    digits = re.match("[A-Z]([0-9]+)", recipe.id)
    return ("PTWHF".find(recipe.id[0]), int(digits[1]) if digits else 99, recipe.id)


_FIGURE = re.compile(r"(?:f|fig|figure)?[ ._-]*([0-9]+) *\(?([a-z]?)\)?", re.IGNORECASE)
_OF_OURS = "The TCP Outcast Problem"
"""The paper that a figure is of if no other is named, as `fig3c` is its figure 3(c)."""


def _also_named(recipes: Mapping[str, Recipe], name: str) -> list[Recipe]:
    """The recipe of a figure that is named as README does (`fig3c`), or of a configuration.

    Raises ConfigError: figures of several other sources have this number.
    """
    of_config = [
        recipe
        for recipe in recipes.values()
        if any(point.config == name for point in recipe.every_point)
    ]
    if of_config:
        return of_config[:1]
    match = _FIGURE.fullmatch(name)
    if match is None:
        return []
    number = re.compile(rf"figures? (?:[0-9]+ and )?{match[1]}\b")
    found = [recipe for recipe in recipes.values() if number.search(recipe.source)]
    # Recipes of one figure's parts have the part's letter.
    found = [recipe for recipe in found if f"({match[2]})" in recipe.source] or found
    ours = [recipe for recipe in found if recipe.source.startswith(_OF_OURS)]
    if len(ours or found) > 1:
        rows = ", ".join(f"{recipe.id} ({recipe.source})" for recipe in ours or found)
        raise ConfigError(f"{name}: several rows are of such a figure: {rows}")
    return ours or found


def choose(recipes: Mapping[str, Recipe], names: Iterable[str]) -> list[Recipe]:
    """The named recipes; the name `all` means every recipe.

    Raises ConfigError if no recipe has a name, or several could be meant.
    """
    chosen: list[Recipe] = []
    by_name = {name.lower(): recipe for name, recipe in recipes.items()}
    for name in names:
        if name == "all":
            named = list(recipes.values())
        elif name.lower() in by_name:
            named = [by_name[name.lower()]]
        elif also := _also_named(recipes, name):
            named = also
        else:
            raise ConfigError(
                f"{name}: no such figure; allowed are all, {', '.join(recipes)}"
                f"{did_you_mean(name, recipes)}"
            )
        chosen += [recipe for recipe in named if recipe not in chosen]
    return chosen
