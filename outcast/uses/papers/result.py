"""The result of a recipe: the measured values, the verdict, and the runs behind them."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, field_validator

from outcast import handed_in
from outcast.analysis import Measure, intervals, measures
from outcast.analysis.measure import fairness
from outcast.errors import InputError, without_folder
from outcast.files import write_text
from outcast.records import Run
from outcast.uses.papers.claims import (
    BoundClaim,
    Claim,
    NoWorseClaim,
    OrderClaim,
    SizeClaim,
    needed_points,
)
from outcast.uses.papers.recipe import Recipe
from outcast.uses.papers.state import State
from outcast.uses.papers.verdict import Judged, Verdict, judge

FILE = "result.json"


class ClaimRecord(handed_in.Record):
    text: str
    rule: str = Field(description="what has to hold, in words")
    mean: float | None
    low: float | None = Field(description="of the 95 % interval; null if there is none")
    high: float | None
    p: float | None = Field(
        ge=0, le=1, description="of the verdict, by its interval alone; null without one"
    )
    verdict: Verdict | None = Field(
        description="by this interval alone; null for fewer than five runs. A page corrects p "
        "within a row (outcast/uses/papers/together.py)"
    )
    note: str = Field(default="", description="what stands against a verdict, or limits it")
    stationary: tuple[int, int] | None = Field(
        default=None,
        description="of the claim's runs, how many show no trend over the interval, and how many "
        "were tested; null if the measure counts over the whole run",
    )
    starved: int | None = Field(
        default=None,
        description="of the others, in how many some flow got nothing for the whole interval, and "
        "all else shows no trend; null where that was not looked at",
    )


class PointRecord(handed_in.Record):
    label: str
    config: str | None
    set: dict[str, object]
    seeds: list[int]
    values: dict[str, list[float | None]] = Field(description="by measure, a value for each seed")
    rivals: dict[str, float] = Field(
        default_factory=dict,
        description="by the kind of a ratio of goodputs, the flows of its first side for each of "
        "the other",
    )
    floor: dict[str, list[int]] = Field(
        description="by measure, the seeds whose value is a bound, because flows got a segment at "
        "most"
    )


class FailureRecord(handed_in.Record):
    """A run that is missing from the values."""

    label: str
    seed: int
    reason: str = Field(description="names no folder of the machine that made the run")

    @field_validator("reason")
    @classmethod
    def _for_any_machine(cls, reason: str) -> str:
        return without_folder(reason)


class BurstRecord(handed_in.Record):
    hops: int
    mean: float | None
    low: float | None
    high: float | None


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
    burst: BurstRecord | None = Field(description="null if no such flow lost a packet")
    engine: str
    seconds: float = Field(description="wall time of all its runs, one after the other")
    command: str
    figure: str = "figure.png"

    @property
    def again(self) -> str:
        """The command that makes it again, into a folder of its own."""
        return f"{self.command} -o NEW"


def evaluate(recipe: Recipe, points: Sequence[PointRecord]) -> list[Judged]:
    """The verdict on every claim, from the values of the points alone, of all their seeds."""
    judged = []
    for claim in recipe.claims:
        of_claim = _judge(recipe, points, claim)
        texts = filter(None, [_at_floor(points, claim), of_claim.note])
        judged.append(replace(of_claim, note="; ".join(texts)))
    return judged


def _at_floor(points: Sequence[PointRecord], claim: Claim) -> str:
    """How many of a claim's values are censored, in words; empty if none is known to be."""
    by_label = {point.label: point for point in points}
    counts = [
        len(by_label[label].floor.get(describe(measure), ()))
        for label, measure in needed_points(claim)
        if label in by_label
    ]
    if not sum(counts):
        return ""
    return f"censored values: {sum(counts)}, bounds where flows got a segment at most"


def _judge(recipe: Recipe, points: Sequence[PointRecord], claim: Claim) -> Judged:

    def by_point(measure: Measure, *, paired: bool) -> dict[str, list[float]]:
        nothing: dict[str, list[float]] = {point.label: [] for point in recipe.every_point}
        return nothing | {point.label: values_of(point, measure, paired=paired) for point in points}

    # Two measures of one point are compared run by run, so each run's ratio counts as it is.
    paired = isinstance(claim, OrderClaim) and claim.greater == claim.lesser
    first, last = claim.points[0], claim.points[-1]
    own, own_lesser = by_point(first[1], paired=True), by_point(last[1], paired=True)
    if isinstance(claim, OrderClaim) and measures.is_logarithmic(claim.measure):
        _tie(
            [
                (own[first[0]], _bounds(points, *first)),
                (own_lesser[last[0]], _bounds(points, *last)),
            ]
        )
    return judge(
        claim,
        own if paired else by_point(first[1], paired=False),
        own_lesser if paired else by_point(last[1], paired=False),
        logarithmic=measures.is_logarithmic(claim.measure),
        limits=measures.limits(claim.measure),
        seeds=own,
        lesser_seeds=own_lesser,
    )


