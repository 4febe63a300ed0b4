"""Turns the runs of a recipe into its result and its figure."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import polars as pl

from outcast.analysis import measures
from outcast.api import SweepDirectory
from outcast.experiment import Noise
from outcast.records import Run
from outcast.sweep.pool import Failure
from outcast.uses.papers import pictures, result, runs, state
from outcast.uses.papers.claims import needed_points
from outcast.uses.papers.model import ModelRun
from outcast.uses.papers.recipe import Point, Recipe
from outcast.uses.papers.result import FailureRecord, PointRecord, Result
from outcast.uses.papers.runs import PlannedRun
from outcast.uses.papers.state import MadeBy

FIGURE = "figure.png"
NOISE = "noise"
NO_REPETITION = "so it is no repetition"


def conclude(
    recipe: Recipe,
    mode: Literal["quick", "full"],
    planned: Sequence[PlannedRun],
    store: SweepDirectory,
    failed: Mapping[str, Failure],
    made_by: MadeBy,
    noise: str | None = None,
) -> Result:
    """Measures, judges and draws; writes result.json and figure.png into the recipe's folder.

    Left out of the values, and listed, are runs that failed, runs whose captures and counters
    contradict each other, runs without a value of a claim's measure, and all but one of the runs
    that are equal packet for packet, because these are no repetitions.

    Raises ConfigError: different kernels or roots made the runs.
    """
    made, failures = _sorted_out(recipe, planned, store, failed)
    good = {label: [run for _, run in of_point] for label, of_point in made.items()}
    points = [_point(recipe, mode, point, made[point.label]) for point in recipe.every_point]
    folder = folder_of(store.path, recipe.id, noise)
    folder.mkdir(parents=True, exist_ok=True)
    if any(good.values()):
        pictures.draw(recipe, good, folder / FIGURE)
    every = [run for of_point in good.values() for run in of_point]
    emulated = [run for run in every if not isinstance(run, ModelRun)]
    manifests = [run.directory.read_manifest() for run in emulated]
    conclusion = Result(
        id=recipe.id,
        **result.words_of(recipe),
        mode=mode,
        claims=result.evaluate(recipe, points, mode),
        points=points,
        failures=failures,
        state=state.of_runs(made_by, manifests),
        profile=noise,
        noise=" and ".join(sorted({_profile(run) for run in emulated})) or "none",
        engine=", ".join(sorted({manifest.engine for manifest in manifests})) or "no",
        seconds=round(sum(sum(run.summary.wall_s.values()) for run in emulated), 1),
        command=f"outcast reproduce {recipe.id} --{mode}" + (f" --noise {noise}" if noise else ""),
        figure=FIGURE,
    )
    result.write_result(folder, conclusion)
    return conclusion


_Made = list[tuple[int, Run]]
"""The runs of a point that count, each with its seed."""


def _sorted_out(
    recipe: Recipe,
    planned: Sequence[PlannedRun],
    store: SweepDirectory,
    failed: Mapping[str, Failure],
) -> tuple[dict[str, _Made], list[FailureRecord]]:
    """The runs that count, by the label of their point; and why others do not."""
    made: dict[str, _Made] = {point.label: [] for point in recipe.every_point}
    failures, packets = [], dict[tuple[str, ...], int]()
    for plan in planned:
        run = runs.finished(plan, store)
        reason = _why_not(plan, run, failed) or _copy_of(plan, run, packets)
        if reason is None:
            assert run is not None
            made[plan.point.label].append((plan.seed, run))
        else:
            failures.append(FailureRecord(label=plan.point.label, seed=plan.seed, reason=reason))
    return made, failures + _without_value(recipe, made)


def _point(
    recipe: Recipe, mode: Literal["quick", "full"], point: Point, made: _Made
) -> PointRecord:
    good = [run for _, run in made]
    claimed = [measure for claim in recipe.claims for _, measure in claim.points]
    return PointRecord(
        label=point.label,
        config=point.config,
        set=recipe.settings(point, recipe.quick if mode == "quick" else recipe.full),
        seeds=[seed for seed, _ in made],
        values={
            result.describe(measure): [result.finite(measures.take(run, measure)) for run in good]
            for measure in claimed
        },
    )


def folder_of(folder: Path, name: str, noise: str | None) -> Path:
    return folder / name if noise is None else folder / name / NOISE / noise


def _profile(run: Run) -> str:
    """The profile of a run's noise, or that it is changed by parts of the configuration.

    A run in real time has the machine's own noise.
    """
    noise, engine = run.experiment.noise, run.experiment.engine
    if noise.profile is None or engine == "auto":
        return "unknown"
    if engine == "realtime":
        return runs.REAL_TIME
    plain = noise == Noise(profile=noise.profile).resolved(engine)
    return noise.profile if plain else f"{noise.profile}, changed"


def _copy_of(plan: PlannedRun, run: Run | None, packets: dict[tuple[str, ...], int]) -> str | None:
    """Why a run is no repetition: it has the packets of another seed. Notes the run's packets.

    Captures differ in numbers that the seed draws, so what is compared is when each packet came in,
    by which port, and what became of it.
    """
    if run is None or isinstance(run, ModelRun):
        return None
    table = run.table("packets", whole=True).select(
        "t_in", pl.col("ingress", "verdict").cast(pl.String)
    )
    digest = hashlib.sha256(table.write_csv().encode()).hexdigest()
    first = packets.setdefault((plan.point.label, digest), plan.seed)
    if first == plan.seed or not table.height:
        return None
    return f"has the same packets as seed {first}, {NO_REPETITION}"


def missing_runs(made: Result) -> list[FailureRecord]:
    """The runs left out for another reason than that they repeat a seed's packets."""
    return [failure for failure in made.failures if not failure.reason.endswith(NO_REPETITION)]


def _why_not(plan: PlannedRun, run: Run | None, failed: Mapping[str, Failure]) -> str | None:
    """Why a run does not count; None if it does."""
    if plan.name in failed:
        return failed[plan.name].message
    if run is None:
        return "not run"
    if isinstance(run, ModelRun) or run.trusted:
        return None
    return f"captures and counters do not agree: {'; '.join(run.reasons)}"


def _without_value(recipe: Recipe, made: Mapping[str, _Made]) -> list[FailureRecord]:
    failures = [
        FailureRecord(label=label, seed=seed, reason=f"has no {result.describe(measure)}")
        for claim in recipe.claims
        for label, measure in needed_points(claim)
        for seed, run in made[label]
        if not math.isfinite(measures.take(run, measure))
    ]
    return [entry for place, entry in enumerate(failures) if entry not in failures[:place]]


def stored(folder: Path, recipes: Sequence[Recipe]) -> list[Result]:
    """The results of these recipes that a folder holds, in the order of the recipes.

    Those with the configurations' own noise come first, then the others by their profiles.
    """
    found = [
        folder_of(folder, recipe.id, noise) for noise in (None, *runs.NOISES) for recipe in recipes
    ]
    return [result.read_result(path) for path in found if (path / result.FILE).exists()]
