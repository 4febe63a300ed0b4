"""The state of a sweep: which runs are finished, whose captures agree, which failed and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outcast.experiment import Experiment
from outcast.records.run import Run
from outcast.sweep import dataset
from outcast.sweep.dataset import Dataset
from outcast.sweep.points import Point
from outcast.sweep.store import SweepDirectory
from outcast.sweep.task import Failure


@dataclass(frozen=True)
class State:
    """The content of a sweep's folder, read once.

    Attributes:
        planned: every run, in the order of the configuration.
        failures: by run name, why the run failed; only runs without a result.
        left: names of the runs that have neither a result nor a failure.
    """

    experiment: Experiment
    planned: Sequence[Point]
    results: Dataset
    failures: Mapping[str, Failure]
    disagreeing: Mapping[str, str]
    left: Sequence[str]
    makers: Mapping[str, int]

    @property
    def finished(self) -> list[str]:
        """Names of the runs that have a result."""
        return self.results.runs["run"].to_list() if self.results.runs.height else []


def read_state(directory: SweepDirectory) -> State:
    """Reads a sweep's folder.

    Raises InputError if the folder does not hold a sweep, or a result cannot be read.
    """
    planned = dataset.planned_points(directory)
    results = dataset.load(directory.path)
    finished = set(results.runs["run"]) if results.runs.height else set()
    failures = {
        name: failure for name, failure in directory.failures().items() if name not in finished
    }
    disagreeing = {}
    makers: Counter[str] = Counter()
    for name in sorted(finished):
        run = Run(directory.run(name))
        if not run.trusted:
            disagreeing[name] = "; ".join(run.reasons)
        manifest = run.directory.read_manifest()
        kernel = manifest.kernel.get("release", "of unknown version")
        makers[f"outcast {manifest.outcast}, {manifest.engine} engine, Linux {kernel}"] += 1
    return State(
        experiment=directory.read_experiment(),
        planned=planned,
        results=results,
        failures=failures,
        disagreeing=disagreeing,
        left=[p.name for p in planned if p.name not in finished and p.name not in failures],
        makers=dict(sorted(makers.items())),
    )
