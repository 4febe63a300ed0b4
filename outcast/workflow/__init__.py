"""One experiment, from the configuration to the figures. It appears whole, or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from outcast import files, handed_in
from outcast.engines import Engine, OnEvent, ledger, own_modules, program_files
from outcast.errors import ConfigError, InputError, NoAnalysisError
from outcast.experiment import Experiment, dump
from outcast.experiment.engine import properties
from outcast.experiment.links import RateTrace
from outcast.files import write_text
from outcast.plan import traces
from outcast.plan.make import plan_of_command
from outcast.plan.model import Plan, Planned
from outcast.plan.programs import with_files
from outcast.records.run_directory import RunDirectory
from outcast.view import drawing
from outcast.workflow.place import TakenError, require_free, unfinished

__all__ = ["TakenError", "require_free", "unfinished"]


@dataclass(frozen=True)
class Outcome:
    """A finished run; `distrust` says why its captures and counters do not agree."""

    directory: RunDirectory
    figures: tuple[Path, ...]
    distrust: tuple[str, ...]


def default_directories(experiment: Experiment) -> Iterator[Path]:
    """The folder results/NAME-DATE-TIME below the working directory, then others with a suffix.

    Several runs may start within one second.
    """
    first = f"{experiment.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    yield Path("results", first)
    yield from (Path("results", f"{first}-{number}") for number in range(2, 100))


def execute(
    planned: Planned,
    engine: Engine,
    target: Path,
    on_event: OnEvent,
    *,
    draw: bool = True,
    on_analysed: Callable[[RunDirectory], None] | None = None,
) -> Outcome:
    """Runs, analyses and draws an experiment; `target` appears when the result is complete.

    Raises:
        ConfigError: `target` already holds something, or a run could not put its result there.
        OutcastError: the run failed. What it had written is kept beside `target`, under its name
            with `.failed`, or `.failed-2` and so on if that is taken. A complete result that
            cannot be put in its place is kept too, and the error names its folder.
    """
    with unfinished(target, _notes(on_event)) as partial:
        directory = RunDirectory(partial.path)
        resolved, plan = _with_own_files(planned, engine, directory)
        directory.write_plan(plan)
        write_text(directory.config, dump(_with_own_traces(directory, resolved)))
        with _Pictures(directory, draw) as pictures:
            if properties(engine.name).virtual_clock:
                pictures.get_ready()
                on_event = _importing(on_event)
            wall_s = dict(engine.run(directory, partial.entry, on_event))
            # For the record only: nothing reads the copy of the topology's file.
            if (origin := getattr(resolved.topology, "origin", None)) is not None:
                _keep_source(directory, origin.name, origin.content)
            figures, distrust = _evaluate(directory, wall_s, on_event, pictures, on_analysed)
    return Outcome(
        RunDirectory(target),
        tuple(target / figure.relative_to(partial.path) for figure in figures),
        distrust,
    )


def _with_own_traces(directory: RunDirectory, experiment: Experiment) -> Experiment:
    """The experiment with paths of the run's own copies of its rate traces.

    The copies are for another run of this configuration, because the plan has the rates. Raises
    ConfigError: a file cannot be read.
    """
    overrides = list(experiment.links.overrides)
    for number, override in enumerate(overrides):
        rate = override.rate_bps
        if not isinstance(rate, RateTrace):
            continue
        own_name = f"{number}-{rate.trace.name.removeprefix(f'{number}-')}"
        try:
            content = handed_in.read_bytes(rate.trace, traces.MOST_BYTES)
        except FileNotFoundError:
            raise ConfigError(f"{rate.trace}: there is no such file") from None
        except InputError as error:
            raise ConfigError(str(error)) from None
        _keep_source(directory, own_name, content)
        own = rate.model_copy(update={"trace": Path(directory.sources.name, own_name)})
        overrides[number] = override.model_copy(update={"rate_bps": own})
    links = experiment.links.model_copy(update={"overrides": tuple(overrides)})
    return experiment.model_copy(update={"links": links})


def _with_own_files(
    planned: Planned, engine: Engine, directory: RunDirectory
) -> tuple[Experiment, Plan]:
    """The engine's experiment and plan, whose programs and modules are copies in the directory."""
    resolved, plan = planned.by(engine.name)
    resolved = program_files.take_files(resolved, directory)
    plan = replace(plan, programs=with_files(plan.programs, resolved))
    return own_modules.copy_sources(resolved, directory.path), plan


def _keep_source(directory: RunDirectory, name: str, content: bytes) -> None:
    directory.sources.mkdir(exist_ok=True)
    with files.writing(directory.sources / name) as stream:
        stream.write(content)


def execute_command(
    planned: Planned,
    engine: Engine,
    host: str | None,
    command: Sequence[str],
    within_ns: int,
    on_event: OnEvent,
) -> None:
    """Builds an experiment's network and runs one command in it; nothing is kept.

    Raises:
        ConfigError: there is no such host.
        FeatureMissingError: there is no such program.
        OutcastError: the network could not be built, or the command took too long.
    """
    entry = ledger.begin(_notes(on_event))
    folder = Path(tempfile.mkdtemp(prefix="outcast-exec-"))
    try:
        entry.note_folder(folder)
        directory = RunDirectory(folder)
        resolved, plan = _with_own_files(planned, engine, directory)
        plan = plan_of_command(plan, host, command, os.getcwd(), within_ns)
        write_text(directory.config, dump(_with_own_traces(directory, resolved)))
        directory.write_plan(plan)
        engine.run(directory, entry, on_event)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        entry.remove()


class _Pictures(contextlib.ExitStack):
    """The processes that draw the figures, if these are wanted. They end with the `with` block."""

    def __init__(self, directory: RunDirectory, draw: bool) -> None:
        super().__init__()
        self._directory = directory
        self._drawing: drawing.Drawing | None = None
        self.draw = draw

    def get_ready(self) -> None:
        """Starts the processes, unless they run already."""
        if self.draw and self._drawing is None:
            self._drawing = self.enter_context(drawing.Drawing(self._directory))

    def write(self) -> list[Path]:
        return [] if self._drawing is None else self._drawing.draw()


def _importing(on_event: OnEvent) -> OnEvent:
    """`on_event` that also imports the analysis while the guest sets up its network.

    Then the guest keeps one core busy for seconds. In real time, other work would disturb the run.
    """

    def take(event: Mapping[str, Any]) -> None:
        on_event(event)
        if event.get("phase") == "setup":
            from outcast import analysis

            # Without an analysis the programs still run.
            with contextlib.suppress(NoAnalysisError):
                analysis.get_ready()

    return take


def _evaluate(
    directory: RunDirectory,
    wall_s: dict[str, float],
    on_event: OnEvent,
    pictures: _Pictures,
    on_analysed: Callable[[RunDirectory], None] | None,
) -> tuple[list[Path], tuple[str, ...]]:
    from outcast import analysis

    pictures.get_ready()
    on_event({"event": "phase", "phase": "analysis"})
    began = time.monotonic()
    computed = analysis.compute(directory)
    wall_s["analysis"] = round(time.monotonic() - began, 3)
    manifest = directory.read_manifest()
    directory.write_manifest(manifest.model_copy(update={"wall_s": wall_s}))
    summary = analysis.write(directory, computed)
    if on_analysed is not None:
        on_analysed(directory)
    if pictures.draw:
        on_event({"event": "phase", "phase": "figures"})
    drawn = pictures.write()
    directory.seal()
    return drawn, tuple(summary.capture.reasons)


def _notes(on_event: OnEvent) -> Callable[[str], None]:
    return lambda text: on_event({"event": "note", "text": text})
