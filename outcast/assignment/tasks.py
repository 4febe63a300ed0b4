"""The assignment's experiments: their gaps, and what a student's own may differ in."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from outcast import experiment, handed_in
from outcast import workflow as execute
from outcast.errors import ConfigError
from outcast.experiment import Experiment

GAP = "FILL_IN"
"""What stands where a student has to put something, in configurations and answers."""

_ALWAYS_FREE = frozenset({"name", "capture", "samples", "analysis", "repetitions", "seed"})
"""What changes what is seen, not what happens; the seed is checked apart."""


@dataclass(frozen=True, slots=True)
class Task:
    """One experiment that a student completes and runs.

    Attributes:
        solution: what goes into the gaps, as of `--set`; one way where several are right.
        free: the parts of the experiment that are the student's to choose.
    """

    name: str
    solution: tuple[str, ...]
    free: frozenset[str] = frozenset()

    def expected(self, seed: int) -> Experiment:
        """The experiment with its gaps filled."""
        found = resources.files("outcast.assignment") / "templates" / f"{self.name}.yaml"
        with resources.as_file(found) as path:
            return experiment.load(path, (*self.solution, f"seed={seed}"))


UNFAIR = Task("unfair", ("queue.limit=16KB", "flows.1.hosts=12"))
EQUAL_RTT = Task("equal-rtt", ("flows.0.per_host=1", "flows.1.per_host=12"))
REMEDY = Task(
    "remedy",
    ("queue={kind: sfq, limit: 20 packets, buckets: 1024}",),
    frozenset({"queue", "queues", "routing", "transport"}),
)
TASKS = (UNFAIR, EQUAL_RTT, REMEDY)


def gaps(path: Path) -> list[int]:
    """The lines, from 1, of a configuration that still have a gap. Raises ConfigError."""
    try:
        lines = handed_in.read_text(path, handed_in.MOST_YAML_BYTES).splitlines()
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file") from None
    return [number for number, line in enumerate(lines, 1) if GAP in line.partition("#")[0]]


def departures(task: Task, found: Experiment, seed: int) -> list[str]:
    """What in an experiment is not as the task asks; empty where nothing is.

    A remedy that changes nothing is one such thing.
    """
    if found.engine != "virtual":
        return [f"engine is {found.engine}, the task sheet asks for virtual"]
    wanted = execute.resolve(task.expected(seed), "virtual")
    found = execute.resolve(found, "virtual")
    wrong = [
        f"{field.alias or name} is not as the task sheet asks"
        for name, field in Experiment.model_fields.items()
        if name not in _ALWAYS_FREE | task.free and getattr(found, name) != getattr(wanted, name)
    ]
    if found.seed != seed:
        wrong.append(f"seed is {found.seed}, yours is {seed}")
    if task.free:
        before = execute.resolve(UNFAIR.expected(seed), "virtual")
        if all(getattr(found, name) == getattr(before, name) for name in task.free):
            wrong.append("it has no remedy: nothing differs from unfair.yaml")
    return wrong


def same(config: Experiment, of_the_run: Experiment) -> bool:
    """Whether a run was made of this configuration, left open as it may be."""
    engine = of_the_run.engine
    return engine != "auto" and execute.resolve(config, engine) == of_the_run
