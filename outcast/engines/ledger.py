"""The ledger: what each run in progress has made, so that `outcast clean` can remove just that.

One JSON file for each run, written before the thing is made and deleted when the run has ended.
A run that was killed leaves its file behind. Processes are noted with their start time, so that
a number that has meanwhile been given to another process is never mistaken for ours.

The folder is ours alone (see `outcast.engines.private`). All the same nothing is believed that a
run of
ours cannot have written: folders have the names of our runs' and are ours, processes are ours,
and there are two settings, each with the values that it can have.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import re
import shutil
import signal
import stat
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from outcast.engines import private
from outcast.errors import ConfigError, DeadlineError

_Item = TypeVar("_Item")

KILL_DEADLINE_S = 10.0

SETTINGS: dict[str, str] = {
    "/proc/sys/net/ipv4/tcp_allowed_congestion_control": r"[a-z0-9_]+( [a-z0-9_]+)*",
    "/proc/sys/net/core/netdev_tstamp_prequeue": r"-?[0-9]{1,10}",
}
"""The settings of the machine that runs change, each with the form of its values."""

_OF_A_RUN = re.compile(r"\..+\.[0-9]+\.partial|outcast-([a-z]+-)?[a-z0-9_]{8}", re.DOTALL)
"""Names of folders: an unfinished run's, and those that `tempfile` makes with our prefixes."""

_MOST_BYTES = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def default_folder() -> Path:
    """Where this user's ledger stands. Raises ConfigError where there is no place for it."""
    return private.choose()


def all_folders() -> list[Path]:
    """Every folder where a run of this user's may have left a page, in whatever environment."""
    return private.existing()


@dataclass(frozen=True, slots=True)
class ProcessMark:
    """A process that cannot be mistaken for a later one of the same number.

    Attributes:
        pid: its number.
        start_ticks: its start time since boot, in clock ticks (proc(5), stat, field 22).
    """

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> ProcessMark:
        """The mark of a living process. Raises ProcessLookupError where there is none."""
        ticks = _start_ticks(pid)
        if ticks is None:
            raise ProcessLookupError(pid)
        return cls(pid, ticks)

    def is_alive(self) -> bool:
        """Whether this very process still runs."""
        return _start_ticks(self.pid) == self.start_ticks


def _start_ticks(pid: int) -> int | None:
    try:
        stat_line = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat_line.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def _user_of(pid: int) -> int | None:
    """The user that a process was started by; None where there is no such process."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            if line.startswith("Uid:"):
                return int(line.split()[1])
    return None


def _boot() -> str:
    """Names this boot of the machine's kernel: process numbers and settings hold for it alone."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@dataclass
