"""Which engine runs an experiment."""

from __future__ import annotations

from outcast.doctor import Finding
from outcast.engines import Engine
from outcast.engines.realtime import RealtimeEngine
from outcast.errors import FeatureMissingError
from outcast.experiment import Experiment


def choose(experiment: Experiment) -> Engine:
    """The engine that the experiment names, or for `auto` the first that can run it.

    The virtual one is preferred: its results do not depend on this machine's speed.

    Raises:
        FeatureMissingError: naming what is missing.
    """
    if experiment.engine == "realtime":
        realtime = RealtimeEngine()
        realtime.require(experiment)
        return realtime
    raise FeatureMissingError("the virtual engine is not there yet")


def virtual_finding() -> Finding:
    """What `outcast doctor` says of the virtual engine."""
    return Finding("virtual engine's kernel", False, "", "outcast kernel build")
