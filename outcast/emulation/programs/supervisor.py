"""Runs one program of the configuration: `main` with TASK START RESULT.

It runs in the program's host and uses only the standard library (`outcast.emulation.standalone`).
TASK is JSON, see launch.py. A server is started at once. A client is executed `repeat` times, one
after the other, once the file START with the traffic's start is there. RESULT gets a JSON line for
each execution that has ended.

In the virtual engine a program is confined: it sees neither the run's directory nor what the run
itself works with, and lacks the capabilities by which root would get there (capabilities(7)).

It says on standard output, a line each: `ready` when it waits for START, `line` when a server has
written the text that shows its readiness. At SIGTERM it ends what still runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import glob
import json
import os
import re
import resource
import select
import signal
import subprocess
import sys
import time
from typing import IO, Any

from outcast.emulation.standalone import await_start, say

DISK_FULL = 3
"""The exit status where the disk is full. Nothing can be written then that says so."""
_FULL = (errno.ENOSPC, errno.EDQUOT)
START_POLL_S = 0.001
END_S = 2.0
"""How long a program has from SIGTERM until SIGKILL."""
_READ_BYTES = 64 * 1024
_LONGEST_LINE_BYTES = 64 * 1024

_WHOLE_SECONDS = 0x2000000
"""The personality of programs that wait where they spin (personality(2), patch 0022)."""
_CLONE_NEWNS, _CLONE_NEWUTS, _MNT_DETACH, _PR_CAPBSET_DROP = 0x20000, 0x4000000, 2, 24
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
_WITHHELD = {
    "DAC_READ_SEARCH": 2,
    "SYS_MODULE": 16,
    "SYS_RAWIO": 17,
    "SYS_PTRACE": 19,
    "SYS_ADMIN": 21,
    "SYS_BOOT": 22,
    "SYS_TIME": 25,
    "MKNOD": 27,
    "PERFMON": 38,
    "BPF": 39,
    "CHECKPOINT_RESTORE": 40,
}
"""Capabilities that a confined program does not get (linux/capability.h)."""
_READ_ONLY = ("/proc/sys/kernel", "/sys")
"""Here root can name programs that the kernel starts outside of the confinement, for example by
core_pattern (core(5))."""
_CONSOLES = ("/dev/tty[0-9]*", "/dev/console")
"""By these the run reports to the host what happens."""

_MOST_INTERPRETER_BYTES = 256
"""How much of a first line the kernel reads (BINPRM_BUF_SIZE in linux/binfmts.h)."""
_SYSLOG_READ_ALL = 3
_FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)

Task = dict[str, Any]
Budgets = tuple[list[int], list[int]]
"""How many more bytes of standard output and of errors are kept."""


class Output:
    """One stream of one execution: its first bytes go to a file, the others are counted."""

    def __init__(self, stream: IO[bytes], path: str, budget: list[int], text: bytes | None) -> None:
        self.stream, self.path, self.text = stream, path, text
        self.budget = budget
        self.written = self.kept = 0
        self._file: IO[bytes] | None = None
        self._line = b""
        os.set_blocking(stream.fileno(), False)

    def take(self) -> bool:
        """Reads what has come. Returns whether more may come."""
        try:
            data = os.read(self.stream.fileno(), _READ_BYTES)
        except BlockingIOError:
            return True
        self.written += len(data)
        kept = data[: self.budget[0]]
        if kept:
            if self._file is None:
                self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115
            self._file.write(kept)
            self.budget[0] -= len(kept)
            self.kept += len(kept)
        if self.text is not None:
            *lines, self._line = (self._line + data).split(b"\n")
            self._line = self._line[-_LONGEST_LINE_BYTES:]
            if any(self.text in line for line in lines):
                self.text = None
                say("line")
        return bool(data)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self.stream.close()


class Ended(Exception):
    """SIGTERM came."""


_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"to set up a program's host, {what}: {os.strerror(number)}")


def _mount(source: str, target: str, flags: int, kind: bytes | None = None) -> None:
    made = _libc.mount(os.fsencode(source), os.fsencode(target), kind, flags, None)
    _checked(made, f"mount {target}")


def take_name(host: str) -> None:
    """Gives this process, and all that it starts, a host name of their own (uts_namespaces(7))."""
    name = os.fsencode(host)
    _checked(_libc.unshare(_CLONE_NEWUTS), "unshare")
    _checked(_libc.sethostname(name, len(name)), "sethostname")


def take_folders(own: dict[str, int], working: str) -> None:
    """Puts a host's own folders in place of those that all hosts share.

    `own` has a folder's descriptor by the path at which it is mounted. The `working` folder stays.
    """
    kept = os.open(working, os.O_PATH)
    for path, descriptor in own.items():
        _mount(f"/proc/self/fd/{descriptor}", path, _MS_BIND)
    os.makedirs(working, exist_ok=True)
    _mount(f"/proc/self/fd/{kept}", working, _MS_BIND)
    os.close(kept)


def confine(host: str, run_directory: str, hidden: str, visible: list[str]) -> None:
    """Hides the run from this process and from all that it starts.

    The run directory is unmounted. Of the folder `hidden` only the paths `visible` below it stay.
    Only this process keeps its capabilities, so programs cannot read it by /proc (ptrace(2), access
    mode checking).
    """
    take_name(host)
    _checked(_libc.personality(_WHOLE_SECONDS) == -1, "personality")
    kept = [(path, os.open(path, os.O_PATH)) for path in visible]
    _mount("tmpfs", hidden, 0, b"tmpfs")
    for path, descriptor in kept:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            os.mkdir(path)
        else:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
        _mount(f"/proc/self/fd/{descriptor}", path, _MS_BIND)
        os.close(descriptor)
    _checked(_libc.umount2(os.fsencode(run_directory), _MNT_DETACH), f"umount {run_directory}")
    for path in filter(os.path.isdir, _READ_ONLY):
        _mount(path, path, _MS_BIND)
        _mount(path, path, _MS_BIND | _MS_REMOUNT | _MS_RDONLY)
    for path in sorted(name for pattern in _CONSOLES for name in glob.glob(pattern)):
        _mount("/dev/null", path, _MS_BIND)
    for name, number in _WITHHELD.items():
        _checked(_libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0), f"prctl {name}")


def out_of_sight(path: str) -> str:
    """A path of the same folder that this process alone can use, also after `confine`."""
    return f"/proc/self/fd/{os.open(path, os.O_PATH | os.O_DIRECTORY)}"


def execute(task: Task, number: int, end_ns: int | None, budgets: Budgets) -> dict[str, Any]:
    """Runs the program once, and returns the record of this execution, whose `number` is from 0.

    It is ended at the epoch time `end_ns`, which is None for a server.
    """
    environment = {**task["environment"], "OUTCAST_EXECUTION": str(number)}
    limits = {name: most for name, most in task["limits"].items() if most is not None}
    t_start_ns = time.time_ns()
    late = "run"
    if task["time_ns"] is not None and (end_ns is None or t_start_ns + task["time_ns"] < end_ns):
        end_ns, late = t_start_ns + task["time_ns"], "limit"
    try:
        popen = subprocess.Popen(
            task["argv"],
            cwd=task["folder"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=(lambda: _limit(limits)) if limits else None,
        )
    except FileNotFoundError:
        raise RuntimeError(_why_not_found(task["argv"][0])) from None
    assert popen.stdout is not None
    assert popen.stderr is not None
    text = task["line"].encode() if task["line"] is not None else None
    prefix = os.path.join(task["outputs"], str(number))
    outputs = [
        Output(popen.stdout, f"{prefix}.out", budgets[0], text),
        Output(popen.stderr, f"{prefix}.err", budgets[1], text),
    ]
    ended_by = "itself"
    try:
        if not _follow(popen, outputs, end_ns):
            ended_by = late
            _end(popen, outputs)
    except Ended:
        ended_by = "run"
        _end(popen, outputs)
    t_end_ns = time.time_ns()
    for output in outputs:
        output.close()
    status = popen.returncode
    if ended_by != "itself" and not task["server"]:
        # A client that was late has failed, also where it takes SIGTERM and exits with 0.
        status = status or -signal.SIGTERM
    return {
        "number": number,
        "t_start_ns": t_start_ns,
        "t_end_ns": t_end_ns,
        "status": status,
        "ended_by": ended_by,
        "output_bytes": sum(output.written for output in outputs),
        "kept_bytes": sum(output.kept for output in outputs),
        "fault": fault(popen) if task["confined"] is not None else None,
    }


def _why_not_found(path: str) -> str:
    """Why execve(2) finds no program, which may be its interpreter."""
    if not os.path.exists(path):
        return f"{path}: there is no such file"
    with open(path, "rb") as stream:
        line = stream.readline(_MOST_INTERPRETER_BYTES)
    if not line.startswith(b"#!"):
        return "the loader that it asks for is not there"
    wanted = line[2:].strip(b" \n").decode(errors="replace")
    return f"its first line asks for {wanted!r}, which is not there"


def budgets_of(task: Task) -> Budgets:
    """Each stream has its own, because errors say why a program failed."""
    return [task["most_output_bytes"]], [task["most_output_bytes"]]


def _limit(limits: dict[str, int]) -> None:
    for name, most in limits.items():
        resource.setrlimit(getattr(resource, name), (most, most))


def fault(popen: subprocess.Popen[bytes]) -> str | None:
    """Where a program crashed, as the guest's kernel wrote it (syslog(2)); None if nowhere."""
    number = -(popen.returncode or 0)
    if number not in (*_FAULTS, signal.SIGKILL):
        return None
    log = ctypes.create_string_buffer(1 << 16)
    size = ctypes.CDLL(None).klogctl(_SYSLOG_READ_ALL, log, len(log))
    text = log.raw[: max(0, size)].decode(errors="replace")
    if number == signal.SIGKILL:
        return "out of memory" if f"Killed process {popen.pid} " in text else None
    found = re.findall(rf"\[{popen.pid}\]: (segfault.*)", text)
    return found[-1][:300].strip() if found else None


