"""Programs of the configuration: prepared, started with the traffic, watched and ended.

A supervisor in the program's host starts it (`supervisor.py`), because executions have to begin at
their own times, whatever the inner program does meanwhile. Each program has a working folder of
its own, with its files. What it wrote is kept in the run directory.
"""

from __future__ import annotations

import base64
import errno
import json
import shlex
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import networkx as nx

from outcast.emulation import standalone
from outcast.emulation.commands import Process, wait_until
from outcast.emulation.kernel.sockets import has_port, sample_sockets
from outcast.emulation.part import Context, Part, Record
from outcast.emulation.programs import folders, supervisor
from outcast.emulation.programs.folders import environment, found
from outcast.errors import CommandError, DeadlineError, RunError, gist, shortened
from outcast.files import write_text
from outcast.plan.model import Plan
from outcast.plan.programs import LET_FAIL, Command, Program, pairs
from outcast.records.flows import ControlRecord, ExecutionRecord, PeerRecord, ProgramRecord

SUPERVISOR_DEADLINE_S = 60.0
GRACE_S = 10.0
"""How long a client's last execution may go on after the experiment's duration."""
SERVER_END_S = 10.0
MOST_OUTPUT_BYTES = 16 << 20
"""The most that is kept of one program's standard output over all its executions, and of its
errors."""
MOST_PROCESSES = 2000
"""The most processes and threads of a guest's programs together; a fork takes no time."""

_COMMAND_CHARACTERS = 60
_LAST_LINES = 10
_LINE_CHARACTERS = 90
_LAST_BYTES = 16 << 10


@dataclass(frozen=True)
class _Running:
    program: Program
    process: Process
    folder: Path
    result: Path
    outputs: Path
    given: frozenset[str]

    def title(self) -> str:
        command = shortened(shlex.join(self.program.argv), _COMMAND_CHARACTERS)
        return f"program {self.program.name} at {self.program.host} ({command})"