class Entry:
    """One run's page.

    Attributes:
        owner: the process of the `outcast` command.
        processes: what it started and has to end.
        folders: temporary and unfinished folders.
        settings: files under /proc/sys that were changed, with what stood there before.
        reserved: the empty folder that it made to hold its result's place.
        host, boot: the machine and the boot of its kernel that all this is of.
    """

    file: Path
    owner: ProcessMark
    processes: list[ProcessMark] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    reserved: str | None = None
    host: str = field(default_factory=platform.node)
    boot: str = field(default_factory=_boot)

    def write(self) -> None:
        """Puts the page on disk, whole. Raises OSError naming the file where it cannot."""
        document = asdict(self)
        del document["file"]
        text = _Page.model_validate(document).model_dump_json(indent=1)
        temporary = f".{self.file.name}.tmp"
        try:
            with private.opened(self.file.parent) as folder:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=folder)
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                descriptor = os.open(temporary, flags, 0o600, dir_fd=folder)
                try:
                    with open(descriptor, "w", encoding="utf-8") as stream:
                        stream.write(text)
                    os.replace(temporary, self.file.name, src_dir_fd=folder, dst_dir_fd=folder)
                except OSError:
                    os.unlink(temporary, dir_fd=folder)
                    raise
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.file)) from None

    def remove(self) -> None:
        """Takes the page out of the ledger."""
        with private.opened(self.file.parent) as folder, contextlib.suppress(FileNotFoundError):
            os.unlink(self.file.name, dir_fd=folder)

    def is_dead(self) -> bool:
        """Whether its run has ended. Of a run on another machine nobody knows that here."""
        if self.host != platform.node():
            return False
        return self.boot != _boot() or not self.owner.is_alive()

    def undo(self) -> list[str]:
        """Removes all that the page names, and the page; what was done, in words.

        What no run of ours can have noted is skipped and named. What could not be undone is named
        and stays on the page, for the next time.
        """
        done = [
            *self._end_processes(),
            *self.restore_settings(),
            *self._remove_folders(),
        ]
        if self.processes or self.settings or self.folders:
            self.write()
        else:
            self.remove()
        return done

    def restore_settings(self) -> list[str]:
        """Puts the machine's settings back that the run changed; what was done, in words."""

        def restore(item: tuple[str, str]) -> str | None:
            path, value = item
            if path not in SETTINGS:
                raise _NotOursError("no setting that a run changes")
            if not re.fullmatch(SETTINGS[path], value):
                raise _NotOursError(f"cannot hold {value[:100]!r}")
            # Another boot began with its own.
            if self.boot != _boot() or not Path(path).exists():
                return None
            Path(path).write_text(value)
            return f"set {path} back to {value!r}"

        left, done = self._each(list(self.settings.items()), restore, lambda item: item[0])
        self.settings = dict(left)
        return done

    def _end_processes(self) -> list[str]:
        def end(mark: ProcessMark) -> str | None:
            if self.boot != _boot() or not _kill(mark):
                return None
            return f"ended process {mark.pid}"

        self.processes, done = self._each(self.processes, end, lambda mark: f"process {mark.pid}")
        return done

    def _remove_folders(self) -> list[str]:
        def remove(name: str) -> str | None:
            return f"removed {name}" if _remove_folder(name) else None

        named = list(self.folders)
        self.folders, done = self._each(named, remove, str)
        if self.reserved is not None and not self.folders:
            _remove_reserved(self.reserved, named)
        return done

    def _each(
        self,
        items: list[_Item],
        undo: Callable[[_Item], str | None],
        name: Callable[[_Item], str],
    ) -> tuple[list[_Item], list[str]]:
        """Undoes one after the other; what could not be undone, and what is to be said."""
        left, done = [], []
        for item in items:
            try:
                said = undo(item)
            except _NotOursError as error:
                said = f"skipped {name(item)[:300]}: {error} (noted in {self.file})"
            except (OSError, DeadlineError) as error:
                why = error.strerror if isinstance(error, OSError) else error
                said = f"left {name(item)}: {why}"
                left.append(item)
            if said is not None:
                done.append(said)
        return left, done


class _NotOursError(Exception):
    """What stands on a page and no run of ours can have made."""


def _kill(mark: ProcessMark) -> bool:
    """Kills this very process of ours and waits for its end; whether it was still alive."""
    try:
        # From here on the number cannot come to mean another process (pidfd_open(2)).
        descriptor = os.pidfd_open(mark.pid)
    except (ProcessLookupError, OverflowError):
        return False
    try:
        if not mark.is_alive():
            return False
        if (user := _user_of(mark.pid)) not in (os.geteuid(), None):
            raise _NotOursError(f"belongs to user {user}")
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


def _remove_folder(name: str) -> bool:
    """Removes a folder of ours, by descriptors and following no link; whether it was there."""
    path = Path(name)
    if not path.is_absolute() or ".." in path.parts or not _OF_A_RUN.fullmatch(path.name):
        raise _NotOursError("no folder that a run makes")
    try:
        above = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:
        if isinstance(error, ValueError) or error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            raise _NotOursError("no folder can have this name") from None
        raise
    try:
        folder = os.open(path.name, _FOLDER, dir_fd=above)
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        raise _NotOursError("is a link or no folder") from None
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            raise _NotOursError("no folder can have this name") from None
        raise
    else:
        try:
            if (user := os.fstat(folder).st_uid) != os.geteuid():
                raise _NotOursError(f"belongs to user {user}")
            for inner in os.listdir(folder):
                kind = os.stat(inner, dir_fd=folder, follow_symlinks=False).st_mode
                if stat.S_ISDIR(kind):
                    shutil.rmtree(inner, dir_fd=folder)
                else:
                    os.unlink(inner, dir_fd=folder)
            os.rmdir(path.name, dir_fd=above)
        finally:
            os.close(folder)
    finally:
        os.close(above)
    return True


