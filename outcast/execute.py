"""One experiment, from the configuration to the figures, whole or not at all."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from outcast import ledger
from outcast.engines import Engine, OnEvent
from outcast.errors import ConfigError, OutcastError
from outcast.experiment import Experiment, dump
from outcast.run import RunDirectory, write_text


@dataclass(frozen=True)
class Outcome:
    """A finished run.

    Attributes:
        directory: where it stands.
        figures: the pictures drawn, and the report.
        distrust: why its captures or counters cannot be trusted; empty where they can.
    """

    directory: RunDirectory
    figures: tuple[Path, ...]
    distrust: tuple[str, ...]


VIRTUAL_DELAY_NS = 25_000
"""What a switch takes for a packet where nothing else does (the TCPRand paper, section 5.1)."""


SAMPLES_EVERY_NS = {"virtual": 10_000_000, "realtime": 100_000_000}
"""In real time sampling takes CPU from the network; docs/analysis.md has how much."""


def resolve(experiment: Experiment, engine: Literal["realtime", "virtual"]) -> Experiment:
    """The experiment with nothing left open: its engine, delay and jitter, how often is sampled."""
    # On an exact clock flows lock on to one another's phase, and one flow can take the whole
    # link for good; docs/virtual.md has the measurement that the default jitter comes from.
    is_virtual = engine == "virtual"
    links = experiment.links.resolved(
        VIRTUAL_DELAY_NS if is_virtual else 0, greatest_jitter=is_virtual
    )
    samples = experiment.samples
    if samples.every_ns is None:
        samples = samples.model_copy(update={"every_ns": SAMPLES_EVERY_NS[engine]})
    return experiment.model_copy(update={"links": links, "engine": engine, "samples": samples})


def default_directory(experiment: Experiment) -> Path:
    """results/NAME-DATE-TIME below the present folder."""
    return Path("results") / f"{experiment.name}-{time.strftime('%Y%m%d-%H%M%S')}"


def execute(
    experiment: Experiment, engine: Engine, target: Path, on_event: OnEvent, *, draw: bool = True
) -> Outcome:
    """Runs, analyses and, where asked, draws; `target` appears when the result is complete.

    Raises:
        ConfigError: where `target` holds something already.
        OutcastError: where the run failed; what it had written up to then is kept beside
            `target` under its name with `.failed`.
    """
    with _unfinished(target) as partial:
        directory = RunDirectory(partial.path)
        write_text(directory.config, dump(resolve(experiment, engine.name)))
        wall_s = dict(engine.run(directory, partial.entry, on_event))
        figures, distrust = _evaluate(directory, wall_s, on_event, draw)
    return Outcome(
        RunDirectory(target),
        tuple(target / figure.relative_to(partial.path) for figure in figures),
        distrust,
    )


def _evaluate(
    directory: RunDirectory, wall_s: dict[str, float], on_event: OnEvent, draw: bool
) -> tuple[list[Path], tuple[str, ...]]:
    from outcast import analysis

    on_event({"event": "phase", "phase": "analysis"})
    began = time.monotonic()
    computed = analysis.compute(directory)
    wall_s["analysis"] = round(time.monotonic() - began, 3)
    manifest = directory.read_manifest()
    directory.write_manifest(manifest.model_copy(update={"wall_s": wall_s}))
    summary = analysis.write(directory, computed)
    drawn: list[Path] = []
    if draw:
        from outcast import figures, report

        on_event({"event": "phase", "phase": "figures"})
        drawn = figures.draw(directory)
        on_event({"event": "phase", "phase": "report"})
        drawn.append(report.write(directory))
    directory.seal()
    return drawn, tuple(summary.capture.reasons)


@dataclass(frozen=True)
class _Partial:
    path: Path
    entry: ledger.Entry


@contextmanager
def _unfinished(target: Path) -> Iterator[_Partial]:
    """A folder beside `target` that becomes it when the block ends well."""
    require_free(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{target}: {error.strerror}; allowed is a new folder of yours") from None
    path = (target.parent / f".{target.name}.{os.getpid()}.partial").absolute()
    entry = ledger.open_entry(ledger.default_folder())
    entry.folders.append(str(path))
    entry.write()
    path.mkdir()
    try:
        yield _Partial(path, entry)
        if target.is_dir():
            target.rmdir()
        path.rename(target)
    except OutcastError as error:
        if (path / "log.txt").exists():
            failed = target.with_name(f"{target.name}.failed")
            shutil.rmtree(failed, ignore_errors=True)
            path.rename(failed)
            error.args = (f"{error} (what was written up to then: {failed})", *error.args[1:])
        raise
    finally:
        shutil.rmtree(path, ignore_errors=True)
        entry.file.unlink(missing_ok=True)


def require_free(target: Path) -> None:
    """Raises ConfigError where the folder holds something, is none, or cannot be looked into."""
    try:
        if target.is_dir() and not any(target.iterdir()):
            return
        exists = target.exists()
    except OSError as error:
        raise ConfigError(f"{target}: {error.strerror}; allowed is a new folder of yours") from None
    if exists:
        raise ConfigError(f"{target}: exists already; allowed is a new or empty folder")
