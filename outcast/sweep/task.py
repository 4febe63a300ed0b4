"""One run as it is handed to whoever makes it, and what comes back."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from outcast.errors import ConfigError, OutcastError
from outcast.experiment import Experiment

Executor = Callable[[Experiment, Path], None]
"""Makes a whole run directory at a path that is free, or raises OutcastError and makes none."""

Captures = Literal["keep", "compress", "drop"]

REAL = "outcast.sweep.executor:execute"
"""The executor that runs and analyses; tests name another."""

ATTEMPTS = {
    "GuestError": 2,
    "DeadlineError": 2,
    "BusyError": 2,
    "ProcessLostError": 2,
    "WorkerLostError": 5,
}
"""Kinds of errors whose cause can pass, and how often a run that ends with one is tried in all."""


@dataclass(frozen=True)
class Task:
    """A run to be made.

    Attributes:
        name: of its folder.
        config: the experiment as YAML, with its seed.
        captures: what becomes of them after the analysis.
        exclusive: whether nothing else may run on the same machine meanwhile.
        executor: `module:function` of an Executor.
    """

    name: str
    config: str
    captures: Captures
    exclusive: bool
    executor: str = REAL


@dataclass(frozen=True)
class Failure:
    """Why there is no result.

    Attributes:
        kind: the error's class in outcast/errors.py, or Python's own.
        message: one line.
        exit_status: what `outcast run` would have ended with.
    """

    kind: str
    message: str
    exit_status: int = 1

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """An exception's kind and text."""
        status = error.exit_status if isinstance(error, OutcastError) else 1
        said = " ".join(str(error).split()) or "it says nothing"
        return cls(type(error).__name__, said, status)


@dataclass(frozen=True)
class Ended:
    """A task that has come to its end.

    Attributes:
        failure: None where the result is in the folder for unfinished runs.
        wall_s: seconds that it took, by the clock of the machine that made it.
    """

    name: str
    failure: Failure | None
    wall_s: float


def load_executor(name: str) -> Executor:
    """The function of a `module:function`. Raises ConfigError where there is none."""
    module, _, function = name.partition(":")
    try:
        executor: Executor = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{name}: no such executor: {error}") from None
    return executor
