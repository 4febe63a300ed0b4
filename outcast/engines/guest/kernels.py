"""The kernels that this user has: User-Mode Linux, built from a distribution's source package.

scripts/guest/build puts them into `$XDG_CACHE_HOME/outcast/kernels/KEY/`: `linux`, `kernel.json`,
and in `headers` what modules are compiled against. Nothing in it is ever changed.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path

from outcast import files
from outcast.engines.guest import parts
from outcast.errors import FeatureMissingError, KernelError

_PROGRAM = "linux"
_RECORD = "kernel.json"
_HEADERS = "headers"


@dataclass(frozen=True)
class Kernel:
    """A kernel that was built, booted once and kept.

    Attributes:
        source: the package or tarball that it was built from.
        version: the package's version, or the tarball's hash.
        recipe: a hash of the configuration and the patches.
        release: what `uname -r` says in the guest.
        own: the user's patches and options in it.
        compiler: empty in kernels that were built before there was a lock.
    """

    source: str
    version: str
    recipe: str
    release: str
    built_s: float
    sha256: str
    program: Path
    congestion_controls: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    compiler: str = ""

    @property
    def key(self) -> str:
        """The name of its folder, by which `kernel.build` selects it."""
        return self.program.parent.name

    @property
    def headers(self) -> Path:
        """The folder that modules are compiled against."""
        return self.program.with_name(_HEADERS)


def find(folder: Path | None = None) -> Kernel | None:
    """The pinned kernel, or None where this user does not have it; see `parts.find`."""
    return parts.find("kernels", parts.PINNED.kernel, read, folder)


def require() -> Kernel:
    """As `find`. Raises FeatureMissingError where this user does not have it."""
    kernel = find()
    if kernel is None:
        raise FeatureMissingError(f"the virtual engine's kernel is missing; {parts.REMEDY}")
    return kernel


def find_key(beginning: str, folder: Path | None = None) -> Kernel:
    """The kernel whose key begins so. Raises FeatureMissingError, unless it is exactly one."""
    kernels = find_all(folder)
    matching = [kernel for kernel in kernels if kernel.key.startswith(beginning)]
    if len(matching) != 1:
        which = "several kernels have" if matching else "there is no kernel with"
        here = ", ".join(kernel.key for kernel in kernels) or "none"
        raise FeatureMissingError(
            f"kernel.build: {which} a key that begins with {beginning} (here: {here}); "
            "scripts/guest/build makes one and says its key"
        )
    return matching[0]


def find_all(folder: Path | None = None) -> list[Kernel]:
    """All kernels, the one that was built last first."""
    records = sorted((folder or files.cache_folder() / "kernels").glob(f"*/{_RECORD}"))
    kernels = [kernel for path in records if (kernel := read(path.parent)) is not None]
    return sorted(kernels, key=lambda kernel: kernel.program.stat().st_mtime, reverse=True)


def of_sha256(sha256: object) -> Kernel | None:
    """The kernel of this user that has this hash, or None."""
    return next((kernel for kernel in find_all() if kernel.sha256 == sha256), None)


def verify(kernel: Kernel) -> None:
    """Raises KernelError if a kernel's program is not as it was kept."""
    is_whole = False
    with contextlib.suppress(OSError):
        is_whole = files.sha256(kernel.program) == kernel.sha256
    if not is_whole:
        raise KernelError(
            f"the guest's kernel {kernel.program} is damaged: it is not as it was kept; "
            "scripts/guest/build --again makes it again"
        )


def read(folder: Path) -> Kernel | None:
    """The kernel that a folder named by its key has, or None."""
    try:
        record = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
        record |= {name: tuple(record[name]) for name in ("congestion_controls", "own")}
        # Kernels had it when another compiler could build them.
        record.pop("compiler_note", None)
        kernel = Kernel(program=folder / _PROGRAM, **record)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return kernel if kernel.program.is_file() else None
