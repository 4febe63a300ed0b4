"""Writes zip files that are equal to the byte every time, and unpacks those of strangers."""

from __future__ import annotations

import io
import shutil
import stat
import struct
import time
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from io import BufferedReader
from pathlib import Path, PurePosixPath

from outcast import files, handed_in
from outcast.errors import InputError

MOST_LIST_BYTES = 64 << 20
"""The limit for a zip file's list of its files, which zipfile reads as a whole."""
MOST_BYTES = 16 << 30
"""The limit for all files of an archive together."""
MOST_EXPANSION = 200
"""The limit for all files over the size of the archive. Captures compress to a tenth."""
ALWAYS_BYTES = 64 << 20
"""A small archive may always expand to this."""
LONGEST_NAME = 255
"""In bytes; no file system takes more (limits.h, NAME_MAX)."""

_BLOCK_BYTES = 1 << 20
_UNIX = 3
_PROGRAM, _FILE = 0o755, 0o644
_FIRST_S = 315_532_800
"""1980-01-01, the first day that a zip file knows, in seconds of Unix time."""
_REFUSALS = (
    *(zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, LookupError),
    *(OverflowError, struct.error),
)
"""zipfile raises these for a broken file."""

Members = Mapping[str, Path | bytes]
"""Contents, or files with the contents, by their names in an archive."""


def write(path: Path, members: Members, date_s: float, most_bytes: int | None = None) -> int:
    """Writes a zip file, whole or not at all, and returns the number of its files.

    The same members and day give the same bytes with the same zlib. The time of every member is
    noon, so that the day is right in most zones. `most_bytes` is the limit for its size.

    Raises:
        InputError: a file's name is not allowed, or the files are too many or too large.
        OSError: a file cannot be read or the zip file not be written; the error names the file.
    """
    date = time.gmtime(max(date_s, _FIRST_S))[:3]
    with files.writing(path) as stream:
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
            for name in sorted(members):
                _add(archive, name, members[name], date)
        size = stream.tell()
        list(_allowed(archive, size, MOST_BYTES))
        if most_bytes is not None and size > most_bytes:
            largest = max(archive.infolist(), key=lambda info: info.file_size)
            raise InputError(
                f"packed it has {size} bytes; allowed are {most_bytes}; its largest file is "
                f"{largest.filename} with {largest.file_size} bytes"
            )
    return len(members)


def _add(archive: zipfile.ZipFile, name: str, content: Path | bytes, date: tuple[int, ...]) -> None:
    """Adds a member; a file that can be executed stays so."""
    info = zipfile.ZipInfo(name, (date[0], date[1], date[2], 12, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    info.create_system = _UNIX
    is_program = isinstance(content, Path) and bool(content.stat().st_mode & stat.S_IXUSR)
    info.external_attr = (stat.S_IFREG | (_PROGRAM if is_program else _FILE)) << 16
    with io.BytesIO(content) if isinstance(content, bytes) else handed_in.opened(content) as source:
        # Known beforehand, because a file above 2 GiB needs another header.
        info.file_size = source.seek(0, 2)
        source.seek(0)
        with archive.open(info, "w") as target:
            shutil.copyfileobj(source, target, _BLOCK_BYTES)


class _Bounded(BufferedReader):
    """A file that limits one read, because zipfile reads the list of files in one piece."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= MOST_LIST_BYTES:
            size = MOST_LIST_BYTES + 1
        content = super().read(size)
        if len(content) > MOST_LIST_BYTES:
            raise zipfile.BadZipFile("its list of files is too long")
        return content


def unpack(path: Path, folder: Path, most_bytes: int = MOST_BYTES) -> None:
    """Unpacks a zip file that somebody handed in into a new folder.

    Only regular files are made, and programs stay programs. Their sizes are bounded before the
    first one is made, and by `most_bytes` together.

    Raises:
        InputError: the file cannot be read, is not a whole zip file, holds too much, a name twice,
            or anything but regular files with plain names.
        OSError: a file cannot be written; the error names it.
    """
    try:
        stream = _Bounded(handed_in.opened(path))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {handed_in.reason(error)}") from None
    try:
        with stream, zipfile.ZipFile(stream) as archive:
            for info in _allowed(archive, path.stat().st_size, most_bytes):
                target = folder / info.filename
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(info) as source, target.open("xb") as sink:
                    shutil.copyfileobj(source, sink, _BLOCK_BYTES)
                if info.external_attr >> 16 & stat.S_IXUSR:
                    target.chmod(_PROGRAM)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except _REFUSALS as error:
        what = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path}: not a whole zip file: {what[:200]!a}") from None


def _allowed(
    archive: zipfile.ZipFile, archive_bytes: int, most_bytes: int
) -> Iterator[zipfile.ZipInfo]:
    """The files of a zip file, without folders.

    Raises InputError, before the first file, if one is not allowed or they are too many or large.
    """
    infos = archive.infolist()
    most = min(most_bytes, max(ALWAYS_BYTES, MOST_EXPANSION * archive_bytes))
    size = sum(info.file_size for info in infos)
    if len(infos) > handed_in.MOST_ENTRIES or size > most:
        raise InputError(
            f"{len(infos)} files that expand to {size} bytes; allowed are {handed_in.MOST_ENTRIES} "
            f"files, and {most} bytes for an archive of its size"
        )
    members = [info for info in infos if not info.is_dir()]
    names: set[str] = set()
    folders: set[str] = set()
    for info in members:
        name = info.filename
        if not _is_plain(info) or name in names:
            short = ascii(name if len(name) <= 60 else f"{name[:57]}...")
            raise InputError(
                f"{short}: allowed are regular files, stored or deflated without a password, with "
                "plain names, each once"
            )
        names.add(name)
        folders |= {str(folder) for folder in PurePosixPath(name).parents}
    if len(names | folders) > handed_in.MOST_ENTRIES or names & folders:
        raise InputError("too many folders, or one that is a file too")
    yield from members


def _is_plain(info: zipfile.ZipInfo) -> bool:
    """Whether a member is a regular file, and cannot lead out of the folder."""
    # zipfile cuts a name off at a null character.
    name = info.orig_filename
    parts = name.split("/")
    try:
        handed_in.require_file_name(name)
    except ValueError:
        return False
    return (
        name.isprintable()
        and "\\" not in name
        and len(parts) <= handed_in.MOST_DEPTH
        and max(len(part.encode()) for part in parts) <= LONGEST_NAME
        and stat.S_IFMT(info.external_attr >> 16) in (0, stat.S_IFREG)
        and info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        # The bit of a password.
        and not info.flag_bits & 1
    )
