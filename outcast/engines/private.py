"""Folders that only this user can write to, for the ledger and for locks."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from outcast.errors import ConfigError

_REMEDY = "set XDG_RUNTIME_DIR to a folder of yours, or have this one removed"


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


def places() -> list[Path]:
    """Paths for a user's folder, the best first.

    Root's is in /run. Another user's is in XDG_RUNTIME_DIR, else in the folder that the login
    made, else in the home folder. The last resort is the folder for temporary files. There another
    user could make it before us, and then it is refused.
    """
    user = os.geteuid()
    above = ["/run"] if user == 0 else [os.environ.get("XDG_RUNTIME_DIR", ""), f"/run/user/{user}"]
    folders = [Path(name) / "outcast" for name in above if Path(name).is_dir()]
    if user != 0:
        with contextlib.suppress(RuntimeError):
            folders.append(Path.home() / ".local/state/outcast")
    with contextlib.suppress(OSError):
        folders.append(Path(tempfile.gettempdir()) / f"outcast-{user}")
    return [folder for folder in dict.fromkeys(folders) if folder.is_absolute()]


def choose() -> Path:
    """The first place that can be used; its folder is made if it is missing.

    Raises ConfigError: there is none; the error has the reasons and the remedy.
    """
    reasons = []
    for folder in places():
        try:
            make(folder)
        except ConfigError as error:
            reasons.append(str(error))
        except OSError as error:
            reasons.append(f"{folder}: {error.strerror}")
        else:
            # Here root too learns that a file system is mounted read-only.
            if os.access(folder, os.W_OK | os.X_OK):
                return folder
            reasons.append(f"{folder}: cannot be written to")
    said = "; ".join(reasons) or "there is no folder for temporary files"
    raise ConfigError(f"there is no folder in which to note what a run makes: {said}")


def existing() -> list[Path]:
    """All folders of ours that exist, because an earlier run may have had another environment."""
    folders = []
    for folder in places():
        with contextlib.suppress(ConfigError, OSError):
            require_own(folder)
            folders.append(folder)
    return folders


def lock_file(folder: Path, name: str) -> int:
    """A descriptor of a file to lock, in a folder of ours; both are made if they are missing.

    Raises ConfigError where the folder is not ours, or OSError.
    """
    make(folder)
    return os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
