"""The ledger: what each run in progress has made, so that `outcast clean` can remove just that.

Each run has a JSON file, its page. It is written before a thing is made and deleted when the run
has ended, so a killed run leaves its page behind. Namespaces die with their process, so a page
names what does not: processes, folders, settings of the machine, and modules in its kernel. Only
this user can write to the folder (see `outcast.engines.private`), so a page is believed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, Field

from outcast.engines import modules, private
from outcast.errors import DeadlineError, RunError, shortened

_Item = TypeVar("_Item")

KILL_DEADLINE_S = 10.0
_LINE_CHARACTERS = 400


class ProcessMark(BaseModel, frozen=True):
    """A process, told apart from a later one with the same number.

    `start_ticks` is its start time since boot, in clock ticks (proc(5), stat, field 22).
    """

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> ProcessMark:
        """The mark of a living process. Raises ProcessLookupError where there is none."""
        ticks = _start_ticks(pid)
        if ticks is None:
            raise ProcessLookupError(pid)
        return cls(pid=pid, start_ticks=ticks)

    def is_alive(self) -> bool:
        """Whether this process, and no later one, still runs."""
        return _start_ticks(self.pid) == self.start_ticks

    def kill(self) -> bool:
        """Kills the process and waits for its end. Returns whether it was still alive."""
        try:
            # From here on the descriptor means one process, whatever its number comes to mean
            # (pidfd_open(2)).
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            if not self.is_alive():
                return False
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)
        end = time.monotonic() + KILL_DEADLINE_S
        while self.is_alive():
            if time.monotonic() > end:
                raise DeadlineError(f"process {self.pid} to end", KILL_DEADLINE_S)
            time.sleep(0.02)
        return True


def _start_ticks(pid: int) -> int | None:
    try:
        stat_line = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat_line.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def _this_boot() -> str:
    """The name of this boot of the kernel. Process numbers and settings hold for one boot only."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def default_folder() -> Path:
    """The folder of this user's ledger. Raises ConfigError where there is no place for it."""
    return private.place()


class Entry(BaseModel):
    """One run's page, in its file.

    Attributes:
        owner: the process of the `outcast` command.
        settings: the former values of changed files under /proc/sys, by path.
        modules: the user's modules that it loaded into the machine's kernel, in this order.
        reserved: the empty folder that holds its result's place.
        boot: the boot of the kernel that the page is about.
    """

    file: Path = Field(exclude=True)
    owner: ProcessMark
    processes: list[ProcessMark] = []
    folders: list[str] = []
    settings: dict[str, str] = {}
    modules: list[str] = []
    reserved: str | None = None
    boot: str = Field(default_factory=_this_boot)

    def note_folder(self, folder: Path) -> None:
        """Notes a folder, which is best done before it is made. Raises OSError as `write`."""
        self.folders.append(str(folder))
        self.write()

    def note_process(self, pid: int) -> None:
        """Notes a process that was started. Raises OSError as `write`."""
        self.processes.append(ProcessMark.of(pid))
        self.write()

    def write(self) -> None:
        """Writes the page whole or not at all. Raises OSError, which names the file."""
        temporary = self.file.with_name(f".{self.file.name}.tmp")
        try:
            private.make(self.file.parent)
            temporary.write_text(self.model_dump_json(indent=1), encoding="utf-8")
            temporary.replace(self.file)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise OSError(error.errno, error.strerror, str(self.file)) from None

    def remove(self) -> None:
        """Deletes the page. The folder may have gone, as a login's does when the user logs out."""
        self.file.unlink(missing_ok=True)

    def is_dead(self) -> bool:
        """Whether its run has ended."""
        return self.boot != _this_boot() or not self.owner.is_alive()

    def undo(self) -> list[str]:
        """Removes all that the page names, and the page. Returns what was done, in words.

        What could not be undone is named and stays on the page for the next time.
        """
        self.processes, done = _undo(self.processes, self._end, lambda mark: f"process {mark.pid}")
        remaining, said = _undo([*self.settings.items()], self._restore, lambda item: item[0])
        self.settings, done = dict(remaining), [*done, *said]
        # A module may use one that was loaded before it.
        loaded, said = _undo(self.modules[::-1], self._unload, lambda name: f"the module {name}")
        self.modules = loaded[::-1]
        self.folders, removed = _undo(self.folders, _remove_folder, str)
        if self.reserved is not None and not self.folders:
            with contextlib.suppress(OSError):
                os.rmdir(self.reserved)
        if self.processes or self.settings or self.modules or self.folders:
            self.write()
        else:
            self.remove()
        return [*done, *said, *removed]

    def _end(self, mark: ProcessMark) -> str | None:
        is_ended = self.boot == _this_boot() and mark.kill()
        return f"ended process {mark.pid}" if is_ended else None

    def _restore(self, item: tuple[str, str]) -> str | None:
        path, value = item
        # After another boot the setting has that boot's own value.
        if self.boot != _this_boot() or not Path(path).exists():
            return None
        Path(path).write_text(value)
        return f"set {path} back to {value!r}"

    def _unload(self, name: str) -> str | None:
        if self.boot != _this_boot() or not modules.is_loaded_module(name):
            return None
        modules.unload(name)
        return f"unloaded the module {name}"


