"""Folders into which nobody but this user can put anything: for the ledger and for locks.

What stands in the ledger is ended and removed later, without a question. So its folder is opened
without following a link, its owner is read from the open descriptor, and all further work goes
by that descriptor: no other user can exchange the folder in between (openat(2)).
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from outcast.errors import ConfigError

_MODE = 0o700
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_REMEDY = "set XDG_RUNTIME_DIR to a folder of yours, or have this one removed"


@contextlib.contextmanager
def opened(folder: Path, *, make: bool = True) -> Iterator[int]:
    """A descriptor of a folder that is ours alone, mode 0700.

    Args:
        folder: its path; the folder above is there.
        make: whether to make it where it is missing, and to take it from all others. Else it stays
            as it is, because it may be a folder for something else.

    Raises:
        ConfigError: it belongs to another user, or is a link or no folder; or others can write
            to it and `make` is not asked for.
        OSError: it cannot be made or opened.
    """
    if make:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(_MODE)
    try:
        descriptor = os.open(folder, _FOLDER)
    except NotADirectoryError:
        # O_DIRECTORY with O_NOFOLLOW says so of a link too (open(2)).
        raise ConfigError(f"{folder}: is a link or no folder; {_REMEDY}") from None
    except PermissionError:
        owner = os.stat(folder, follow_symlinks=False).st_uid
        raise ConfigError(f"{folder}: belongs to user {owner}; {_REMEDY}") from None
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid():
            raise ConfigError(f"{folder}: belongs to user {status.st_uid}; {_REMEDY}")
        if make and stat.S_IMODE(status.st_mode) != _MODE:
            os.fchmod(descriptor, _MODE)
        elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ConfigError(f"{folder}: others can write to it; {_REMEDY}")
        yield descriptor
    finally:
        os.close(descriptor)


def places() -> list[Path]:
    """Where a user's folder can stand, the best first; each in a folder that is the user's.

    Root's is in /run. Another user's is in XDG_RUNTIME_DIR, else in the folder that the login
    made, else with the programs' states (XDG Base Directory Specification). The last resort is
    the folder for temporary files, where another user could only make it before us.
    """
    user = os.geteuid()
    above: list[Path] = []
    if user == 0:
        above.append(Path("/run"))
    else:
        above += [
            Path(name) for name in (os.environ.get("XDG_RUNTIME_DIR"), f"/run/user/{user}") if name
        ]
    above += [Path(state)] if (state := os.environ.get("XDG_STATE_HOME")) else []
    with contextlib.suppress(RuntimeError):
        above.append(Path.home() / ".local" / "state")
    found = [folder / "outcast" for folder in above if folder.is_absolute() and _is_own(folder)]
    with contextlib.suppress(OSError):
        found.append(Path(tempfile.gettempdir()) / f"outcast-{user}")
    return list(dict.fromkeys(found))


def choose() -> Path:
    """The first of the places that can be used; made where it is missing.

    Raises:
        ConfigError: there is none, with the reasons and the remedy.
    """
    reasons = []
    for folder in places():
        try:
            folder.parent.mkdir(mode=_MODE, parents=True, exist_ok=True)
            with opened(folder) as descriptor:
                # Of a file system that is mounted for reading only, root learns it here too.
                if os.access(f"/proc/self/fd/{descriptor}", os.W_OK | os.X_OK):
                    return folder
            reasons.append(f"{folder}: cannot be written to")
        except ConfigError as error:
            reasons.append(str(error))
        except OSError as error:
            reasons.append(f"{folder}: {error.strerror}")
    said = "; ".join(reasons) or "there is no folder for temporary files"
    raise ConfigError(f"no place to note what a run makes: {said}")


def existing() -> list[Path]:
    """All places where a folder of ours stands: an earlier run may have had another environment."""
    found = []
    for folder in places():
        with contextlib.suppress(ConfigError, OSError), opened(folder, make=False):
            found.append(folder)
    return found


def lock_file(folder: Path, name: str) -> int:
    """A descriptor of a file to be locked, in a folder of ours; made where it is missing.

    Raises:
        ConfigError: the folder is not ours.
        OSError: the file cannot be opened, or is a link.
    """
    with opened(folder) as descriptor:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, 0o600, dir_fd=descriptor)


def _is_own(folder: Path) -> bool:
    """Whether a folder is ours or, where it is still to be made, what it will stand in."""
    try:
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        return folder.is_dir() and folder.stat().st_uid == os.geteuid()
    except OSError:
        return False
