"""The executor of a real sweep: it runs and analyses an experiment and draws nothing."""

from __future__ import annotations

from pathlib import Path

from outcast import workflow as whole
from outcast.engines import Engine, choice
from outcast.engines.virtual import VirtualEngine
from outcast.experiment import Experiment
from outcast.records.interventions import Interventions


def execute(
    experiment: Experiment, target: Path, interventions: Interventions | None = None, /
) -> None:
    """Makes a run directory, as an Executor does. Progress goes only to the run's log."""
    engine: Engine = choice.choose(experiment)
    if interventions is not None:
        engine = VirtualEngine(interventions=interventions)
    whole.execute(experiment, engine, target, lambda event: None, draw=False)
