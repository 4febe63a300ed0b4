"""Runs that are repeated with other seeds, for questions about effects.

All students of a class get the same seeds, which only the key tells. So a run that several of them
need, above all the exercise's own, is made once for all.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from outcast import experiment, files, handed_in
from outcast.assignment.replayed import Runner
from outcast.errors import InputError
from outcast.experiment import Experiment
from outcast.records.run import Run
from outcast.reproduce import measures
from outcast.reproduce.claims import Measure


@dataclass(frozen=True, slots=True)
class Repeated:
    """Measures of repeated runs, in a folder that gradings share; `scratch` is for the runs."""

    folder: Path
    runner: Runner
    scratch: Path

    def values(self, requested: Experiment, wanted: Sequence[Measure]) -> list[float]:
        """The measures of the run of an experiment; NaN for one that the run does not have.

        Another process that makes the same run is waited for. The deadline of this process bounds
        that (`outcast.assignment.bounded`).

        Raises OutcastError: the run failed.
        """
        # The measures are in the name, because another exercise may ask for others.
        told = [experiment.dump(requested), *(measure.model_dump_json() for measure in wanted)]
        name = hashlib.sha256("\0".join(told).encode()).hexdigest()
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{name}.json"
        with _locked(self.folder / f"{name}.lock"):
            try:
                known = handed_in.read_json(path)
            except (FileNotFoundError, InputError):
                known = self._measured(requested, wanted)
                files.write_json(path, known)
        return [math.nan if value is None else float(value) for value in known]

    def _measured(self, requested: Experiment, wanted: Sequence[Measure]) -> list[float | None]:
        target = self.scratch / "repeated"
        run = Run(self.runner.run(requested, target))
        try:
            with run.reading():
                values = [measures.take(run, measure) for measure in wanted]
        finally:
            shutil.rmtree(target)
        # JSON has no number for what is infinite or none.
        return [value if math.isfinite(value) else None for value in values]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