def _bounds(points: Sequence[PointRecord], label: str, measure: Measure) -> list[int]:
    """The places of a point's values that are bounds, because flows got a segment at most."""
    return [
        point.seeds.index(seed)
        for point in points
        if point.label == label
        for seed in point.floor.get(describe(measure), ())
    ]


def _tie(sides: Sequence[tuple[list[float], Sequence[int]]]) -> None:
    """Makes bounds of both sides equal. Two bounds have no order: one can be of a shorter part."""
    for is_beyond, nearer in (((1.0).__lt__, min), ((1.0).__gt__, max)):
        found = [
            [(values, at) for at in places if is_beyond(values[at])] for values, places in sides
        ]
        if all(found):
            bound = nearer(values[at] for of_side in found for values, at in of_side)
            for values, at in itertools.chain(*found):
                values[at] = bound


def values_of(point: PointRecord, measure: Measure, *, paired: bool = False) -> list[float]:
    """A point's value for every seed, with NaN for none, so that means of them are the source's."""
    nothing = [None] * len(point.seeds)
    known = point.values.get(describe(measure), nothing)
    values = [math.nan if value is None else value for value in known]
    return values if paired else measures.as_means(values, measure, point.rivals)


def judged_anew(recipe: Recipe, result: Result) -> Result:
    """The result with the recipe's present words and claims, judged by the present rules.

    So a wrong sentence or rule can be mended without making runs again.
    """
    known = {claim.text: (claim.stationary, claim.starved) for claim in result.claims}
    claims = [
        claim_record(judged, *known.get(judged.claim.text, (None, None)))
        for judged in evaluate(recipe, result.points)
    ]
    return result.model_copy(update={**words_of(recipe), "claims": claims})


def words_of(recipe: Recipe) -> dict[str, str]:
    """What a result takes from its recipe as it is."""
    names = ("title", "source", "reported", "differs", "reason", "unjudged")
    return {name: getattr(recipe, name) for name in names}


def claim_record(
    judged: Judged, stationary: tuple[int, int] | None, starved: int | None
) -> ClaimRecord:
    interval = judged.measured
    return ClaimRecord(
        text=judged.claim.text,
        rule=rule(judged.claim),
        mean=interval.value,
        low=interval.low,
        high=interval.high,
        p=judged.p,
        verdict=judged.verdict,
        note=judged.note,
        stationary=stationary,
        starved=starved,
    )


def stationary_runs(
    claim: Claim, runs: Mapping[str, Sequence[Run]]
) -> tuple[tuple[int, int] | None, int | None]:
    """Counts a claim's runs that show no trend, and those tested; then `starved` of ClaimRecord.

    None if none was tested.
    """
    known = [
        (verdict, not verdict and _is_starved_alone(run, measure))
        for label, measure in {
            (at, each.interval): (at, each) for at, each in claim.points
        }.values()
        for run in runs.get(label, ())
        if (verdict := measures.is_stationary(run, measure)) is not None
    ]
    if not known:
        return None, None
    steady, starved = (sum(column) for column in zip(*known, strict=True))
    return (steady, len(known)), starved


def _is_starved_alone(run: Run, measure: Measure) -> bool:
    """Whether flows got nothing over a measure's interval, and the others show no trend.

    A longer run does not end that: a flow that waits ever longer for its next timeout can get
    nothing for as long as it runs.
    """
    rates = intervals.rates_in(run, intervals.span_of(run, measure.interval))
    if rates is None:
        return False
    rows = np.flatnonzero(rates.goodput_bytes.any(axis=1))
    if rows.size in (0, len(rates.flows)):
        return False
    flows = tuple(rates.flows[row] for row in rows)
    others = replace(rates, flows=flows, goodput_bytes=rates.goodput_bytes[rows])
    records = [flow for flow in run.manifest.compared_flows if flow.flow in flows]
    return fairness.change(others, records) == ""


def finite(value: float) -> float | None:
    """Returns None for a value that is not finite, because JSON has no NaN."""
    return value if math.isfinite(value) else None


def rule(claim: Claim) -> str:
    """Says what must hold so that a claim counts as reproduced."""
    name = describe(claim.measure)
    match claim:
        case OrderClaim():
            lesser = claim.lesser_measure
            other = "" if lesser is None else f"{describe(lesser)} "
            relation = "quotient" if measures.is_logarithmic(claim.measure) else "difference"
            return f"{name} at {claim.greater} above {other}at {claim.lesser} ({relation})"
        case NoWorseClaim():
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
            return (
                f"{name} at {_where(claim)}: reported {claim.reported:g}, no effect would be "
                f"{claim.none:g}, within a factor of {claim.within:g}"
            )


def number(value: float) -> str:
    """The value with three digits; from a million on in the form `313 M`."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:.3g} M"
    # Python writes 1,690 as 1.69e+03.
    digits = f"{value:.3g}"
    return f"{float(digits):,.0f}" if "e+" in digits else digits


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
    path = folder / FILE
    try:
        return handed_in.read_model(path, Result)
    except FileNotFoundError:
        raise InputError(f"{folder}: no {FILE}; `outcast reproduce` writes it") from None


def write_result(folder: Path, result: Result) -> None:
    write_text(folder / FILE, result.model_dump_json(indent=1) + "\n")
