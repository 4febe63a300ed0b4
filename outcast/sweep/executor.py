"""The executor of a real sweep: the run and its analysis, without pictures."""

from __future__ import annotations

from pathlib import Path

from outcast import workflow as whole
from outcast.engines import choice
from outcast.experiment import Experiment


def execute(experiment: Experiment, target: Path) -> None:
    """See outcast.sweep.task.Executor. Progress goes to the run's own log only."""
    engine = choice.choose(experiment)
    whole.execute(experiment, engine, target, lambda event: None, draw=False)
