"""Reads Debian packages and wheels as plain folders, files and links. Nothing is written here.

A Debian package is an `ar` archive of three members, and a wheel is a zip file (deb(5), PEP 427).
`ar` is read by hand, because it takes twenty lines and dpkg-deb is missing on other distributions.
"""

from __future__ import annotations

import io
import lzma
import posixpath
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import zstandard

from outcast.engines.root import files_list
from outcast.errors import RootError

MOST_BYTES = 2 << 30
"""The limit for what one package holds, unpacked. A compiler has a tenth."""

_BROKEN = (tarfile.TarError, zlib.error, zstandard.ZstdError)
_AR_MAGIC = b"!<arch>\n"
_AR_HEADER_BYTES = 60
_DIST_PACKAGES = "usr/local/lib/python3.11/dist-packages"
"""The distribution's Python 3.11 looks here for packages that are not the distribution's."""


@dataclass(frozen=True, slots=True)
class Content:
    """A folder, a file or a symbolic link that a package holds.

    Attributes:
        path: relative to the root, as the package has it, without `./`.
        data: a file's bytes; None for a folder or a link.
        target: where a link leads, as the package has it; empty for the others.
    """

    path: str
    data: bytes | None = None
    executable: bool = False
    target: str = ""


def of_debian_package(path: Path) -> Iterator[Content]:
    """Reads what a Debian package installs. Its scripts are not run.

    Raises RootError: it is no Debian package, or holds what no root may hold.
    """
    try:
        name, packed = _ar_member(path.read_bytes(), b"data.tar")
        with tarfile.open(fileobj=io.BytesIO(_decompressed(name, packed))) as archive:
            for member in archive:
                content = _of_tar(archive, member)
                if content is not None:
                    yield content
    except (EOFError, KeyError, ValueError, lzma.LZMAError, *_BROKEN) as error:
        raise RootError(f"{path}: not a Debian package that can be used: {error}") from None


def of_wheel(path: Path) -> Iterator[Content]:
    """Reads what a wheel installs, at the place of Python packages in the root.

    Its list of hashes is left out, because `files_list` has them all.

    Raises RootError: it is no wheel, or holds what no root may hold.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                name = _name_in_wheel(member.filename)
                if member.is_dir() or name is None:
                    continue
                _require_inside(name)
                if member.file_size > MOST_BYTES:
                    raise ValueError(f"{name} is larger than {MOST_BYTES} bytes")
                mode = member.external_attr >> 16
                yield Content(
                    f"{_DIST_PACKAGES}/{name}", archive.read(member), bool(mode & stat.S_IXUSR)
                )
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        raise RootError(f"{path}: not a wheel that can be used: {error}") from None


def _name_in_wheel(name: str) -> str | None:
    """The place of a wheel's file, below the folder of packages; None if it goes nowhere."""
    first, _, rest = name.partition("/")
    if first.endswith(".data"):
        # PEP 427 calls the others scripts, headers and data; nothing that we run needs them.
        scheme, _, rest = rest.partition("/")
        return rest if scheme in ("purelib", "platlib") else None
    return None if first.endswith(".dist-info") and rest in ("RECORD", "REQUESTED") else name


def _ar_member(archive: bytes, beginning: bytes) -> tuple[str, bytes]:
    """The first member of an `ar` archive whose name begins so, with its name."""
    if not archive.startswith(_AR_MAGIC):
        raise ValueError("it does not begin as an ar archive")
    at = len(_AR_MAGIC)
    while at + _AR_HEADER_BYTES <= len(archive):
        header = archive[at : at + _AR_HEADER_BYTES]
        name, size = header[:16].rstrip(b" /"), int(header[48:58])
        if not header.endswith(b"`\n") or not 0 <= size <= len(archive) - at - _AR_HEADER_BYTES:
            raise ValueError("its ar archive is broken")
        at += _AR_HEADER_BYTES
        if name.startswith(beginning):
            return name.decode("ascii"), archive[at : at + size]
        at += size + size % 2
    raise ValueError(f"it has no {beginning.decode()}")


def _decompressed(name: str, packed: bytes) -> bytes:
    if name.endswith(".xz"):
        data = lzma.LZMADecompressor().decompress(packed, MOST_BYTES + 1)
    elif name.endswith(".zst"):
        with zstandard.ZstdDecompressor().stream_reader(packed) as stream:
            data = stream.read(MOST_BYTES + 1)
    elif name.endswith(".gz"):
        data = zlib.decompressobj(wbits=31).decompress(packed, MOST_BYTES + 1)
    else:
        data = packed
    if len(data) > MOST_BYTES:
        raise ValueError(f"{name} unpacks to more than {MOST_BYTES} bytes")
    return data


def _of_tar(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Content | None:
    name = posixpath.normpath(member.name)
    if name == ".":
        return None
    _require_inside(name)
    if member.isdir():
        return Content(name)
    if member.issym():
        if not member.linkname.isprintable() or not member.linkname:
            raise ValueError(f"{name} leads to {member.linkname!a}")
        return Content(name, target=member.linkname)
    if not member.isreg() and not member.islnk():
        raise ValueError(f"{name} is no folder, file or link")
    # A hard link becomes a file of its own, since a copy of the root would cut it too.
    stream = archive.extractfile(member)
    if stream is None:
        raise ValueError(f"{name} links to {member.linkname!a}, which is no file")
    return Content(name, stream.read(), bool(member.mode & stat.S_IXUSR))


def _require_inside(name: str) -> None:
    if not files_list.is_inside(name):
        raise ValueError(f"{name!a} does not lead to a place in the root")
