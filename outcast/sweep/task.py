"""A run as a pool gets it, and the outcome that the pool gives back."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from outcast.errors import OutcastError
from outcast.experiment import Experiment
from outcast.experiment.engine import EngineName, properties
from outcast.plan.model import Plan
from outcast.records.interventions import Interventions


class Executor(Protocol):
    """Makes a whole run directory at a new path. If it fails, it raises OutcastError."""

    def __call__(
        self, experiment: Experiment, target: Path, interventions: Interventions | None = None, /
    ) -> None: ...


Captures = Literal["keep", "compress", "drop"]

REAL = "outcast.sweep.worker:execute"
"""The executor that runs and analyses an experiment; tests name another one."""

RUN_BYTES = 800 * 2**20
"""The most memory that a usual run takes: the guest, the analysis and the interpreters."""

ATTEMPTS = {
    "GuestError": 2,
    "DeadlineError": 2,
    "BusyError": 2,
    "ProcessLostError": 2,
}
"""Errors whose cause can pass, and how many times a run with that error is tried in all."""


def memory_bytes(plan: Plan) -> int:
    """The most memory that a run takes, from runs of fat-trees of 8 to 20 pods."""
    captured = max(1, len(plan.capture_ports))
    return max(RUN_BYTES, 400 * 2**20 + len(plan.ends) * 2**18 + captured * 2**21)


def is_exclusive(engine: EngineName) -> bool:
    """Whether a run needs the machine for itself, because realtime runs disturb each other."""
    return not properties(engine).virtual_clock


@dataclass(frozen=True)
class Task:
    """A run that a pool makes.

    Attributes:
        config: the experiment as YAML, with its seed.
        exclusive: whether no other run may share the machine with it.
        executor: `module:function` of an Executor.
        memory_bytes: the most memory that it takes; see `memory_bytes`.
        interventions: what is changed in it, as JSON; empty where nothing is.
    """

    name: str
    config: str
    captures: Captures
    exclusive: bool
    executor: str = REAL
    memory_bytes: int = RUN_BYTES
    interventions: str = ""


@dataclass(frozen=True)
class Failure:
    """Why a run has no result.

    Attributes:
        kind: the name of the error's class, of outcast/errors.py or of Python.
        message: one line.
        exit_status: the status with which `outcast run` would have ended.
    """

    kind: str
    message: str
    exit_status: int = 1

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """The failure that an exception means."""
        status = error.exit_status if isinstance(error, OutcastError) else 1
        message = " ".join(str(error).split()) or "the error has no message"
        return cls(type(error).__name__, message, status)


@dataclass(frozen=True)
class Ended:
    """A task that has ended, with the seconds it took by the clock of the machine that made it.

    Without a failure its result is in the folder for unfinished runs.
    """

    name: str
    failure: Failure | None
    wall_s: float


def load_executor(name: str) -> Executor:
    """The function that `module:function` names."""
    module, _, function = name.partition(":")
    executor: Executor = getattr(importlib.import_module(module), function)
    return executor
