"""Starts external programs and enters network namespaces; no other module does either."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from outcast.errors import CommandError, DeadlineError, FeatureMissingError, RunError

_CLONE_NEWNET = 0x40000000
_MNT_DETACH = 2
_PR_SET_PDEATHSIG = 1
KILL_DEADLINE_S = 10.0
"""How long a killed process may take to end. One that waits for a disk ends later (signal(7))."""
_OWN_NAMESPACE = "/proc/thread-self/ns/net"
_libc = ctypes.CDLL(None, use_errno=True)


def python_module(name: str) -> list[str]:
    """The command that starts a module of outcast, without the working folder on its path.

    With `-m` alone Python would first import files of that folder; see -P in python(1).
    """
    return [sys.executable, "-P", "-m", name]


def leave_working_folder(environment: MutableMapping[str, str]) -> None:
    """Takes relative folders out of PATH and PYTHONPATH.

    They are below the working folder, where a program that a stranger left would run, even as root.
    """
    for variable, otherwise in (("PATH", os.defpath), ("PYTHONPATH", None)):
        if variable not in environment:
            continue
        folders = environment[variable].split(os.pathsep)
        kept = os.pathsep.join(folder for folder in folders if os.path.isabs(folder))
        if kept or otherwise is not None:
            environment[variable] = kept or str(otherwise)
        else:
            del environment[variable]


def end_with_parent() -> None:
    """Has the kernel kill this process when the thread that started it ends; see prctl(2).

    Its children are not killed with it, unless they call this too.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@dataclass(frozen=True)
class Process:
    """A program that runs beside us; `name` is for people, such as "tcpdump on s1-eth1"."""

    name: str
    argv: tuple[str, ...]
    popen: subprocess.Popen[bytes]
    stdout: Path
    stderr: Path

    def errors(self) -> str:
        return self.stderr.read_text(encoding="utf-8", errors="replace")

    def output(self) -> str:
        return self.stdout.read_text(encoding="utf-8", errors="replace")

    def says(self, word: str) -> bool:
        """Whether it has written a line with just this word. Raises CommandError if it ended."""
        self.require_alive()
        return word in self.output().splitlines()

    def await_word(self, word: str, waited_for: str, deadline_s: float) -> None:
        """Waits until it `says` the word. Raises DeadlineError where it does not in time."""
        wait_until(lambda: self.says(word), waited_for, deadline_s, detail=self.errors)

    def tell(self, line: str) -> None:
        """Writes a line to its standard input and closes that; see `hears` of spawn.

        Raises CommandError: it has already ended.
        """
        assert self.popen.stdin is not None
        try:
            self.popen.stdin.write(f"{line}\n".encode())
            self.popen.stdin.close()
        except BrokenPipeError:
            status = self.wait(KILL_DEADLINE_S)
            raise CommandError(self.argv, status, self.errors() or self.output()) from None

    def require_alive(self) -> None:
        if self.popen.poll() is not None:
            raise self.failure()

    def failure(self) -> CommandError:
        return CommandError(
            self.argv, self.popen.returncode, self.errors() or self.output(), self.name
        )

    def wait(self, deadline_s: float) -> int:
        try:
            return self.popen.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise DeadlineError(f"the end of {self.name}", deadline_s) from None

    def end(self, signal_number: int, deadline_s: float) -> int:
        if self.popen.poll() is None:
            self.popen.send_signal(signal_number)
        return self.wait(deadline_s)


