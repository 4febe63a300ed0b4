"""The runs that recipes need: finished ones are reused, missing ones are made.

Recipes share runs: an experiment with a seed runs once, whichever recipes need it. The runs are in
a sweep's store (outcast/sweep/store.py). So a killed run is made again, and a finished run is not
whose manifest verifies and whose configuration is the one that is requested.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import configs
from outcast import engines, experiment, files
from outcast.api import Planned, SweepDirectory
from outcast.api.experiments import load
from outcast.errors import FeatureMissingError, OutcastError
from outcast.experiment import PROFILES, EngineName, Experiment
from outcast.records import Run, read_table
from outcast.sweep import scheduler
from outcast.sweep.pool import Captures, Failure, LocalPool, Task, is_exclusive
from outcast.sweep.store import reduce, take_stock
from outcast.uses.papers import effects, model
from outcast.uses.papers.model import ModelRun
from outcast.uses.papers.own_measures import EffectsRun
from outcast.uses.papers.recipe import Mode, Point, Recipe

CAPTURES: Captures = "drop"
"""The tables stay, and a virtual run can be repeated to the byte from its seed."""

REAL_TIME = "real-time"
"""Stands among the profiles of noise for what a machine has by itself, on its own clock."""
NOISES = (*PROFILES, REAL_TIME)


@dataclass(frozen=True)
class PlannedRun:
    """One run of one point.

    `name` is the name of its folder in the store. The same experiment and seed give the same name.
    """

    point: Point
    seed: int
    name: str
    experiment: Experiment | None


def planned_runs(
    recipe: Recipe, mode: Literal["quick", "full"], noise: str | None = None
) -> list[PlannedRun]:
    """Every run of a recipe.

    Raises ConfigError if a point's configuration is missing or refuses the settings.
    """
    chosen: Mode = recipe.quick if mode == "quick" else recipe.full
    runs = []
    for point in recipe.points_of(chosen):
        single = None
        if point.config is not None:
            settings = recipe.settings(point, chosen)
            if noise == REAL_TIME:
                settings |= {"engine": "realtime", "noise.profile": "exact"}
            elif noise is not None:
                settings["noise.profile"] = noise
            loaded = load(configs.find(point.config), settings)
            single = loaded.model_copy(update={"sweep": None, "repetitions": 1})
        for seed in range(1, chosen.repetitions + 1):
            if single is None:
                runs.append(PlannedRun(point, seed, f"computed-{point.payload_min}-{seed}", None))
                continue
            seeded = single.model_copy(update={"seed": seed})
            name = f"{point.config}-s{seed}-{_digest(seeded)}"
            runs.append(PlannedRun(point, seed, name, seeded))
    return runs


def _digest(requested: Experiment) -> str:
    """Tells settings apart. A module counts by its bytes, so every checkout names runs alike."""
    text = experiment.dump(requested)
    for module in requested.kernel.modules if requested.kernel else ():
        text = text.replace(str(module.path), files.sha256(module.path))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Needed:
    """The runs of a store that recipes need: how many are finished, and the others by their names.

    `exclusive` are those that need the machine for themselves. `kept` says what becomes of the
    captures of each. `lacking` are those that this machine cannot make, with the reason; they are
    not among the missing.
    """

    finished: int
    missing: Mapping[str, Experiment]
    exclusive: frozenset[str]
    kept: Mapping[str, Captures] = field(default_factory=dict)
    lacking: Mapping[str, Failure] = field(default_factory=dict)


def needed(
    runs: Sequence[PlannedRun], store: SweepDirectory, note: Callable[[str], None]
) -> Needed:
    """Looks which runs are finished. `note` gets a line for each run set aside; see `take_stock`.

    A machine may be able to make some of them only, in real time: its kernel may lack the qdisc of
    a control. `note` gets the others.

    Raises FeatureMissingError if it can make none.
    """
    experiments = {run.name: run.experiment for run in runs if run.experiment is not None}
    there = take_stock(store, experiments, note)
    kept = {run.name: _captures(run) for run in runs}
    asking = {run.name for run in runs if _lacks_effects(run, store)}
    for name in there & (asking | {name for name, kind in kept.items() if kind == "compress"}):
        if not store.run(name).captures.exists():
            store.set_aside(name, "its captures were dropped, and are asked for")
            there.remove(name)
    missing = {name: run for name, run in experiments.items() if name not in there}
    by_content: dict[str, EngineName | FeatureMissingError] = {}
    engines, lacking = dict[str, EngineName](), dict[str, FeatureMissingError]()
    for name, run in missing.items():
        # Seeds change no engine, and a plan of a large network takes a second.
        content = experiment.dump(run.model_copy(update={"seed": 0}))
        if content not in by_content:
            by_content[content] = _engine(run)
        engine = by_content[content]
        if isinstance(engine, FeatureMissingError):
            lacking[name] = engine
        else:
            engines[name] = engine
    if lacking and not engines and not there:
        raise next(iter(lacking.values()))
    for text, count in Counter(map(str, lacking.values())).items():
        note(f"{count} runs cannot be made here: {text}")
    return Needed(
        len(there),
        {name: run for name, run in missing.items() if name in engines},
        frozenset(name for name, engine in engines.items() if is_exclusive(engine)),
        kept,
        {name: Failure.of(error) for name, error in lacking.items()},
    )


def _engine(run: Experiment) -> EngineName | FeatureMissingError:
    """The engine of a run, or why this machine cannot make it."""
    try:
        return engines.choose(Planned(run)).name
    except FeatureMissingError as error:
        return error


def _captures(run: PlannedRun) -> Captures:
    """What becomes of a run's captures: kept for its fates, or where it names ports."""
    if run.point.fates is not None:
        return "keep"
    named = run.experiment is not None and isinstance(run.experiment.capture.ports, list)
    return "compress" if named else CAPTURES


