"""An experiment that is to be run, with its plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from outcast.experiment import Experiment
from outcast.experiment.engine import EngineName
from outcast.plan.model import Plan

IN_CONFIG = "config.yaml: {}".format
"""Locates a refusal of an experiment that comes from no file that is known."""


@dataclass(frozen=True, eq=False)
class Planned:
    """An experiment, and its plan in each engine. A plan is made once, when it is first needed.

    Attributes:
        experiment: as requested, without an engine's defaults.
        located: says in a refusal where the experiment comes from.
    """

    experiment: Experiment
    located: Callable[[str], str] = IN_CONFIG
    _by_engine: dict[EngineName, tuple[Experiment, Plan]] = field(default_factory=dict)

    def by(self, engine: EngineName) -> tuple[Experiment, Plan]:
        """The experiment with an engine's defaults, and its plan. Raises as `make_plan`."""
        if engine not in self._by_engine:
            # Imports Mininet, which may have to be made first.
            from outcast.plan.make import make_plan

            resolved = self.experiment.resolved(engine)
            self._by_engine[engine] = resolved, make_plan(resolved, self.located)
        return self._by_engine[engine]
