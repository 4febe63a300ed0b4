"""Which engine runs an experiment."""

from __future__ import annotations

from collections.abc import Callable

from outcast.engines import Engine
from outcast.errors import FeatureMissingError
from outcast.experiment.engine import EngineName, candidates
from outcast.plan.planned import Planned


def choose(planned: Planned, on_fallback: Callable[[str], None] | None = None) -> Engine:
    """The engine that the experiment names; for `auto` the first one that can run it.

    Raises:
        ConfigError: it cannot be planned.
        FeatureMissingError: no engine can run it; the error names what each one lacks.
    """
    names = candidates(planned.experiment.engine)
    lacking = []
    for name in names:
        engine = _made(name)
        try:
            engine.require(*planned.by(name))
        except FeatureMissingError as error:
            if len(names) == 1:
                raise
            lacking.append(f"{name}: {error}")
        else:
            if lacking and on_fallback is not None:
                on_fallback(
                    f"runs in real time, where results depend on this machine; {lacking[0]}"
                )
            return engine
    raise FeatureMissingError(f"no engine can run this here: {'; '.join(lacking)}")


def _made(name: EngineName) -> Engine:
    # Libraries of real time take a tenth of a second to import, and most runs need none of them.
    match name:
        case "virtual":
            from outcast.engines.virtual import VirtualEngine

            return VirtualEngine()
        case "realtime":
            from outcast.engines.realtime import RealtimeEngine

            return RealtimeEngine()
