"""The kernels that this user has built.

`$XDG_CACHE_HOME/outcast/kernels/KEY/` holds `linux`, `kernel.json`, and in `headers` what modules
are compiled against. The folder gets its name by a rename when everything in it is whole, so a
kernel that is there can be used. Nothing in it is ever changed.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from outcast import files
from outcast.engines import shipped
from outcast.engines import workshop as workshops
from outcast.engines.kernel.bench import locked_compiler
from outcast.engines.kernel.recipe import OURS, Recipe
from outcast.engines.root import lock
from outcast.engines.root.lock import Package
from outcast.errors import InputError, KernelError

_PROGRAM = "linux"
_RECORD = "kernel.json"
_HEADERS = "headers"


@dataclass(frozen=True)
class Kernel:
    """A kernel that was built, booted once and kept.

    Attributes:
        version: that package's version, or the tarball's hash.
        recipe: the digest of the configuration and the patches; see `Recipe.digest`.
        release: what `uname -r` says in the guest.
        compiler: what compiled it; empty in kernels of before there was a lock.
        compiler_note: why this is not the lock's compiler; empty if it is.
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
    compiler_note: str = ""

    @property
    def key(self) -> str:
        """The name of its folder, by which `kernel.build` selects it."""
        return key(self.source, self.version, self.recipe, self.compiler)

    @property
    def headers(self) -> Path:
        """Modules are compiled against this; see `outcast.engines.kernel.headers`."""
        return self.program.with_name(_HEADERS)


def default_folder() -> Path:
    """The folder of this user's kernels."""
    return files.cache_folder() / "kernels"


def key(source: str, version: str, recipe: str, compiler: str) -> str:
    """The folder name of a kernel that this compiler builds from this source with this recipe."""
    decides = f"{source}\n{version}\n{recipe}\n{compiler}"
    return hashlib.sha256(decides.encode()).hexdigest()[:20]


def pinned_key(recipe: Recipe = OURS, pinned: Package | None = None) -> str:
    """The key of the kernel that the lock's compiler builds from the lock's source."""
    source = pinned or lock.ours().kernel_source
    return key(source.name, source.version, recipe.digest, locked_compiler())


def find(
    folder: Path | None = None, recipe: Recipe = OURS, pinned: Package | None = None
) -> Kernel | None:
    """The kernel of the lock's source and this recipe, or None.

    Where there are two, it is the one that the lock's compiler built. An installed outcast-guest is
    unpacked first. Raises as `shipped.provide`.
    """
    source = pinned or lock.ours().kernel_source
    kernels = _of(source, recipe, folder)
    locked = (folder or default_folder()) / pinned_key(recipe, source)
    if all(kernel.compiler_note for kernel in kernels) and shipped.provide(locked):
        kernels = _of(source, recipe, folder)
    return min(kernels, key=lambda kernel: bool(kernel.compiler_note), default=None)


def _of(source: Package, recipe: Recipe, folder: Path | None) -> list[Kernel]:
    wanted = (source.name, source.version, recipe.digest)
    return [
        kernel
        for kernel in find_all(folder)
        if (kernel.source, kernel.version, kernel.recipe) == wanted
    ]


def find_key(beginning: str, folder: Path | None = None) -> Kernel:
    """The kernel whose key begins so. Raises as `workshops.key_beginning`."""
    kernels = {kernel.key: kernel for kernel in find_all(folder)}
    remedy = "; outcast kernel build makes one and says its key"
    return kernels[workshops.key_beginning(kernels, beginning, "kernel", "kernel.build: ", remedy)]


def find_all(folder: Path | None = None) -> list[Kernel]:
    """All kernels, the one that was built last first."""
    records = sorted((folder or default_folder()).glob(f"*/{_RECORD}"))
    kernels = [kernel for path in records if (kernel := read(path.parent)) is not None]
    return sorted(kernels, key=lambda kernel: kernel.program.stat().st_mtime, reverse=True)


def verify(kernel: Kernel) -> None:
    """Raises KernelError if a kernel's program is not as it was kept."""
    try:
        is_whole = files.sha256(kernel.program) == kernel.sha256
    except (OSError, InputError):
        is_whole = False
    if not is_whole:
        raise KernelError(
            f"the guest's kernel {kernel.program} is damaged: it is not as it was kept; "
            "outcast kernel build --again makes it anew"
        )


def keep(kernel: Kernel, folder: Path, headers: Path | None = None) -> Kernel:
    """Puts a built kernel into the cache, whole or not at all. Returns the cached kernel.

    The program is copied; `headers`, which `headers.keep` filled, is moved.
    """
    target = folder / kernel.key
    with workshops.temporary(folder) as place:
        whole = place / "whole"
        whole.mkdir()
        shutil.copy2(kernel.program, whole / _PROGRAM)
        if headers is not None:
            headers.rename(whole / _HEADERS)
        record = asdict(kernel)
        del record["program"]
        (whole / _RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        if target.exists():
            # It goes with the temporary folder. Who kills us now loses no kernel to a long removal.
            target.rename(place / "replaced")
        whole.rename(target)
    kept = read(target)
    assert kept is not None
    return kept


@contextmanager
def workshop(folder: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[Path]:
    """A folder to build in. `on_wait` and what it raises are as for `workshops.workshop`.

    Raises KernelError: the folder cannot be made, or the disk is full.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise KernelError(
            f"the kernel cannot be kept: {files.describe(error)}; let XDG_CACHE_HOME name a folder "
            "that you can write to"
        ) from None
    with workshops.workshop(folder, on_wait) as place:
        try:
            yield place
        except OSError as error:
            if error.filename is not None or not error.strerror:
                raise
            # A full disk is known only when a file is written, and then has no name.
            raise KernelError(f"{folder}: {error.strerror}") from None


def read(folder: Path) -> Kernel | None:
    """The kernel that a folder named by its key has, or None."""
    try:
        record = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
        record |= {name: tuple(record[name]) for name in ("congestion_controls", "own")}
        kernel = Kernel(program=folder / _PROGRAM, **record)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return kernel if kernel.program.is_file() else None
