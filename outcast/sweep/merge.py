"""Puts the shards of a sweep together: every run has to be there, whole and once."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from outcast import experiment, workflow
from outcast.errors import ConfigError, InputError
from outcast.experiment import Experiment
from outcast.records.run_directory import RunDirectory
from outcast.sweep import dataset, store
from outcast.sweep.plan import Plan, Run
from outcast.sweep.scheduler import folder_bytes
from outcast.sweep.store import RESULT, SweepDirectory

_NAMED = 3
"""How many of the runs that are missing an error names."""


def merge(plan: Plan, shards: Sequence[Path], target: Path) -> SweepDirectory:
    """Copies every run of a plan from the shards' folders into a new folder, with its dataset.

    Args:
        plan: all runs.
        shards: folders of sweeps of the same configuration.
        target: a folder that is not there yet, or empty.

    Raises:
        InputError: a shard is no sweep, or a run is missing or not as it was when it ended. Nothing
            is written then.
        ConfigError: a shard or a run is of another configuration, or the folder cannot be used.
        BusyError: another process works in the folder.
    """
    directories = [SweepDirectory(path) for path in shards]
    for directory in directories:
        store.require_same(directory, plan.experiment)
    places: dict[str, Path] = {}
    missing: list[str] = []
    for run in plan.runs:
        name = run.point.name
        finished = (d for d in directories if not store.problems(d.run(name)))
        directory_of_run = next(finished, None)
        if directory_of_run is None:
            missing.append(_why(name, directories))
        else:
            places[name] = directory_of_run.run(name).path
            _require_run_of(run, directory_of_run.run(name))
    if missing:
        named = "; ".join(missing[:_NAMED])
        more = f"; {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        raise InputError(
            f"{len(missing)} of {len(plan.runs)} runs are missing: {named}{more}; make them in "
            "their shards with --resume"
        )
    _require_room(places.values(), target)
    is_new = not target.exists()
    with store.opened(target, plan.experiment, resume=False) as whole:
        try:
            store.keep_networks(whole, plan.own_topologies)
            _copy(places, whole)
            dataset.write(whole)
        except BaseException:
            # The folder was empty, and must not look like a sweep that can be continued.
            for path in (whole.runs, whole.unfinished, whole.sources):
                shutil.rmtree(path, ignore_errors=True)
            for path in (path for path in target.iterdir() if path.is_file()):
                path.unlink()
            if is_new:
                target.rmdir()
            raise
        return whole


def _copy(places: Mapping[str, Path], whole: SweepDirectory) -> None:
    for name, path in places.items():
        whole.attempt(name).mkdir()
        copy = whole.attempt(name) / RESULT
        shutil.copytree(path, copy, symlinks=True)
        if wrong := store.problems(RunDirectory(copy)):
            raise InputError(f"{path}: changed while it was copied: {wrong[0]}")
        whole.accept(name)


def _require_room(folders: Iterable[Path], target: Path) -> None:
    """Raises ConfigError if the folders do not fit on the target's file system."""
    there = next(path for path in (target, *target.absolute().parents) if path.exists())
    needed, free = sum(map(folder_bytes, folders)), shutil.disk_usage(there).free
    if needed > free:
        raise ConfigError(
            f"{target}: the runs have {needed / 2**20:.0f} MB, and {free / 2**20:.0f} MB are free"
        )


_WITH_COPIES = ("programs", "kernel", *store.OF_THE_SWEEP)
"""Keys in which a run names its own copies of files, and keys that no run has."""


def _require_run_of(run: Run, directory: RunDirectory) -> None:
    """Raises ConfigError if a run was not made with the values, seed and network of its name.

    The manifest of a run tells that it is whole, but not that it stands in the right folder. And
    a file with the network can be another one on the machine that made a shard.
    """
    planned = _comparable(run.experiment, run.experiment.engine)
    made = _comparable(experiment.load_resolved(directory.config), run.experiment.engine)
    for key in planned.keys() | made.keys():
        if planned.get(key) != made.get(key):
            raise ConfigError(
                f"{directory.path}: was made with another {key} than this configuration has; "
                "allowed are runs of the same configuration and files"
            )


def _comparable(tried: Experiment, engine: str) -> dict[str, Any]:
    resolved = workflow.resolve(tried, "realtime" if engine == "realtime" else "virtual")
    tree = resolved.model_dump(mode="json", by_alias=True)
    # Each machine has the files at places of its own.
    tree["topology"].pop("path", None)
    tree["links"].pop("overrides")
    return {key: value for key, value in tree.items() if key not in _WITH_COPIES}


def _why(name: str, shards: Sequence[SweepDirectory]) -> str:
    """The name of a missing run, and why it failed or is damaged where a shard tells."""
    for shard in shards:
        if (failure := shard.failures().get(name)) is not None:
            return f"{name} (failed: {failure.kind}: {failure.message})"
        if shard.run(name).manifest.exists():
            return f"{name} ({store.problems(shard.run(name))[0]})"
    return name
