"""The folder of a sweep, opened."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from outcast.api import progress as displays
from outcast.api.runs import Run
from outcast.errors import InputError, OutcastError
from outcast.experiment import Experiment
from outcast.sweep import dataset, state
from outcast.sweep.state import State
from outcast.sweep.store import SweepDirectory
from outcast.sweep.task import Failure
from outcast.view import report

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure


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
        from outcast.sweep import draw

        choice = draw.Choice(value, tuple(by), tuple(where), over=tuple(over))
        return draw.figure(self.path, name, choice)

    def write_reports(self, *, progress: bool | None = None) -> None:
        """Writes the reports that finished runs lack. Those that cannot be written are told."""
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
        return state.read_state(self._directory)


def open_sweep(directory: str | os.PathLike[str]) -> Sweep:
    """Opens the folder of a sweep. Raises InputError where it is none."""
    opened = Sweep(directory)
    # Read at once, so that a wrong folder is refused here and not at the first use.
    _ = opened.experiment
    return opened
