"""Many runs made from one, each with changes of its own, as a sweep makes its runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from outcast.api import archives
from outcast.api import guest as provision
from outcast.api import progress as shown
from outcast.api.making import absolute_search_paths
from outcast.errors import InputError, RunError
from outcast.experiment import Experiment, dump
from outcast.records import replay as comparing
from outcast.records.interventions import Interventions
from outcast.records.run import Run as Record
from outcast.records.run_directory import Manifest
from outcast.sweep import captures, scheduler, store
from outcast.sweep.pool import LocalPool
from outcast.sweep.scheduler import Limits
from outcast.sweep.store import SweepDirectory
from outcast.sweep.task import Task
from outcast.whatif import compare


def experiment_of(path: Path, allow_programs: bool) -> tuple[Experiment, Manifest]:
    """What a run was made from, if it can be made again here. Raises InputError."""
    if not path.is_dir():
        raise InputError(f"{path}: is no run directory; outcast replay -o makes one")
    with archives.opened(path) as unpacked:
        experiment = archives.replayable(unpacked, str(path), allow_programs)
        manifest = unpacked.run.read_manifest()
    if different := archives.other_guest(manifest):
        raise InputError(f"{path}: {different}; make the run anew: outcast run")
    return experiment, manifest


def make_each(
    factual: Record,
    experiment: Experiment,
    changes: Mapping[str, Interventions],
    from_ns: Mapping[str, int],
    target: Path,
    jobs: int | None,
    resume: bool,
    progress: bool | None,
) -> None:
    """Makes runs with interventions, as a sweep does, and compares each with the run before it.

    Args:
        factual: the run in which they intervene.
        experiment: what that was made from.
        changes: what is changed in each, by the name of its folder.
        from_ns: up to when each has to be equal, after the traffic's start.
        target: the folder of all.
        jobs: how many go on at a time; None is as many as there are cores.
        resume: whether to go on with what is in the folder.
        progress: whether to show it.

    Raises:
        ConfigError: the folder cannot be used.
        RunError: one failed.
        UntrustedError: one is another run before its intervention.
    """
    jobs = jobs or os.cpu_count() or 1
    provision.provide(experiment, progress)
    asked = dict.fromkeys(changes, experiment)

    def check(directory: SweepDirectory, name: str) -> None:
        made = directory.run(name)
        explanation = comparing.explain(factual.directory, made)
        compare.require_prefix(explanation, from_ns[name], name)
        captures.reduce(made, "drop")

    with absolute_search_paths(), store.opened(target, experiment, resume) as directory:
        pool = LocalPool(jobs, threads=max(1, (os.cpu_count() or 1) // jobs))
        with shown.of_sweep(progress) as observer:
            finished = store.take_stock(directory, asked, observer.note)
            for name in sorted(finished):
                if why := _why_another(directory.run(name).read_manifest(), changes[name]):
                    directory.set_aside(name, why)
                    observer.note(f"set aside and made again: {why}")
                    finished.discard(name)
            tasks = [
                Task(
                    name,
                    dump(experiment),
                    "keep",
                    exclusive=False,
                    interventions=change.model_dump_json(),
                )
                for name, change in changes.items()
                if name not in finished
            ]
            report = scheduler.run(
                *(tasks, len(finished), directory, pool, Limits(), observer),
                on_result=lambda name, wall_s, disk_bytes: check(directory, name),
            )
    if report.failures:
        name, failure = next(iter(report.failures.items()))
        raise RunError(f"{len(report.failures)} runs failed; {name}: {failure.message}")
    if report.left:
        raise RunError(f"{len(report.left)} runs are left: {report.stopped}; --resume goes on")


def _why_another(made: Manifest, change: Interventions) -> str | None:
    """Why a finished run is not the one asked for; None if it is."""
    before = made.interventions
    if before is None or [*before.arguments()] != [*change.arguments()]:
        return "made from a run with other fates of packets"
    # Its captures are dropped once it was compared with the run before it.
    return None if made.dropped else "not compared with the run that it was made from"