@dataclass
class SystemCommands:
    """Starts programs, and kills those that still run when the block ends.

    `netns` is an open descriptor of a network namespace.
    """

    environment: dict[str, str] = field(default_factory=dict)
    started: list[Process] = field(default_factory=list)

    def __enter__(self) -> SystemCommands:
        return self

    def __exit__(self, failed: type[BaseException] | None, *_error: object) -> None:
        # An error of the block says more than that a killed process has not ended.
        with contextlib.suppress(*([DeadlineError] if failed else [])):
            self.end_all()

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: str | None = None,
        netns: int | None = None,
        deadline_s: float = 30.0,
    ) -> str:
        """Runs a program to its end and returns its standard output. Raises CommandError."""
        try:
            with entered(netns):
                popen = subprocess.Popen(
                    list(argv),
                    stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    encoding="utf-8",
                    errors="replace",
                    env={**os.environ, **self.environment},
                )
        except OSError as error:
            raise _not_started(argv[0], error) from None
        try:
            output, errors = popen.communicate(stdin, timeout=deadline_s)
        except subprocess.TimeoutExpired:
            popen.kill()
            # What it has started may hold its output open.
            with contextlib.suppress(subprocess.TimeoutExpired):
                popen.communicate(timeout=KILL_DEADLINE_S)
            raise DeadlineError(f"the end of {' '.join(argv)}", deadline_s) from None
        if popen.returncode:
            raise CommandError(argv, popen.returncode, errors or output)
        return output

    def spawn(
        self,
        name: str,
        argv: Sequence[str],
        *,
        stdout: Path,
        stderr: Path,
        netns: int | None = None,
        environment: Mapping[str, str] | None = None,
        hears: bool = False,
    ) -> Process:
        """Starts a program beside this one. With `hears`, `tell` can write a line to its input."""
        try:
            with stdout.open("wb") as out, stderr.open("wb") as err, entered(netns):
                popen = subprocess.Popen(
                    list(argv),
                    stdin=subprocess.PIPE if hears else subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    env={**os.environ, **self.environment, **(environment or {})},
                )
        except OSError as error:
            raise _not_started(argv[0], error) from None
        process = Process(name, tuple(argv), popen, stdout, stderr)
        self.started.append(process)
        return process

    def end_all(self) -> None:
        """Kills what still runs. In a run that ends well nothing does.

        Raises DeadlineError: killed processes have not ended, as while they wait for a disk.
        """
        running = [process for process in reversed(self.started) if process.popen.poll() is None]
        for process in running:
            process.popen.kill()
        end = time.monotonic() + KILL_DEADLINE_S
        late = []
        for process in running:
            try:
                process.popen.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                late.append(process.name)
        if late:
            raise DeadlineError(f"the end of {', '.join(late)} after SIGKILL", KILL_DEADLINE_S)


def _not_started(program: str, error: OSError) -> RunError | FeatureMissingError:
    if isinstance(error, FileNotFoundError):
        return FeatureMissingError(f"{program}: no such program; scripts/install.sh installs it")
    return RunError(f"{program} cannot be started: {error.strerror}")


@contextlib.contextmanager
def entered(netns: int | None) -> Iterator[None]:
    """Moves this thread into a network namespace; with None it stays. See setns(2)."""
    if netns is None:
        yield
        return
    with _coming_back():
        _setns(netns)
        yield


def new_namespace() -> int:
    """An open descriptor of a new network namespace, which ends with it. See unshare(2)."""
    with _coming_back():
        if _libc.unshare(_CLONE_NEWNET):
            raise RunError(f"a new network namespace: {os.strerror(ctypes.get_errno())}")
        return os.open(_OWN_NAMESPACE, os.O_RDONLY)


@contextlib.contextmanager
def _coming_back() -> Iterator[None]:
    home = os.open(_OWN_NAMESPACE, os.O_RDONLY)
    try:
        yield
    finally:
        _setns(home)
        os.close(home)


@contextlib.contextmanager
def sysfs(netns: int | None, folder: Path) -> Iterator[Path]:
    """Mounts the /sys of a network namespace on `folder`, because /sys shows another one."""
    with entered(netns):
        if _libc.mount(b"sysfs", os.fsencode(folder), b"sysfs", 0, None):
            raise RunError(f"mounting sysfs: {os.strerror(ctypes.get_errno())}")
    try:
        yield folder
    finally:
        _libc.umount2(os.fsencode(folder), _MNT_DETACH)


def _setns(descriptor: int) -> None:
    if _libc.setns(descriptor, _CLONE_NEWNET):
        raise RunError(f"entering a network namespace: {os.strerror(ctypes.get_errno())}")


def wait_until(
    condition: Callable[[], bool],
    waited_for: str,
    deadline_s: float,
    *,
    pause_s: float = 0.02,
    detail: Callable[[], str] = str,
) -> None:
    """Polls until `condition` holds. Raises DeadlineError with `detail()` after the deadline."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            raise DeadlineError(waited_for, deadline_s, detail())
        time.sleep(pause_s)


def still_running(processes: Iterable[Process]) -> list[str]:
    """The names of programs that have not ended. Raises CommandError where one has failed."""
    still = []
    for process in processes:
        status = process.popen.poll()
        if status is None:
            still.append(process.name)
        elif status:
            raise process.failure()
    return still
