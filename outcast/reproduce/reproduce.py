"""Turns the runs of a recipe into its result and its figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from outcast import __version__
from outcast.records.run import Run
from outcast.reproduce import measures, pictures, result, runs
from outcast.reproduce.measures import ModelRun
from outcast.reproduce.recipe import Recipe
from outcast.reproduce.result import FailureRecord, PointRecord, Result
from outcast.reproduce.runs import PlannedRun
from outcast.sweep.store import SweepDirectory
from outcast.sweep.task import Failure

FIGURE = "figure.png"


def conclude(
    recipe: Recipe,
    mode: Literal["quick", "full"],
    planned: Sequence[PlannedRun],
    store: SweepDirectory,
    failed: Mapping[str, Failure],
) -> Result:
    """Measures, judges and draws; writes `ID/result.json` and `ID/figure.png` into the store.

    Left out of the values, and listed, are runs that failed, runs whose captures and counters
    contradict each other, and runs without a value of a claim's measure.
    """
    good: dict[str, list[Run]] = {point.label: [] for point in recipe.points}
    seeds: dict[str, list[int]] = {point.label: [] for point in recipe.points}
    failures = []
    for plan in planned:
        label = plan.point.label
        run = runs.finished(plan, store)
        reason = _why_not(plan, run, failed)
        if reason is not None or run is None:
            reason = reason or "no result"
            failures.append(FailureRecord(label=label, seed=plan.seed, reason=reason))
            continue
        good[label].append(run)
        seeds[label].append(plan.seed)
    failures += _without_value(recipe, good, seeds)
    judged = result.evaluate(recipe, good)
    folder = store.path / recipe.id
    folder.mkdir(exist_ok=True)
    if any(good.values()):
        pictures.draw(recipe, good, folder / FIGURE)
    emulated = [run for of_point in good.values() for run in of_point if not _is_computed(run)]
    manifests = [run.directory.read_manifest() for run in emulated]
    kernels = sorted({manifest.kernel.get("release", "unknown") for manifest in manifests})
    versions = sorted({manifest.outcast for manifest in manifests} or {__version__})
    wall_s = sum(sum(run.summary.wall_s.values()) for run in emulated)
    conclusion = Result(
        id=recipe.id,
        title=recipe.title,
        source=recipe.source,
        reported=recipe.reported,
        differs=recipe.differs,
        reason=recipe.reason,
        unjudged=recipe.unjudged,
        mode=mode,
        claims=[result.claim_record(claim, good) for claim in judged],
        points=[
            PointRecord(
                label=point.label,
                config=point.config,
                set=recipe.settings(point, recipe.quick if mode == "quick" else recipe.full),
                seeds=seeds[point.label],
                values=_values(recipe, good[point.label]),
            )
            for point in recipe.points
        ],
        failures=failures,
        outcast=", ".join(versions),
        kernel=", ".join(kernels) or "none",
        engine=", ".join(sorted({manifest.engine for manifest in manifests})) or "no",
        seconds=round(wall_s, 1),
        command=f"outcast reproduce {recipe.id} --{mode}",
        figure=FIGURE,
    )
    result.write_result(folder, conclusion)
    return conclusion


def _is_computed(run: Run) -> bool:
    return isinstance(run, ModelRun)


def _why_not(plan: PlannedRun, run: Run | None, failed: Mapping[str, Failure]) -> str | None:
    """Why a run does not count; None if it does."""
    if plan.name in failed:
        return failed[plan.name].message
    if run is None:
        return "not run"
    if _is_computed(run) or run.trusted:
        return None
    return f"not to be trusted: {'; '.join(run.reasons)}"


def _without_value(
    recipe: Recipe, good: Mapping[str, Sequence[Run]], seeds: Mapping[str, Sequence[int]]
) -> list[FailureRecord]:
    failures = [
        FailureRecord(label=label, seed=seed, reason=f"has no {result.describe(measure)}")
        for claim in recipe.claims
        for label, measure in result.measured_points(claim)
        for run, seed in zip(good[label], seeds[label], strict=True)
        if not math.isfinite(measures.take(run, measure))
    ]
    return [entry for place, entry in enumerate(failures) if entry not in failures[:place]]


def _values(recipe: Recipe, good: Sequence[Run]) -> dict[str, list[float | None]]:
    return {
        result.describe(measure): [result.finite(measures.take(run, measure)) for run in good]
        for claim in recipe.claims
        for _, measure in result.measured_points(claim)
    }


def stored(folder: Path, recipes: Sequence[Recipe]) -> list[Result]:
    """The results of these recipes that a folder holds, in the order of the recipes."""
    return [
        result.read_result(folder / recipe.id)
        for recipe in recipes
        if (folder / recipe.id / result.FILE).exists()
    ]
