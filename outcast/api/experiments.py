"""An experiment from its configuration file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outcast import experiment
from outcast.errors import ConfigError
from outcast.experiment import Experiment, Source
from outcast.experiment.engine import candidates
from outcast.plan.model import Planned


def load(path: str | os.PathLike[str], overrides: Mapping[str, Any] | None = None) -> Experiment:
    """Reads an experiment's YAML file, and checks that it fits its topology.

    Args:
        path: the configuration file.
        overrides: other values for some keys, with dots between levels: `{"links.rate": "1gbit",
            "flows.1.hosts": 6}`. A value is written as in YAML; tuples and numpy's numbers serve
            too.

    Raises:
        ConfigError: in one line, the file and line or the override, what is wrong, and what is
            allowed.
    """
    if overrides is not None and not isinstance(overrides, Mapping):
        raise ConfigError(
            f"overrides: {type(overrides).__name__}; allowed is a mapping, as "
            '{"links.rate": "1gbit"}'
        )
    return checked(experiment.read(Path(path), overrides or {})).experiment


def checked(source: Source) -> Planned:
    """Plans the experiment of a source. Makes a root first if no Mininet is there to plan with.

    Raises:
        ConfigError: no network can be planned.
        FeatureMissingError, RootError: there is no Mininet, and no root can be made.
    """
    require_mininet()
    from outcast.networks import resolve

    planned = Planned(resolve.experiment_of(source), source.located)
    planned.by(candidates(planned.experiment.engine)[0])
    return planned


def require_mininet() -> None:
    """Makes the guest's root if there is no Mininet to plan with. Raises as `checked`."""
    from outcast.engines.guest import roots

    if not roots.has_mininet():
        from outcast.api import guest

        guest.provide_mininet()


def require_experiment(value: object) -> Experiment:
    """Raises ConfigError where the value is no experiment, as when a path is given instead."""
    if not isinstance(value, Experiment):
        raise ConfigError(
            f"experiment: {type(value).__name__}; allowed is what outcast.load(path) returns"
        )
    return value
