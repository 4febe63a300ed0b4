"""A sweep in an archive: what goes in, and how runs that were made again are compared with it.

Every run goes in with its configuration, manifest and small tables, and with the hashes of its
captures. So the unpacked folder is a sweep's folder as any other, and each of its runs can be
replayed. Some runs go in whole.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from outcast import archive, handed_in
from outcast.archive import Parts, contents
from outcast.errors import ConfigError, InputError
from outcast.experiment.engine import properties
from outcast.records import replay
from outcast.records.run_directory import Manifest
from outcast.records.tables import refusing
from outcast.sweep import dataset, own_files, state, store
from outcast.sweep.dataset import Dataset
from outcast.sweep.plan import Run
from outcast.sweep.points import Point, canonical, combinations
from outcast.sweep.state import State
from outcast.sweep.store import SweepDirectory

_LARGE = ("captures/", "samples/", "trace/")
_LARGE_TABLES = ("packets.parquet", "queue.parquet", "sockets.parquet", "ports.parquet")
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
    """The content of an archive of a sweep.

    Attributes:
        manifests: of all runs, by name; the first repetitions come first.
        notes: what whoever gets the archive should know, in sentences.
    """

    parts: Parts
    manifests: Mapping[str, Manifest]
    whole: int
    notes: tuple[str, ...]


def collect(directory: SweepDirectory, whole: int | None, captures: contents.Captures) -> Collected:
    """Chooses the files of a sweep.

    So many runs go in whole, all for None; `captures` says whether these have captures, or only
    hashes.

    Raises InputError: a run is missing or was changed, or a file that the sweep needs stands
    outside of the folder.
    """
    sweep = state.read_state(directory)
    _require_complete(sweep)
    chosen = set(whole_runs(sweep.planned, len(sweep.planned) if whole is None else whole))
    parts = Parts({}, {})
    manifests = {}
    for point in sweep.planned:
        run = directory.run(point.name)
        keep = captures if point.name in chosen else "hashes"
        collected = contents.collect(run, keep)
        if point.name not in chosen:
            collected = collected.without(_is_large)
        parts.add(f"{archive.SWEEP}/runs/{point.name}/", collected, run)
        manifests[point.name] = collected.manifest
    for path in _files_of_all(directory, sweep):
        parts.members[f"{archive.SWEEP}/{path.relative_to(directory.path)}"] = path
    has_captures = any("/captures/" in name for name in parts.members)
    return Collected(parts, manifests, len(chosen), _notes(sweep, manifests, has_captures))


def _is_large(name: str) -> bool:
    """Whether a run that is not whole lacks this file."""
    return name.startswith(_LARGE) or name in _LARGE_TABLES or name.endswith(_PICTURES)


def _require_complete(sweep: State) -> None:
    lacking = [*sweep.failures, *sweep.left]
    if lacking:
        raise InputError(
            f"{sweep.directory.path}: {len(lacking)} of {len(sweep.planned)} runs have no result "
            f"({contents.listed(lacking)}); allowed is a whole sweep: --resume makes them"
        )


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
            paths += handed_in.plain_files(file) if file.is_dir() else [directory.path / place]
        elif not file.is_relative_to(directory.path):
            raise InputError(
                f"{directory.config}: names {file}, which is not in the sweep's folder; allowed is "
                "a sweep of this version, or its files in there"
            )
    return list(dict.fromkeys(path for path in paths if path.exists()))


def _notes(sweep: State, manifests: Mapping[str, Manifest], has_captures: bool) -> tuple[str, ...]:
    notes = []
    if sweep.untrusted:
        notes.append(f"{len(sweep.untrusted)} of its runs are not to be trusted.")
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
    is_as_many = len(points) * whole.repetitions == len(there)
    if not is_as_many or there != {point.name for point in dataset.planned_points(directory)}:
        raise InputError(
            f"{directory.config}: plans other runs than there are in {directory.runs.name}/; "
            "allowed is a whole sweep"
        )


def require_runs_of(directory: SweepDirectory, runs: Sequence[Run]) -> None:
    """Raises InputError if a run's config.yaml is not what the sweep's configuration makes it."""
    for run in runs:
        there = directory.run(run.point.name)
        key = store.other_key(there, run.experiment)
        if key is not None:
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
        return f"{self.run}: {self.key}: {_shown(self.there)} there, {_shown(self.here)} here"


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)


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
    before, now = dataset.build(there), dataset.build(here)
    captures = values = 0
    with refusing(f"{there.path}: its tables cannot be compared"):
        differing = _unlike_runs(stored, before)
    for name in names:
        old, new = (replay.digests(each.run(name)) for each in (there, here))
        captures += len(old)
        differing += _unequal(name, old, new)
        rows = [_rows(each, name) for each in (before, now)]
        values += len(rows[0])
        differing += _unequal(name, *rows)
    # A value that differs from both is told once.
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
        Differing(run, key, old.get(key), new.get(key))
        for key in dict.fromkeys([*old, *new])
        if not _is_same(old.get(key), new.get(key))
    ]


def _is_same(one: Any, other: Any) -> bool:
    both = isinstance(one, float) and isinstance(other, float)
    return one == other or (both and math.isnan(one) and math.isnan(other))
