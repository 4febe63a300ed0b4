"""The guest's kernel, root and programs, as the package `outcast-guest` ships them.

The package holds archives and `guest.json`, which says what they are. It is data alone: nothing
in it is imported. Each archive is unpacked once, into this user's cache, when it is first needed.
Where many users share one installation, its administrator unpacks them beside the archives
(`outcast root share`). Then a user's cache has links to these folders.
"""

from __future__ import annotations

import errno
import functools
from importlib.util import find_spec
from pathlib import Path

from outcast import __version__, files, handed_in
from outcast.engines.root import packed
from outcast.engines.workshop import workshop
from outcast.errors import FeatureMissingError, InputError
from outcast.handed_in import FileName, Versioned

PACKAGE = "outcast_guest"
PROJECT = "outcast-guest"
RECORD = "guest.json"
SHARED = "unpacked"
"""The folder of the installed package that has the parts unpacked for all users, if they are."""

_FOR_ALL = 0o755
"""Whatever the umask of who shares: all others can read."""
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class Part(handed_in.Record):
    """A packed folder of the cache.

    Attributes:
        kind: the cache that it belongs to: `roots`, `kernels` or `programs`.
        key: the folder's name in that cache.
    """

    kind: str
    key: str
    file: FileName
    sha256: str
    unpacked_bytes: int


class Guest(Versioned):
    """The content of an installed `outcast-guest`; its version is that of the outcast it fits."""

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
    """The content of the installed package; None if there is none.

    Raises InputError: its record is damaged.
    """
    place = folder()
    if place is None:
        return None
    try:
        return handed_in.read_model(place / RECORD, Guest)
    except FileNotFoundError:
        raise InputError(f"{place / RECORD} is missing; install {PROJECT} again") from None


def part_of(kind: str, key: str) -> Part | None:
    """Finds what the installed package has for a folder of the cache. Raises as `installed`."""
    guest = installed()
    parts = guest.parts if guest is not None else ()
    return next((part for part in parts if (part.kind, part.key) == (kind, key)), None)


def misfit(kind: str, key: str) -> str:
    """Says what would fit instead of the installed package; empty if that has it, or is none."""
    guest = installed()
    if guest is None or part_of(kind, key) is not None:
        return ""
    return (
        f"the installed wheel {PROJECT} {guest.version} does not fit this outcast {__version__}; "
        f"install {PROJECT} {__version__}"
    )


def provide(target: Path) -> bool:
    """Unpacks what the installed package has for a folder of the cache, whole or not at all.

    Where the package was unpacked for all users, the folder becomes a link. Of several processes,
    one works and the others wait for it.

    Returns whether the folder is there now.

    Raises:
        FeatureMissingError: the archive is damaged, or the cache cannot be written or has no room.
    """
    part = part_of(target.parent.name, target.name)
    if part is None or target.exists():
        return part is not None
    place = folder()
    assert place is not None
    shared = _shared(place, part)
    try:
        _put(part, place / part.file, target, shared if shared.is_dir() else None)
    except OSError as error:
        raise FeatureMissingError(
            f"{PROJECT} cannot be unpacked to {target}: {error.strerror or error}; "
            + _remedy(error, part.unpacked_bytes)
        ) from None
    return True


def share() -> list[Path]:
    """Unpacks the installed package beside its archives, for all users of this Python.

    Returns the folder of each part.

    Raises:
        FeatureMissingError: the package is not installed, an archive is damaged, or this user
            cannot write to the package's folder.
    """
    guest, place = installed(), folder()
    if guest is None or place is None:
        raise FeatureMissingError(f"{PROJECT} is not installed in this Python; pip installs it")
    targets = [_shared(place, part) for part in guest.parts]
    for part, target in zip(guest.parts, targets, strict=True):
        try:
            # As root under sudo, too: the caller's own programs must not change what others boot.
            target.parent.mkdir(parents=True, exist_ok=True)
            _put(part, place / part.file, target, None)
            for path in (target, target.parent, target.parent.parent):
                path.chmod(_FOR_ALL)
        except OSError as error:
            raise FeatureMissingError(
                f"{PROJECT} cannot be unpacked to {target}: {error.strerror or error}; do it as "
                f"the user who installed it, with {part.unpacked_bytes / 1e6:.0f} MB of room"
            ) from None
    return targets


def _shared(place: Path, part: Part) -> Path:
    return place / SHARED / part.kind / part.key


def _put(part: Part, archive: Path, target: Path, shared: Path | None) -> None:
    """Makes a folder from its archive, or a link to where that is unpacked already."""
    files.make_folders(target.parent)
    with workshop(target.parent, lock="unpacking", prefix="unpacking-") as place:
        if target.exists():
            return
        # What a link led to may have gone with an older installation.
        target.unlink(missing_ok=True)
        if shared is not None:
            target.symlink_to(shared)
            return
        try:
            if files.sha256(archive) != part.sha256:
                raise InputError("it has another hash than its record says")
            whole = place / "whole"
            whole.mkdir()
            with archive.open("rb") as stream:
                packed.unpack(stream, whole)
        except InputError as error:
            raise FeatureMissingError(
                f"{archive} is damaged: {error}; install {PROJECT} again "
                "(pip install --force-reinstall)"
            ) from None
        whole.rename(target)


def _remedy(error: OSError, needed_bytes: int) -> str:
    size = f"{needed_bytes / 1e6:.0f} MB"
    if error.errno in _DISK_FULL:
        return f"it needs {size}; make room, or let XDG_CACHE_HOME name a folder that has it"
    return f"let XDG_CACHE_HOME name a folder that you can write to, with {size} of room"
