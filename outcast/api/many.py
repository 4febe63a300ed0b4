"""Many runs made from one, each with changes of its own, as a sweep makes its runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from outcast.api import archives
from outcast.api import guest as provision
from outcast.api import progress as displays
from outcast.api.making import absolute_search_paths, pool_of
from outcast.errors import ConfigError, InputError, RunError
from outcast.experiment import Experiment, dump
from outcast.plan.model import Planned
from outcast.records import replay as comparing
from outcast.records.interventions import Interventions
from outcast.records.run import Run as Record
from outcast.records.run_directory import Manifest, RunDirectory
from outcast.sweep import scheduler, store
from outcast.sweep.pool import Task
from outcast.sweep.scheduler import Limits, Progress
from outcast.sweep.store import SweepDirectory


@dataclass(frozen=True)
class Place:
    """The folder where many runs are made, and how many of them; see `outcast.fate`."""

    folder: Path
    jobs: int | None = None
    resume: bool = False
    scheduler: str | None = None
    allow_programs: bool = False
    progress: bool | None = None

    def __post_init__(self) -> None:
        """Raises ConfigError if no runs could be made so."""
        if self.jobs is not None and self.jobs < 1:
            raise ConfigError(f"jobs: {self.jobs}; allowed is 1 or more")


def experiment_of(path: Path, allow_programs: bool) -> tuple[Experiment, Manifest]:
    """Finds what a run was made from, if it can be made again here. Raises InputError."""
    if not path.is_dir():
        raise InputError(f"{path}: is no run directory; outcast replay -o makes one")
    with archives.opened(path) as directory:
        experiment = archives.replayable(directory, str(path), allow_programs)
        manifest = directory.read_manifest()
    archives.require_comparable(directory, str(path))
    return experiment, manifest


def make_each(
    factual: Record,
    experiment: Experiment,
    changes: Mapping[str, Interventions],
    from_ns: Mapping[str, int],
    place: Place,
) -> None:
    """Makes runs with interventions, as a sweep does, and compares each with the run before it.

    `changes` and `from_ns` say by the name of a run's folder what is changed in it, and up to when
    it has to be equal, after the traffic's start.

    Raises:
        ConfigError: the folder cannot be used.
        RunError: one failed.
        UntrustedError: one is another run before its intervention.
    """
    if factual.directory.path.resolve() in place.folder.resolve().parents:
        raise ConfigError(f"{place.folder}: is inside the run; allowed is another folder")
    first = factual.directory.read_manifest()
    provision.provide(Planned(experiment), place.progress)

    def check(directory: SweepDirectory, name: str) -> None:
        made = directory.run(name)
        explanation = comparing.explain(factual.directory, made)
        comparing.require_prefix(explanation, from_ns[name], name)
        store.reduce(made, "drop")

    with (
        absolute_search_paths(),
        store.opened(place.folder, experiment, place.resume) as directory,
        displays.of_sweep(place.progress) as observer,
    ):
        finished = store.take_stock(directory, dict.fromkeys(changes, experiment), observer.note)
        for name in sorted(finished):
            made = directory.run(name).read_manifest()
            if why := _why_another(made, changes[name], first):
                directory.set_aside(name, why)
                observer.note(f"set aside and made again: {why}")
                finished.remove(name)
        tasks = [
            _task(name, experiment, change)
            for name, change in changes.items()
            if name not in finished
        ]
        pool = pool_of(place.jobs, place.scheduler)
        try:
            ended = scheduler.run(
                tasks,
                len(finished),
                directory,
                pool,
                Limits(),
                observer,
                on_result=lambda name: check(directory, name),
            )
        finally:
            pool.stop()
    _require_all(ended)


def _task(name: str, experiment: Experiment, change: Interventions) -> Task:
    intervened = change.model_dump_json()
    return Task(name, dump(experiment), "keep", exclusive=False, interventions=intervened)


def _require_all(ended: Progress) -> None:
    """Raises RunError unless every run was made."""
    if ended.failures:
        name, failure = next(iter(ended.failures.items()))
        raise RunError(f"{len(ended.failures)} runs failed; {name}: {failure.message}")
    if ended.waiting:
        raise RunError(f"{len(ended.waiting)} runs are left: {ended.stopped}; --resume goes on")


def causes(factual: Record, made: Iterable[RunDirectory]) -> list[str]:
    """What else than was changed differs between a run and those made from it, in words."""
    first = factual.directory.read_manifest()
    each = (comparing.causes(first, directory.read_manifest()) for directory in made)
    return [*dict.fromkeys(words for found in each for words in found)]


def _why_another(made: Manifest, change: Interventions, first: Manifest) -> str | None:
    """Why a finished run is not the requested one; None if it is."""
    makers = [(each.kernel.get("sha256"), each.guest and each.guest.root) for each in (made, first)]
    if makers[0] != makers[1]:
        return "made by another kernel or root than the run"
    before = made.interventions
    if before is None or [*before.arguments()] != [*change.arguments()]:
        return "made from a run with other fates of packets"
    # Its captures are dropped once it was compared with the run before it.
    return None if made.dropped else "not compared with the run that it was made from"
