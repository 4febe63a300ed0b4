"""The result of a recipe: the measured values, the verdict, and the runs behind them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from outcast import handed_in
from outcast.analysis import Measure, measures
from outcast.errors import without_folder
from outcast.files import write_text
from outcast.uses.papers.claims import (
    BoundClaim,
    Claim,
    NoWorseClaim,
    OrderClaim,
    SizeClaim,
    control_of,
)
from outcast.uses.papers.recipe import Recipe
from outcast.uses.papers.state import State
from outcast.uses.papers.verdict import Judged, Verdict, judge, number

FILE = "result.json"
OTHER_SETTINGS = "its runs had other settings than the recipe has now"


class ClaimRecord(handed_in.Record):
    text: str
    rule: str = Field(description="what has to hold, in words")
    family: str = Field(description="the sentence that it belongs to (families.yaml)")
    apart: str = Field(description="why it does not count; empty if it does")
    median: float | None
    low: float | None = Field(description="of the exact 95 % interval; null if there is none")
    high: float | None
    p: float | None = Field(ge=0, le=1, description="of the verdict; null without one")
    verdict: Verdict | None = Field(
        description="by the claim's own p; null for fewer than six seeds. A page corrects the p of "
        "families (outcast/uses/papers/families.py)"
    )
    note: str = Field(description="what stands against a verdict, or limits it")


class PointRecord(handed_in.Record):
    label: str
    config: str | None
    set: dict[str, object]
    seeds: list[int]
    values: dict[str, list[float | None]] = Field(description="by measure, a value for each seed")


class FailureRecord(handed_in.Record):
    """A run that is missing from the values."""

    label: str
    seed: int
    reason: str = Field(description="names no folder of the machine that made the run")

    @field_validator("reason")
    @classmethod
    def _for_any_machine(cls, reason: str) -> str:
        return without_folder(reason)


class Result(handed_in.Record):
    id: str
    title: str
    source: str
    reported: str
    differs: str
    reason: str
    mode: Literal["quick", "full"]
    unjudged: str
    claims: list[ClaimRecord]
    points: list[PointRecord]
    failures: list[FailureRecord]
    state: State
    profile: str | None = Field(
        description="the profile of noise that was asked for; null for that of the configurations"
    )
    noise: str = Field(description="the profile that its runs have; `none` for a computation")
    engine: str
    seconds: float = Field(description="wall time of all its runs, one after the other")
    command: str
    figure: str = "figure.png"


def evaluate(
    recipe: Recipe, points: Sequence[PointRecord], mode: Literal["quick", "full"]
) -> list[ClaimRecord]:
    """The verdict on every claim, from the values of the points alone, of all their seeds.

    Points whose runs had other settings than the recipe has now give none.
    """
    by_label = {point.label: point for point in points}
    chosen = recipe.quick if mode == "quick" else recipe.full
    older = {
        point.label
        for point in recipe.every_point
        if point.label in by_label and by_label[point.label].set != recipe.settings(point, chosen)
    }
    return [_evaluate(claim, by_label, older) for claim in recipe.claims]


def _evaluate(claim: Claim, points: Mapping[str, PointRecord], older: Set[str]) -> ClaimRecord:
    control = control_of(claim)
    without = None if control is None else of_seeds(claim, points, control)
    judged = judge(claim, of_seeds(claim, points), without)
    if not older.isdisjoint(label for label, _ in claim.points):
        judged = Judged(judged.measured, note=OTHER_SETTINGS)
    return ClaimRecord(
        text=claim.text,
        rule=rule(claim),
        family=claim.family,
        apart=claim.apart,
        median=finite(judged.measured.value),
        low=finite(judged.measured.low),
        high=finite(judged.measured.high),
        p=judged.p,
        verdict=judged.verdict,
        note=judged.note,
    )


def of_seeds(
    claim: Claim, points: Mapping[str, PointRecord], control: str | None = None
) -> dict[int, float]:
    """A claim's value at each seed that all of its points have, or at its control's."""
    sides = [_by_seed(points.get(control or label), measure) for label, measure in claim.points]
    first, second = sides[0], sides[-1]
    if len(sides) == 1:
        return {seed: claim.value(value, 1.0) for seed, value in first.items()}
    return {
        seed: claim.value(value, second[seed]) for seed, value in first.items() if seed in second
    }


def _by_seed(point: PointRecord | None, measure: Measure) -> dict[int, float]:
    if point is None:
        return {}
    values = point.values.get(describe(measure), [None] * len(point.seeds))
    known = zip(point.seeds, values, strict=True)
    return {seed: value for seed, value in known if value is not None}


def judged_anew(recipe: Recipe, result: Result) -> Result:
    """The result with the recipe's present words and claims, judged by the present rule.

    So a wrong sentence or rule can be mended without making runs again.
    """
    claims = evaluate(recipe, result.points, result.mode)
    return result.model_copy(update={**words_of(recipe), "claims": claims})


def words_of(recipe: Recipe) -> dict[str, str]:
    """What a result takes from its recipe as it is."""
    names = ("title", "source", "reported", "differs", "reason", "unjudged")
    return {name: getattr(recipe, name) for name in names}


def finite(value: float | None) -> float | None:
    """Returns None for a value that is not finite, because JSON has neither NaN nor infinity."""
    return value if value is not None and math.isfinite(value) else None


def rule(claim: Claim) -> str:
    """Says what must hold so that a claim counts as reproduced."""
    name = describe(claim.measure)
    match claim:
        case OrderClaim():
            lesser = claim.lesser_measure
            other = "" if lesser is None else f"{describe(lesser)} "
            relation = "quotient" if claim.is_ratio else "difference"
            return f"{name} at {claim.greater} above {other}at {claim.lesser} ({relation})"
        case NoWorseClaim():
            if claim.kind == "equal":
                return f"{name} at {_where(claim)} equal within a factor of {number(claim.margin)}"
            side = "at most" if claim.less_is_better else "at least"
            edge = claim.margin if claim.less_is_better else 1 / claim.margin
            return f"{name} at {_where(claim)} {side} {number(edge)}, the margin"
        case BoundClaim():
            side = "at most" if claim.at_least is None else "at least"
            without = f"; no effect would be {number(claim.none)}"
            more = "more than" if side == "at least" else "less than"
            if claim.none == claim.bound:
                side, without = more, ", which would be no effect"
            return f"{name} at {_where(claim)} {side} {number(claim.bound)}{without}"
        case _:
            loss = "1 minus " if claim.loss else ""
            return (
                f"{loss}{name} at {_where(claim)}: reported {number(claim.reported)}, no effect "
                f"would be {number(claim.none)}, within a factor of {number(claim.within)}"
            )


def _where(claim: SizeClaim | BoundClaim | NoWorseClaim) -> str:
    return claim.at if claim.over is None else f"{claim.at} over {claim.over}"


def describe(measure: Measure) -> str:
    """A measure in words."""
    over = "" if measure.over is None else f" over {measure.over}"
    parts = (
        (measure.hops, f"of {measure.hops}-hop flows"),
        (measure.length, f"({measure.length} drops)"),
        (measure.group, f"of group {measure.group}"),
        (measure.label, f"of {measure.label}{over} by {measure.by}"),
        (measure.below, f"below {measure.below}"),
        (measure.above, f"above {measure.above}"),
        (measure.within_ms, f"within {measure.within_ms} ms"),
    )
    words = [re.sub(" (bps|ms)$", r" (\1)", measure.kind.replace("_", " "))]
    words += [text for value, text in parts if value is not None]
    if measures.MEASURES[measure.kind].has_interval:
        match measure.interval:
            case "whole" | "second_half" as part:
                words.append(f"in the {'whole run' if part == 'whole' else 'second half'}")
            case (begin, end):
                words.append(f"from {begin} to {end}")
    return " ".join(words)


def read_result(folder: Path) -> Result:
    """Reads result.json from a recipe's folder. Raises InputError if it cannot be read."""
    return handed_in.read_model(folder / FILE, Result)


def write_result(folder: Path, result: Result) -> None:
    write_text(folder / FILE, result.model_dump_json(indent=1) + "\n")
