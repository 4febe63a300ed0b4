"""The assignment's experiments: their gaps, and how a student's own experiment may differ."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from outcast import experiment, handed_in
from outcast import workflow as execute
from outcast.errors import ConfigError
from outcast.experiment import Experiment

GAP = "FILL_IN"
"""The mark in configurations and answers that a student replaces."""

_ALWAYS_FREE = frozenset({"name", "capture", "samples", "analysis", "repetitions", "seed"})
"""Keys that change what a run records, and not what happens in it. The seed has its own check."""


@dataclass(frozen=True, slots=True)
class Task:
    """One experiment that a student completes and runs.

    Attributes:
        solution: what fills the gaps, in the form of `--set`; one of several right ways.
        free: the parts of the experiment that the student may choose.
    """

    name: str
    solution: tuple[str, ...]
    free: frozenset[str] = frozenset()

    def expected(self, seed: int) -> Experiment:
        """The experiment with its gaps filled."""
        template = resources.files("outcast.assignment") / "templates" / f"{self.name}.yaml"
        with resources.as_file(template) as path:
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
    """The lines of a configuration that still have a gap, counted from 1.

    Raises ConfigError if there is no such file.
    """
    try:
        lines = handed_in.read_text(path, handed_in.MOST_YAML_BYTES).splitlines()
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file") from None
    return [number for number, line in enumerate(lines, 1) if GAP in line.partition("#")[0]]


def departures(task: Task, config: Experiment, seed: int) -> list[str]:
    """How a student's experiment differs from what the task asks for; empty if it does not.

    A remedy that changes nothing counts as a difference.
    """
    if config.engine != "virtual":
        return [f"engine is {config.engine}, and the task sheet asks for virtual"]
    expected = execute.resolve(task.expected(seed), "virtual")
    actual = execute.resolve(config, "virtual")
    wrong = [
        f"{field.alias or name} is not what the task sheet asks for"
        for name, field in Experiment.model_fields.items()
        if name not in _ALWAYS_FREE | task.free and getattr(actual, name) != getattr(expected, name)
    ]
    if actual.seed != seed:
        wrong.append(f"seed is {actual.seed}, and yours is {seed}")
    if task.free:
        before = execute.resolve(UNFAIR.expected(seed), "virtual")
        if all(getattr(actual, name) == getattr(before, name) for name in task.free):
            wrong.append("it has no remedy: nothing differs from unfair.yaml")
    return wrong


def same(config: Experiment, run_config: Experiment) -> bool:
    """Whether a run was made from this configuration; the run's has every default resolved."""
    engine = run_config.engine
    return engine != "auto" and execute.resolve(config, engine) == run_config
