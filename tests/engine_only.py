"""Runs by an engine alone, for machines on which an analysis takes many minutes."""

from pathlib import Path

from outcast.api import experiments, guest
from outcast.engines import Engine, ledger
from outcast.experiment import dump
from outcast.experiment.reader import Source
from outcast.files import write_text
from outcast.records.run_directory import RunDirectory


def make(source: Source, engine: Engine, target: Path) -> None:
    """Makes a run without its analysis. Raises OutcastError if it fails."""
    planned = experiments.checked(source)
    if engine.name == "virtual":
        guest.provide(planned, progress=False)
    resolved, plan = planned.by(engine.name)
    engine.require(resolved, plan)
    target.mkdir()
    directory = RunDirectory(target)
    directory.write_plan(plan)
    write_text(directory.config, dump(resolved))
    entry = ledger.open_entry(ledger.default_folder())
    try:
        engine.run(directory, entry, lambda event: None)
    finally:
        entry.remove()
