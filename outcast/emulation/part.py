"""A part of a run: what one feature does while the run goes on, and its record of that."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pydantic import BaseModel

from outcast.emulation.commands import Process, SystemCommands, still_running
from outcast.errors import DeadlineError, RunError
from outcast.experiment.engine import EngineName, properties

if TYPE_CHECKING:
    from outcast.experiment import Experiment
    from outcast.plan.model import Plan
    from outcast.records.run_directory import RunDirectory

Kept = TypeVar("Kept", bound=BaseModel)

DURING = {
    "boot": "the guest's boot",
    "setup": "the set-up",
    "verify": "the verification",
    "capture_start": "the start of the captures",
    "connect": "the start of the programs",
    "traffic": "the traffic",
    "command": "the command",
    "capture_end": "the end of the captures",
}
"""Words for each phase, used in messages on what went wrong during it."""


@dataclass(frozen=True)
class Context:
    """The run that parts belong to.

    Attributes:
        scratch: a folder for what is not kept.
        emit: reports an event, see `outcast.emulation.__main__`.
        netns: the descriptor of a host's network namespace.
        place: as `netns` for any node; None for a switch, which has no namespace of its own.
    """

    experiment: Experiment
    plan: Plan
    engine: EngineName
    directory: RunDirectory
    scratch: Path
    commands: SystemCommands
    emit: Callable[[Mapping[str, Any]], None]
    netns: Callable[[str], int]
    place: Callable[[str], int | None]

    @property
    def is_virtual(self) -> bool:
        """Whether the clock is virtual. Then nothing waits for the processor."""
        return properties(self.engine).virtual_clock


@dataclass
class Record:
    """A part's share of the manifest.

    Attributes:
        manifest: fields of `records.run_directory.Manifest`.
        effective: arguments of `records.effective.flattened`.
    """

    manifest: dict[str, Any] = field(default_factory=dict)
    effective: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def add(self, other: Record) -> None:
        self.manifest |= other.manifest
        self.effective |= other.effective
        self.warnings += other.warnings


def as_record(kind: type[Kept], planned: object, **others: Any) -> Kept:
    """A record of `others`, and of the plan's values in the fields of the same names."""
    same = {
        name: getattr(planned, name)
        for name in kind.model_fields
        if name not in others and hasattr(planned, name)
    }
    return kind(**same, **others)


class Part:
    """A block of a run, whose steps the run takes in its order. By itself a step does little.

    * `prepare` makes ready, before the flows connect.
    * `start` goes on when the flows have connected; the traffic starts at this epoch time.
    * `require_alive` raises RunError where something has ended by itself.
    * `running` names the programs that must end and have not; it raises RunError where one failed.
    * `finish` ends what ends with the flows.
    * `end` ends what is left, where the block ends well. Where it fails, programs are left to
      `SystemCommands.end_all`, because an orderly end would only hold up the error.

    Attributes:
        lasting: its programs that must not end before `end`.
        ending: its programs that end by themselves, well.
    """

    _run: Context

    def __init__(self, run: Context | None = None) -> None:
        if run is not None:
            self._run = run
        self.lasting: list[Process] = []
        self.ending: list[Process] = []

    def __enter__(self) -> Self:
        self.prepare()
        return self

    def __exit__(self, failed: type[BaseException] | None, *_error: object) -> None:
        if failed is None:
            self.end()

    def prepare(self) -> None: ...

    def start(self, t_start_ns: int) -> None: ...

    def require_alive(self) -> None:
        for process in self.lasting:
            process.require_alive()

    def running(self) -> list[str]:
        return still_running(self.ending)

    def finish(self) -> Record:
        return Record()

    def end(self) -> None: ...


class ThreadPart(Part):
    """A part that works in a thread until it is stopped.

    Errors begin with `what` it does, or say that they waited for the `last` of it.
    """

    def __init__(self, name: str, what: str, last: str, deadline_s: float = 10.0) -> None:
        super().__init__()
        self._what, self._last, self._deadline_s = what, last, deadline_s
        self._stopped = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._attempt, name=name, daemon=True)

    def work(self) -> None:
        """Works until `_stopped` is set."""
        raise NotImplementedError

    def _attempt(self) -> None:
        try:
            self.work()
        except Exception as error:
            self._error = error

    def require_alive(self) -> None:
        if isinstance(self._error, RunError):
            raise self._error
        if self._error is not None:
            raise RunError(f"{self._what}: {self._error}")

    def stop(self) -> None:
        """Waits for the end of the work. Raises RunError where it failed, or does not end."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join(self._deadline_s)
            if self._thread.is_alive():
                raise DeadlineError(self._last, self._deadline_s)
        self.require_alive()
