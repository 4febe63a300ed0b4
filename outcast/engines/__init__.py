"""The engines: they start a run's inner program and pass its progress on.

An engine takes a run directory with config.yaml and plan.json, and fills it up to the manifest.
No other code knows which engine it is.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from outcast import errors
from outcast.emulation import senders
from outcast.emulation.part import DURING
from outcast.experiment import Experiment
from outcast.experiment.engine import EngineName, candidates
from outcast.plan import ports
from outcast.plan.flows import all_transports
from outcast.plan.model import Plan, Planned
from outcast.records.run_directory import RunDirectory

if TYPE_CHECKING:
    from outcast.engines.ledger import Entry

INSIDE = "outcast.emulation"
"""The module of the inner program. Both engines start it."""

OnEvent = Callable[[Mapping[str, Any]], None]


class Engine(Protocol):
    name: EngineName

    def require(self, experiment: Experiment, plan: Plan) -> None:
        """Raises FeatureMissingError, which names all that this machine lacks for the experiment.

        The experiment has this engine's defaults.
        """

    def run(self, directory: RunDirectory, entry: Entry, on_event: OnEvent) -> Mapping[str, float]:
        """Runs the experiment in `directory`. Returns the seconds of each phase, by this host."""


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
        except errors.FeatureMissingError as error:
            if len(names) == 1:
                raise
            lacking.append(f"{name}: {error}")
        else:
            if lacking and on_fallback is not None:
                on_fallback(
                    f"runs in real time, where results depend on this machine; {lacking[0]}"
                )
            return engine
    raise errors.FeatureMissingError(f"no engine can run this here: {'; '.join(lacking)}")


def _made(name: EngineName) -> Engine:
    # Libraries of real time take a tenth of a second to import, and most runs need none of them.
    match name:
        case "virtual":
            from outcast.engines.virtual import VirtualEngine

            return VirtualEngine()
        case "realtime":
            from outcast.engines.realtime import RealtimeEngine

            return RealtimeEngine()


def require_compiler(experiment: Experiment, plan: Plan, *, start_afterwards: bool = False) -> None:
    """Raises FeatureMissingError where a program has to be compiled and there is no C compiler.

    With `start_afterwards`, flows get their start once they have connected, as in real time.
    """
    if shutil.which("cc") is not None:
        return
    needed_for = ["blackout"] if experiment.blackout is not None else []
    if experiment.programs and not start_afterwards:
        needed_for.append("programs in the virtual engine")
    if any(senders.needed(settings) for settings in all_transports(experiment)):
        needed_for.append("transport.tcprand or mptcp")
    elif start_afterwards and plan.flows:
        needed_for.append("the common start of flows in real time")
    elif any(senders.sends(flow) for flow in plan.flows):
        needed_for.append("a flow that does not last whole hundredths of a second")
    elif ports.rounds_of_handshakes(experiment, plan) > 1:
        needed_for.append("a queue with no room for all flows' handshakes")
    if needed_for:
        raise errors.FeatureMissingError(
            f"a C compiler, cc, is missing: {' and '.join(needed_for)} needs one; install the "
            "package gcc (scripts/install.sh does)"
        )


class Lacking:
    """Gathers what a machine lacks for an experiment, so that one error names all of it."""

    def __init__(self) -> None:
        self._found: dict[str, None] = {}

    def note(self, require: Callable[..., object], *arguments: object, **options: object) -> None:
        """Calls a check, and notes the FeatureMissingError that it raises. Each is named once."""
        try:
            require(*arguments, **options)
        except errors.FeatureMissingError as error:
            self._found[str(error)] = None

    def note_if(self, is_lacking: bool, text: str) -> None:
        if is_lacking:
            self._found[text] = None

    def refuse(self) -> None:
        """Raises FeatureMissingError with everything that was noted, if anything was."""
        if self._found:
            raise errors.FeatureMissingError("; ".join(self._found))


class EventReader:
    """Turns the inner program's lines of JSON into events, and an error among them into ours.

    Attributes:
        wall_s: seconds that each phase took, by this host's clock. `boot` is the time before the
            first phase.
        programs: titles of the configuration's programs that are running.
    """

    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
        self._phase = "boot"
        self._phase_began = time.monotonic()
        self.error: errors.OutcastError | None = None
        self.done = False
        self.wall_s: dict[str, float] = {}
        self.programs: list[str] = []

    def during(self) -> str:
        return DURING.get(self._phase, self._phase)

    def lost(self, status: int, said: str) -> errors.RunError:
        """The error of an inner program that ended unfinished and without an error event."""
        return errors.RunError(
            str(errors.CommandError((), status, said, "the run's inner program", self.during()))
        )

    def feed(self, line: str) -> None:
        """Takes a line of the inner program's output. A line that is no event is ignored."""
        try:
            event = json.loads(line)
        except json.JSONDecodeError:
            return
        if not isinstance(event, dict):
            return
        if event.get("event") in ("phase", "done"):
            now = time.monotonic()
            self.wall_s[self._phase] = round(now - self._phase_began, 3)
            self._phase, self._phase_began = str(event.get("phase")), now
        if event.get("event") == "programs":
            self.programs = [str(title) for title in event.get("running", ())]
        if event.get("event") == "error":
            self.error = errors.rebuilt(str(event.get("kind")), str(event.get("message")))
        self.done = self.done or event.get("event") == "done"
        self._on_event(event)
