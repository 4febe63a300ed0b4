"""Puts the shards of a sweep together: every run has to be there, whole and once."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from outcast.errors import InputError
from outcast.records.run_directory import RunDirectory
from outcast.sweep import dataset, store
from outcast.sweep.plan import Plan
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
        ConfigError: a shard is of another configuration, or the folder cannot be used.
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
    if missing:
        named = "; ".join(missing[:_NAMED])
        more = f"; {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        raise InputError(
            f"{len(missing)} of {len(plan.runs)} runs are missing: {named}{more}; make them in "
            "their shards with --resume"
        )
    with store.opened(target, plan.experiment, resume=False) as whole:
        store.keep_networks(whole, plan.own_topologies)
        for name, path in places.items():
            whole.attempt(name).mkdir()
            copy = whole.attempt(name) / RESULT
            shutil.copytree(path, copy, symlinks=True)
            if wrong := store.problems(RunDirectory(copy)):
                raise InputError(f"{path}: changed while it was copied: {wrong[0]}")
            whole.accept(name)
        dataset.write(whole)
        return whole


def _why(name: str, shards: Sequence[SweepDirectory]) -> str:
    """The name of a missing run, and why it failed or is damaged where a shard tells."""
    for shard in shards:
        if (failure := shard.failures().get(name)) is not None:
            return f"{name} (failed: {failure.kind}: {failure.message})"
        if shard.run(name).manifest.exists():
            return f"{name} ({store.problems(shard.run(name))[0]})"
    return name
