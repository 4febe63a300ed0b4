"""Where a sweep stands: what is finished and can be trusted, what failed and why, what is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outcast.experiment import Experiment
from outcast.records.run import Run
from outcast.sweep import dataset
from outcast.sweep.dataset import Dataset
from outcast.sweep.points import Point, canonical
from outcast.sweep.store import SweepDirectory
from outcast.sweep.task import Failure


@dataclass(frozen=True)
class State:
    """A sweep's folder, read once.

    Attributes:
        planned: every run, in the order of the configuration.
        results: of the finished runs.
        failures: of the runs that have no result, by name.
        untrusted: why, by the finished run's name.
        left: names of the runs that have neither a result nor a failure.
        warnings: of the finished runs' summaries, and in how many each is.
        makers: by which outcast and kernel runs were made, and how many.
    """

    directory: SweepDirectory
    experiment: Experiment
    planned: Sequence[Point]
    results: Dataset
    failures: Mapping[str, Failure]
    untrusted: Mapping[str, str]
    left: Sequence[str]
    warnings: Mapping[str, int]
    makers: Mapping[str, int]

    @property
    def finished(self) -> list[str]:
        """Names of the runs that have a result."""
        return self.results.runs["run"].to_list() if self.results.runs.height else []

    @property
    def settings(self) -> list[Mapping[str, object]]:
        """Every point once, whatever its repetitions."""
        return list({canonical(point.settings): point.settings for point in self.planned}.values())


def read_state(directory: SweepDirectory) -> State:
    """Raises InputError where the folder is no sweep's, or a result cannot be read."""
    experiment = directory.read_experiment()
    planned = dataset.planned_points(directory)
    results = dataset.load(directory.path)
    finished = set(results.runs["run"]) if results.runs.height else set()
    failures = {
        name: failure for name, failure in directory.failures().items() if name not in finished
    }
    untrusted = {}
    warnings: Counter[str] = Counter()
    makers: Counter[str] = Counter()
    for name in finished:
        run = Run(directory.run(name))
        if not run.trusted:
            untrusted[name] = "; ".join(run.reasons)
        warnings.update(set(run.summary.warnings))
        manifest = run.manifest
        kernel = manifest.kernel.get("release", "of unknown version")
        makers[f"outcast {manifest.outcast}, {manifest.engine} engine, Linux {kernel}"] += 1
    return State(
        directory=directory,
        experiment=experiment,
        planned=planned,
        results=results,
        failures=failures,
        untrusted=untrusted,
        left=[p.name for p in planned if p.name not in finished and p.name not in failures],
        warnings=dict(sorted(warnings.items())),
        makers=dict(sorted(makers.items())),
    )
