"""Runs of a sweep that are made again, and compared with those that somebody packed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import polars as pl

from outcast import experiment as reading
from outcast import handed_in
from outcast.api import archives, guest, sweeps
from outcast.api.progress import note
from outcast.errors import ConfigError, InputError, RunError
from outcast.experiment import Source
from outcast.plan.model import Planned
from outcast.records import kept_captures
from outcast.records.tables import refusing
from outcast.sweep import dataset, store
from outcast.sweep.dataset import Dataset
from outcast.sweep.packing import SAMPLE
from outcast.sweep.points import combinations
from outcast.sweep.store import SweepDirectory


def replay(
    folder: Path,
    source: Path,
    target: Path | None,
    scratch: Path,
    runs: int | Literal["all"] | None,
    jobs: int | None,
    allow_programs: bool,
    progress: bool | None,
) -> archives.Replay:
    """Makes runs of the sweep in a folder again; see `archives.replay`. Errors name the source."""
    handed_in.require_plain(folder)
    there, here = SweepDirectory(folder), SweepDirectory(target or scratch / "again")
    experiment = _replayable(there, source, allow_programs)
    guest.provide(Planned(experiment.experiment()), progress)
    prepared = sweeps.prepare(experiment, here.path, jobs=jobs)
    planned = prepared.plan.runs
    for run in planned:
        if key := store.other_key(earlier := there.run(run.point.name), run.experiment):
            raise InputError(
                f"{earlier.config}: has another {key} than {there.config.name} gives this run; "
                "allowed is a sweep as it was made"
            )
    count = len(planned) if runs == "all" else min(runs or SAMPLE, len(planned))
    drawn = random.SystemRandom().sample(range(len(planned)), count)
    chosen = tuple(planned[number] for number in sorted(drawn))
    names = [run.point.name for run in chosen]
    if other := archives.other_guest(there.run(names[0]).read_manifest()):
        note(progress, f"{source}: {other}, so results may differ")
    note(progress, f"{source}: {count} of {len(planned)} runs")
    result = sweeps.carry_out(
        replace(prepared, plan=replace(prepared.plan, runs=chosen), left=chosen), progress=progress
    )
    for name, failure in result.progress.failures.items():
        raise RunError(f"{source}: {name}: {failure.kind}: {failure.message}")
    # Of the same runs, because a table's columns follow from all that are in it.
    tables = [dataset.build(each, names) for each in (there, here)]
    captures = values = 0
    differing: list[str] = []
    for name in names:
        hashes = [kept_captures.digests(each.run(name)) for each in (there, here)]
        rows = [_values(table, name) for table in tables]
        captures, values = captures + len(hashes[0]), values + len(rows[0])
        differing += _unequal(name, *hashes) + _unequal(name, *rows)
    return archives.Replay(
        tuple(names), len(planned), captures, values, tuple(differing), None, target
    )


def _replayable(there: SweepDirectory, source: Path, allow_programs: bool) -> Source:
    """The configuration of a sweep that was handed in. Raises as `archives.replayable`.

    Raises InputError too, where the folder has not each run that the configuration plans and no
    other, or an archive has other tables than its runs give. Claims are about the tables.
    """
    config = reading.read(there.config, own_folder=there.path)
    whole = config.experiment()
    runs = {path.name for path in there.runs.iterdir()}
    try:
        points = combinations(whole.sweep) if whole.sweep is not None else [{}]
        # Counted first, because a configuration can plan runs without end.
        is_whole = len(points) * whole.repetitions == len(runs)
        if not is_whole or runs != {point.name for point in dataset.planned_points(there)}:
            raise InputError(
                f"{there.config}: plans other runs than there are in {there.runs.name}/; allowed "
                "is a whole sweep"
            )
        experiments = [whole, *(config.at_point(point).experiment() for point in points)]
    except ConfigError as error:
        raise InputError(f"{there.config}: {error}") from None
    for name in runs:
        archives.require_virtual(str(source), there.run(name).read_manifest().engine)
    archives.require_harmless(there.config, str(source), experiments, allow_programs)
    if not source.is_dir():
        stored, own = dataset.read(there), dataset.build(there)
        pairs = ((stored.runs, own.runs), (stored.flows, own.flows))
        with refusing(f"{there.path}: its tables cannot be compared"):
            # A later version may give more columns.
            if not all(table.equals(made.select(table.columns)) for table, made in pairs):
                raise InputError(f"{there.path}: its tables are not what its runs give")
    return config.changed({"engine": "virtual"})


def _values(results: Dataset, name: str) -> dict[str, Any]:
    """All values of a run, by the column, and by the flow and the column."""
    of_run = pl.col("run") == name
    (row,) = results.runs.filter(of_run).to_dicts()
    flows = results.flows.filter(of_run).drop("run").to_dicts()
    return {**row, **{f"flow {flow['flow']}: {key}": flow[key] for flow in flows for key in flow}}


def _unequal(run: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    return [
        f"{run}: {key}: {'none' if there is None else there} there, "
        f"{'none' if here is None else here} here"
        for key in dict.fromkeys([*old, *new])
        # Only NaN is unequal to itself.
        if (there := old.get(key)) != (here := new.get(key)) and (there == there or here == here)
    ]
