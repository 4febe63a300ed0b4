"""Turns the runs of a recipe into its result and its figure."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import polars as pl

from outcast.experiment.noise import PROFILES, Noise
from outcast.records.run import Run
from outcast.reproduce import measures, pictures, result, runs, state, verdict
from outcast.reproduce.measures import ModelRun
from outcast.reproduce.recipe import Measure, Recipe
from outcast.reproduce.result import BurstRecord, FailureRecord, PointRecord, Result
from outcast.reproduce.runs import PlannedRun
from outcast.reproduce.state import MadeBy
from outcast.sweep.store import SweepDirectory
from outcast.sweep.task import Failure

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

    Args:
        recipe: what is judged.
        mode: how much was run.
        planned: its runs.
        store: where the runs are, and where the result goes.
        failed: by run name, why a run failed.
        made_by: the outcast that made the runs.
        noise: the profile that was asked for; None for the one that the configurations have.

    Raises:
        ConfigError: different kernels or roots made the runs.
    """
    good: dict[str, list[Run]] = {point.label: [] for point in recipe.every_point}
    seeds: dict[str, list[int]] = {point.label: [] for point in recipe.every_point}
    failures = []
    packets: dict[tuple[str, ...], int] = {}
    for plan in planned:
        label = plan.point.label
        run = runs.finished(plan, store)
        reason = _why_not(plan, run, failed) or _copy_of(plan, run, packets)
        if reason is not None or run is None:
            reason = reason or "no result"
            failures.append(FailureRecord(label=label, seed=plan.seed, reason=reason))
            continue
        good[label].append(run)
        seeds[label].append(plan.seed)
    failures += _without_value(recipe, good, seeds)
    points = [
        PointRecord(
            label=point.label,
            config=point.config,
            set=recipe.settings(point, recipe.quick if mode == "quick" else recipe.full),
            seeds=seeds[point.label],
            values=_values(recipe, good[point.label]),
            floor=_at_floor(recipe, good[point.label], seeds[point.label]),
            locked=[
                seed
                for seed, run in zip(seeds[point.label], good[point.label], strict=True)
                if not _is_computed(run) and result.LOCKED in _regimes(run)
            ],
            regimes=_count_regimes(good[point.label]),
        )
        for point in recipe.every_point
    ]
    folder = folder_of(store.path, recipe.id, noise)
    folder.mkdir(parents=True, exist_ok=True)
    if any(good.values()):
        pictures.draw(recipe, good, folder / FIGURE)
    emulated = [run for of_point in good.values() for run in of_point if not _is_computed(run)]
    regimes = _count_regimes(emulated)
    manifests = [run.directory.read_manifest() for run in emulated]
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
        claims=[
            result.claim_record(judged, result.stationary_runs(judged.claim, good))
            for judged in result.evaluate(recipe, points, regimes)
        ],
        points=points,
        failures=failures,
        state=state.of_runs(made_by, manifests),
        profile=noise,
        noise=" and ".join(sorted({_profile(run) for run in emulated})) or "none",
        regimes=regimes,
        burst=_burst(recipe, good),
        engine=", ".join(sorted({manifest.engine for manifest in manifests})) or "no",
        seconds=round(wall_s, 1),
        command=f"outcast reproduce {recipe.id} --{mode}" + (f" --noise {noise}" if noise else ""),
        figure=FIGURE,
    )
    result.write_result(folder, conclusion)
    return conclusion


def folder_of(folder: Path, name: str, noise: str | None) -> Path:
    """Where the result of a recipe goes: `ID`, or `ID/noise/PROFILE`."""
    return folder / name if noise is None else folder / name / NOISE / noise


def _profile(run: Run) -> str:
    """The profile of a run's noise, and that it is changed if the configuration has own parts."""
    noise, engine = run.experiment.noise, run.experiment.engine
    if noise.profile is None or engine == "auto":
        return "unknown"
    plain = noise == Noise(profile=noise.profile).resolved(engine)
    return noise.profile if plain else f"{noise.profile}, changed"


def _regimes(run: Run) -> set[str]:
    """The regimes of noise that a run's bottlenecks had."""
    return {part.regime for part in run.summary.noise.values()}


def _count_regimes(made: Sequence[Run]) -> dict[str, int]:
    words = [word for run in made if not _is_computed(run) for word in _regimes(run)]
    return dict(sorted(Counter(words).items()))


def _copy_of(plan: PlannedRun, run: Run | None, packets: dict[tuple[str, ...], int]) -> str | None:
    """Why a run is no repetition: it has the packets of another seed. Notes the run's packets.

    Captures differ in numbers that the seed draws, so what is compared is when each packet came in,
    by which port, and what became of it.
    """
    if run is None or _is_computed(run):
        return None
    table = run.table("packets").select("t_in", pl.col("ingress", "verdict").cast(pl.String))
    digest = hashlib.sha256(table["t_in"].to_numpy().tobytes())
    for column in ("ingress", "verdict"):
        digest.update("\n".join(map(str, table[column])).encode())
    first = packets.setdefault((plan.point.label, digest.hexdigest()), plan.seed)
    if first == plan.seed or not table.height:
        return None
    return f"has the same packets as seed {first}, {NO_REPETITION}"


def missing_runs(made: Result) -> list[FailureRecord]:
    """The runs left out for another reason than that they repeat a seed's packets."""
    return [failure for failure in made.failures if not failure.reason.endswith(NO_REPETITION)]


def _burst(recipe: Recipe, good: Mapping[str, Sequence[Run]]) -> BurstRecord | None:
    """The burst ratio at the main claim's point."""
    label, _ = result.measured_points(recipe.claims[0])[0]
    chosen = [run for run in good[label] if not _is_computed(run)]
    if not chosen or not chosen[0].summary.classes:
        return None
    measure = Measure(kind="burst_ratio", hops=min(map(int, chosen[0].summary.classes)))
    values = [measures.take(run, measure) for run in chosen]
    ratio = verdict.central(values, logarithmic=True)
    if ratio.value is None or measure.hops is None:
        return None
    return BurstRecord(hops=measure.hops, mean=ratio.value, low=ratio.low, high=ratio.high)


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
        for label, measure in result.needed_points(claim)
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


def _at_floor(recipe: Recipe, good: Sequence[Run], seeds: Sequence[int]) -> dict[str, list[int]]:
    """By measure, the seeds whose value is a bound."""
    found = {
        result.describe(measure): [
            seed
            for seed, run in zip(seeds, good, strict=True)
            if measures.is_at_floor(run, measure)
        ]
        for claim in recipe.claims
        for _, measure in result.measured_points(claim)
    }
    return {name: listed for name, listed in found.items() if listed}


def stored(folder: Path, recipes: Sequence[Recipe]) -> list[Result]:
    """The results of these recipes that a folder holds, in the order of the recipes.

    Those with the configurations' own noise come first, then the others by their profiles.
    """
    found = [
        folder_of(folder, recipe.id, noise) for noise in (None, *PROFILES) for recipe in recipes
    ]
    return [result.read_result(path) for path in found if (path / result.FILE).exists()]