def _follow(popen: subprocess.Popen[bytes], outputs: list[Output], end_ns: int | None) -> bool:
    """Reads the output until the program has ended; whether it did so before `end_ns`.

    A child of the program may hold the output open for longer. It is not waited for.
    """
    process = os.pidfd_open(popen.pid)
    waiting = select.poll()
    waiting.register(process, select.POLLIN)
    by_number = {output.stream.fileno(): output for output in outputs}
    for descriptor in by_number:
        waiting.register(descriptor, select.POLLIN)
    try:
        while True:
            left_ms = None
            if end_ns is not None:
                left_ms = -(-(end_ns - time.time_ns()) // 10**6)
                if left_ms <= 0:
                    return False
            for descriptor, _ in waiting.poll(left_ms):
                if descriptor == process:
                    popen.wait()
                    for output in by_number.values():
                        _read_rest(output)
                    return True
                if not by_number[descriptor].take():
                    waiting.unregister(descriptor)
                    del by_number[descriptor]
    finally:
        os.close(process)


def _read_rest(output: Output) -> None:
    before = -1
    while output.written > before:
        before = output.written
        output.take()


def _end(popen: subprocess.Popen[bytes], outputs: list[Output]) -> None:
    """Ends the program and all processes of its session."""
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for number, patience_s in ((signal.SIGTERM, END_S), (signal.SIGKILL, END_S)):
        try:
            os.killpg(popen.pid, number)
        except ProcessLookupError:
            break
        if _follow(popen, outputs, time.time_ns() + int(patience_s * 1e9)):
            break
    with contextlib.suppress(ProcessLookupError):
        # What the program had started and left behind.
        os.killpg(popen.pid, signal.SIGKILL)
    popen.wait()
    signal.signal(signal.SIGTERM, before)  # Or the next execution would ignore it too.


def run_client(task: Task, t_start_ns: int, result_file: str) -> int:
    """Executes a client as often as requested; 1 if an execution failed and must not."""
    budgets = budgets_of(task)
    begin_ns = t_start_ns + task["start_ns"]
    for number in range(task["repeat"]):
        due_ns = begin_ns + number * task["every_ns"] if task["every_ns"] else begin_ns
        sleep_until(due_ns)
        if time.time_ns() >= t_start_ns + task["duration_ns"]:
            return 0
        record = execute(task, number, t_start_ns + task["end_ns"], budgets)
        note(result_file, record)
        failed = record["status"] != 0 or record["ended_by"] != "itself"
        if record["ended_by"] == "run" or (failed and not task["allow_failure"]):
            return int(not task["allow_failure"])
    return 0


def sleep_until(t_ns: int) -> None:
    while (left_ns := t_ns - time.time_ns()) > 0:
        time.sleep(left_ns / 1e9)


def note(result_file: str, record: dict[str, Any]) -> None:
    with open(result_file, "a", encoding="utf-8") as stream:
        stream.write(json.dumps(record) + "\n")


def _on_signal(_number: int, _frame: object) -> None:
    raise Ended


def main(argv: list[str]) -> int:
    task_file, start_file, result_file = argv
    with open(task_file, encoding="utf-8") as stream:
        task: Task = json.load(stream)
    signal.signal(signal.SIGTERM, _on_signal)
    try:
        # The program may not see these where they are, and we still have to.
        task["outputs"] = out_of_sight(task["outputs"])
        ours = out_of_sight(os.path.dirname(start_file))
        start_file, result_file = (
            os.path.join(ours, os.path.basename(file)) for file in (start_file, result_file)
        )
        if task["confined"] is not None or task["own"]:
            # Mounts from here on are those of this process and of all that it starts.
            _checked(_libc.unshare(_CLONE_NEWNS), "unshare")
            _mount("none", "/", _MS_REC | _MS_PRIVATE)
        # Only what was opened here can be mounted here again.
        own = {path: os.open(folder, os.O_PATH) for path, folder in task["own"].items()}
        if task["confined"] is not None:
            confine(**task["confined"])
        if own:
            take_folders(own, task["folder"])
        if not task["server"]:
            say("ready")
            return run_client(task, await_start(start_file, START_POLL_S), result_file)
        record = execute(task, 0, None, budgets_of(task))
        note(result_file, record)
        return int(record["ended_by"] != "run")
    except Ended:
        return 0
    except (OSError, RuntimeError) as error:
        if isinstance(error, OSError) and error.errno in _FULL:
            # An orderly exit would flush standard output again, and fail with another status.
            os._exit(DISK_FULL)
        sys.stderr.write(f"{error}\n")
        return 1
