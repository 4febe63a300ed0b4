"""The ledger: what each run in progress has made, so that `outcast clean` can remove just that.

Each run has a JSON file, its page. It is written before a thing is made and deleted when the run
has ended, so a killed run leaves its page behind. Namespaces die with their process, so a page
names what does not: processes, folders, settings of the machine, and modules in its kernel. Only
this user can write to the ledger's folder, so a page is believed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, Field

from outcast.engines import modules
from outcast.errors import ConfigError, DeadlineError, RunError, shortened

_Item = TypeVar("_Item")

KILL_DEADLINE_S = 10.0
_LINE_CHARACTERS = 400


class ProcessMark(BaseModel, frozen=True):
    """A process, which is another than a later one with the same number.

    `start_ticks` is its start time since boot, in clock ticks (proc(5), stat, field 22).
    """

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> ProcessMark:
        """The mark of a living process. Raises ProcessLookupError where it has ended."""
        ticks = _start_ticks(pid)
        if ticks is None:
            raise ProcessLookupError(pid)
        return cls(pid=pid, start_ticks=ticks)

    def is_alive(self) -> bool:
        """Whether this process, and no later one, still runs."""
        return _start_ticks(self.pid) == self.start_ticks

    def kill(self) -> None:
        """Kills the process and waits for its end. Raises DeadlineError."""
        end = time.monotonic() + KILL_DEADLINE_S
        while self.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            if time.monotonic() > end:
                raise DeadlineError(f"process {self.pid} to end", KILL_DEADLINE_S)
            time.sleep(0.02)


def _start_ticks(pid: int) -> int | None:
    try:
        stat_line = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat_line.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def default_folder() -> Path:
    """The folder of this user's ledger and locks. It is made if it is missing.

    It does not depend on the environment, so that every run finds what an earlier one left. Where
    /run has no place for the user it is in /tmp.

    Raises ConfigError where another user made it.
    """
    user = os.geteuid()
    above = Path("/run") if user == 0 else Path(f"/run/user/{user}")
    is_usable = os.access(above, os.W_OK | os.X_OK)
    folder = above / "outcast" if is_usable else Path(f"/tmp/outcast-{user}")  # noqa: S108
    return _own(folder)


def _own(folder: Path) -> Path:
    """Makes a folder if it is missing. Raises ConfigError where others could write to it."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
    status = os.stat(folder, follow_symlinks=False)
    is_open = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or is_open:
        raise ConfigError(f"{folder}: is no folder that only you can write to; have it removed")
    return folder


def lock_file(folder: Path, name: str) -> int:
    """A descriptor of a file to lock, in the ledger's folder. Raises ConfigError, or OSError."""
    return os.open(_own(folder) / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


class Entry(BaseModel):
    """One run's page, in its file.

    Attributes:
        owner: the process of the `outcast` command.
        settings: the former values of changed files under /proc/sys, by path.
        modules: the user's modules that it loaded into the machine's kernel, in this order.
        reserved: the empty folder that holds its result's place.
    """

    file: Path = Field(exclude=True)
    owner: ProcessMark
    processes: list[ProcessMark] = []
    folders: list[str] = []
    settings: dict[str, str] = {}
    modules: list[str] = []
    reserved: str | None = None

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
            _own(self.file.parent)
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
        return not self.owner.is_alive()

    def undo(self) -> list[str]:
        """Removes all that the page names, and the page. Returns what was done, in words.

        What could not be undone is named and stays on the page for the next time.
        """
        done: list[str] = []
        alive = [mark for mark in self.processes if mark.is_alive()]
        self.processes = _left(alive, ProcessMark.kill, "ended process {0.pid}", done)
        there = [item for item in self.settings.items() if Path(item[0]).exists()]
        self.settings = dict(_left(there, _restore, "set {0[0]} back to {0[1]!r}", done))
        # A module may use one that was loaded before it.
        loaded = [name for name in self.modules[::-1] if modules.is_loaded_module(name)]
        self.modules = _left(loaded, modules.unload, "unloaded the module {0}", done)[::-1]
        folders = [folder for folder in self.folders if os.path.lexists(folder)]
        # It follows no link, neither in place of the folder nor in it.
        self.folders = _left(folders, shutil.rmtree, "removed {0}", done)
        if self.reserved is not None and not self.folders:
            with contextlib.suppress(OSError):
                os.rmdir(self.reserved)
        if self.processes or self.settings or self.modules or self.folders:
            self.write()
        else:
            self.remove()
        return done


def _left(
    items: list[_Item], undo: Callable[[_Item], object], words: str, done: list[str]
) -> list[_Item]:
    """Undoes items one by one. Returns those that are left; `done` gets what was done in words."""
    left = []
    for item in items:
        said = words.format(item)
        try:
            undo(item)
        except (OSError, RunError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            said = f"left {said.partition(' ')[2]}: {why}"
            left.append(item)
        done.append(said)
    return left


def _restore(item: tuple[str, str]) -> None:
    Path(item[0]).write_text(item[1])


def open_entry(folder: Path) -> Entry:
    """A new page for this process. Raises ConfigError where the folder is not ours."""
    _own(folder)
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
    """Gives `tell` one line on what was done about what killed runs left, if anything was."""
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
        with open(lock_file(folder, "undo.lock"), "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
            except BlockingIOError:
                return done
            for entry in read_entries(folder):
                if entry.is_dead():
                    done += entry.undo()
    return done
