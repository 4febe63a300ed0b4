"""The guest's parts (kernel, roots, programs): their pinned keys, and the folders they are in.

A part is a folder, and its key is the folder's name. It is looked for in the folder that
OUTCAST_GUEST names, then in this user's cache, then in an installed package `outcast-guest`. That
package holds archives and `guest.json`, and is data alone: nothing in it is imported. An archive is
unpacked into the cache when it is first needed.

`scripts/guest/build --keys` writes `pinned.json` from the lock, the patches and the configuration.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

import zstandard

from outcast import __version__, files, handed_in
from outcast.errors import FeatureMissingError, InputError
from outcast.handed_in import FileName, Versioned

PROCESSOR = "x86_64"
"""As uname(2) names it. Linux itself has User-Mode Linux for x86 only (arch/x86/um)."""
VARIABLE = "OUTCAST_GUEST"
"""The environment's variable that names a folder with `roots`, `kernels` and maybe `programs`."""
SCRIPT = Path(__file__).parents[3] / "scripts" / "guest" / "build"
"""Makes the guest. Only a checkout has it."""
REMEDY = "install the wheel outcast-guest, or run scripts/guest/build in a checkout"

PACKAGE = "outcast_guest"
PROJECT = "outcast-guest"
RECORD = "guest.json"
WINDOW_LOG = 27
"""128 MiB, because similar files of a root stand far apart."""
TIME_S = 1_000_000_000
"""The modification time of every file of a root. It is the time at which the guest boots."""

Found = TypeVar("Found")
Kind = Literal["runtime", "build"]
"""Which root: the one that runs in the guest, or the one that compiles for it."""


class Pinned(NamedTuple):
    """The keys of both roots and of the kernel, and what the kernel's key is made from."""

    runtime: str
    build: str
    kernel: str
    source: str
    version: str
    recipe: str
    compiler: str


PINNED = Pinned(**json.loads(Path(__file__).with_name("pinned.json").read_text(encoding="utf-8")))


class Part(handed_in.Record):
    """A packed folder of the cache.

    Attributes:
        kind: `roots`, `kernels` or `programs`, the folder of the cache that it belongs to.
        key: the folder's name there.
    """

    kind: str
    key: str
    file: FileName
    sha256: str
    unpacked_bytes: int


class Guest(Versioned):
    """The content of an installed `outcast-guest`. Its version is that of the outcast it fits."""

    format: int = 1
    version: str
    parts: tuple[Part, ...]


def processor_misfit() -> str:
    """Why this machine's processor cannot run the guest, with the remedy; empty if it can."""
    machine = platform.machine()
    if machine == PROCESSOR:
        return ""
    return (
        f"the virtual engine needs an {PROCESSOR} processor, and this machine's is {machine}; run "
        "it in GitHub Codespaces, on a server or in an emulated machine (docs/anywhere.md)"
    )


def find(
    kind: str, key: str, read: Callable[[Path], Found | None], folder: Path | None = None
) -> Found | None:
    """Looks for a part of the guest. Returns what `read` makes of its folder, or None without one.

    `folder` replaces the cache of this kind, and OUTCAST_GUEST is then ignored.

    Raises FeatureMissingError: the folder of OUTCAST_GUEST lacks the part; or as `provide`.
    """
    named = os.environ.get(VARIABLE)
    if folder is None and named:
        place = Path(named) / kind / key
        if not place.is_dir():
            raise FeatureMissingError(
                f"{VARIABLE}: {place} is missing; allowed is a folder as scripts/guest/build makes "
                f"it for this version ({files.cache_folder()})"
            )
        return read(place)
    target = (folder or files.cache_folder() / kind) / key
    found = read(target)
    return read(target) if found is None and provide(target) else found


def package_folder() -> Path | None:
    """The folder of the installed outcast-guest, or None."""
    spec = find_spec(PACKAGE)
    places = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(places))) if places else None


@functools.cache
def installed() -> Guest | None:
    """The content of the installed outcast-guest, or None. Raises InputError if it is damaged."""
    place = package_folder()
    if place is None:
        return None
    try:
        return handed_in.read_model(place / RECORD, Guest)
    except FileNotFoundError:
        raise InputError(f"{place / RECORD} is missing; install {PROJECT} again") from None


def part_of(kind: str, key: str) -> Part | None:
    """The installed package's archive of a part, or None. Raises as `installed`."""
    guest = installed()
    parts = guest.parts if guest is not None else ()
    return next((part for part in parts if (part.kind, part.key) == (kind, key)), None)


def misfit(kind: str, key: str) -> str:
    """Names the package to install where the installed one lacks a part; empty without either."""
    guest = installed()
    if guest is None or part_of(kind, key) is not None:
        return ""
    return (
        f"the installed wheel {PROJECT} {guest.version} does not fit this outcast {__version__}; "
        f"install {PROJECT} {__version__}"
    )


def provide(target: Path) -> bool:
    """Unpacks a part into its folder of the cache, whole or not at all. Returns whether it could.

    Raises:
        FeatureMissingError: the archive is damaged, or the cache cannot be written or is full.
    """
    part = part_of(target.parent.name, target.name)
    if part is None or target.exists():
        return part is not None
    place = package_folder()
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


@contextlib.contextmanager
def temporary(folder: Path) -> Iterator[Path]:
    """A new folder in this one. Any number of processes can have one at a time."""
    made = tempfile.TemporaryDirectory("", "unfinished-", folder, ignore_cleanup_errors=True)
    with made as name:
        yield Path(name)


def kept(
    folder: Path, key: str, find: Callable[[], Found | None], make: Callable[[Path], None]
) -> Found | None:
    """Returns what `find` finds in `folder`, after making it under this key if it is not there.

    `make` fills a new folder, which then gets its name by a rename. What stands there damaged is
    replaced. Returns None where it cannot be kept.

    Raises as `make`, and OSError: the folder cannot be written to; the error names it.
    """
    if (found := find()) is not None:
        return found
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with temporary(folder) as place:
            whole = place / "whole"
            whole.mkdir()
            make(whole)
            with contextlib.suppress(OSError):  # another run has just kept the same
                if (folder / key).exists() and find() is None:
                    (folder / key).rename(place / "damaged")
                whole.rename(folder / key)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from error
    return find()
