"""gdb on the guest's kernel, from a chosen instant on.

The guest's kernel runs at its full speed until its clock reaches that instant. There it stops
itself (patch 0008), and gdb attaches to it, because it is an ordinary process of the user's. When
gdb ends, however it does, the guest goes on. Its clock stands still meanwhile, so nothing in it
can tell.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from outcast.emulation.commands import end_with_parent
from outcast.engines.kernel import headers
from outcast.engines.kernel.cache import MAKE_SYMBOLS, Kernel
from outcast.errors import DeadlineError, FeatureMissingError, GuestError, InputError

IN_GDB = Path(__file__).with_name("in_gdb.py")
SETTINGS = "OUTCAST_DEBUG"
"""The variable that tells in_gdb.py the descriptor of what it is asked for."""

CHECK_DEADLINE_S = 120.0
"""For gdb to read the symbols, which takes two seconds."""
END_DEADLINE_S = 10.0
"""For gdb to end once the guest has ended, if nobody types into it."""
_PR_SET_PTRACER = 0x59616D61
_ANY = ctypes.c_ulong(-1)
_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
_REMEDY = "install the package gdb (apt install gdb)"


@dataclass(frozen=True)
class Request:
    """The work of a debugger once the guest stands.

    Attributes:
        begin_ns: the traffic's start by the guest's clock; times are shown since then.
        breakpoint: a place in the kernel, as gdb writes it, and ` if CONDITION`; empty for none.
        count: the number of hits after which the debugger ends; None means all.
        commands: gdb's commands that are run at each hit, or once if there is no breakpoint.
    """

    begin_ns: int
    host: str | None
    breakpoint: str
    expressions: tuple[str, ...]
    count: int | None
    commands: tuple[str, ...]
    flows: tuple[Mapping[str, int], ...]

    @property
    def is_interactive(self) -> bool:
        """Whether gdb reads commands from its standard input."""
        return not self.breakpoint and not self.commands


class Gdb:
    """gdb with our commands, for which the guest stops at `stop_ns` of its clock since its boot.

    Raises FeatureMissingError: there is no gdb, the kernel has no symbols, or this machine
    forbids it.
    """

    def __init__(self, kernel: Kernel, stop_ns: int, request: Request) -> None:
        self.stop_ns = stop_ns
        self.is_interactive = request.is_interactive
        self._kernel = kernel
        self._request = request
        self._program = require(kernel)
        self._was_started = False
        self._descriptor = os.memfd_create("outcast-debug", 0)

    def check(self) -> None:
        """Lets gdb read the symbols and look for the breakpoint, before a run is made for it.

        Raises:
            InputError: the kernel has no such place.
            FeatureMissingError: this gdb cannot run our commands.
            DeadlineError: gdb does not end.
        """
        process = self._gdb(None, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            process.wait(CHECK_DEADLINE_S)
        except subprocess.TimeoutExpired:
            raise DeadlineError("gdb to read the kernel's symbols", CHECK_DEADLINE_S) from None
        finally:
            end(process)
        said = self._outcome()
        if said is None:
            raise FeatureMissingError(
                f"{self._program} cannot run our commands, which are written in Python; {_REMEDY}"
            )
        if failure := said.get("failure"):
            raise InputError(f"--break {self._request.breakpoint}: {failure}")

    def start(self, pid: int) -> subprocess.Popen[bytes]:
        """Starts gdb on the guest's kernel, which stands."""
        self._was_started = True
        return self._gdb(pid, stdin=None if self.is_interactive else subprocess.DEVNULL)

    def require_done(self) -> None:
        """Raises where gdb ended before it did what it was asked for.

        Raises:
            InputError: gdb could not do what it was asked for; with what it said.
            GuestError: gdb was ended from outside before it had finished.
        """
        said = self._outcome()
        if said is None:
            raise GuestError("gdb ended before it had finished")
        if failure := said.get("failure"):
            raise InputError(f"gdb: {failure}")

    def hits(self) -> int:
        """How often the breakpoint was hit, once gdb has ended.

        Raises as `require_done`, and GuestError where the guest never stopped for gdb.
        """
        if not self._was_started:
            raise GuestError(f"the guest did not stop at {self.stop_ns} ns of its clock")
        self.require_done()
        said = self._outcome()
        return 0 if said is None else int(said["hits"])

    def __enter__(self) -> Gdb:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def _gdb(
        self, pid: int | None, *, stdin: int | None, stdout: int | None = None
    ) -> subprocess.Popen[bytes]:
        source = self._kernel.headers / headers.SOURCE
        settings = {
            **asdict(self._request),
            "interactive": self.is_interactive and pid is not None,
            "pid": pid,
            "program": str(self._kernel.program),
            "sources": [f"{headers.BUILT_AT}/{headers.SOURCE}", str(source)],
        }
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps(settings).encode(), 0)
        return subprocess.Popen(
            [
                self._program,
                "--nx",
                "--quiet",
                "--init-eval-command=set debuginfod enabled off",
                "--init-eval-command=set print symbol-loading off",
                "--init-eval-command=set pagination off",
                f"--exec={self._kernel.program}",
                f"--symbols={self._kernel.symbols}",
                f"--command={IN_GDB}",
            ],
            stdin=stdin,
            stdout=stdout,
            env={**os.environ, SETTINGS: str(self._descriptor)},
            pass_fds=(self._descriptor,),
            preexec_fn=end_with_parent,
        )

    def _outcome(self) -> dict[str, Any] | None:
        """Reads what in_gdb.py left in the settings' place; None if it did not come to that."""
        text = os.pread(self._descriptor, os.fstat(self._descriptor).st_size, 0)
        said: dict[str, Any] = json.loads(text or b"{}")
        return said if "hits" in said else None


