"""Another source of a kernel than the lock's: a user's file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from outcast import files
from outcast.errors import InputError


@dataclass(frozen=True)
class Source:
    """A kernel source that can be fetched."""

    name: str
    version: str


def from_tarball(path: Path) -> Source:
    """The source in a user's file. Raises InputError if the file cannot be read."""
    try:
        return Source("tarball", files.sha256(path))
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror}; allowed is a kernel's source tarball, or Debian's package "
            "of one"
        ) from None