class UserPrograms(Part):
    def __init__(self, run: Context) -> None:
        super().__init__(run)
        self._scratch = run.scratch / "programs"
        self._start_file = self._scratch / "start"
        self._servers: list[_Running] = []
        self._clients: list[_Running] = []
        self._end_ns = 0
        self._controls: dict[tuple[str, int, int], str] = {}
        self._emitted: list[str] = []

    def prepare(self) -> None:
        """Starts the servers in their order, and then the supervisors of the clients."""
        with self._disk_full():
            self._scratch.mkdir()
            for program in self._run.plan.programs:
                if program.is_server:
                    server = self._launch(program)
                    self._servers.append(server)
                    self._emit_titles([])
                    self._await_ready(server)
            for program in self._run.plan.programs:
                if not program.is_server:
                    self._clients.append(self._launch(program))
        for client in self._clients:
            what = f"the supervisor of {client.title()}"
            client.process.await_word("ready", what, SUPERVISOR_DEADLINE_S)

    def start(self, t_start_ns: int) -> None:
        self._end_ns = t_start_ns + self._run.experiment.duration_ns
        if self._clients:
            self._emit_titles(self._clients)
            with self._disk_full():
                write_text(self._start_file, str(t_start_ns))

    def running(self) -> list[str]:
        """Titles of the clients that still run; before the end of the duration, of all programs."""
        now_ns = time.time_ns()
        self.require_alive()
        still = []
        for client in self._clients:
            status = client.process.popen.poll()
            if status is None:
                still.append(client)
            elif status:
                raise self._failure(client)
        self._emit_titles(still)
        self._look_at_sockets()
        if not still and now_ns < self._end_ns:
            return [running.title() for running in (*self._servers, *self._clients)]
        return [client.title() for client in still]

    def _look_at_sockets(self) -> None:
        """Notes the congestion control of every TCP socket at a host of a program."""
        for host in sorted({name for pair in pairs(self._run.plan.programs) for name in pair}):
            for sample in sample_sockets(self._run.netns(host), self._run.plan.families):
                key = (host, sample.local_port, sample.peer_port)
                self._controls[key] = sample.congestion_control

    def _own_controls(self) -> list[ControlRecord]:
        """The sockets that had another congestion control than the hosts' default."""
        usual = self._run.experiment.transport.congestion_control
        planned = {(flow.src, flow.sport) for flow in self._run.plan.flows}
        planned |= {(flow.dst, flow.dport) for flow in self._run.plan.flows}
        return [
            ControlRecord(host=host, port=port, peer_port=peer, congestion_control=control)
            for (host, port, peer), control in sorted(self._controls.items())
            if control != usual and (host, port) not in planned
        ]

    def _emit_titles(self, clients: Sequence[_Running]) -> None:
        """Says which programs run, so that a stalled guest can be explained."""
        titles = [running.title() for running in (*self._servers, *clients)]
        if titles != self._emitted:
            self._emitted = titles
            self._run.emit({"event": "programs", "running": titles})

    def require_alive(self) -> None:
        for server in self._servers:
            if server.process.popen.poll() is not None:
                raise self._failure(server)

    def finish(self) -> Record:
        self.require_alive()
        for server in reversed(self._servers):
            server.process.end(signal.SIGTERM, SERVER_END_S)
        by_name = {running.program.name: running for running in (*self._servers, *self._clients)}
        records, warnings = [], []
        for program in self._run.plan.programs:
            running = by_name[program.name]
            records.append(record(self._run.plan, program, _executions(running.result)))
            warnings += warnings_of(records[-1])
            written = (program.name, running.folder, running.outputs, running.given)
            warnings += folders.keep_written(*written)
        controls = self._own_controls()
        return Record({"programs": records, "program_controls": controls}, warnings=warnings)

    @contextmanager
    def _disk_full(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise RunError(self._what_fills_the_disk()) from None

    def _what_fills_the_disk(self) -> str:
        sizes = {
            running.title(): folders.size_bytes(running.folder)
            for running in (*self._servers, *self._clients)
        }
        text = "the disk that programs write to is full"
        if not sizes:
            return text
        largest = max(sizes, key=lambda title: sizes[title])
        return f"{text}; the files of {largest} have {sizes[largest] / 1e6:.0f} MB"

    def _launch(self, program: Program) -> _Running:
        experiment, directory = self._run.experiment, self._run.directory
        folder = self._scratch / program.name
        outputs = directory.programs / program.name
        outputs.mkdir(parents=True, exist_ok=True)
        given = folders.copy_files(folders.program_files(directory, program.name), folder)
        limits = next(each.limits for each in experiment.programs if each.name == program.name)
        task_file = self._scratch / f"{program.name}.json"
        task = {
            "argv": folders.found(program.argv, folder),
            "folder": str(folder),
            "environment": folders.environment(folder, experiment.seed, program.name, given),
            "outputs": str(outputs),
            "own": folders.own_folders(self._scratch / "hosts" / program.host),
            "confined": self._confined(program.host, folder),
            "most_output_bytes": MOST_OUTPUT_BYTES,
            "limits": {"RLIMIT_DATA": limits.memory_bytes, "RLIMIT_NOFILE": limits.open_files},
            "time_ns": limits.time_ns,
            "line": program.ready_line,
            "server": program.is_server,
            "start_ns": program.start_ns,
            "every_ns": program.every_ns,
            "repeat": program.repeat,
            "allow_failure": program.allow_failure,
            "duration_ns": experiment.duration_ns,
            "end_ns": experiment.duration_ns + int(GRACE_S * 1e9),
        }
        task_file.write_text(json.dumps(task), encoding="utf-8")
        result = self._scratch / f"{program.name}.result"
        process = self._run.commands.spawn(
            f"the supervisor of program {program.name} at {program.host}",
            standalone.command(supervisor.__name__, task_file, self._start_file, result),
            netns=self._run.netns(program.host),
            stdout=self._scratch / f"{program.name}.said",
            stderr=self._scratch / f"{program.name}.errors",
        )
        return _Running(program, process, folder, result, outputs, given)

    def _confined(self, host: str, folder: Path) -> dict[str, Any] | None:
        """The arguments of `supervisor.confine`; None in real time."""
        if not self._run.is_virtual:
            return None
        return {
            "host": host,
            "run_directory": str(self._run.directory.path.absolute()),
            "hidden": str(self._scratch.parent),
            "visible": [str(folder)],
        }

    def _await_ready(self, server: _Running) -> None:
        program = server.program
        netns = self._run.netns(program.host)

        def is_ready() -> bool:
            if server.process.popen.poll() is not None:
                raise self._failure(server)
            if program.ready_port is not None:
                return has_port(netns, program.ready_port)
            return server.process.says("line")

        what = f"write a line with {program.ready_line!r}"
        if program.ready_port is not None:
            what = f"listen at port {program.ready_port}"
        wait_until(
            is_ready,
            f"{server.title()} to {what}",
            program.ready_within_ns / 1e9,
            pause_s=0.005,
            detail=lambda: self._last_words(server, 0) or "it wrote nothing",
        )

    def _failure(self, running: _Running) -> RunError:
        """Why a supervisor ended before its time."""
        title = running.title()
        if running.process.popen.returncode == supervisor.DISK_FULL:
            # The record of this execution is not there, or is cut off.
            number = running.result.read_bytes().count(b"\n") if running.result.exists() else 0
            said = self._last_words(running, number)
            full = self._what_fills_the_disk()
            return RunError(f"{title}: {full}" + (f"; its last lines: {said}" if said else ""))
        executions = _executions(running.result)
        if not executions:
            return RunError(f"{title}: {gist(running.process.errors()) or 'could not be started'}")
        last = executions[-1]
        said = self._last_words(running, last.number)
        if not running.program.is_server and running.program.repeat > 1:
            title += f", execution {last.number + 1} of {running.program.repeat}"
        if last.ended_by == "run":
            return RunError(
                f"{title}: not ended {GRACE_S:g} s after the experiment's duration: "
                f"{said or 'it wrote nothing'}; allowed are a longer duration, or allow_failure"
            )
        if last.ended_by == "limit":
            return RunError(f"{title}: not ended within its limit of time: {said or 'no output'}")
        if last.crash:
            return RunError(f"{title} {last.crash}")
        if running.program.is_server and last.status == 0:
            said = f"a server has to run to the end; its last lines: {said or 'none'}"
        return CommandError(running.program.argv, last.status, said, title)

    def _last_words(self, running: _Running, number: int) -> str:
        """The last lines that an execution wrote, to standard error if it wrote anything there."""
        for ending in ("err", "out"):
            path = running.outputs / f"{number}.{ending}"
            if path.exists():
                with path.open("rb") as stream:
                    stream.seek(max(0, path.stat().st_size - _LAST_BYTES))
                    text = stream.read().decode(errors="replace")
                if lines := [line for line in map(str.strip, text.splitlines()) if line]:
                    last = (shortened(line, _LINE_CHARACTERS) for line in lines[-_LAST_LINES:])
                    return " / ".join(last)
        return ""


def bound_processes() -> None:
    """Makes the guest's kernel refuse too many processes, because this machine has each too."""
    there = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    Path("/proc/sys/kernel/threads-max").write_text(str(there + MOST_PROCESSES))


def _executions(result: Path) -> list[ExecutionRecord]:
    if not result.exists():
        return []
    lines = result.read_text(encoding="utf-8").splitlines()
    return [ExecutionRecord.model_validate_json(line) for line in lines]


def record(plan: Plan, program: Program, executions: list[ExecutionRecord]) -> ProgramRecord:
    return ProgramRecord(
        name=program.name,
        host=program.host,
        ip=plan.addresses(program.host)[0],
        command=list(program.argv),
        server=program.is_server,
        port=program.ready_port,
        repeat=program.repeat,
        start_ns=program.start_ns,
        peers=[
            PeerRecord(
                host=peer,
                ip=plan.addresses(peer)[0],
                hops=int(nx.shortest_path_length(plan.graph, program.host, peer)),
                path=plan.path(program.host, peer),
                return_path=plan.path(peer, program.host),
            )
            for peer in program.peers
        ],
        executions=executions,
    )


def warnings_of(program: ProgramRecord) -> list[str]:
    warnings = []
    if len(program.executions) < program.repeat:
        warnings.append(
            f"program {program.name} was executed {len(program.executions)} times of "
            f"{program.repeat} within the duration; a longer duration leaves time for all"
        )
    if program.failures:
        crash = next((each.crash for each in program.executions if each.crash), None)
        warnings.append(
            f"program {program.name} failed in {program.failures} of {len(program.executions)} "
            f"{LET_FAIL}" + (f"; it {crash}" if crash else "")
        )
    lost = sum(execution.output_bytes - execution.kept_bytes for execution in program.executions)
    if lost:
        warnings.append(
            f"program {program.name} wrote more than {MOST_OUTPUT_BYTES >> 20} MiB to a stream, of "
            f"which {lost} bytes were not kept"
        )
    return warnings


POLL_S = 0.005
_END_S = 2.0
_PASSED_BYTES = 64 * 1024


def execute(run: Context, command: Command, watch: Callable[[], None]) -> None:
    """Runs a command to its end, and emits the events `output` and `ended`.

    `watch` is called in between; it raises if something that the network needs has died.

    Raises DeadlineError: it took longer than allowed. It has been ended.
    """
    emit = run.emit
    if run.is_virtual:
        supervisor.take_name(command.host)
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
    fault = supervisor.fault(process.popen) if run.is_virtual else None
    emit({"event": "ended", "status": status, "fault": fault})


def _pass_on(streams: Mapping[str, BinaryIO], emit: Callable[[Mapping[str, Any]], None]) -> None:
    for name, stream in streams.items():
        while data := stream.read(_PASSED_BYTES):
            text = base64.b64encode(data).decode("ascii")
            emit({"event": "output", "stream": name, "data": text})
