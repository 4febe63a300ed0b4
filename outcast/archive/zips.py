"""Zip files: written the same to the byte every time, and unpacked though others made them."""

from __future__ import annotations

import hashlib
import io
import shutil
import stat
import struct
import time
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from io import BufferedReader
from pathlib import Path, PurePosixPath

from pydantic import BaseModel

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
_FIRST_S = 315_532_800
"""1980-01-01, the first day that a zip file knows, in seconds of Unix time."""
_REFUSALS = (
    *(zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, LookupError),
    *(OverflowError, struct.error),
)
"""zipfile raises these for a broken file."""

Members = Mapping[str, Path | bytes]
"""Contents, or the files that have them, by their names in an archive."""


def write(
    path: Path,
    members: Members,
    date_s: float,
    record: tuple[str, BaseModel] | None = None,
    most_bytes: int | None = None,
) -> int:
    """Writes a zip file, whole or not at all; how many files it has.

    Its last file is the record by its name, to which `files` is added: the SHA-256 of every other
    file. The same members, record and day give the same bytes with the same zlib. The time of every
    member is noon, so that the day is right in most zones. `most_bytes` is the limit for its size.

    Raises:
        InputError: a file has a name that no archive can have, or they are too many or too large.
        OSError: a file cannot be read or the zip file not be written; the error names the file.
    """
    date = time.gmtime(max(date_s, _FIRST_S))[:3]
    with files.writing(path) as stream:
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as archive:
            hashes = {name: _add(archive, name, members[name], date) for name in sorted(members)}
            if record is not None:
                whole = record[1].model_copy(update={"files": hashes})
                _add(archive, record[0], f"{whole.model_dump_json(indent=1)}\n".encode(), date)
        size = stream.tell()
        _members(archive.infolist(), size, MOST_BYTES)
        if most_bytes is not None and size > most_bytes:
            largest = max(archive.infolist(), key=lambda info: info.file_size)
            raise InputError(
                f"packed it has {size} bytes; allowed are {most_bytes}; its largest file is "
                f"{largest.filename} with {largest.file_size} bytes"
            )
    return len(archive.infolist())


def _add(archive: zipfile.ZipFile, name: str, content: Path | bytes, date: tuple[int, ...]) -> str:
    """Adds a member, a program if its file is one. Returns the SHA-256 of what was written."""
    info = zipfile.ZipInfo(name, (date[0], date[1], date[2], 12, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    info.create_system = _UNIX
    is_program = isinstance(content, Path) and bool(content.stat().st_mode & stat.S_IXUSR)
    info.external_attr = (stat.S_IFREG | (_PROGRAM if is_program else _FILE)) << 16
    digest = hashlib.sha256()
    with io.BytesIO(content) if isinstance(content, bytes) else handed_in.opened(content) as source:
        # Known beforehand, because a file above 2 GiB needs another header.
        info.file_size = source.seek(0, 2)
        source.seek(0)
        with archive.open(info, "w") as target:
            while block := source.read(_BLOCK_BYTES):
                digest.update(block)
                target.write(block)
    return digest.hexdigest()


def broken(folder: Path, record_name: str, hashes: Mapping[str, str]) -> str:
    """How the files of an unpacked archive differ from its record of them; empty if they do not.

    Raises:
        InputError: it holds something that is neither a file nor a folder.
        OSError: a file cannot be read.
    """
    present = {str(file.relative_to(folder)): file for file in handed_in.plain_files(folder)}
    present.pop(record_name, None)
    for name in sorted({*present, *hashes}):
        if name not in present:
            return f"{name} is missing"
        if name not in hashes:
            return f"{name} has no hash in {record_name}"
        if files.sha256(present[name]) != hashes[name]:
            return f"{name} has another hash than {record_name} says"
    return ""


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
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(info) as source, target.open("xb") as sink:
                    shutil.copyfileobj(source, sink, _BLOCK_BYTES)
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
    folders = {str(folder) for name in seen for folder in PurePosixPath(name).parents}
    _require_few(len(seen) + len(folders))
    if both := folders & seen:
        raise InputError(f"{min(both)}: is a file and a folder")
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
    is_known = info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    if kind not in (0, stat.S_IFREG) or info.flag_bits & _ENCRYPTED or not is_known:
        raise InputError(
            f"{info.filename}: allowed are regular files without a password, stored or deflated"
        )


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
