"""The ledger: what each run in progress has made, so that `outcast clean` can remove just that.

Each run has a JSON file, its page. It is written before a thing is made and deleted when the run
has ended, so a killed run leaves its page behind. A process is noted with its start time, because
its number may meanwhile belong to another process.

Only this user can write to the folder (see `outcast.engines.private`). Even so, `undo` skips what
no run of ours can have written: folders must have a run's name and be ours, processes must be
ours, and there are two settings, each with the values that it can have.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import platform
import re
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from outcast import handed_in
from outcast.engines import modules, private
from outcast.engines.process_mark import NotOursError, ProcessMark, kill, this_boot
from outcast.errors import ConfigError, RunError, shortened

_Item = TypeVar("_Item")


SETTINGS: dict[str, str] = {
    "/proc/sys/net/ipv4/tcp_allowed_congestion_control": r"[a-z0-9_]+( [a-z0-9_]+)*",
    "/proc/sys/net/core/netdev_tstamp_prequeue": r"-?[0-9]{1,10}",
}
"""The settings of the machine that runs change, and a pattern of each one's values."""

_OF_A_RUN = re.compile(r"\..+\.[0-9]+\.partial|outcast-([a-z]+-)?[a-z0-9_]{8}", re.DOTALL)
"""Names of an unfinished run's folder, and of folders that `tempfile` makes with our prefixes."""

_MODULE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,54}")

_MOST_BYTES = 1 << 20
_LINE_CHARACTERS = 400
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def default_folder() -> Path:
    """The folder of this user's ledger. Raises ConfigError where there is no place for it."""
    return private.choose()


def all_folders() -> list[Path]:
    """Every folder in which a run of this user may have left a page, in any environment."""
    return private.existing()


class _Page(BaseModel):
    """What a page's file has. Keys that an older version did not write have defaults.

    Attributes:
        owner: the process of the `outcast` command.
        settings: the former values of changed files under /proc/sys, by path.
        modules: the user's modules that it loaded into the machine's kernel, in this order.
        reserved: the empty folder that holds its result's place.
        host, boot: the machine, and the boot of its kernel, that the page is about.
    """

    model_config = ConfigDict(strict=True, extra="forbid")

    owner: ProcessMark
    processes: list[ProcessMark]
    folders: list[str]
    settings: dict[str, str]
    modules: list[str] = Field(default_factory=list)
    reserved: str | None = None
    host: str = Field(default_factory=platform.node)
    boot: str = Field(default_factory=this_boot)


class Entry(_Page):
    """One run's page, in its file."""

    file: Path = Field(exclude=True)

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
        text = self.model_dump_json(indent=1)
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
        """Deletes the page."""
        # The folder may have gone, as a login's folder does when the user logs out.
        with contextlib.suppress(FileNotFoundError), private.opened(self.file.parent) as folder:
            os.unlink(self.file.name, dir_fd=folder)

    def is_dead(self) -> bool:
        """Whether its run has ended; False for another machine, because that cannot be known."""
        if self.host != platform.node():
            return False
        return self.boot != this_boot() or not self.owner.is_alive()

    def undo(self) -> list[str]:
        """Removes all that the page names, and the page. Returns what was done, in words.

        An item that no run of ours can have noted is skipped and named. An item that could not be
        undone is named and stays on the page for the next time.
        """
        done = [
            *self._end_processes(),
            *self.restore_settings(),
            *self._unload_modules(),
            *self._remove_folders(),
        ]
        if self.processes or self.settings or self.modules or self.folders:
            self.write()
        else:
            self.remove()
        return done

    def restore_settings(self) -> list[str]:
        """Restores the machine's settings that the run changed. Returns what was done, in words."""

        def restore(item: tuple[str, str]) -> str | None:
            path, value = item
            if path not in SETTINGS:
                raise NotOursError("not a setting that a run changes")
            if not re.fullmatch(SETTINGS[path], value):
                raise NotOursError(f"cannot hold {value[:100]!r}")
            # After another boot the setting has that boot's own value.
            if self.boot != this_boot() or not Path(path).exists():
                return None
            Path(path).write_text(value)
            return f"set {path} back to {value!r}"

        remaining, done = self._undo(list(self.settings.items()), restore, lambda item: item[0])
        self.settings = dict(remaining)
        return done

    def _end_processes(self) -> list[str]:
        def end(mark: ProcessMark) -> str | None:
            if self.boot != this_boot() or not kill(mark):
                return None
            return f"ended process {mark.pid}"

        self.processes, done = self._undo(self.processes, end, lambda mark: f"process {mark.pid}")
        return done

    def _unload_modules(self) -> list[str]:
        def unload(name: str) -> str | None:
            if not _MODULE.fullmatch(name):
                raise NotOursError("not the name of a module")
            if self.boot != this_boot() or not modules.is_loaded_module(name):
                return None
            modules.unload(name)
            return f"unloaded the module {name}"

        # A module may use one that was loaded before it.
        remaining, done = self._undo(self.modules[::-1], unload, lambda name: f"the module {name}")
        self.modules = remaining[::-1]
        return done

    def _remove_folders(self) -> list[str]:
        def remove(name: str) -> str | None:
            return f"removed {name}" if _remove_folder(name) else None

        named = list(self.folders)
        self.folders, done = self._undo(named, remove, str)
        if self.reserved is not None and not self.folders:
            _remove_reserved(self.reserved, named)
        return done

    def _undo(
        self,
        items: list[_Item],
        undo: Callable[[_Item], str | None],
        name: Callable[[_Item], str],
    ) -> tuple[list[_Item], list[str]]:
        """Undoes items one by one. Returns those that are left, and what was done in words."""
        remaining, done = [], []
        for item in items:
            try:
                said = undo(item)
            except NotOursError as error:
                said = f"skipped {name(item)[:300]}: {error} (noted in {self.file})"
            except (OSError, RunError) as error:
                why = error.strerror if isinstance(error, OSError) else error
                said = f"left {name(item)}: {why}"
                remaining.append(item)
            if said is not None:
                done.append(said)
        return remaining, done


