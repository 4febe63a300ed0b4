"""A guest's output and console until it ends, and why it ended."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from outcast.engines.guest import init
from outcast.errors import GuestError, StallError, how_ended

_HOST_ERROR = re.compile(r"(.*\bfailed)\b[ ,-]+errno = -?([0-9]+)")
_CRASHED_AT = re.compile(r"RIP: [0-9a-f]{4}:([A-Za-z_][^ ]*\+0x[^ ]+(?: \[\w+\])?)")
_FATE_LINE = re.compile(r"outcast (noise|fate): ([0-9 -]+)$")
CONSOLE_LINES = 200
PIPE_BYTES = 1 << 20
END_DEADLINE_S = 120.0


@dataclass(frozen=True)
class GuestResult:
    """A guest that ran its payload to the end.

    Attributes:
        status: the payload's exit status; negative for the signal that ended it.
        console: the last lines of the kernel's messages and the payload's standard error.
        fates: what the kernel did to packets, the words of a line for each (patch 0019).
    """

    status: int
    boot_s: float
    wall_s: float
    console: tuple[str, ...]
    fates: tuple[tuple[str, ...], ...] = ()

    @property
    def host_failure(self) -> str:
        """What the guest's kernel could not get from the host, in words; empty if nothing."""
        return _host_failure(self.console)

    def said(self) -> list[str]:
        """The console without the kernel's line that it halts."""
        return [line for line in self.console if not line.startswith("reboot: ")]


def _host_failure(console: Iterable[str]) -> str:
    """The first complaint of a User-Mode Linux kernel about the host (arch/um/os-Linux)."""
    for line in console:
        if line.startswith("Bus error - the host"):
            return f"the guest's kernel: {line}"
        match = _HOST_ERROR.match(line)
        if match is not None:
            return f"the guest's kernel: {match[1]}: {os.strerror(int(match[2]))}"
    return ""


class Console:
    """Gathers the messages of the guest's kernel and the program's standard error."""

    def __init__(self, on_message: Callable[[str], None], on_booted: Callable[[], None]) -> None:
        self._on_message, self._on_booted = on_message, on_booted
        self._began = time.monotonic()
        self._lines: deque[str] = deque(maxlen=CONSOLE_LINES)
        self._fates: list[tuple[str, ...]] = []
        self._boot_s = 0.0
        self._status: int | None = None

    def take(self, line: str) -> None:
        if line.startswith(init.BEAT_LINE):
            return
        if (match := _FATE_LINE.match(line)) is not None:
            self._fates.append((match[1], *match[2].split()))
            return
        if line.startswith(init.START_LINE):
            self._boot_s = time.monotonic() - self._began
            self._on_booted()
        if line.startswith(init.EXIT_LINE):
            self._status = int(line.removeprefix(init.EXIT_LINE))
        elif line:
            self._lines.append(line)
            self._on_message(line)

    def last(self) -> str:
        """The last line, as the end of a sentence."""
        return f"; its last line: {self._lines[-1]}" if self._lines else ""

    def result(self, ended: int) -> GuestResult:
        """The result of a guest whose kernel had this status. Raises GuestError if it failed."""
        if self._status is None or _panics(self._lines):
            raise GuestError(_why(ended, self._lines, self.last()))
        if refused := _refused(self._lines):
            raise GuestError(refused)
        wall_s = time.monotonic() - self._began
        return GuestResult(
            self._status, self._boot_s, wall_s, tuple(self._lines), tuple(self._fates)
        )


def follow(
    process: subprocess.Popen[bytes],
    on_line: Callable[[str], None],
    console: Console,
    stall_s: float,
) -> GuestResult:
    """Reads both outputs until the guest has ended."""
    silent_since_s: float | None = None
    told_s = waited_s = 0.0
    assert process.stdout is not None
    assert process.stderr is not None
    with selectors.DefaultSelector() as selector:
        for stream, take in ((process.stdout, on_line), (process.stderr, console.take)):
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ, _Lines(take))
        while selector.get_map():
            ready = selector.select(stall_s / 10)
            if ready:
                silent_since_s = None
            else:
                # A process that has ended is not in the sum any more, so the sum can shrink.
                before_s, told_s = told_s, _waited_s(process.pid)
                waited_s += max(0.0, told_s - before_s)
                now_s = time.monotonic() - waited_s
                silent_since_s = now_s if silent_since_s is None else silent_since_s
                # This process may have waited for a processor too, and not read what came.
                if now_s - silent_since_s >= stall_s and not selector.select(0):
                    said = console.last()
                    raise StallError(f"the guest: no sign of life for {stall_s:g} s{said}")
            for key, _ in ready:
                data = os.read(key.fd, PIPE_BYTES)
                key.data.feed(data)
                if not data:
                    selector.unregister(key.fileobj)
    try:
        ended = process.wait(END_DEADLINE_S)
    except subprocess.TimeoutExpired:
        raise GuestError(
            f"the guest: it closed its console and did not end{console.last()}"
        ) from None
    return console.result(ended)


def _waited_s(pid: int) -> float:
    """Seconds that a process and its descendants could have run and had no processor.

    Other programs can keep a guest from one for minutes (Documentation/scheduler/sched-stats.rst).
    """
    waited_s = 0.0
    with contextlib.suppress(OSError, ValueError, IndexError):
        waited_s = int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            waited_s += _waited_s(int(child))
    return waited_s


class _Lines:
    """Cuts a stream of bytes into lines of text."""

    def __init__(self, take: Callable[[str], None]) -> None:
        self._take = take
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Takes the next bytes; none mean the end of the stream."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if not data and self._rest:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            self._take(line.rstrip(b"\r").decode(errors="replace"))


def _panicked_in(console: Iterable[str]) -> str:
    """The function in which the kernel crashed, as `, in cubictcp_acked+0x2/0xaf0 [tcp_mine]`."""
    places = [match[1] for line in console if (match := _CRASHED_AT.match(line))]
    return f", in {places[-1]}" if places else ""


def _panics(console: Iterable[str]) -> list[str]:
    return [line for line in console if "Kernel panic" in line]


def _refused(console: Iterable[str]) -> str:
    """Why the guest's kernel refused a module, in its words; empty if it took them all."""
    said: list[str] = []
    for line in console:
        if line == init.SAID_LINE:
            said = []
        elif line.startswith(init.REFUSED_LINE):
            why = line.removeprefix(init.REFUSED_LINE).removeprefix(": ")
            words = f"; the kernel says: {' | '.join(said)}" if said else ""
            return f"the guest's kernel refused the module {why}{words}"
        elif "taints kernel" not in line:
            said.append(line)
    return ""


def _why(ended: int, console: Sequence[str], last: str) -> str:
    """Why a guest ended before its program did."""
    host = _host_failure(console)
    if panics := _panics(console):
        panicked = f"its kernel panicked: {panics[0]}{_panicked_in(console)}"
        return f"{host}; {panicked}" if host else f"the guest: {panicked}"
    if ended < 0:
        return f"the guest's kernel{how_ended(ended)}"
    return host or f"the guest's kernel{how_ended(ended)}{last}"
