"""One command in a host: its output is passed on as it comes, and its exit status too."""

from __future__ import annotations

import base64
import shlex
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from outcast.emulation.part import Context
from outcast.emulation.programs import runner
from outcast.emulation.programs.folders import environment, found
from outcast.errors import DeadlineError, shortened
from outcast.plan.programs import Command

POLL_S = 0.005
_END_S = 2.0
_PASSED_BYTES = 64 * 1024
_COMMAND_CHARACTERS = 60


def execute(run: Context, command: Command, watch: Callable[[], None]) -> None:
    """Runs a command of a run to its end.

    It emits `{"event": "output", "stream": "out" or "err", "data": base64}` for what the command
    writes, and at last `{"event": "ended", "status": its exit status, negative for a signal,
    "fault": where it crashed, in the words of the guest's kernel}`.

    `watch` is called in between; it raises if something that the network needs has died.

    Raises DeadlineError: it took longer than allowed. It has been ended.
    """
    emit = run.emit
    if run.is_virtual:
        runner.take_name(command.host)
    home = run.scratch / "command"
    home.mkdir()
    variables = environment(home, run.experiment.seed, "exec")
    argv = found(command.argv, Path(command.folder))
    title = shortened(shlex.join(command.argv), _COMMAND_CHARACTERS)
    emit({"event": "programs", "running": [f"{title} at {command.host}"]})
    process = run.commands.spawn(
        shlex.join(command.argv),
        [
            # A program that spins waits then (patch 0022).
            *(("setarch", "--whole-seconds") if run.is_virtual else ()),
            *("env", "--ignore-environment", f"--chdir={command.folder}"),
            *(f"{name}={value}" for name, value in variables.items()),
            *argv,
        ],
        netns=run.netns(command.host),
        stdout=run.scratch / "command.out",
        stderr=run.scratch / "command.err",
    )
    end = time.monotonic() + command.within_ns / 1e9
    with process.stdout.open("rb") as out, process.stderr.open("rb") as err:
        streams = {"out": out, "err": err}
        while (status := process.popen.poll()) is None:
            _pass_on(streams, emit)
            watch()
            if time.monotonic() > end:
                try:
                    process.end(signal.SIGTERM, _END_S)
                except DeadlineError:
                    process.end(signal.SIGKILL, _END_S)
                _pass_on(streams, emit)
                raise DeadlineError(f"the end of {title}", command.within_ns / 1e9)
            time.sleep(POLL_S)
        _pass_on(streams, emit)
    fault = runner.fault(process.popen) if run.is_virtual else None
    emit({"event": "ended", "status": status, "fault": fault})


def _pass_on(streams: Mapping[str, BinaryIO], emit: Callable[[Mapping[str, Any]], None]) -> None:
    for name, stream in streams.items():
        while data := stream.read(_PASSED_BYTES):
            text = base64.b64encode(data).decode("ascii")
            emit({"event": "output", "stream": name, "data": text})
