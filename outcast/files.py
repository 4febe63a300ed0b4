"""What is written: whole or not at all, and, under sudo, for the user who called it."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from outcast import handed_in

_OS_ERROR = re.compile(r"\(os error ([0-9]+)\)")
"""How libraries in Rust name an error of the system in their own exceptions."""


def describe(error: OSError) -> str:
    """An error of the system in one line: the file, where it is known, and what is wrong."""
    what = error.strerror or str(error) or type(error).__name__
    # Of two files, as of a copy, the second is the one that is written.
    name = error.filename2 or error.filename
    return f"{os.fsdecode(name)}: {what}" if isinstance(name, str | bytes) else what


def named(error: Exception, path: Path) -> OSError | None:
    """An error of the system with the file it is about; None where it is no such error."""
    if isinstance(error, OSError) and error.filename is not None:
        return error
    number = error.errno if isinstance(error, OSError) else None
    if number is None and (match := _OS_ERROR.search(str(error))):
        number = int(match[1])
    if number is not None:
        return OSError(number, os.strerror(number), str(path))
    return OSError(errno.EIO, str(error), str(path)) if isinstance(error, OSError) else None


@contextlib.contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A stream of bytes that becomes the file `path` when the block ends well.

    It is a temporary file beside `path`, opened once: where the folder is another user's, that one
    could put a link in its place, and root would write to where the link leads.

    Raises:
        OSError: naming the file, where it cannot be written or put in its place.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        if path.exists() and not path.is_file():
            # A device would be replaced, as /dev/null by root.
            raise OSError(errno.EINVAL, "is no regular file", str(path))
        # A link that lies there under this name is not followed, whoever put it there.
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, 0o666), "wb") as stream:
            yield stream
            _give(stream.fileno())
        temporary.replace(path)
    except Exception as error:
        found = named(error, path)
        if found is None:
            raise
        # The user knows the file by its own name, not by the temporary one.
        raise OSError(found.errno, found.strerror, str(path)) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def make_folders(path: Path) -> None:
    """Makes a folder and those above it that are not there yet; under sudo they are the caller's.

    From the first one that is there on, the way goes by descriptors: the caller could put a link
    where a folder is missing, and would be given what it leads to.

    Raises:
        OSError: where one cannot be made.
    """
    missing = []
    at = path
    while not at.exists() and at != at.parent:
        missing.append(at.name)
        at = at.parent
    if at.exists() and not at.is_dir():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(at))
    descriptor = os.open(at, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in reversed(missing):
            is_new = False
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=descriptor)
                is_new = True
            inner = os.open(name, _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
            if is_new:
                _give(descriptor)
    finally:
        os.close(descriptor)


def caller() -> tuple[int, int] | None:
    """User and group of who called us by sudo; None where nobody did.

    The variables say something only where sudo set them, which needs root (sudo(8)).
    """
    if os.geteuid() != 0:
        return None
    try:
        user, group = int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"])
    except (KeyError, ValueError):
        return None
    return (user, group) if user > 0 and group >= 0 else None


def hand_over(folder: Path | int) -> None:
    """Gives a folder with all that root has made in it to who called us by sudo.

    Links are not followed. What is not root's, and files that have a second name elsewhere, stay
    as they are. The work goes by descriptors, from the inside to the outside, so that nothing can
    be exchanged under our hands.

    Args:
        folder: an open descriptor of it; or its path, where it is the caller's own already, as
            `make_folders` makes it. A path can meanwhile lead to any folder of root's.
    """
    owner = caller()
    if owner is None:
        return
    if isinstance(folder, int):
        _give_tree(folder)
        return
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, _FOLDER)
        try:
            if os.fstat(descriptor).st_uid == owner[0]:
                _give_tree(descriptor)
        finally:
            os.close(descriptor)


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def _give_tree(folder: int) -> None:
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries]
    for name in names:
        with contextlib.suppress(OSError):
            kind = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
            if stat.S_ISDIR(kind):
                descriptor = os.open(name, _FOLDER, dir_fd=folder)
            elif stat.S_ISREG(kind):
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                descriptor = os.open(name, flags, dir_fd=folder)
            else:
                continue
            try:
                if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                    _give_tree(descriptor)
                else:
                    _give(descriptor)
            finally:
                os.close(descriptor)
    _give(folder)


def _give(descriptor: int) -> None:
    """Gives one open file or folder of root's to who called us by sudo."""
    owner = caller()
    if owner is None:
        return
    status = os.fstat(descriptor)
    if status.st_uid != 0 or (stat.S_ISREG(status.st_mode) and status.st_nlink > 1):
        return
    os.fchown(descriptor, *owner)


def write_text(path: Path, text: str) -> None:
    """Writes a text whole or not at all. Raises OSError naming the file where it cannot."""
    with writing(path) as stream:
        stream.write(text.encode())


def write_json(path: Path, value: Any) -> None:
    """`value` as indented JSON with a stable order of keys, written whole or not at all."""
    write_text(path, json.dumps(value, indent=1, sort_keys=False) + "\n")


def sha256(path: Path) -> str:
    """The file's SHA-256 in hexadecimal."""
    digest = hashlib.sha256()
    with handed_in.opened(path) as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()
