"""A sweep in an archive: what goes in, and how runs that were made again are compared with it.

Every run goes in with its configuration, manifest and small tables, and with the hashes of its
captures. So the unpacked folder is a sweep's folder as any other, and each of its runs can be
replayed. Some runs go in whole.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from outcast import archive
from outcast.archive import contents, zips
from outcast.errors import ConfigError, InputError
from outcast.experiment.engine import properties
from outcast.handed_in import plain_files
from outcast.records import kept_captures
from outcast.records.run_directory import Manifest
from outcast.records.tables import refusing
from outcast.sweep import dataset, own_files, state, store
from outcast.sweep.dataset import Dataset
from outcast.sweep.plan import Run
from outcast.sweep.points import Point, canonical, combinations
from outcast.sweep.state import State
from outcast.sweep.store import SweepDirectory

_LARGE = ("captures/", "samples/", "trace/")
_TABLES = ("packets.parquet", "queue.parquet", "sockets.parquet", "ports.parquet")
_PICTURES = (".png", ".html", ".pdf", ".svg")


def whole_runs(planned: Sequence[Point], count: int) -> list[str]:
    """The names of this many runs, spread over the sweep's points; first repetitions first."""
    by_repetition = sorted(planned, key=lambda point: point.repetition)
    of_a_round = len({canonical(point.settings) for point in planned})
    if count >= of_a_round:
        return [point.name for point in by_repetition[:count]]
    return [by_repetition[index * of_a_round // count].name for index in range(count)]


@dataclass(frozen=True)
class Collected:
    """The content of an archive of a sweep, with the runs' manifests, first repetitions first.

    `notes` are sentences for whoever gets the archive.
    """

    members: zips.Members
    manifests: Mapping[str, Manifest]
    whole: int
    notes: tuple[str, ...]


def collect(directory: SweepDirectory, whole: int | None, captures: contents.Captures) -> Collected:
    """Chooses the files of a sweep.

    `whole` is the number of runs that go in whole; None is all. `captures` says whether these have
    captures, or only hashes.

    Raises InputError: a run is missing or was changed, or a file that the sweep needs stands
    outside of the folder.
    """
    sweep = state.read_state(directory)
    if lacking := [*sweep.failures, *sweep.left]:
        raise InputError(
            f"{directory.path}: {len(lacking)} of {len(sweep.planned)} runs have no result "
            f"({contents.listed(lacking)}); allowed is a whole sweep: --resume makes them"
        )
    chosen = set(whole_runs(sweep.planned, len(sweep.planned) if whole is None else whole))
    members: dict[str, Path | bytes] = {}
    manifests = {}
    for point in sweep.planned:
        run = directory.run(point.name)
        keep = captures if point.name in chosen else "hashes"
        collected = contents.collect(run, keep)
        if point.name not in chosen:
            collected = collected.without(
                lambda name: name.startswith(_LARGE) or name in _TABLES or name.endswith(_PICTURES)
            )
        members |= collected.members(f"{archive.SWEEP}/runs/{point.name}/", run)
        manifests[point.name] = collected.manifest
    for path in _files_of_all(directory, sweep):
        members[f"{archive.SWEEP}/{path.relative_to(directory.path)}"] = path
    notes = _notes(sweep, manifests, any("/captures/" in name for name in members))
    return Collected(members, manifests, len(chosen), notes)


def _files_of_all(directory: SweepDirectory, sweep: State) -> list[Path]:
    """The files of the sweep itself, and those of the user's that it names."""
    own = own_files.of_sweep(sweep.experiment, directory.path)
    if own.outside:
        raise InputError(
            f"{directory.path}: a swept value names {own.outside[0]}, which is outside of the "
            "configuration's folder; allowed are files below it"
        )
    dataset.write(directory)
    paths = [directory.config, directory.networks]
    paths += [directory.path / name for name in ("runs.parquet", "run_flows.parquet")]
    for place, file in own.places.items():
        if (directory.path / place).exists():
            paths += plain_files(file) if file.is_dir() else [directory.path / place]
        elif not file.is_relative_to(directory.path):
            raise InputError(
                f"{directory.config}: names {file}, which is not in the sweep's folder; allowed is "
                "a sweep of this version, or its files in there"
            )
    return list(dict.fromkeys(path for path in paths if path.exists()))


def _notes(sweep: State, manifests: Mapping[str, Manifest], has_captures: bool) -> tuple[str, ...]:
    notes = []
    if sweep.disagreeing:
        notes.append(
            f"{len(sweep.disagreeing)} of its runs have captures and counters that do not agree."
        )
    if len(sweep.makers) > 1:
        notes.append(f"Its runs were made by: {'; '.join(sweep.makers)}.")
    if not all(properties(manifest.engine).virtual_clock for manifest in manifests.values()):
        notes.append("Runs were made in real time, so it cannot be replayed.")
    if not has_captures:
        notes.append("Of the captures there are only the hashes.")
    return tuple(notes)


def require_bounded(directory: SweepDirectory) -> None:
    """Raises InputError unless the folder has each run that its configuration plans, and no other.

    What somebody packed could otherwise plan runs without end.
    """
    whole = directory.read_experiment()
    try:
        points = combinations(whole.sweep) if whole.sweep is not None else [{}]
    except ConfigError as error:
        raise InputError(f"{directory.config}: {error}") from None
    there = {path.name for path in directory.runs.iterdir()}
    is_whole = len(points) * whole.repetitions == len(there)
    if not is_whole or there != {point.name for point in dataset.planned_points(directory)}:
        raise InputError(
            f"{directory.config}: plans other runs than there are in {directory.runs.name}/; "
            "allowed is a whole sweep"
        )


def require_runs_of(directory: SweepDirectory, runs: Sequence[Run]) -> None:
    """Raises InputError if a run's config.yaml is not what the sweep's configuration makes it."""
    for run in runs:
        there = directory.run(run.point.name)
        if key := store.other_key(there, run.experiment):
            raise InputError(
                f"{there.config}: has another {key} than {directory.config.name} gives this run; "
                "allowed is a sweep as it was made"
            )


@dataclass(frozen=True)
class Differing:
    """A value of a run that is another one where the run was made again, or in its own files.

    `key` is a capture; a column of runs.parquet; with a flow before it, of run_flows.parquet.
    """

    run: str
    key: str
    there: Any
    here: Any

    def line(self) -> str:
        """The difference, for people."""
        there, here = ("none" if each is None else each for each in (self.there, self.here))
        return f"{self.run}: {self.key}: {there} there, {here} here"


@dataclass(frozen=True)
class Compared:
    """Runs that were made again, beside those of an archive."""

    captures: int
    values: int
    differing: tuple[Differing, ...]


def compare(
    there: SweepDirectory, here: SweepDirectory, names: Collection[str], stored: Dataset
) -> Compared:
    """Compares these runs of two sweeps: captures by their hashes, then all values of the tables.

    The tables `stored` there are compared with the files of all runs there.

    Raises InputError: a run or a table cannot be read.
    """
    captures = values = 0
    with refusing(f"{there.path}: its tables cannot be compared"):
        differing = _unlike_runs(stored, dataset.build(there))
    # Of the same runs, because a table's columns follow from all that are in it.
    before, now = (dataset.build(each, names) for each in (there, here))
    for name in names:
        old, new = (kept_captures.digests(each.run(name)) for each in (there, here))
        captures += len(old)
        differing += _unequal(name, old, new)
        rows = [_rows(each, name) for each in (before, now)]
        values += len(rows[0])
        differing += _unequal(name, *rows)
    # A value that differs from both is listed once.
    once = {(each.run, each.key): each for each in differing}
    return Compared(captures, values, tuple(once.values()))


def _unlike_runs(stored: Dataset, own: Dataset) -> list[Differing]:
    """What two stored tables have otherwise than the files of their runs, for every run."""
    if stored.runs.equals(own.runs) and stored.flows.equals(own.flows):
        return []
    names = dict.fromkeys([*stored.runs["run"], *stored.flows["run"], *own.runs["run"]])
    differing = []
    for name in names:
        of_run = pl.col("run").eq_missing(pl.lit(name))
        for file in ("runs", "flows"):
            rows = [getattr(each, file).filter(of_run).height for each in (stored, own)]
            if rows[0] != rows[1]:
                differing.append(Differing(name, f"rows in the table of {file}", *rows))
        differing += _unequal(name, _rows(stored, name), _rows(own, name))
    return differing


def _rows(results: Dataset, name: str) -> dict[str, Any]:
    """All values of a run, by the column, and by the flow and the column."""
    of_run = pl.col("run") == name
    rows = results.runs.filter(of_run).to_dicts()
    flows = results.flows.filter(of_run).drop(*results.runs.columns[:1], strict=False).to_dicts()
    keyed = {f"flow {row['flow']}: {key}": row[key] for row in flows for key in row}
    return {**(rows[0] if rows else {}), **keyed}


def _unequal(run: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Differing]:
    return [
        Differing(run, key, there, here)
        for key in dict.fromkeys([*old, *new])
        # Only NaN is unequal to itself.
        if (there := old.get(key)) != (here := new.get(key)) and (there == there or here == here)
    ]
