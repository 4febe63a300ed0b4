"""Writes files whole or not at all. Under sudo they belong to the user who called us.

What reads only captures opens them here, and not by `handed_in`, because pydantic and YAML take as
long to load as a small capture takes to join.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO

_OS_ERROR = re.compile(r"\(os error ([0-9]+)\)")
"""How the exceptions of libraries in Rust name an error of the system."""


def opened(path: Path) -> FileIO:
    """Opens a regular file for reading, or one that a link leads to.

    Raises:
        FileNotFoundError: if there is no such file.
        OSError: if it cannot be opened, or is a folder, a FIFO, a device or a socket.
    """
    if "\0" in os.fspath(path):
        raise OSError("the name holds a null character")
    # Without O_NONBLOCK, opening a FIFO would wait for a writer for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(f"is {file_kind(mode)}; allowed is a regular file")
        return FileIO(descriptor)
    except BaseException:
        os.close(descriptor)
        raise


def file_kind(mode: int) -> str:
    """Says what a file that is not regular is, by its mode (stat(2))."""
    for is_kind, name in (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISLNK, "a symbolic link"),
    ):
        if is_kind(mode):
            return name
    return "a device"


def reason(error: OSError) -> str:
    """Why a file cannot be used, without its name."""
    return error.strerror or str(error)


def describe(error: OSError) -> str:
    """An error of the system in one line: the file, if it is known, and what is wrong."""
    what = error.strerror or str(error) or type(error).__name__
    # If there are two files, as for a copy, the second is the one that is written.
    name = error.filename2 or error.filename
    return f"{os.fsdecode(name)}: {what}" if isinstance(name, str | bytes) else what


def describe_with_remedy(error: OSError) -> str:
    """As `describe`, and what to do where the cache cannot be written to."""
    if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT):
        return describe(error)
    name = error.filename2 or error.filename
    if not isinstance(name, str) or not Path(name).is_relative_to(cache_folder()):
        return describe(error)
    return (
        f"{describe(error)}; outcast's cache is there; let XDG_CACHE_HOME name a folder with room "
        "that you can write to"
    )


def cache_folder() -> Path:
    """The folder of this user's kernels, roots, programs and measurements.

    See the XDG Base Directory Specification.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "outcast"


def is_full(folder: Path) -> bool:
    """Whether a folder's disk has no space left for a file (statvfs(3))."""
    free = os.statvfs(folder)
    return free.f_bavail * free.f_frsize < _LEAST_ROOM_BYTES


_LEAST_ROOM_BYTES = 64 << 10


def named(error: Exception, path: Path) -> OSError | None:
    """An error of the system, with the file that it is about; None for any other error."""
    if isinstance(error, OSError) and error.filename is not None:
        return error
    number = error.errno if isinstance(error, OSError) else None
    if number is None and (match := _OS_ERROR.search(str(error))):
        number = int(match[1])
    if number is not None:
        return OSError(number, os.strerror(number), str(path))
    return OSError(errno.EIO, str(error), str(path)) if isinstance(error, OSError) else None


def nameable(path: Path) -> Path:
    """The same path with a last name, beside which others can lie. `.` and `..` have none."""
    return path.resolve() if path.name in ("", "..") else path


@contextlib.contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """Opens a stream of bytes, which becomes the file `path` when the block ends without an error.

    Raises OSError if the file cannot be written or put in its place; it names the file.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        if path.exists() and not path.is_file():
            # Root would replace a device, for example /dev/null.
            raise OSError(errno.EINVAL, "is not a regular file", str(path))
        temporary.unlink(missing_ok=True)
        # A new file, so that a link under this name leads nowhere.
        with temporary.open("xb") as stream:
            yield stream
        _give(temporary)
        temporary.replace(path)
    except Exception as error:
        system_error = named(error, path)
        if system_error is None:
            raise
        # The error names the file itself, because the user does not know the temporary name.
        raise OSError(system_error.errno, system_error.strerror, str(path)) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def make_folders(path: Path) -> None:
    """Makes a folder and the missing folders above it. Under sudo they belong to the caller.

    Raises OSError if a folder cannot be made.
    """
    if not path.is_dir():
        make_folders(path.parent)
        path.mkdir(exist_ok=True)
        _give(path)


def caller() -> tuple[int, int] | None:
    """The user and group who called us by sudo; None if nobody did.

    Only as root do the variables mean something, because then sudo has set them (sudo(8)).
    """
    if os.geteuid() != 0:
        return None
    try:
        user, group = int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"])
    except (KeyError, ValueError):
        return None
    return (user, group) if user > 0 and group >= 0 else None


def hand_over(folder: Path) -> None:
    """Gives a folder, with everything that root has made in it, to the user who called us by sudo.

    Links are not followed. Files that do not belong to root, and files with a second name
    elsewhere, stay as they are.
    """
    if caller() is not None:
        for path in (folder, *folder.rglob("*")):
            _give(path)


def _give(path: Path) -> None:
    """Gives one file or folder of root to the user who called us by sudo."""
    if (owner := caller()) is None:
        return
    status = path.lstat()
    is_folder, is_file = stat.S_ISDIR(status.st_mode), stat.S_ISREG(status.st_mode)
    if status.st_uid == 0 and (is_folder or (is_file and status.st_nlink == 1)):
        os.chown(path, *owner)


def write_text(path: Path, text: str) -> None:
    """Writes a text whole or not at all. Raises OSError, which names the file, if it cannot."""
    with writing(path) as stream:
        stream.write(text.encode())


def write_json(path: Path, value: Any) -> None:
    """Writes `value` as indented JSON, whole or not at all. The keys keep their order."""
    write_text(path, json.dumps(value, indent=1, sort_keys=False) + "\n")


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with opened(path) as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()
