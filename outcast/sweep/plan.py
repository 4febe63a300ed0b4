"""The plan of a sweep: its runs, each checked, with the memory that they take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field

from outcast.errors import ConfigError
from outcast.experiment import Experiment, OwnTopology, Source, Sweep, dump
from outcast.experiment.engine import EngineName
from outcast.networks import resolve as networks
from outcast.plan.hints import beforehand
from outcast.plan.model import Plan as NetworkPlan
from outcast.plan.model import Planned
from outcast.sweep import store
from outcast.sweep.points import Point, canonical, points
from outcast.sweep.pool import REAL, RUN_BYTES, Task, is_exclusive
from outcast.sweep.store import OwnFiles


@dataclass(frozen=True)
class Run:
    """One run. `experiment` has the point's values and seed, and the engine to use."""

    point: Point
    experiment: Experiment
    engine: EngineName
    memory_bytes: int


@dataclass(frozen=True)
class Plan:
    """The runs of a sweep; `warned` has the number of points by each warning before the runs."""

    experiment: Experiment
    runs: tuple[Run, ...]
    own: OwnFiles
    warned: Mapping[str, int] = field(default_factory=dict)

    @property
    def sweep(self) -> Sweep:
        return self.experiment.sweep or Sweep()

    @property
    def own_topologies(self) -> list[OwnTopology]:
        """The topologies of all points that come from the user's files."""
        topologies = (run.experiment.topology for run in self.runs)
        return [topology for topology in topologies if isinstance(topology, OwnTopology)]

    @property
    def requested(self) -> dict[str, Experiment]:
        """The experiments of all runs, by the runs' names."""
        return {run.point.name: run.experiment for run in self.runs}

    def tasks(self, finished: Container[str], executor: str = REAL) -> list[Task]:
        """A task for each run that is not finished."""
        return [
            Task(
                name=run.point.name,
                config=dump(run.experiment),
                captures=self.sweep.captures,
                exclusive=is_exclusive(run.engine),
                executor=executor,
                memory_bytes=run.memory_bytes,
            )
            for run in self.runs
            if run.point.name not in finished
        ]


def plan_sweep(source: Source, choose: Callable[[Planned], EngineName]) -> Plan:
    """Plans a sweep, and checks every point before anything runs.

    Raises:
        ConfigError: a point is not a valid experiment or cannot be built; the error names it.
        FeatureMissingError: no engine can run a point.
    """
    whole = source.experiment()
    checked: dict[str, tuple[Experiment, EngineName, int]] = {}
    warned: Counter[str] = Counter()
    runs = []
    try:
        all_points = points(whole.sweep or Sweep(), whole.repetitions, whole.seed)
    except ConfigError as error:
        raise ConfigError(source.located(str(error))) from None
    for point in all_points:
        key = canonical(point.settings)
        if key not in checked:
            at_point = source.at_point(point.settings)
            experiment = networks.experiment_of(at_point)
            planned = Planned(experiment, at_point.located)
            engine = choose(planned)
            resolved, built = planned.by(engine)
            warned.update(beforehand(resolved, built, engine))
            chosen = experiment.model_copy(update={"engine": engine})
            checked[key] = (chosen, engine, _memory_bytes(built))
        experiment, engine, needed_bytes = checked[key]
        seeded = experiment.model_copy(update={"seed": point.seed})
        runs.append(Run(point, seeded, engine, needed_bytes))
    # The points have their networks, and the sweep's own configuration is no point.
    topology = whole.topology
    if isinstance(topology, OwnTopology):
        whole = whole.model_copy(update={"topology": topology.built(None, None)})
    own = store.own_files_of(whole, (each for each, *_ in checked.values()), source.folder)
    return Plan(whole, tuple(runs), own, warned)


def _memory_bytes(plan: NetworkPlan) -> int:
    """The most memory that a run takes, from runs of fat-trees of 8 to 20 pods."""
    captured = max(1, len(plan.capture_ports))
    return max(RUN_BYTES, 400 * 2**20 + len(plan.ends) * 2**18 + captured * 2**21)