def _undo(
    items: list[_Item], undo: Callable[[_Item], str | None], name: Callable[[_Item], str]
) -> tuple[list[_Item], list[str]]:
    """Undoes items one by one. Returns those that are left, and what was done in words."""
    remaining, done = [], []
    for item in items:
        try:
            said = undo(item)
        except (OSError, RunError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            said = f"left {name(item)}: {why}"
            remaining.append(item)
        if said is not None:
            done.append(said)
    return remaining, done


def _remove_folder(name: str) -> str | None:
    # It follows no link, neither in place of the folder nor in it.
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(name)
        return f"removed {name}"
    return None


def open_entry(folder: Path) -> Entry:
    """A new page for this process. Raises ConfigError where the folder is not ours."""
    private.make(folder)
    number = 0
    while (file := folder / f"run-{os.getpid()}-{number}.json").exists():
        number += 1
    entry = Entry(file=file, owner=ProcessMark.of(os.getpid()))
    entry.write()
    return entry


def read_entries(folder: Path) -> list[Entry]:
    """All pages, of running and of dead runs. What is no page of this version is passed by."""
    entries = []
    for path in sorted(folder.glob("run-*.json")):
        with contextlib.suppress(FileNotFoundError, TypeError, ValueError):
            entries.append(Entry(file=path, **json.loads(path.read_bytes())))
    return entries


def begin(tell: Callable[[str], None] = lambda text: None) -> Entry:
    """A new page for this process, after what dead runs of this user left is removed.

    It does not wait for another run that removes it just now. `tell` is given one line if anything
    was left. Raises ConfigError where there is no folder for it.
    """
    tell_undone(undo_dead(), tell)
    return open_entry(default_folder())


def tell_undone(done: list[str], tell: Callable[[str], None]) -> None:
    """Tells in one line what was done about what killed runs left, if anything was."""
    if done:
        tell(f"left by a killed run: {shortened('; '.join(done), _LINE_CHARACTERS)}")


def undo_dead(*, waits: bool = False) -> list[str]:
    """Removes what dead runs of this user left; see `clean`."""
    return clean(default_folder(), waits=waits)


def clean(folder: Path, *, waits: bool = True) -> list[str]:
    """Undoes every page whose run is dead. Returns what was done and what was not, in words.

    Of several runs that begin at once, one does it. The others go on, unless they are to wait.
    """
    done: list[str] = []
    if any(entry.is_dead() for entry in read_entries(folder)):
        with open(private.lock_file(folder, "undo.lock"), "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
            except BlockingIOError:
                return done
            for entry in read_entries(folder):
                if entry.is_dead():
                    done += entry.undo()
    return done