def make_missing(
    runs: Needed,
    store: SweepDirectory,
    jobs: int,
    observer: scheduler.Observer,
) -> Mapping[str, Failure]:
    """Makes the runs that are missing. Returns, by run name, why a run failed."""
    tasks = [
        Task(
            name=name,
            config=experiment.dump(run),
            captures=runs.kept.get(name, CAPTURES),
            exclusive=name in runs.exclusive,
        )
        for name, run in runs.missing.items()
    ]
    ended = scheduler.run(
        tasks, runs.finished, store, LocalPool(jobs=jobs), scheduler.Limits(), observer
    )
    not_run = {name: Failure("RunError", f"not run: {ended.stopped}") for name in ended.waiting}
    return {**runs.lacking, **not_run, **ended.failures}


def make_effects(
    runs: Sequence[PlannedRun], store: SweepDirectory, jobs: int
) -> dict[str, Failure]:
    """Makes runs again with the fates that their points ask for; by run name, why one failed."""
    failed: dict[str, Failure] = {}
    with_fates = [run for run in runs if run.point.fates is not None]
    for run in with_fates:
        if not _lacks_effects(run, store) or not store.run(run.name).manifest.exists():
            continue
        assert run.point.fates is not None
        try:
            effects.make(store, run.name, run.point.fates, jobs)
        except OutcastError as error:
            failed[run.name] = Failure(type(error).__name__, str(error), error.exit_status)
    for name in {run.name for run in with_fates} - failed.keys():
        if store.run(name).captures.exists():
            reduce(store.run(name), "drop")
    return failed


def _lacks_effects(run: PlannedRun, store: SweepDirectory) -> bool:
    fates = run.point.fates
    return fates is not None and not effects.table_of(store, run.name, fates).exists()


def finished(run: PlannedRun, store: SweepDirectory) -> Run | None:
    """A run's result; None if it is not finished."""
    if run.point.payload_min is not None:
        return ModelRun(model.compute(run.point.payload_min, run.seed))
    directory = store.run(run.name)
    if not directory.manifest.exists() or _lacks_effects(run, store):
        return None
    found = Run(directory.path)
    if run.point.fates is None:
        return found
    table = effects.table_of(store, run.name, run.point.fates)
    return EffectsRun(found, read_table(table))
