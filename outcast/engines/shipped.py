"""The guest's kernel, root and programs, as the package `outcast-guest` ships them.

The package holds archives and `guest.json`, which says what they are. It is data alone: nothing
in it is imported. Each archive is unpacked once, into this user's cache, when it is first needed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import shutil
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from outcast import __version__, files, handed_in
from outcast.engines.root import packed
from outcast.errors import DeadlineError, FeatureMissingError, InputError
from outcast.handed_in import FileName, Versioned

PACKAGE = "outcast_guest"
PROJECT = "outcast-guest"
RECORD = "guest.json"
UNPACK_DEADLINE_S = 300.0
"""For another process that is unpacking. A root took three seconds."""

_UNFINISHED = "unpacking-"
_POLL_S = 0.1
_ROOM = (errno.ENOSPC, errno.EDQUOT)


class Part(BaseModel):
    """A packed folder of the cache.

    Attributes:
        kind: the cache that it belongs to: `roots`, `kernels` or `programs`.
        key: the folder's name in that cache.
        file: the archive's name beside the record.
        sha256: the archive's hash.
        unpacked_bytes: the room that its files take.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: str
    key: str
    file: FileName
    sha256: str
    unpacked_bytes: int


class Guest(Versioned):
    """What an installed `outcast-guest` holds; its version is that of the outcast it fits."""

    format: int = 1
    version: str
    parts: tuple[Part, ...]


def folder() -> Path | None:
    """The folder of the installed package, or None."""
    spec = find_spec(PACKAGE)
    places = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(places))) if places else None


@functools.cache
def installed() -> Guest | None:
    """What the installed package holds; None if there is none.

    Raises:
        InputError: its record is damaged.
    """
    place = folder()
    if place is None:
        return None
    try:
        return handed_in.read_model(place / RECORD, Guest)
    except FileNotFoundError:
        raise InputError(f"{place / RECORD} is missing; install {PROJECT} again") from None


def part_of(kind: str, key: str) -> Part | None:
    """What the installed package has for a folder of the cache, or None. Raises as `installed`."""
    guest = installed()
    parts = guest.parts if guest is not None else ()
    return next((part for part in parts if (part.kind, part.key) == (kind, key)), None)


def misfit(kind: str, key: str) -> str:
    """What would fit instead of the installed package; empty if it has this, or there is none."""
    guest = installed()
    if guest is None or part_of(kind, key) is not None:
        return ""
    return (
        f"the installed wheel {PROJECT} {guest.version} does not fit this outcast {__version__}; "
        f"install {PROJECT} {__version__}"
    )


def provide(target: Path) -> bool:
    """Unpacks what the installed package has for a folder of the cache, whole or not at all.

    Of several processes, one unpacks and the others wait for it.

    Args:
        target: the folder, as `.../roots/KEY`.

    Returns:
        Whether the folder is there now.

    Raises:
        FeatureMissingError: the archive is damaged, or the cache cannot be written or has no room.
        DeadlineError: another process does not finish.
    """
    part = part_of(target.parent.name, target.name)
    if part is None or target.exists():
        return part is not None
    place = folder()
    assert place is not None
    path = place / part.file
    try:
        files.make_folders(target.parent)
        with _workshop(target.parent) as workshop:
            if target.exists():
                return True
            if files.sha256(path) != part.sha256:
                raise InputError("it has another hash than its record says")
            whole = workshop / "whole"
            whole.mkdir()
            with path.open("rb") as stream:
                packed.unpack(stream, whole)
            whole.rename(target)
            return True
    except InputError as error:
        raise FeatureMissingError(
            f"{path} is damaged: {error}; install {PROJECT} again (pip install --force-reinstall)"
        ) from None
    except OSError as error:
        raise FeatureMissingError(
            f"{PROJECT} cannot be unpacked to {target}: {error.strerror or error}; "
            + _remedy(error, part.unpacked_bytes)
        ) from None


def _remedy(error: OSError, needed_bytes: int) -> str:
    room = f"{needed_bytes / 1e6:.0f} MB"
    if error.errno in _ROOM:
        return f"it needs {room}; make room, or let XDG_CACHE_HOME name a folder that has it"
    return f"let XDG_CACHE_HOME name a folder that you can write to, with {room} of room"


@contextlib.contextmanager
def _workshop(folder: Path) -> Iterator[Path]:
    """A folder to unpack in, for one process at a time. It removes what killed ones have left."""
    with (folder / "unpacking").open("w") as lock:
        deadline = time.monotonic() + UNPACK_DEADLINE_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise DeadlineError(
                        f"another process that unpacks {PROJECT} in {folder}", UNPACK_DEADLINE_S
                    ) from None
                time.sleep(_POLL_S)
        for left in folder.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(
            prefix=_UNFINISHED, dir=folder, ignore_cleanup_errors=True
        ) as name:
            yield Path(name)
