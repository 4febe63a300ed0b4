"""Sweeps: many runs of one experiment, and their dataset."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from outcast import engines, handed_in
from outcast import experiment as reading
from outcast.api import guest
from outcast.api import progress as displays
from outcast.api.experiments import require_experiment
from outcast.api.making import absolute_search_paths, pool_of
from outcast.api.runs import Run
from outcast.errors import ConfigError, InputError, OutcastError, RunError
from outcast.experiment import Experiment, Source
from outcast.plan.model import Planned
from outcast.records import kept_captures
from outcast.records.tables import refusing
from outcast.sweep import dataset, plan, scheduler, store
from outcast.sweep.dataset import Dataset, State
from outcast.sweep.packing import SAMPLE
from outcast.sweep.plan import Plan
from outcast.sweep.plan import Run as PlannedRun
from outcast.sweep.points import combinations
from outcast.sweep.pool import Failure, is_exclusive
from outcast.sweep.scheduler import Limits, Result
from outcast.sweep.store import SweepDirectory
from outcast.view import report

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from outcast.api.archives import Replay


@dataclass(frozen=True)
class Prepared:
    """A sweep before its runs are made; `jobs` and `scheduler` are as in `pool_of`."""

    plan: Plan
    left: Sequence[PlannedRun]
    path: Path
    jobs: int | None
    scheduler: str | None
    resume: bool


def prepare(
    source: Source,
    path: Path | None = None,
    *,
    jobs: int | None = None,
    scheduler: str | None = None,
    resume: bool = False,
) -> Prepared:
    """Checks every point of a sweep, and finds the runs that are left. Nothing is run.

    Raises:
        ConfigError: naming the point that is no experiment or cannot be built.
        FeatureMissingError: no engine can run a point.
    """
    planned = plan.plan_sweep(source, lambda experiment: engines.choose(experiment).name)
    if scheduler is not None and any(is_exclusive(run.engine) for run in planned.runs):
        raise ConfigError(
            "--scheduler: realtime runs share no machine and are made on this one only; "
            "allowed is engine: virtual"
        )
    target = path or Path("results") / f"{planned.experiment.name}-sweep"
    there = SweepDirectory(target)
    missing = [
        run for run in planned.runs if not resume or not there.run(run.point.name).manifest.exists()
    ]
    return Prepared(planned, missing, target, jobs, scheduler, resume)


def carry_out(
    prepared: Prepared, limits: Limits | None = None, progress: bool | None = None
) -> Result:
    """Makes the runs that are left.

    Raises:
        ConfigError: the folder cannot be used.
        BusyError: another process is at it.
        FeatureMissingError, DeadlineError: the Dask scheduler cannot be used.
    """
    pool = pool_of(prepared.jobs, prepared.scheduler)
    try:
        with displays.of_sweep(progress) as observer:
            plan, path, resume = prepared.plan, prepared.path, prepared.resume
            return scheduler.run_sweep(plan, path, pool, observer, limits=limits, resume=resume)
    finally:
        pool.stop()


def run_sweep(
    experiment: Experiment,
    values: Mapping[str, Any] | None = None,
    *,
    repetitions: int | None = None,
    jobs: int | None = None,
    directory: str | os.PathLike[str] | None = None,
    scheduler: str | None = None,
    resume: bool = False,
    progress: bool | None = None,
) -> Sweep:
    """Runs an experiment with every combination of values, each with its repetitions.

    Every run has a seed of its own and is a process of its own. A run that fails is kept, and
    the others go on: see `Sweep.complete` and `Sweep.failures`.

    Args:
        experiment: what `load` returned.
        values: a list for each swept key, with dots between levels: `{"queue.limit": ["16KB",
            "64KB"]}`. The keys of `sweep:` that are no lists, as `captures`, are allowed too.
            None takes the experiment's own `sweep:`.
        repetitions: how often each combination is run; None takes the experiment's.
        jobs: how many virtual runs go on at a time; None is as many as there are cores.
        directory: the sweep's folder, new or empty; None is results/NAME-sweep.
        scheduler: the address of a Dask scheduler, whose workers make the runs instead.
        resume: go on with the sweep in the folder; what is finished there is not repeated.
        progress: as in `outcast.run`.

    Raises:
        ConfigError: a point of the sweep is no experiment, or the folder cannot be used.
        FeatureMissingError: no engine can run a point; the text has the remedy.
        BusyError: another process is at the folder.
    """
    changes: dict[str, Any] = {}
    if values is not None:
        changes["sweep"] = values
    if repetitions is not None:
        changes["repetitions"] = repetitions
    if jobs is not None and (not isinstance(jobs, int) or jobs < 1):
        raise ConfigError(f"jobs: {jobs!r}; allowed is a whole number from 1 on")
    source = Source.of(require_experiment(experiment)).changed(changes)
    whole = source.experiment()
    with absolute_search_paths():
        guest.provide(Planned(whole), progress)
        prepared = prepare(
            source,
            None if directory is None else Path(directory),
            jobs=jobs,
            scheduler=scheduler,
            resume=resume,
        )
        result = carry_out(prepared, progress=progress)
    return Sweep(result.directory.path)


class Sweep:
    """A sweep's folder, as `run_sweep` and `open_sweep` return it.

    What failed and what is left is read once; open the folder again while a sweep goes on.

    Attributes:
        path: the folder.

    ```python
    sweep = outcast.open_sweep("results/limits")
    sweep.table().group_by("queue.limit").agg(polars.col("outcast_ratio").mean())
    sweep.run(sweep.table()["run"][0]).figure("goodput")
    ```
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._directory = SweepDirectory(self.path)

    def __repr__(self) -> str:
        return f"Sweep({str(self.path)!r})"

    @property
    def experiment(self) -> Experiment:
        """The experiment with the keys that are swept."""
        return self._directory.read_experiment()

    def table(self) -> pl.DataFrame:
        """A row for each finished run: `run` (its name), the swept keys, and its summary.

        A key of the summary has dots between its levels, as `classes.6.mean_goodput_bps`.
        """
        return dataset.load(self.path).runs

    def flows(self) -> pl.DataFrame:
        """A row for each flow of each finished run: `run`, the swept keys, and what it reached."""
        return dataset.load(self.path).flows

    def run(self, name: str) -> Run:
        """A finished run by its name, which `table()` has in its column `run`.

        Raises:
            InputError: no run of that name has finished.
        """
        finished = self._state.finished
        if name not in finished:
            raise InputError(
                f"{self.path}: no finished run {name}; the {len(finished)} that there are stand in "
                "the column `run` of the sweep's table"
            )
        return Run(self._directory.run(name).path)

    @property
    def failures(self) -> Mapping[str, Failure]:
        """Why runs failed (`kind` and `message`), by their names."""
        return self._state.failures

    @property
    def disagreeing(self) -> Mapping[str, str]:
        """Finished runs whose captures and counters do not agree: the reasons, by their names."""
        return self._state.disagreeing

    @property
    def left(self) -> Sequence[str]:
        """Names of the runs that have neither a result nor a failure."""
        return self._state.left

    @property
    def complete(self) -> bool:
        """Whether every planned run has a result."""
        return not self.left and not self.failures

    def figure(
        self,
        name: str,
        value: str | None = None,
        *,
        by: Sequence[str] = (),
        over: Sequence[str] = (),
        where: Sequence[str] = (),
    ) -> Figure:
        """Draws a figure of the runs: `line`, `bar`, `heat` or `cdf`.

        Args:
            name: which one.
            value: a column of `table()`, or for `cdf` also of `flows()`; None is the outcast ratio,
                or the first value that there is.
            by: the keys to group by, the first along the axis; without any, all swept keys.
            over: swept keys that may differ within a group, so that its mean pools them.
            where: conditions on the runs, as `queue.limit=16KB`.

        Raises:
            InputError: no run has finished yet.
            ConfigError: there is no such figure, column or run.
        """
        from outcast.sweep import figures

        choice = figures.Choice(value, tuple(by), tuple(where), over=tuple(over))
        return figures.figure(self.path, name, choice)

    def write_reports(self, *, progress: bool | None = None) -> None:
        """Writes the reports that finished runs lack. Notes which cannot be written."""
        runs = [run.parent for run in sorted(self._directory.runs.glob("*/manifest.json"))]
        missing = [run.name for run in runs if not (run / report.NAME).exists()]
        with displays.of_count(progress, "reports", len(missing)) as advance:
            for name in missing:
                try:
                    report.write(self._directory.run(name))
                except OutcastError as error:
                    displays.note(progress, f"no report of {name}: {error}")
                advance()

    @cached_property
    def _state(self) -> State:
        return dataset.read_state(self._directory)


def open_sweep(directory: str | os.PathLike[str]) -> Sweep:
    """Opens the folder of a sweep. Raises InputError if the folder holds no sweep."""
    opened = Sweep(directory)
    # Read at once, so that a wrong folder is refused here and not at the first use.
    _ = opened.experiment
    return opened


def replay_sweep(
    folder: Path,
    source: Path,
    target: Path | None,
    scratch: Path,
    runs: int | Literal["all"] | None,
    jobs: int | None,
    allow_programs: bool,
    progress: bool | None,
) -> Replay:
    """Makes runs of the sweep in a folder again; see `archives.replay`. Errors name `source`."""
    from outcast.api import archives

    handed_in.require_plain(folder)
    there, here = SweepDirectory(folder), SweepDirectory(target or scratch / "again")
    experiment = _replayable(there, source, allow_programs)
    guest.provide(Planned(experiment.experiment()), progress)
    prepared = prepare(experiment, here.path, jobs=jobs)
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
        displays.note(progress, f"{source}: {other}, so results may differ")
    displays.note(progress, f"{source}: {count} of {len(planned)} runs")
    result = carry_out(
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
    from outcast.api import archives

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
