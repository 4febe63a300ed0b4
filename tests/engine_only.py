"""Runs by an engine alone, for machines on which an analysis takes many minutes."""

from pathlib import Path

from outcast import workflow
from outcast.api import experiments, guest
from outcast.engines import Engine, ledger
from outcast.experiment import dump
from outcast.experiment.reader import Source
from outcast.files import write_text
from outcast.plan.make import make_plan
from outcast.records.run_directory import RunDirectory


def make(source: Source, engine: Engine, target: Path) -> None:
    """Makes a run without its analysis. Raises OutcastError if it fails."""
    resolved = workflow.resolve(experiments.checked(source), engine.name)
    if engine.name == "virtual":
        guest.provide(resolved, progress=False)
    engine.require(resolved)
    target.mkdir()
    directory = RunDirectory(target)
    directory.write_plan(make_plan(resolved))
    write_text(directory.config, dump(resolved))
    entry = ledger.open_entry(ledger.default_folder())
    try:
        engine.run(directory, entry, lambda event: None)
    finally:
        entry.remove()
