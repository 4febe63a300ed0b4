"""How a student's experiment differs from what the exercise asks for."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outcast.assignment.exercise import ALWAYS_FREE, RunTask
from outcast.assignment.questions import GAP
from outcast.errors import ConfigError
from outcast.experiment import Experiment, reader
from outcast.experiment.parts import key_of


def departures(task: RunTask, config: Experiment, expected: Experiment) -> list[str]:
    """How an experiment differs from the expected one, in lines; empty if it does not.

    What the task leaves free is not compared, and neither is what a run merely records.
    """
    if config.engine != "virtual":
        return [f"engine is {config.engine}, and the task sheet asks for virtual"]
    theirs, ours = (made.resolved("virtual") for made in (config, expected))
    wrong = [
        f"{key_of(name)} is not what the task sheet asks for"
        for name in Experiment.model_fields
        if name != "seed"
        and key_of(name) not in {*ALWAYS_FREE, *task.free}
        and getattr(theirs, name) != getattr(ours, name)
    ]
    if theirs.seed != ours.seed:
        wrong.append(f"seed is {theirs.seed}, and yours is {ours.seed}")
    return wrong


def is_unchanged(task: RunTask, config: Experiment, other: Experiment) -> bool:
    """Whether nothing that the task leaves free differs between two experiments."""
    theirs, ours = (made.resolved("virtual") for made in (config, other))
    return all(
        getattr(theirs, name) == getattr(ours, name)
        for name in Experiment.model_fields
        if key_of(name) in task.free
    )


def same(config: Experiment, run_config: Experiment) -> bool:
    """Whether a run was made from this configuration; the run's has every default resolved."""
    engine = run_config.engine
    return engine != "auto" and config.resolved(engine) == run_config


def as_issued(issued: str, config: Path) -> Experiment:
    """The experiment as it was handed out, with the gaps filled as the student filled them.

    `issued` is the text of the configuration as it was handed out.

    Raises ConfigError: a gap is still there, or the result is no valid experiment.
    """
    source = reader.read(config)
    before = reader.of_text(issued, config, own_folder=config.parent.parent)
    filled = _filled(before.tree, source.tree)
    if not isinstance(filled, dict):
        raise ConfigError(f"{config}: allowed is a mapping of keys")
    return before.changed(filled).experiment()


def _filled(issued: Any, theirs: Any) -> Any:
    """The issued tree with the student's values where it has a gap."""
    if issued == GAP:
        return copy.deepcopy(theirs)
    if isinstance(issued, Mapping) and isinstance(theirs, Mapping):
        return {key: _filled(value, theirs.get(key, value)) for key, value in issued.items()}
    if isinstance(issued, list) and isinstance(theirs, list) and len(issued) == len(theirs):
        return [_filled(*pair) for pair in zip(issued, theirs, strict=True)]
    return issued