def _remove_folder(name: str) -> bool:
    """Removes a folder of ours, without following a link. Returns whether it was there."""
    path = Path(name)
    if not path.is_absolute() or ".." in path.parts or not _OF_A_RUN.fullmatch(path.name):
        raise NotOursError("not a folder that a run makes")
    try:
        above = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:
        if isinstance(error, ValueError) or error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            raise NotOursError("no folder can have this name") from None
        raise
    try:
        folder = os.open(path.name, _FOLDER, dir_fd=above)
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        raise NotOursError("is a link or no folder") from None
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            raise NotOursError("no folder can have this name") from None
        raise
    else:
        try:
            if (user := os.fstat(folder).st_uid) != os.geteuid():
                raise NotOursError(f"belongs to user {user}")
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
    """Removes the folder that held a result's place, if it is still empty."""
    path = Path(reserved)
    beside = [Path(name) for name in folders]
    if any(
        folder.parent == path.parent and folder.name.startswith(f".{path.name}.")
        for folder in beside
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
    owner = ProcessMark.of(os.getpid())
    entry = Entry(file=folder / name, owner=owner, processes=[], folders=[], settings={})
    entry.write()
    return entry


def read_entries(folder: Path) -> list[Entry]:
    """All pages, of running and of dead runs. An unreadable page is skipped."""
    return _read_pages(folder)[0]


def _read_pages(folder: Path) -> tuple[list[Entry], list[str]]:
    """All pages of a folder, and a line for each one that cannot be read."""
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
                        f"skipped {folder / name}: not a page of a run "
                        f"({_first_line(error)}); remove the file if no run is going on"
                    )
                    continue
                entries.append(Entry(file=folder / name, **dict(page)))
    except FileNotFoundError:
        return [], []
    except ConfigError as error:
        return [], [f"skipped {error}"]
    return entries, unread


def _content(name: str, folder: int) -> bytes:
    """A page's bytes. Raises OSError where it is not a regular file of ours, or is too large."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=folder)
    with open(descriptor, "rb") as stream:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise OSError(errno.EPERM, "not a file of ours")
        if status.st_size > _MOST_BYTES:
            raise OSError(errno.EFBIG, "too large")
        return stream.read(_MOST_BYTES)


def _first_line(error: OSError | ValidationError) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return handed_in.first_problem(error)


def restore_settings(folder: Path) -> None:
    """Restores settings that dead runs changed, before a new run notes the present values."""
    for entry in read_entries(folder):
        if entry.settings and entry.is_dead():
            entry.restore_settings()
            entry.write()


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
    """Removes what dead runs of this user left, in any environment; see `clean`."""
    return [line for folder in all_folders() for line in clean(folder, waits=waits)]


def clean(folder: Path, *, waits: bool = True) -> list[str]:
    """Undoes every page whose run is dead. Returns what was done and what was not, in words.

    Of several runs that begin at once, one does it. The others go on, unless they are to wait.
    """
    entries, done = _read_pages(folder)
    if any(entry.is_dead() for entry in entries):
        with open(private.lock_file(folder, "undo.lock"), "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
            except BlockingIOError:
                return done
            for entry in read_entries(folder):
                if entry.is_dead():
                    done += entry.undo()
    return done
