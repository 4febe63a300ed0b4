"""Zip files: written the same to the byte every time, and unpacked though others made them."""

from __future__ import annotations

import hashlib
import stat
import struct
import time
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import IO

from outcast import files, handed_in
from outcast.errors import InputError

MOST_FILES = handed_in.MOST_ENTRIES
MOST_LIST_BYTES = 64 << 20
"""The limit for a zip file's list of its files, which is read as a whole."""
MOST_BYTES = 16 << 30
"""The limit for all files of an archive together."""
MOST_EXPANSION = 200
"""A file may expand to so many times the size of its archive. Captures compress to a tenth."""
ALWAYS_BYTES = 64 << 20
"""A small archive may expand to so much in any case."""
LONGEST_NAME = 1024
LONGEST_PART = 255
"""In bytes; no file system takes more (limits.h, NAME_MAX)."""

_BLOCK_BYTES = 1 << 20
_LEVEL = 6
_ENCRYPTED = 0x1
_UNIX = 3
_PROGRAM, _FILE = 0o755, 0o644
_REFUSALS = (
    *(zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, LookupError),
    *(OverflowError, struct.error),
)
"""zipfile raises these for a broken file."""

Date = tuple[int, int, int]
"""Year, month and day. A zip file knows the years 1980 to 2107."""


def write(
    path: Path, members: Mapping[str, Path | bytes], date: Date, known: Mapping[str, str]
) -> None:
    """Writes a zip file, whole or not at all. A member is a program if its file is one.

    The same members and the same date give the same bytes with the same zlib. The time of every
    member is noon, so that the day is right in most zones. `known` has the SHA-256 of members, as
    the archive says it; a file that is written with another one has changed meanwhile.

    Raises:
        InputError: a file has changed, or `unpack` would refuse the zip file.
        OSError: a file cannot be read or the zip file not be written; the error names the file.
    """
    with files.writing(path) as stream:
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as archive:
            for name in sorted(members):
                written = _add(archive, name, members[name], date)
                if known.get(name, written) != written:
                    raise InputError(f"{name}: changed while it was packed; pack it again")
        size = stream.tell()
        try:
            _members(archive.infolist(), size, MOST_BYTES)
            if size - archive.start_dir > MOST_LIST_BYTES:
                raise InputError(f"its list of files has over {MOST_LIST_BYTES >> 20} MiB")
        except InputError as error:
            raise InputError(f"no verb would read the archive of this: {error}") from None


