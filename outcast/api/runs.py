"""One run: made, opened, analysed again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from outcast.api import progress as shown
from outcast.api.experiments import require_experiment
from outcast.emulation.commands import leave_working_folder
from outcast.experiment import Experiment
from outcast.records import run as records
from outcast.records.run_directory import RunDirectory

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

    from outcast.engines.guest.debugger import Debugger
    from outcast.engines.guest.packed import Guest


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

    def figure(
        self,
        name: str,
        *,
        ax: Axes | None = None,
        figure: FigureBase | None = None,
        size: tuple[float, float] | str | None = None,
        title: str | None = None,
        legend: str | None = None,
        xlabel: str | None = None,
        ylabel: str | None = None,
        log_x: bool = False,
        log_y: bool = False,
        font_size: float | None = None,
    ) -> Figure:
        """Draws a figure, which a notebook displays by itself. Everything in it can be changed.

        Args:
            name: the stem of one of the run's PNG files, as `goodput` or `queue`.
            ax: matplotlib's axes to draw on, for a figure of one panel; its title and size are
                yours.
            figure: an empty matplotlib figure or subfigure to draw on.
            size: width and height in inches, or a text as `89x56mm`.
            title: another title; "" takes it away.
            legend: where it stands, as `upper left`; "" takes it away.
            xlabel: another label of the x axis.
            ylabel: another label of the y axis.
            log_x: whether the x axis is logarithmic.
            log_y: whether the y axis is logarithmic.
            font_size: ordinary letters in points, 9 otherwise; all others keep their proportion.

        Returns:
            The matplotlib figure; with `ax`, the one that the axes stand in.

        Raises:
            InputError: there is no such figure, or the run measured nothing for it.
            ConfigError: the figure cannot look so.
        """
        from outcast.view import figures
        from outcast.view.figures import look as looks

        look = looks.asked(size, title, legend, xlabel, ylabel, log_x, log_y, font_size)
        return figures.figure(self, name, look, looks.canvas(ax, figure))

    def write_report(self) -> Path:
        """Writes report.html into the run directory. Raises InputError where it cannot."""
        from outcast.view import report

        return report.write(self.directory)


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
        experiment: what `load` returned.
        directory: a new or empty folder for the result; None is results/NAME-DATE-TIME.
        progress: whether to show it on standard error; None shows it on a terminal and in a
            notebook.

    Raises:
        ConfigError: the experiment cannot be built, or the folder cannot be used.
        FeatureMissingError: no engine can run this here; the text has the remedy.
        OutcastError: the run failed. What it had written stands beside `directory`.
    """
    from outcast import workflow
    from outcast.sweep import measured

    require_experiment(experiment)
    target = Path(directory) if directory is not None else workflow.default_directory(experiment)
    made = execute(experiment, target, progress)
    measured.note(measured.of_single_run(made, experiment), measured.default_file())
    return Run(target)


def execute(
    experiment: Experiment,
    target: Path,
    progress: bool | None = None,
    *,
    draw: bool = True,
    guest: Guest | None = None,
    debugger: Debugger | None = None,
) -> RunDirectory:
    """Makes a run, as `run` and every replay do.

    Args:
        experiment: what `load` returned, or the configuration of a run.
        target: a new or empty folder.
        progress: whether to show it; None shows it on a terminal and in a notebook.
        draw: whether figures and the report are drawn.
        guest: the guest of an earlier run; None takes the one that the experiment asks for.
        debugger: what looks into a virtual run's kernel at an instant.

    Raises as `run`.
    """
    from outcast import workflow
    from outcast.api.guest import provide
    from outcast.engines import Engine, choice
    from outcast.engines.virtual import VirtualEngine

    workflow.require_free(target)
    with absolute_search_paths():
        engine: Engine
        if guest is None or guest.world is None:
            provide(experiment, progress)
        if guest is None and debugger is None:
            engine = choice.choose(experiment, lambda why: shown.note(progress, why))
        else:
            engine = VirtualEngine(guest, debugger)
            engine.require(experiment)
        with shown.of_run(progress) as on_event:
            return workflow.execute(experiment, engine, target, on_event, draw=draw).directory


@contextmanager
def absolute_search_paths() -> Iterator[None]:
    """Leaves the working folder out of PATH and PYTHONPATH while programs are started."""
    names = ("PATH", "PYTHONPATH")
    before = {name: os.environ.get(name) for name in names}
    leave_working_folder(os.environ)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def resolve(experiment: Experiment, *, progress: bool | None = None) -> Experiment:
    """Returns the experiment as `run` would run it here: with its engine, delay and jitter.

    Builds the virtual engine's kernel first if it must. Raises as `run`.
    """
    from outcast import workflow
    from outcast.api import guest
    from outcast.engines import choice

    guest.provide(experiment, progress)
    return workflow.resolve(experiment, choice.choose(experiment).name)


def open_run(directory: str | os.PathLike[str]) -> Run:
    """Opens the run directory of a finished run. Raises InputError where it is none."""
    opened = Run(directory)
    # Read at once, so that a wrong folder is refused here and not at the first use.
    _ = opened.manifest
    return opened


def analyze(directory: str | os.PathLike[str]) -> Run:
    """Repeats what follows a run's captures: its tables, summary, figures and report.

    Joined captures in a folder of their own are joined anew.

    Raises InputError where the folder is no run's, or its captures are missing or broken.
    """
    from outcast import analysis
    from outcast.records.captures import CapturesManifest, read_manifest
    from outcast.view import figures, report

    paths = RunDirectory(Path(directory))
    manifest = read_manifest(paths)
    if isinstance(manifest, CapturesManifest):
        from outcast.api import captures

        return captures.again(paths, manifest)
    # The report needs the plan. One that cannot be read is refused before any table is written.
    _ = Run(directory).plan
    analysis.analyze(paths)
    figures.draw(paths)
    report.write(paths)
    return Run(directory)
