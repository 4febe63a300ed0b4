"""Folders that only this user can write to, for the ledger and for locks.

`outcast clean` ends and removes what the ledger names, without a question. So its folder is opened
without following a link, and its owner is read from the open descriptor. All further work goes by
that descriptor, because no other user can then exchange the folder in between (openat(2)).
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
    """A descriptor of a folder that only this user can use, with mode 0700.

    Args:
        folder: its path; the folder above it exists.
        make: whether to make it if it is missing, and to take other users' rights away. Without
            it the folder stays as it is, because it may serve another purpose.

    Raises:
        ConfigError: it belongs to another user, or is a link or no folder; or others can write
            to it and `make` is false.
        OSError: it cannot be made or opened.
    """
    if make:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(_MODE)
    try:
        descriptor = os.open(folder, _FOLDER)
    except NotADirectoryError:
        # O_DIRECTORY with O_NOFOLLOW gives this error for a link too (open(2)).
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
    """Paths for a user's folder, the best first; each is in a folder that the user owns.

    Root's is in /run. Another user's is in XDG_RUNTIME_DIR, else in the folder that the login
    made, else among the programs' states (XDG Base Directory Specification). The last resort is
    the folder for temporary files. There another user could only make it before us.
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
    folders = [folder / "outcast" for folder in above if folder.is_absolute() and _is_own(folder)]
    with contextlib.suppress(OSError):
        folders.append(Path(tempfile.gettempdir()) / f"outcast-{user}")
    return list(dict.fromkeys(folders))


def choose() -> Path:
    """The first place that can be used; its folder is made if it is missing.

    Raises ConfigError: there is none; the error has the reasons and the remedy.
    """
    reasons = []
    for folder in places():
        try:
            folder.parent.mkdir(mode=_MODE, parents=True, exist_ok=True)
            with opened(folder) as descriptor:
                # Here root too learns that a file system is mounted read-only.
                if os.access(f"/proc/self/fd/{descriptor}", os.W_OK | os.X_OK):
                    return folder
            reasons.append(f"{folder}: cannot be written to")
        except ConfigError as error:
            reasons.append(str(error))
        except OSError as error:
            reasons.append(f"{folder}: {error.strerror}")
    said = "; ".join(reasons) or "there is no folder for temporary files"
    raise ConfigError(f"there is no folder in which to note what a run makes: {said}")


def existing() -> list[Path]:
    """All folders of ours that exist, because an earlier run may have had another environment."""
    folders = []
    for folder in places():
        with contextlib.suppress(ConfigError, OSError), opened(folder, make=False):
            folders.append(folder)
    return folders


def lock_file(folder: Path, name: str) -> int:
    """A descriptor of a file to lock, in a folder of ours; the file is made if it is missing.

    Raises:
        ConfigError: the folder is not ours.
        OSError: the file cannot be opened, or is a link.
    """
    with opened(folder) as descriptor:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, 0o600, dir_fd=descriptor)


def _is_own(folder: Path) -> bool:
    """Whether a folder is ours; if it is missing, whether the folder above it is."""
    try:
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        return folder.is_dir() and folder.stat().st_uid == os.geteuid()
    except OSError:
        return False
