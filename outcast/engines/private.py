"""Folders that only this user can write to, for the ledger and for locks."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from outcast.errors import ConfigError

_REMEDY = "have it removed"


def require_own(folder: Path) -> None:
    """Raises ConfigError where others could put something into a folder, or OSError without it."""
    status = os.stat(folder, follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode):
        raise ConfigError(f"{folder}: is a link or no folder; {_REMEDY}")
    if status.st_uid != os.geteuid():
        raise ConfigError(f"{folder}: belongs to user {status.st_uid}; {_REMEDY}")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(f"{folder}: others can write to it; {_REMEDY}")


def make(folder: Path) -> None:
    """Makes a folder of ours if it is missing. Raises as `require_own`."""
    # What stands there may be no folder, or a link to one.
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
    require_own(folder)


def place() -> Path:
    """The user's folder. It is made if it is missing.

    It does not depend on the environment, so that every run finds what an earlier one left. Where
    /run has no place for the user it is in /tmp. There another user could make it before us, and
    then it is refused.

    Raises as `require_own`.
    """
    user = os.geteuid()
    above = Path("/run") if user == 0 else Path(f"/run/user/{user}")
    is_usable = os.access(above, os.W_OK | os.X_OK)
    folder = above / "outcast" if is_usable else Path(f"/tmp/outcast-{user}")  # noqa: S108
    make(folder)
    return folder


def lock_file(folder: Path, name: str) -> int:
    """A descriptor of a file to lock, in a folder of ours; both are made if they are missing.

    Raises ConfigError where the folder is not ours, or OSError.
    """
    make(folder)
    return os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
