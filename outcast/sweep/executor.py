"""The executor of a real sweep: it runs and analyses an experiment and draws nothing."""

from __future__ import annotations

from pathlib import Path

from outcast import workflow as whole
from outcast.engines import choice
from outcast.experiment import Experiment


def execute(experiment: Experiment, target: Path) -> None:
    """Makes a run directory, as an Executor does. Progress goes only to the run's log."""
    engine = choice.choose(experiment)
    whole.execute(experiment, engine, target, lambda event: None, draw=False)
