"""The place of a result: it appears there whole, or what a failed run left is kept beside it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from outcast import files
from outcast.engines import ledger
from outcast.errors import ConfigError, OutcastError, RunError, with_folder

_ALLOWED = "allowed is a new or empty folder of yours"
_LONGEST_NAME = 255
_LONGEST_PATH = 4095
"""In bytes (limits.h, NAME_MAX and PATH_MAX without the null)."""
_ROOM_IN_NAME = 16
_ROOM_IN_PATH = 256
"""Bytes that the files in a run directory need, and the longer name of a failed run."""


class TakenError(ConfigError):
    """The place of a result holds something, or another run has it."""


@dataclass(frozen=True)
class Partial:
    """A folder that is not complete yet, and its entry in the ledger."""

    path: Path
    entry: ledger.Entry


@contextmanager
def unfinished(target: Path, tell: Callable[[str], None] = lambda text: None) -> Iterator[Partial]:
    """A folder beside `target` that is renamed to it when the block ends well.

    `tell` gets a line if killed runs had left something, which is removed.
    """
    require_free(target)
    path = _partial_of(target)
    entry = ledger.begin(tell)
    entry.folders.append(str(path))
    to_remove = False
    try:
        with _reserved(target, entry):
            try:
                path.mkdir()
            except OSError as error:
                raise ConfigError(f"{path}: {error.strerror}; {_ALLOWED}") from None
            to_remove = True
            try:
                yield Partial(path, entry)
            except Exception as error:
                _keep_failed(path, target, error)
                raise
            try:
                _put_in_place(path, target)
            except RunError:
                to_remove = False
                raise
    finally:
        if to_remove:
            shutil.rmtree(path, ignore_errors=True)
        entry.remove()


def _partial_of(target: Path) -> Path:
    """The run's folder until it is complete; the ledger removes only folders of such names."""
    return Path(os.path.abspath(target.parent)) / f".{target.name}.{os.getpid()}.partial"