def require_gdb() -> str:
    """The path of gdb. Raises FeatureMissingError where gdb is missing."""
    program = shutil.which("gdb")
    if program is None:
        raise FeatureMissingError(f"gdb is missing; {_REMEDY}")
    return program


def require(kernel: Kernel) -> str:
    """The path of gdb. Raises FeatureMissingError where a guest's kernel cannot be debugged."""
    program = require_gdb()
    if not kernel.symbols.is_file():
        raise FeatureMissingError(
            f"the guest's kernel {kernel.key} has no symbols; make the same kernel with them: "
            f"{MAKE_SYMBOLS}"
        )
    scope = _SCOPE.read_text().strip() if _SCOPE.exists() else "0"
    if scope == "3" or (scope == "2" and os.geteuid() != 0):
        raise FeatureMissingError(
            f"this machine forbids debuggers: {_SCOPE} is {scope}; allowed are 0 and 1 "
            "(ptrace(2)), or 2 as root"
        )
    return program


def allow_attaching() -> None:
    """Lets a debugger attach to this process that is none of its parents (ptrace_scope 1)."""
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, _ANY, 0, 0, 0)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kills a debugger that still runs, and reaps it."""
    if process.poll() is None:
        process.kill()
    process.wait(END_DEADLINE_S)


class Attached:
    """A debugger through the life of one guest, whose kernel `pid` is a child of ours.

    `on_start` is given the debugger's process number.
    """

    POLL_S = 0.05

    def __init__(
        self, debugger: Gdb, pid: int, on_start: Callable[[int], None] = lambda pid: None
    ) -> None:
        self._debugger = debugger
        self._guest = pid
        self._on_start = on_start
        self._process: subprocess.Popen[bytes] | None = None
        self._has_ended = False
        self._interrupts = contextlib.ExitStack()

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody types into the debugger now."""
        process = self._process
        return process is not None and process.poll() is None and self._debugger.is_interactive

    def look(self) -> None:
        """Starts the debugger once the guest stands, and lets the guest go on once it has ended."""
        if self._process is None:
            if self._has_stopped():
                if self._debugger.is_interactive:
                    self._interrupts.enter_context(_interrupts_left_to_others())
                self._process = self._debugger.start(self._guest)
                self._on_start(self._process.pid)
        elif not self._has_ended and self._process.poll() is not None:
            self._has_ended = True
            self._interrupts.close()
            self._debugger.require_done()
            self._let_go_on()
        elif self._has_ended and self._has_stopped():
            # It was about to stop itself for a later instant when the debugger ended.
            self._let_go_on()

    def _has_stopped(self) -> bool:
        try:
            return os.waitid(os.P_PID, self._guest, os.WSTOPPED | os.WNOHANG) is not None
        except ChildProcessError:  # It has ended.
            return False

    def _let_go_on(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._guest, signal.SIGCONT)

    def finish(self) -> None:
        """Waits for the debugger, once the guest has closed its console.

        Raises DeadlineError where it does not end, and as `Gdb.require_done`.
        """
        deadline = time.monotonic() + END_DEADLINE_S
        process = self._process
        while process is not None and process.poll() is None:
            if not self._debugger.is_interactive and time.monotonic() > deadline:
                raise DeadlineError("gdb to end after the guest", END_DEADLINE_S)
            time.sleep(self.POLL_S)
        if process is not None:
            self.look()

    def close(self) -> None:
        """Ends the debugger."""
        self._interrupts.close()
        if self._process is not None:
            end(self._process)


@contextlib.contextmanager
def _interrupts_left_to_others() -> Iterator[None]:
    """Ctrl-C is the debugger's while somebody types into it; a terminal sends it to us too."""

    def ignore(_number: int, _frame: FrameType | None) -> None:
        pass

    try:
        before = signal.signal(signal.SIGINT, ignore)
    except ValueError:  # Only a program's main thread has interrupts.
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