def _remove_reserved(reserved: str, folders: list[str]) -> None:
    """Removes the place that a run held for its result, where it is still empty."""
    path = Path(reserved)
    beside = [Path(name) for name in folders]
    if any(
        each.parent == path.parent and each.name.startswith(f".{path.name}.") for each in beside
    ):
        with contextlib.suppress(OSError, ValueError):
            if os.stat(path, follow_symlinks=False).st_uid == os.geteuid():
                path.rmdir()


def open_entry(folder: Path) -> Entry:
    """A new page for this process. Raises ConfigError where the folder is not ours."""
    with private.opened(folder) as descriptor:
        taken = set(os.listdir(descriptor))
    number = 0
    while (name := f"run-{os.getpid()}-{number}.json") in taken:
        number += 1
    entry = Entry(folder / name, ProcessMark.of(os.getpid()))
    entry.write()
    return entry


_Number = Annotated[int, Field(ge=0, lt=1 << 63)]


class _Mark(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    pid: Annotated[int, Field(gt=0, lt=1 << 31)]
    start_ticks: _Number

    def as_mark(self) -> ProcessMark:
        return ProcessMark(self.pid, self.start_ticks)


class _Page(BaseModel):
    """An entry as it stands in its file. What an older version did not note has a default."""

    model_config = ConfigDict(strict=True, extra="forbid")

    owner: _Mark
    processes: list[_Mark]
    folders: list[str]
    settings: dict[str, str]
    reserved: str | None = None
    host: str = Field(default_factory=platform.node)
    boot: str = Field(default_factory=_boot)


def read_entries(folder: Path) -> list[Entry]:
    """All pages, those of running and those of dead runs. An unreadable page is skipped."""
    return _read(folder)[0]


def _read(folder: Path) -> tuple[list[Entry], list[str]]:
    """All pages of a folder, and what is to be said of those that cannot be read."""
    entries, unread = [], []
    try:
        with private.opened(folder, make=False) as descriptor:
            for name in sorted(os.listdir(descriptor)):
                if not (name.startswith("run-") and name.endswith(".json")):
                    continue
                try:
                    page = _Page.model_validate_json(_content(name, descriptor))
                except FileNotFoundError:
                    continue
                except (OSError, ValidationError) as error:
                    unread.append(
                        f"skipped {folder / name}: no page of a run "
                        f"({_first_line(error)}); remove the file if no run is going on"
                    )
                    continue
                entries.append(
                    Entry(
                        file=folder / name,
                        owner=page.owner.as_mark(),
                        processes=[mark.as_mark() for mark in page.processes],
                        folders=page.folders,
                        settings=page.settings,
                        reserved=page.reserved,
                        host=page.host,
                        boot=page.boot,
                    )
                )
    except FileNotFoundError:
        return [], []
    except ConfigError as error:
        return [], [f"skipped {error}"]
    return entries, unread


def _content(name: str, folder: int) -> bytes:
    """A page's bytes. Raises OSError where it is no regular file of ours, or is too large."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=folder)
    with open(descriptor, "rb") as stream:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise OSError(errno.EPERM, "no file of ours")
        if status.st_size > _MOST_BYTES:
            raise OSError(errno.EFBIG, "too large")
        return stream.read(_MOST_BYTES)


def _first_line(error: OSError | ValidationError) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    first = error.errors()[0]
    return f"{'.'.join(str(part) for part in first['loc']) or 'the file'}: {first['msg']}"


def restore_settings(folder: Path) -> None:
    """Puts back what dead runs changed of the machine, before a new one notes what it finds."""
    for entry in read_entries(folder):
        if entry.settings and entry.is_dead():
            entry.restore_settings()
            entry.write()


def clean(folder: Path) -> list[str]:
    """Undoes every page whose run is dead; what was done, and what was not, in words."""
    entries, done = _read(folder)
    for entry in entries:
        if entry.is_dead():
            done += entry.undo()
    return done