@contextmanager
def _reserved(target: Path, entry: ledger.Entry) -> Iterator[None]:
    """Holds the result's place by a locked empty folder, so that no second run begins there.

    Raises ConfigError: another run holds it, or it cannot be made.
    """
    if not os.path.lexists(target):
        entry.reserved = os.path.abspath(target)
    entry.write()
    with contextlib.ExitStack() as stack:
        try:
            files.make_folders(target.parent)
            try:
                target.mkdir()
            except FileExistsError:
                entry.reserved = None
            descriptor = stack.enter_context(_opened(target))
        except OSError as error:
            raise ConfigError(f"{target}: {error.strerror}; {_ALLOWED}") from None
        try:
            _lock(target, descriptor)
            yield
        finally:
            if entry.reserved is not None:
                # This fails where the result is in its place, because then it is not empty.
                with contextlib.suppress(OSError):
                    target.rmdir()


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """Opens a folder, which must be no link, as a descriptor."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _lock(target: Path, descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise TakenError(f"{target}: another run will put its result there; {_ALLOWED}") from None
    except OSError:
        # Some network file systems lock no folders (flock(2)). There the rename at the end decides.
        return
    require_free(target)
    if not target.exists() or not os.path.samestat(os.fstat(descriptor), target.stat()):
        raise TakenError(f"{target}: another run has just used it; {_ALLOWED}")


def _put_in_place(path: Path, target: Path) -> None:
    """Renames the result to `target`. Raises RunError, which names where the result is instead."""
    with _opened(path) as descriptor:
        try:
            path.rename(target)
        except OSError as error:
            raise RunError(
                f"{target}: {error.strerror}; the result is complete and stands in {path}"
            ) from None
        finally:
            files.hand_over(descriptor)


def _keep_failed(path: Path, target: Path, error: Exception) -> None:
    """Keeps what a failed run has written, and adds its folder to the error.

    Raises RunError: in place of an OSError, as one line that names the file; or what was at
    fault where the error is only what came of it: the folder has gone, or its disk is full.
    """
    if not path.exists():
        raise RunError(f"{target}: removed while the run went on (as {path.name})") from error
    is_full = files.is_full(path)
    kept = _set_aside(path, target) if (path / "log.txt").exists() else None

    def said(text: str) -> str:
        text = text.replace(str(path), str(kept or target))
        return with_folder(text, kept) if kept else text

    if is_full:
        full = os.strerror(errno.ENOSPC)
        came_of_it = "" if full in str(error) else f": {error}"
        raise RunError(said(f"{target}: {full}{came_of_it}")) from error
    if isinstance(error, OutcastError):
        error.args = (said(str(error)), *error.args[1:])
    elif isinstance(error, OSError):
        text = files.describe_with_remedy(files.named(error, path) or error)
        raise RunError(said(text)) from error
    elif kept:
        error.add_note(with_folder("", kept).strip())


def _set_aside(path: Path, target: Path) -> Path:
    """Renames an unfinished folder to `target`.failed, or to the next such name that is free."""
    with contextlib.suppress(OSError), _opened(path) as descriptor:
        files.hand_over(descriptor)
    for number in itertools.count(1):
        failed = target.with_name(f"{target.name}.failed{f'-{number}' if number > 1 else ''}")
        if not os.path.lexists(failed):
            break
    # If somebody takes the name now, this fails, or it replaces an empty folder.
    path.rename(failed)
    return failed


def require_free(target: Path) -> None:
    """Raises ConfigError where a run could not put its result here in the end.

    Allowed is a new path, or an empty folder that another folder can replace.
    """
    if target.name in ("", ".."):
        raise ConfigError(f"{target}: does not end with a name; {_ALLOWED}")
    try:
        _require_nameable(target)
        _require_own_place(target)
        if target.is_symlink():
            raise ConfigError(f"{target}: is a symbolic link; {_ALLOWED}")
        if not target.is_dir():
            if target.exists():
                raise TakenError(f"{target}: exists already; {_ALLOWED}")
            return
        if any(target.iterdir()):
            raise TakenError(f"{target}: exists already; {_ALLOWED}")
        _require_replaceable(target)
    except OSError as error:
        raise ConfigError(f"{target}: {error.strerror}; {_ALLOWED}") from None


def _require_own_place(target: Path) -> None:
    """Raises ConfigError where root would write below a folder in which every user can rename."""
    if os.geteuid() != 0:
        return
    for folder in Path(os.path.abspath(target)).parents:
        if not folder.exists():
            continue
        mode = folder.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise ConfigError(
                f"{target}: every user can exchange what root writes below {folder} (mode "
                f"{stat.S_IMODE(mode):o}, not sticky); allowed is a folder of yours"
            )


def _require_nameable(target: Path) -> None:
    """Raises ConfigError where names that a run needs beside it or in it would be too long."""
    try:
        name, path = _partial_of(target).name.encode(), os.path.abspath(target).encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{str(target)!a}: is not valid UTF-8; {_ALLOWED}") from None
    if b"\0" in path:
        raise ConfigError(f"{str(target)!r}: holds a null character; {_ALLOWED}")
    if len(name) > _LONGEST_NAME - _ROOM_IN_NAME or len(path) > _LONGEST_PATH - _ROOM_IN_PATH:
        raise ConfigError(
            f"{str(target)[:60]}...: too long; allowed are names of "
            f"{_LONGEST_NAME - _ROOM_IN_NAME - len(b'..1234567.partial')} bytes and paths of "
            f"{_LONGEST_PATH - _ROOM_IN_PATH}"
        )


def _require_replaceable(folder: Path) -> None:
    """Raises ConfigError where no folder can be renamed to this empty one (rename(2))."""
    if _mount(folder) != _mount(folder.parent):
        raise ConfigError(f"{folder}: a file system is mounted there; {_ALLOWED}")
    above, user = folder.parent.stat(), os.geteuid()
    if above.st_mode & stat.S_ISVTX and user not in (0, above.st_uid, folder.stat().st_uid):
        raise ConfigError(f"{folder}: belongs to another user; {_ALLOWED}")


def _mount(folder: Path) -> str:
    """The number of the mount that a folder is in (proc(5), fdinfo, mnt_id)."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        text = Path(f"/proc/self/fdinfo/{descriptor}").read_text()
    finally:
        os.close(descriptor)
    return next((line for line in text.splitlines() if line.startswith("mnt_id:")), "")
