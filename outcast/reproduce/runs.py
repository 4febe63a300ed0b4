"""The runs that recipes need: finished ones are reused, missing ones are made.

Recipes share runs: an experiment with a seed runs once, whichever recipes need it. The runs are in
a sweep's store (outcast/sweep/store.py). So a killed run is made again, and a finished run whose
manifest verifies is not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import configs
from outcast import experiment
from outcast.api.experiments import load
from outcast.engines import choice
from outcast.errors import ConfigError
from outcast.experiment import Experiment
from outcast.experiment.noise import DEFAULTS
from outcast.records.run import Run
from outcast.reproduce import model
from outcast.reproduce.measures import ModelRun
from outcast.reproduce.recipe import Mode, Point, Recipe
from outcast.reproduce.result import measured_points
from outcast.sweep import scheduler
from outcast.sweep.pool import LocalPool
from outcast.sweep.store import SweepDirectory, problems
from outcast.sweep.task import Failure, Task
from outcast.units import format_time, parse_time_ns


@dataclass(frozen=True)
class PlannedRun:
    """One run of one point.

    Attributes:
        name: the name of its folder in the store. The same experiment and seed give the same name.
        experiment: the experiment with its seed; None for a computation.
    """

    point: Point
    seed: int
    name: str
    experiment: Experiment | None


def planned_runs(
    recipe: Recipe, mode: Literal["quick", "full"], noise: str | None = None
) -> list[PlannedRun]:
    """Every run of a recipe.

    Args:
        recipe: the recipe.
        mode: how much to run.
        noise: the profile of noise; None for the one that the configurations have.

    Raises:
        ConfigError: if a point's configuration is missing or refuses the settings, or if a measure
            covers a time after the end of its runs.
    """
    chosen: Mode = recipe.quick if mode == "quick" else recipe.full
    runs = []
    for point in recipe.points:
        single = None
        if point.config is not None:
            settings = recipe.settings(point, chosen)
            # The default's name changes nothing, so the runs are those without a name.
            if noise not in (None, DEFAULTS["virtual"]):
                settings["noise.profile"] = noise
            loaded = load_experiment(configs.find(point.config), settings)
            _require_within(recipe, point, loaded)
            single = loaded.model_copy(update={"sweep": None, "repetitions": 1})
        for seed in range(1, chosen.repetitions + 1):
            if single is None:
                runs.append(PlannedRun(point, seed, f"computed-{point.payload_min}-{seed}", None))
                continue
            seeded = single.model_copy(update={"seed": seed})
            digest = hashlib.sha256(experiment.dump(seeded).encode()).hexdigest()[:12]
            runs.append(PlannedRun(point, seed, f"{point.config}-s{seed}-{digest}", seeded))
    return runs


def _require_within(recipe: Recipe, point: Point, chosen: Experiment) -> None:
    """Raises ConfigError where a measure at a point covers a time after the end of its runs.

    An interval counts from when all flows are active.
    """
    start_ns = max((group.start_ns for group in chosen.flows), default=0)
    measured = [at for claim in recipe.claims for at in measured_points(claim)]
    for interval in [measure.interval for label, measure in measured if label == point.label]:
        if not isinstance(interval, tuple):
            continue
        if start_ns + parse_time_ns(interval[1]) > chosen.duration_ns:
            raise ConfigError(
                f"{recipe.id}: {point.label}: interval {interval[0]} to {interval[1]}: its runs "
                f"end at {format_time(chosen.duration_ns - start_ns)}"
            )


def load_experiment(config: Path, settings: Mapping[str, Any]) -> Experiment:
    """Loads a configuration with settings, and checks that they fit its topology.

    Raises:
        ConfigError: if the file or a setting is refused.
    """
    if not config.exists():
        raise ConfigError(f"{config}: there is no such file; a checkout of the project has it")
    return load(config, settings)


def make_missing(
    runs: Sequence[PlannedRun], store: SweepDirectory, jobs: int, observer: scheduler.Observer
) -> Mapping[str, Failure]:
    """Makes the runs that are not finished. Returns, by run name, why a run failed."""
    tasks: dict[str, Task] = {}
    finished_before: set[str] = set()
    for run in runs:
        if run.experiment is None or run.name in tasks or run.name in finished_before:
            continue
        if not problems(store.run(run.name)):
            finished_before.add(run.name)
            continue
        tasks[run.name] = Task(
            name=run.name,
            config=experiment.dump(run.experiment),
            # The tables stay, and a virtual run can be repeated to the byte from its seed.
            captures="drop",
            exclusive=choice.choose(run.experiment).name == "realtime",
        )
    pool = LocalPool(jobs=jobs)
    report = scheduler.run(
        list(tasks.values()), len(finished_before), store, pool, scheduler.Limits(), observer
    )
    not_run = {name: Failure("RunError", f"not run: {report.stopped}") for name in report.left}
    return {**not_run, **report.failures}


def finished(run: PlannedRun, store: SweepDirectory) -> Run | None:
    """A run's result; None if it is not finished."""
    if run.point.payload_min is not None:
        return ModelRun(model.compute(run.point.payload_min, run.seed))
    directory = store.run(run.name)
    return Run(directory.path) if directory.manifest.exists() else None
