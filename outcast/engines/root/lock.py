"""The lock: which packages and wheels a root is made of, and what it has to look like then.

`scripts/lock_root.py` writes `lock.json` beside this file, and nobody else does. It names no host.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import StringConstraints

from outcast import handed_in
from outcast.handed_in import FileName, Versioned

PATH = Path(__file__).with_name("lock.json")

Kind = Literal["runtime", "build"]
"""Which root: what runs in the guest, or what compiles for it."""

Sha256 = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]


class Pinned(handed_in.Record):
    """A file that is pinned."""

    name: str
    version: str
    sha256: Sha256
    size: int


class Package(Pinned):
    """A Debian package.

    Attributes:
        architecture: as in the archive's index.
        path: of the file in the archive, as `pool/main/d/dash/dash_0.5.12-2_amd64.deb`.
    """

    architecture: str
    path: FileName


class Wheel(Pinned):
    """A wheel of the Python package index."""

    file: FileName


class Lock(Versioned):
    """All that is pinned.

    Attributes:
        suite: the suite of the distribution that the packages are from.
        snapshot: a time at which the archive had them all, as snapshot archives name it.
        content: of each root, the SHA-256 of its list of files (see `files_list`).
        runtime, build: the packages of each root, sorted by name.
    """

    suite: str
    snapshot: str
    content: Mapping[Kind, Sha256]
    runtime: tuple[Package, ...]
    build: tuple[Package, ...] = ()
    wheels: tuple[Wheel, ...] = ()
    kernel_source: Package

    def packages(self, kind: Kind) -> tuple[Package, ...]:
        """The packages of a root."""
        return self.runtime if kind == "runtime" else self.build

    def wheels_of(self, kind: Kind) -> tuple[Wheel, ...]:
        """The wheels of a root; only the guest's own root has some."""
        return self.wheels if kind == "runtime" else ()

    def digest(self, kind: Kind) -> str:
        """A hash of what is pinned for a root."""
        pinned = [record.model_dump() for record in self._pinned(kind)]
        return hashlib.sha256(json.dumps(pinned, sort_keys=True).encode()).hexdigest()

    def versions(self, kind: Kind) -> dict[str, str]:
        """The version of every package and wheel of a root, by its name."""
        return {record.name: record.version for record in self._pinned(kind)}

    def _pinned(self, kind: Kind) -> tuple[Pinned, ...]:
        return (*self.packages(kind), *self.wheels_of(kind))


def read(path: Path = PATH) -> Lock:
    """Reads a lock. Raises InputError, which names the file, where it is none."""
    return handed_in.read_model(path, Lock)


@functools.cache
def ours() -> Lock:
    """The lock that this outcast came with."""
    return read()
