"""A folder as one compressed archive and back: a tar file in a zstd frame.

Wheels keep neither links nor modes, so the package `outcast-guest` holds its folders in this form.
The same folder gives the same bytes, with the same version of zstandard.
"""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import zstandard

from outcast.engines.root.files_list import TIME_S, is_inside
from outcast.errors import InputError

MOST_BYTES = 4 << 30
"""The limit for what an archive unpacks to."""
MOST_MEMBERS = 100_000
_LEVEL = 12
"""19 makes a root a tenth smaller, and takes ten times as long."""
_WINDOW_LOG = 27
"""128 MiB, because similar files of a root stand far apart."""
_MODE = 0o777


def pack(folder: Path, stream: BinaryIO, level: int = _LEVEL) -> None:
    """Writes all files, folders and links below a folder, in the order of their names.

    Owners are left out. Modes are 755 or 644, and all times are TIME_S, as in every root.

    Raises:
        OSError: a file cannot be read, or the stream cannot be written.
        ValueError: there is something else, such as a device.
    """
    parameters = zstandard.ZstdCompressionParameters.from_level(
        level, window_log=_WINDOW_LOG, enable_ldm=True
    )
    compressor = zstandard.ZstdCompressor(compression_params=parameters)
    with (
        compressor.stream_writer(stream, closefd=False) as compressed,
        tarfile.open(fileobj=compressed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in _below(folder):
            member = _member(path, path.relative_to(folder).as_posix())
            if member.isreg():
                with path.open("rb") as content:
                    archive.addfile(member, content)
            else:
                archive.addfile(member)


def unpack(stream: BinaryIO, folder: Path) -> None:
    """Unpacks an archive into an empty folder. The caller's umask does not matter.

    Raises:
        InputError: it is no such archive, or it would write outside of the folder.
        OSError: the folder cannot be written.
    """
    decompressor = zstandard.ZstdDecompressor(max_window_size=1 << _WINDOW_LOG)
    folders: dict[str, tarfile.TarInfo] = {}
    size = 0
    try:
        with (
            decompressor.stream_reader(stream, closefd=False) as content,
            tarfile.open(fileobj=content, mode="r|") as archive,
        ):
            for number, member in enumerate(archive):
                size += member.size
                if size > MOST_BYTES or number > MOST_MEMBERS:
                    raise tarfile.TarError("it is too large")
                parent = member.name.rpartition("/")[0]
                # A folder of the archive is no link, because then it could not have been made.
                if not is_inside(member.name) or (parent and parent not in folders):
                    raise tarfile.TarError(f"{member.name!r} stands in no folder of the archive")
                path = folder / member.name
                if member.isdir():
                    path.mkdir()
                    folders[member.name] = member
                elif member.issym():
                    path.symlink_to(member.linkname)
                    os.utime(path, (member.mtime, member.mtime), follow_symlinks=False)
                elif member.isreg():
                    with path.open("xb") as file:
                        shutil.copyfileobj(cast(BinaryIO, archive.extractfile(member)), file)
                        os.fchmod(file.fileno(), member.mode & _MODE)
                    os.utime(path, (member.mtime, member.mtime))
                else:
                    raise tarfile.TarError(f"{member.name!r} is neither file, folder nor link")
    except (tarfile.TarError, zstandard.ZstdError, EOFError, FileExistsError) as error:
        raise InputError(f"not an archive of a root or kernel: {error}") from None
    # At last, because a folder may be read-only, and its time changes with what is put into it.
    for name, member in reversed(folders.items()):
        path = folder / name
        path.chmod(member.mode & _MODE)
        os.utime(path, (member.mtime, member.mtime))


def _below(folder: Path) -> Iterator[Path]:
    for name in sorted(os.listdir(folder)):
        path = folder / name
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _below(path)


def _member(path: Path, name: str) -> tarfile.TarInfo:
    status = path.lstat()
    member = tarfile.TarInfo(name)
    is_program = stat.S_ISDIR(status.st_mode) or status.st_mode & stat.S_IXUSR
    member.mode = 0o755 if is_program else 0o644
    member.mtime = TIME_S
    if stat.S_ISLNK(status.st_mode):
        member.type, member.linkname = tarfile.SYMTYPE, os.readlink(path)
    elif stat.S_ISDIR(status.st_mode):
        member.type = tarfile.DIRTYPE
    elif stat.S_ISREG(status.st_mode):
        member.size = status.st_size
    else:
        raise ValueError(f"{path} is neither file, folder nor link")
    return member
