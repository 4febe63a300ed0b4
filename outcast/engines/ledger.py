"""The ledger of what each run in progress has made, so that `outcast clean` removes nothing else.

Each run has a JSON file, its page, which is deleted when the run has ended. A killed run leaves its
page behind. Processes and namespaces of a run die with it, so a page has folders and settings of
the machine. Only this user can write to the ledger's folder, so a page is believed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pydantic import BaseModel, Field

from outcast.errors import ConfigError, shortened

_LINE_CHARACTERS = 400


class ProcessMark(BaseModel, frozen=True):
    """A process, apart from a later one with the same number.

    `start_ticks` is its start time since boot, in clock ticks (proc(5), stat, field 22).
    """

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> ProcessMark:
        """The mark of a living process. Raises ProcessLookupError where it has ended."""
        if (ticks := _start_ticks(pid)) is None:
            raise ProcessLookupError(pid)
        return cls(pid=pid, start_ticks=ticks)

    def is_alive(self) -> bool:
        return _start_ticks(self.pid) == self.start_ticks


def _start_ticks(pid: int) -> int | None:
    try:
        stat_line = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat_line.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def default_folder() -> Path:
    """The folder of this user's ledger and locks; in /tmp where /run has no place for the user.

    It does not depend on the environment, so that every run finds what an earlier one left.
    """
    user = os.geteuid()
    above = Path("/run") if user == 0 else Path(f"/run/user/{user}")
    is_usable = os.access(above, os.W_OK | os.X_OK)
    return _own(above / "outcast" if is_usable else Path(f"/tmp/outcast-{user}"))  # noqa: S108


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
    """One run's page, in its file; `owner` is the process of the `outcast` command.

    `settings` has the former values of changed files under /proc/sys, by path.
    """

    file: Path = Field(exclude=True)
    owner: ProcessMark
    folders: list[str] = []
    settings: dict[str, str] = {}

    def note_folder(self, folder: Path) -> None:
        self.folders.append(str(folder))
        self.write()

    def write(self) -> None:
        """Writes the page whole or not at all. Raises OSError, which names the file."""
        temporary = self.file.with_suffix(".tmp")
        temporary.write_text(self.model_dump_json(indent=1), encoding="utf-8")
        temporary.replace(self.file)

    def remove(self) -> None:
        self.file.unlink(missing_ok=True)

    def is_dead(self) -> bool:
        return not self.owner.is_alive()

    def undo(self) -> list[str]:
        """Removes all that the page names, and the page. Returns what was done, in words.

        Where something could not be undone, the page stays for the next time.
        """
        there = [path for path in self.settings if os.path.exists(path)]
        left = [folder for folder in self.folders if os.path.lexists(folder)]
        steps: list[tuple[str, Callable[[], object]]] = [
            *((f"set {p} back to {self.settings[p]!r}", partial(self._restore, p)) for p in there),
            # It follows no link, neither in place of the folder nor in it.
            *((f"removed {folder}", partial(shutil.rmtree, folder)) for folder in left),
        ]
        done, is_whole = [], True
        for words, undo in steps:
            try:
                undo()
            except OSError as error:
                words, is_whole = f"left {words.partition(' ')[2]}: {error.strerror}", False
            done.append(words)
        (self.remove if is_whole else self.write)()
        return done

    def _restore(self, path: str) -> None:
        Path(path).write_text(self.settings[path])
        # The next time a run may have changed it.
        del self.settings[path]


def open_entry(folder: Path) -> Entry:
    """A new page for this process. Raises ConfigError where others could write to the folder."""
    file = _own(folder) / f"run-{secrets.token_hex(8)}.json"
    entry = Entry(file=file, owner=ProcessMark.of(os.getpid()))
    entry.write()
    return entry


def read_entries(folder: Path) -> list[Entry]:
    """All pages, of running and of dead runs, without those of another version."""
    entries = []
    for path in folder.glob("run-*.json"):
        with contextlib.suppress(FileNotFoundError, TypeError, ValueError):
            entries.append(Entry(file=path, **json.loads(path.read_bytes())))
    return entries


def begin(tell: Callable[[str], None] = lambda text: None) -> Entry:
    """Removes what dead runs left. Returns a new page for this process. Raises ConfigError."""
    undo_dead(tell)
    return open_entry(default_folder())


def undo_dead(
    tell: Callable[[str], None] = lambda text: None,
    folder: Path | None = None,
    *,
    waits: bool = False,
) -> list[str]:
    """Undoes every page whose run is dead. Returns what was done and what was not, in words.

    `tell` gets that as one line, if anything was done. Of several runs that begin at once, one
    undoes; the others go on, unless `waits` is set.
    """
    folder, done = folder or default_folder(), list[str]()
    if any(entry.is_dead() for entry in read_entries(folder)):
        with open(lock_file(folder, "undo.lock"), "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
            except BlockingIOError:
                return done
            for entry in filter(Entry.is_dead, read_entries(folder)):
                done += entry.undo()
    if done:
        tell(f"left by a killed run: {shortened('; '.join(done), _LINE_CHARACTERS)}")
    return done
