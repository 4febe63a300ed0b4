"""One command in a host of an experiment's network."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from outcast.api.experiments import require_experiment
from outcast.api.making import absolute_search_paths
from outcast.errors import ConfigError, RunError, how_ended
from outcast.experiment import Experiment
from outcast.plan.model import Planned

DEADLINE_S = 600.0

OnOutput = Callable[[Literal["out", "err"], bytes], None]


@dataclass(frozen=True)
class Executed:
    """A command that has ended.

    Attributes:
        status: its exit status; negative for the signal that ended it, as in `subprocess`.
        stdout, stderr: what it wrote.
        crash: the signal that ended it, and where, if the guest's kernel says it; or None.
    """

    status: int
    stdout: bytes
    stderr: bytes
    crash: str | None = None


def exec_in(
    experiment: Experiment,
    command: Sequence[str],
    host: str | None = None,
    *,
    deadline_s: float = DEADLINE_S,
    on_output: OnOutput | None = None,
    progress: bool | None = None,
) -> Executed:
    """Builds an experiment's network and runs one command in one of its hosts.

    The experiment's flows, workloads and clients do not run. Its servers do, and the command
    begins when all are ready. Events count from its start. Nothing is captured or kept.

    Args:
        experiment: what `load` returned.
        command: the program and its arguments; `{h1}` is the address of host h1.
        host: where it runs; None is the topology's first host.
        deadline_s: how long the command may take, by the engine's clock.
        on_output: is given what the command writes, as it comes; then the result has none of it.
        progress: whether to say that the kernel is built first, or why the realtime engine runs.

    Raises:
        ConfigError: the network cannot be built, or has no such host.
        FeatureMissingError: no engine can run this here, or there is no such program.
        OutcastError: the network failed, or the command did not end in time.
    """
    from outcast import workflow
    from outcast.api import guest
    from outcast.api import progress as displays
    from outcast.engines import choose

    planned = Planned(require_experiment(experiment))
    if not command:
        raise ConfigError("COMMAND: is missing; allowed is a program and its arguments")
    written: dict[str, bytearray] = {"out": bytearray(), "err": bytearray()}
    ended: list[Mapping[str, Any]] = []

    def on_event(event: Mapping[str, Any]) -> None:
        if event.get("event") == "ended":
            ended.append(event)
        elif event.get("event") == "output":
            data = base64.b64decode(event["data"])
            if on_output is not None:
                on_output(event["stream"], data)
            else:
                written[event["stream"]] += data

    with absolute_search_paths():
        guest.provide(planned, progress)
        engine = choose(planned, lambda why: displays.note(progress, why))
        within_ns = int(deadline_s * 1e9)
        workflow.execute_command(planned, engine, host, command, within_ns, on_event)
    if not ended:
        raise RunError("the command's end was not told")
    status, fault = int(ended[0]["status"]), ended[0]["fault"]
    crash = how_ended(status).strip() + (f": {fault}" if fault else "") if status < 0 else None
    return Executed(status, bytes(written["out"]), bytes(written["err"]), crash)
