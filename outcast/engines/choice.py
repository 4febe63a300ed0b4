"""Which engine runs an experiment."""

from __future__ import annotations

from collections.abc import Callable

from outcast.engines import Engine
from outcast.engines.realtime import RealtimeEngine
from outcast.engines.virtual import VirtualEngine
from outcast.errors import FeatureMissingError
from outcast.experiment import Experiment


def choose(experiment: Experiment, on_fallback: Callable[[str], None] | None = None) -> Engine:
    """The engine that the experiment names; for `auto` the first one that can run it.

    The virtual engine comes first, because its results do not depend on this machine's speed.

    Args:
        experiment: what is to run.
        on_fallback: told in a sentence why `auto` became real time.

    Raises:
        FeatureMissingError: no engine can run it; the error names what each one lacks.
    """
    virtual, realtime = VirtualEngine(), RealtimeEngine()
    match experiment.engine:
        case "virtual":
            virtual.require(experiment)
            return virtual
        case "realtime":
            realtime.require(experiment)
            return realtime
    lacking = []
    for engine in (virtual, realtime):
        try:
            engine.require(experiment)
        except FeatureMissingError as error:
            lacking.append(f"{engine.name}: {error}")
        else:
            if lacking and on_fallback is not None:
                on_fallback(
                    f"runs in real time, where results depend on this machine; {lacking[0]}"
                )
            return engine
    raise FeatureMissingError(f"no engine can run this here: {'; '.join(lacking)}")
