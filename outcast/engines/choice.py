"""Which engine runs an experiment."""

from __future__ import annotations

from collections.abc import Callable

from outcast.engines import Engine
from outcast.errors import FeatureMissingError
from outcast.experiment import Experiment


def choose(experiment: Experiment, on_fallback: Callable[[str], None] | None = None) -> Engine:
    """The engine that the experiment names; for `auto` the first one that can run it.

    The virtual engine comes first, because its results do not depend on this machine's speed.

    Raises FeatureMissingError: no engine can run it; the error names what each one lacks.
    """
    match experiment.engine:
        case "virtual":
            return _virtual(experiment)
        case "realtime":
            return _realtime(experiment)
    lacking = []
    for name, choice in (("virtual", _virtual), ("realtime", _realtime)):
        try:
            chosen = choice(experiment)
        except FeatureMissingError as error:
            lacking.append(f"{name}: {error}")
        else:
            if lacking and on_fallback is not None:
                on_fallback(
                    f"runs in real time, where results depend on this machine; {lacking[0]}"
                )
            return chosen
    raise FeatureMissingError(f"no engine can run this here: {'; '.join(lacking)}")


def _virtual(experiment: Experiment) -> Engine:
    from outcast.engines.virtual import VirtualEngine

    engine = VirtualEngine()
    engine.require(experiment)
    return engine


def _realtime(experiment: Experiment) -> Engine:
    # Its libraries take a tenth of a second to import, and most runs need none of them.
    from outcast.engines.realtime import RealtimeEngine

    engine = RealtimeEngine()
    engine.require(experiment)
    return engine
