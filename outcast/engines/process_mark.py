"""Processes of ours, told apart from later ones that have the same number."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field

from outcast.errors import DeadlineError

KILL_DEADLINE_S = 10.0


@dataclass(frozen=True, slots=True)
class ProcessMark:
    """A process, told apart from a later one with the same number.

    `start_ticks` is its start time since boot, in clock ticks (proc(5), stat, field 22).
    """

    pid: Annotated[int, Field(gt=0, lt=1 << 31)]
    start_ticks: Annotated[int, Field(ge=0, lt=1 << 63)]
    __pydantic_config__ = ConfigDict(extra="forbid")

    @classmethod
    def of(cls, pid: int) -> ProcessMark:
        """The mark of a living process. Raises ProcessLookupError where there is none."""
        ticks = _start_ticks(pid)
        if ticks is None:
            raise ProcessLookupError(pid)
        return cls(pid, ticks)

    def is_alive(self) -> bool:
        """Whether this process, and no later one, still runs."""
        return _start_ticks(self.pid) == self.start_ticks


def _start_ticks(pid: int) -> int | None:
    try:
        stat_line = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat_line.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def user_of(pid: int) -> int | None:
    """The user that a process runs as; None where there is no such process."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            if line.startswith("Uid:"):
                return int(line.split()[1])
    return None


def this_boot() -> str:
    """The name of this boot of the kernel. Process numbers and settings hold for one boot only."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class NotOursError(Exception):
    """An item on a page that no run of ours can have made."""


def kill(mark: ProcessMark) -> bool:
    """Kills a process of ours and waits for its end. Returns whether it was still alive."""
    try:
        # From here on the descriptor means one process, whatever its number comes to mean
        # (pidfd_open(2)).
        descriptor = os.pidfd_open(mark.pid)
    except (ProcessLookupError, OverflowError):
        return False
    try:
        if not mark.is_alive():
            return False
        if (user := user_of(mark.pid)) not in (os.geteuid(), None):
            raise NotOursError(f"belongs to user {user}")
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    finally:
        os.close(descriptor)
    end = time.monotonic() + KILL_DEADLINE_S
    while mark.is_alive():
        if time.monotonic() > end:
            raise DeadlineError(f"process {mark.pid} to end", KILL_DEADLINE_S)
        time.sleep(0.02)
    return True
