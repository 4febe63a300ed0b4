"""The guest's kernel, root and programs, as the package `outcast-guest` ships them.

The package holds archives and `guest.json`, which says what they are. It is data alone: nothing
in it is imported. Each archive is unpacked once, into this user's cache, when it is first needed.
"""

from __future__ import annotations

import functools
import os
import tarfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import zstandard

from outcast import __version__, files, handed_in
from outcast.engines.pinned import Made, kept, named_folder
from outcast.engines.root.files_list import TIME_S
from outcast.errors import FeatureMissingError, InputError
from outcast.handed_in import FileName, Versioned

PACKAGE = "outcast_guest"
PROJECT = "outcast-guest"
RECORD = "guest.json"
WINDOW_LOG = 27
"""128 MiB, because similar files of a root stand far apart."""


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
    """The content of the installed package; None without one.

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
    """Says what would fit instead of the installed package; empty if that fits, or without one."""
    guest = installed()
    if guest is None or part_of(kind, key) is not None:
        return ""
    return (
        f"the installed wheel {PROJECT} {guest.version} does not fit this outcast {__version__}; "
        f"install {PROJECT} {__version__}"
    )


def find(
    kind: str, key: str, read: Callable[[Path], Made | None], folder: Path | None = None
) -> Made | None:
    """What `read` reads of a part of the guest, or None where this user does not have it.

    It is looked for in the folder that OUTCAST_GUEST names, in the cache (or `folder`) and in an
    installed outcast-guest, which is unpacked. Raises as `provide` and `pinned.named_folder`.
    """
    if folder is None and (named := named_folder(kind, key)) is not None:
        return read(named)
    target = (folder or files.cache_folder() / kind) / key
    found = read(target)
    return read(target) if found is None and provide(target) else found


def provide(target: Path) -> bool:
    """Unpacks what the installed package has for a folder of the cache, whole or not at all.

    Returns whether the folder is there now.

    Raises:
        FeatureMissingError: the archive is damaged, or the cache cannot be written or has no room.
    """
    part = part_of(target.parent.name, target.name)
    if part is None or target.exists():
        return part is not None
    place = folder()
    assert place is not None
    archive = place / part.file

    def make(whole: Path) -> None:
        if files.sha256(archive) != part.sha256:
            raise FeatureMissingError(
                f"{archive} is damaged: it has another hash than its record says; install "
                f"{PROJECT} again (pip install --force-reinstall)"
            )
        unpack(archive, whole)

    try:
        kept(target.parent, target.name, lambda: target if target.exists() else None, make)
    except OSError as error:
        raise FeatureMissingError(
            f"{PROJECT} cannot be unpacked to {target}: {error.strerror or error}; let "
            f"XDG_CACHE_HOME name a folder with {part.unpacked_bytes / 1e6:.0f} MB of room"
        ) from None
    return True


def unpack(archive: Path, folder: Path) -> None:
    """Unpacks an archive as scripts/guest/wheel.py packs it, into an empty folder."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=1 << WINDOW_LOG)
    with (
        archive.open("rb") as stream,
        decompressor.stream_reader(stream) as content,
        tarfile.open(fileobj=content, mode="r|") as packed,
    ):
        # Newer versions of Python would leave out what is not usual in a package of data.
        packed.extraction_filter = lambda member, path: member
        packed.extractall(folder)  # noqa: S202 - it has the hash of the installed package's record
    for path in folder.rglob("*"):
        if path.is_symlink():
            os.utime(path, (TIME_S, TIME_S), follow_symlinks=False)