def _add(archive: zipfile.ZipFile, name: str, content: Path | bytes, date: Date) -> str:
    """Adds a member. Returns the SHA-256 of what was written."""
    info = zipfile.ZipInfo(name, (*date, 12, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    info.create_system = _UNIX
    is_program = isinstance(content, Path) and bool(content.stat().st_mode & stat.S_IXUSR)
    info.external_attr = (stat.S_IFREG | (_PROGRAM if is_program else _FILE)) << 16
    if isinstance(content, bytes):
        archive.writestr(info, content, compresslevel=_LEVEL)
        return hashlib.sha256(content).hexdigest()
    digest = hashlib.sha256()
    with handed_in.opened(content) as source:
        # Known beforehand, because a file above 2 GiB needs another header.
        info.file_size = source.seek(0, 2)
        source.seek(0)
        with archive.open(info, "w") as target:
            while block := source.read(_BLOCK_BYTES):
                digest.update(block)
                target.write(block)
    return digest.hexdigest()


def digest(content: Path | bytes) -> str:
    """The SHA-256 of what a member will hold."""
    if isinstance(content, Path):
        return files.sha256(content)
    return hashlib.sha256(content).hexdigest()


def day(time_s: float) -> Date:
    """The day of a time, or 1980-01-01, the first that a zip file knows."""
    date = time.gmtime(max(time_s, 315_532_800))
    return date.tm_year, date.tm_mon, date.tm_mday


class _Bounded(BufferedReader):
    """A file that is not read in huge pieces.

    zipfile reads the list of files in one piece, whose size the zip file itself says.
    """

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= MOST_LIST_BYTES:
            size = MOST_LIST_BYTES + 1
        content = super().read(size)
        if len(content) > MOST_LIST_BYTES:
            raise InputError(f"its list of files has over {MOST_LIST_BYTES >> 20} MiB, the limit")
        return content


def unpack(path: Path, folder: Path, most_bytes: int = MOST_BYTES) -> None:
    """Unpacks a zip file that somebody handed in into a new folder.

    Only regular files are made, and programs stay programs. Their sizes are bounded before the
    first one is made, and by `most_bytes` together.

    Raises:
        InputError: the file cannot be read, is no zip file, is broken, or holds anything else than
            regular files with plain names, a name twice, or too much.
        OSError: a file cannot be written; the error names it.
    """
    try:
        stream = _Bounded(handed_in.opened(path))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {handed_in.reason(error)}") from None
    try:
        with stream, zipfile.ZipFile(stream) as archive:
            for info in _members(archive.infolist(), path.stat().st_size, most_bytes):
                target = folder / info.filename
                _make_folder(target.parent)
                with archive.open(info) as source:
                    _copy(source, target)
                if info.external_attr >> 16 & stat.S_IXUSR:
                    target.chmod(_PROGRAM)
    except InputError as error:
        raise InputError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None
    except _REFUSALS as error:
        what = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path}: not a whole zip file: {what[:200]!a}") from None


def holds(path: Path, start: str) -> bool:
    """Whether a name in a zip file begins so. A file that cannot be read has no names."""
    try:
        with _Bounded(handed_in.opened(path)) as stream, zipfile.ZipFile(stream) as archive:
            return any(name.startswith(start) for name in archive.namelist())
    except (OSError, InputError, *_REFUSALS):
        return False


def _members(
    infos: Sequence[zipfile.ZipInfo], archive_bytes: int, most_bytes: int
) -> list[zipfile.ZipInfo]:
    """The files of a zip file. Folders are left out, because files make their own."""
    _require_few(len(infos))
    members = [info for info in infos if not (info.is_dir() and info.file_size == 0)]
    seen: set[str] = set()
    for info in members:
        _require_plain(info)
        if info.filename in seen:
            raise InputError(f"{info.filename}: is there twice")
        seen.add(info.filename)
    folders = {folder for name in seen for folder in PurePosixPath(name).parents}
    _require_few(len(seen) + len(folders))
    size = sum(info.file_size for info in members)
    most = min(most_bytes, max(ALWAYS_BYTES, MOST_EXPANSION * archive_bytes))
    if size > most:
        raise InputError(f"expands to {size} bytes; allowed are {most} for an archive of its size")
    return members


def _require_few(count: int) -> None:
    if count > MOST_FILES:
        raise InputError(f"holds more than {MOST_FILES} files and folders")


def _require_plain(info: zipfile.ZipInfo) -> None:
    """Raises InputError if a member is no regular file, or has a name that is not plain."""
    # zipfile cuts a name off at a null character.
    require_name(info.orig_filename)
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise InputError(f"{info.filename}: is no regular file; allowed are only these")
    if info.flag_bits & _ENCRYPTED:
        raise InputError(f"{info.filename}: is encrypted; allowed are files without a password")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise InputError(f"{info.filename}: allowed are the methods stored and deflated")


def require_name(name: str) -> None:
    """Raises InputError if an archive of ours cannot have a file of this name."""
    parts = name.split("/")
    try:
        handed_in.require_file_name(name)
        is_plain = name.isprintable() and "\\" not in name
    except ValueError:
        is_plain = False
    is_short = len(name) <= LONGEST_NAME and len(parts) <= handed_in.MOST_DEPTH
    if not is_plain or not is_short or max(len(part.encode()) for part in parts) > LONGEST_PART:
        short = ascii(name if len(name) <= 60 else f"{name[:57]}...")
        raise InputError(f"{short}: allowed are plain names of files within the archive")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{folder.name!a}: is a file and a folder") from None


def _copy(source: IO[bytes], target: Path) -> None:
    try:
        with target.open("xb") as sink:
            while block := source.read(_BLOCK_BYTES):
                sink.write(block)
    except (FileExistsError, IsADirectoryError):
        raise InputError(f"{target.name!a}: is a file and a folder") from None
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from None
