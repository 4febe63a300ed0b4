"""What a sweep is going to do: its runs, each checked, and what they are expected to take."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Literal

from outcast.experiment import Experiment, Source, Sweep, dump
from outcast.plan import make as run_plan
from outcast.sweep import measured
from outcast.sweep.measured import Measurement, Size
from outcast.sweep.points import Point, canonical, points
from outcast.sweep.task import REAL, Task

EngineName = Literal["realtime", "virtual"]


@dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
        experiment: with the point's values and seed, and with the engine that runs it.
        size: for the estimate.
    """

    point: Point
    experiment: Experiment
    size: Size

    @property
    def exclusive(self) -> bool:
        """Realtime runs share no machine: they would disturb each other's timing."""
        return self.size.engine == "realtime"


@dataclass(frozen=True)
class Plan:
    """A sweep.

    Attributes:
        experiment: the configuration as a whole, with `sweep`.
        runs: in the order in which they are started.
    """

    experiment: Experiment
    runs: tuple[Run, ...]

    @property
    def sweep(self) -> Sweep:
        return self.experiment.sweep or Sweep()

    def tasks(self, finished: Container[str], executor: str = REAL) -> list[Task]:
        """Those that are to be made still."""
        return [
            Task(
                name=run.point.name,
                config=dump(run.experiment),
                captures=self.sweep.captures,
                exclusive=run.exclusive,
                executor=executor,
            )
            for run in self.runs
            if run.point.name not in finished
        ]


def plan_sweep(source: Source, choose: Callable[[Experiment], EngineName]) -> Plan:
    """Checks every point before anything is run.

    Args:
        source: the configuration.
        choose: names the engine that can run an experiment here.

    Raises:
        ConfigError: naming the point that is no experiment, or cannot be built.
        FeatureMissingError: where no engine can run a point.
    """
    whole = source.experiment()
    checked: dict[str, tuple[Experiment, Size]] = {}
    runs = []
    for point in points(whole.sweep or Sweep(), whole.repetitions, whole.seed):
        key = canonical(point.settings)
        if key not in checked:
            experiment = source.point(point.settings)
            where = ", ".join(f"{name}={value}" for name, value in point.settings.items())
            built = run_plan.make_plan(experiment, where=f"{source.where}: {where}".rstrip(": "))
            engine = choose(experiment)
            size = measured.size_of(experiment, engine, len(built.flows))
            checked[key] = (experiment.model_copy(update={"engine": engine}), size)
        experiment, size = checked[key]
        seeded = experiment.model_copy(update={"seed": point.seed})
        runs.append(Run(point, seeded, size))
    return Plan(whole, tuple(runs))


@dataclass(frozen=True)
class Forecast:
    """What runs are expected to take; an estimate.

    Attributes:
        wall_s: with so many runs at a time.
        each_s: of one run, on average.
        disk_bytes: of all results.
        known: runs of this machine that it is taken from; 0 where there are none, and then the
            other figures say nothing.
        far: whether these were much smaller or larger, and it is a rough one.
    """

    wall_s: float
    each_s: float
    disk_bytes: float
    known: int
    far: bool = False


def forecast(
    runs: Sequence[Run], captures: str, jobs: int, known: Sequence[Measurement]
) -> Forecast:
    """The expected time and disk of these runs, `jobs` virtual ones at a time."""
    found = [
        (run, each)
        for run in runs
        if (each := measured.estimate(run.size, captures, known)) is not None
    ]
    if not found or len(found) < len(runs):
        return Forecast(0.0, 0.0, 0.0, 0)
    alone_s = sum(each.wall_s for run, each in found if run.exclusive)
    shared_s = sum(each.wall_s for run, each in found if not run.exclusive)
    return Forecast(
        wall_s=alone_s + shared_s / max(1, min(jobs, len(found))),
        each_s=(alone_s + shared_s) / len(found),
        disk_bytes=sum(each.disk_bytes for _, each in found),
        known=min(each.runs for _, each in found),
        far=any(each.far for _, each in found),
    )
