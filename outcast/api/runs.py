"""One run: made, opened, analysed again."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from outcast import handed_in, uses
from outcast.api import making
from outcast.api.experiments import require_experiment
from outcast.errors import InputError
from outcast.experiment import Experiment
from outcast.plan.model import Planned
from outcast.records import run as records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from outcast.uses import Counterfactual


_MOST_OUTPUT_BYTES = 16 << 20
"""The most bytes of output kept over all executions of a program."""


@dataclass(frozen=True)
class Execution:
    """One execution of a program.

    Attributes:
        status: its exit status; negative for the signal that ended it, as in `subprocess`.
        duration_s: how long it took, by the engine's clock.
        ended_by: `itself`; `run`: a server at the run's end, a client that took too long; `limit`:
            its own limit of time.
        output: the part of its standard output that was kept.
        errors: the part of its standard error that was kept.
        crash: the signal that ended it, and where if the kernel reported it; None if no signal
            ended it.
    """

    status: int
    duration_s: float
    ended_by: str
    output: str
    errors: str
    crash: str | None


@dataclass(frozen=True)
class Program:
    """A program of the configuration, with what it did in a run.

    Attributes:
        executions: every execution, in order; there may be none.
        written: the folder of the files that it made or changed; it is missing if there are none.
    """

    executions: tuple[Execution, ...]
    written: Path

    def __repr__(self) -> str:
        # pytest shows it several times for a failing assertion.
        ends = sorted({execution.ended_by for execution in self.executions})
        return f"Program(status={self.status}, duration_s={self.duration_s:g}, ended_by={ends})"

    @property
    def crash(self) -> str | None:
        """How the first crash ended an execution, in one line; None if there was none."""
        return next((each.crash for each in self.executions if each.crash), None)

    @property
    def status(self) -> int | None:
        """The first exit status that is not 0, or else 0; None without an execution."""
        statuses = [execution.status for execution in self.executions]
        return next((status for status in statuses if status), 0 if statuses else None)

    @property
    def output(self) -> str:
        """Standard output of all executions."""
        return "".join(execution.output for execution in self.executions)

    @property
    def errors(self) -> str:
        """Standard error of all executions."""
        return "".join(execution.errors for execution in self.executions)

    @property
    def duration_s(self) -> float:
        """How long all executions took together."""
        return sum(execution.duration_s for execution in self.executions)


class Run(records.Run):
    """A finished and analysed run, as `outcast.run` and `outcast.open_run` return it.

    ```python
    run = outcast.open_run("results/fig3c")
    run.summary.outcast_ratio
    run.table("packets").filter(polars.col("verdict") == "dropped")
    run.figure("goodput")
    ```
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(Path(path))

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @property
    def path(self) -> Path:
        """The run directory."""
        return self.directory.path

    def program(self, name: str) -> Program:
        """What a program did. Raises InputError if there is no such program, or no run any more."""
        if not self.path.is_dir():
            raise InputError(f"{self.path}: the run's directory is gone")
        records_of = {record.name: record for record in self.manifest.programs}
        if name not in records_of:
            raise InputError(
                f"{self.path}: no program {name!r}; its programs: {', '.join(records_of) or 'none'}"
            )
        folder = self.directory.programs / name
        return Program(
            tuple(
                Execution(
                    execution.status,
                    (execution.t_end_ns - execution.t_start_ns) / 1e9,
                    execution.ended_by,
                    _written(folder / f"{execution.number}.out"),
                    _written(folder / f"{execution.number}.err"),
                    execution.crash,
                )
                for execution in records_of[name].executions
            ),
            folder / "written",
        )

    def figure(self, name: str) -> Figure:
        """Draws a figure, which a notebook displays by itself.

        It is matplotlib's, so everything in it can be changed: its size, titles, axes and legends.

        Args:
            name: the stem of one of the run's PNG files, as `goodput` or `queue`.

        Raises InputError: there is no such figure, or the run measured nothing for it.
        """
        from outcast.view import figures

        return figures.figure(self, name)

    def whatif(
        self,
        packet: int | Sequence[int] | None = None,
        fate: str | Sequence[str] = "keep",
        directory: str | os.PathLike[str] | None = None,
        *,
        allow_programs: bool = False,
        progress: bool | None = None,
    ) -> Counterfactual:
        """Makes this run again with another fate of one packet or of some, all else the same.

        Args:
            packet: a row of `table("packets", whole=True)`, from 0, or several; None changes no
                packet's fate.
            fate: `forward`, `drop`, `mark`, `keep`, or a delay as `delay=5us`: one for all packets,
                or one for each.
            directory: a new or empty folder; None names it by the packet, beside this run.
            allow_programs: as in `outcast.replay`.
            progress: as in `outcast.run`.

        Raises:
            ConfigError: the run has no such packet, or the packet cannot have this fate.
            InputError: the run cannot be made again.
            RunError: the packet did not get this fate.
            UntrustedError: the runs part before the intervention, or captures and counters of the
                new run do not agree.
            OutcastError: the run failed, as in `run`.
        """
        made: Counterfactual = uses.find(uses.MEMBERS["Run.whatif"])(
            self, packet, fate, directory, allow_programs, progress
        )
        return made

    def write_report(self) -> Path:
        """Writes report.html into the run directory. Raises InputError where it cannot."""
        from outcast.view import report

        return report.write(self.directory)


def _written(file: Path) -> str:
    """The file that an execution wrote; it is there only if it wrote anything."""
    try:
        return handed_in.read_bytes(file, _MOST_OUTPUT_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return ""


def run(
    experiment: Experiment,
    directory: str | os.PathLike[str] | None = None,
    *,
    progress: bool | None = None,
) -> Run:
    """Runs an experiment: builds the network, sends, captures, analyses and draws.

    Builds the virtual engine's kernel first if the run needs it, which takes minutes, once.
    A run whose captures and counters contradict each other is returned too: see `Run.trusted`.

    Args:
        experiment: the result of `load`.
        directory: a new or empty folder for the result; None is results/NAME-DATE-TIME.
        progress: whether to show it on standard error; None shows it on a terminal and in a
            notebook.

    Raises:
        ConfigError: the experiment cannot be built, or the folder cannot be used.
        FeatureMissingError: no engine can run this here; the text has the remedy.
        OutcastError: the run failed. What it had written stands beside `directory`.
    """
    return Run(making.make(Planned(require_experiment(experiment)), directory, progress))


def open_run(directory: str | os.PathLike[str]) -> Run:
    """Opens the run directory of a finished run. Raises InputError if the folder holds no run."""
    opened = Run(directory)
    # Read at once, so that a wrong folder is refused here and not at the first use.
    _ = opened.manifest
    return opened


def analyze(directory: str | os.PathLike[str]) -> Run:
    """Repeats what follows a run's captures: its tables, summary, figures and report.

    Joined captures in a folder of their own are joined again.

    Raises InputError if the folder is not a run directory, or captures are missing or broken.
    """
    from outcast import analysis
    from outcast.view import figures, report

    opened = Run(directory)
    paths = opened.directory
    if opened.captured is not None:
        from outcast.api import captures

        return captures.again(paths, opened.captured)
    # The report needs the plan. One that cannot be read is refused before any table is written.
    _ = opened.plan
    analysis.analyze(paths)
    figures.draw(paths)
    report.write(paths)
    return Run(directory)
