"""Puts the shards of a sweep together: every run has to be there, whole and once."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from outcast.errors import ConfigError, InputError
from outcast.records.run_directory import RunDirectory
from outcast.sweep import dataset, store
from outcast.sweep.plan import Plan, Run
from outcast.sweep.scheduler import folder_bytes
from outcast.sweep.store import RESULT, SweepDirectory

_NAMED = 3
"""How many of the runs that are missing an error names."""


def merge(plan: Plan, shards: Sequence[Path], target: Path) -> SweepDirectory:
    """Copies every run of a plan from the shards' folders into a new folder, with its dataset.

    Raises:
        InputError: a shard is no sweep, or a run is missing or not as it was when it ended. Nothing
            is written then.
        ConfigError: a shard or a run is of another configuration, or the folder cannot be used.
        BusyError: another process works in the folder.
    """
    _require_new(target)
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
    with store.opened(target, plan.experiment, resume=False, own=plan.own) as whole:
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


def _require_run_of(run: Run, directory: RunDirectory) -> None:
    """Raises ConfigError if a run was not made with the values, seed and network of its name."""
    key = store.other_key(directory, run.experiment)
    if key is not None:
        raise ConfigError(
            f"{directory.path}: was made with another {key} than this configuration has; "
            "allowed are runs of the same configuration and files"
        )


def _require_new(target: Path) -> None:
    """Raises ConfigError, before the shards are read, where the target holds something."""
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise ConfigError(
                f"{target}: exists already, and --merge makes a whole folder anew; allowed is a "
                "new or empty folder (-o)"
            )
    except OSError as error:
        raise ConfigError(f"{target}: {error.strerror}; allowed is a new folder (-o)") from None


def _why(name: str, shards: Sequence[SweepDirectory]) -> str:
    """The name of a missing run, and why it failed or is damaged where a shard says that."""
    for shard in shards:
        if (failure := shard.failures().get(name)) is not None:
            return f"{name} (failed: {failure.kind}: {failure.message})"
        if shard.run(name).manifest.exists():
            return f"{name} ({store.problems(shard.run(name))[0]})"
    return name
