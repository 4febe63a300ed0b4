"""The guest of a run, packed with the run: its kernel, its root, and our code as it was then.

```
kernel.tar.zst  linux and kernel.json; if the run has kernel modules, also the headers for them
root.tar.zst    root, files.tsv and root.json, as the cache of roots has them
code.tar.zst    the inner program, which lies over the root
```

What is unpacked is used from a temporary folder and never put into a cache, where other runs would
find it.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from outcast import files
from outcast.engines.guest import code, world
from outcast.engines.guest.code import Code
from outcast.engines.guest.world import World
from outcast.engines.kernel import cache
from outcast.engines.kernel.cache import Kernel
from outcast.engines.root import cache as roots
from outcast.engines.root import packed
from outcast.errors import FeatureMissingError, InputError, OutcastError
from outcast.records.run_directory import GuestRecord, Manifest

_KERNEL, _ROOT, _CODE = "kernel.tar.zst", "root.tar.zst", "code.tar.zst"
_KEY = re.compile(r"[0-9a-f]{20}")
_LEVEL = 9
"""zstd takes half a minute. The highest level saves a tenth of the size and takes minutes."""


@dataclass(frozen=True)
class Guest:
    """The kernel and the world of a run.

    `world` is what it sees; None for what a run here would see.
    """

    kernel: Kernel
    world: World | None = None


def pack(manifest: Manifest, folder: Path, *, with_headers: bool) -> dict[str, Path]:
    """Packs the guest of a run. Returns the files by their names in an archive.

    Raises:
        InputError: the run had no guest of its own.
        FeatureMissingError: its guest is not here any more.
        OSError: the files cannot be written.
    """
    record = _record(manifest)
    kernel = find_kernel(manifest)
    layer = code.find(str(record.code))
    if kernel is None or layer is None:
        raise FeatureMissingError(
            f"the guest that made the run is not here any more: its kernel has the SHA-256 "
            f"{_sha256(manifest)[:12]}..., and its code the key {record.code}; pack the run where "
            "it was made, or make it again"
        )
    cache.verify(kernel)
    root = roots.find_key(record.root)
    roots.verify(root)
    own = folder / "kernel"
    own.mkdir()
    for path in sorted(kernel.program.parent.iterdir()):
        if path.is_file():
            shutil.copyfile(path, own / path.name)
            (own / path.name).chmod(0o755 if path == kernel.program else 0o644)
        elif with_headers and path == kernel.headers:
            shutil.copytree(path, own / path.name, symlinks=True)
    members = {}
    for name, content in ((_KERNEL, own), (_ROOT, root.folder.parent), (_CODE, layer)):
        members[name] = folder / name
        with (folder / name).open("wb") as stream:
            packed.pack(content, stream, level=_LEVEL)
    return members


def unpack(archive: Path, manifest: Manifest, folder: Path) -> Guest:
    """Unpacks a packed guest, and checks that it is the one that the manifest names.

    Raises:
        InputError: a file is missing or broken, or it is another guest.
        OSError: the folder cannot be written.
    """
    record = _record(manifest)
    kernels, kept, layer = folder / "kernels", folder / "roots", folder / "code"
    for name, target in (
        (_KERNEL, kernels / "packed"),
        (_ROOT, kept / record.root),
        (_CODE, layer),
    ):
        target.mkdir(parents=True)
        try:
            with (archive / name).open("rb") as stream:
                packed.unpack(stream, target)
        except FileNotFoundError:
            raise InputError(f"{archive / name}: is missing") from None
        except InputError as error:
            raise InputError(f"{archive / name}: {error}") from None
    kernel = next(iter(cache.find_all(kernels)), None)
    if kernel is None or files.sha256(kernel.program) != _sha256(manifest):
        raise InputError(f"{archive / _KERNEL}: is not the kernel that the manifest names")
    try:
        root = roots.find_key(record.root, kept)
        roots.verify(root, every_byte=True)
    except OutcastError:
        raise InputError(f"{archive / _ROOT}: is not the root that the manifest names") from None
    return Guest(kernel, world.of_root(root, Code(str(record.code), layer)))


def find(manifest: Manifest) -> Guest | None:
    """The guest of this user that made a run; None where a part of it is not here.

    Raises RootError where its root is damaged.
    """
    record, kernel = manifest.guest, find_kernel(manifest)
    if record is None or record.code is None or kernel is None:
        return None
    root = next((root for root in roots.find_all() if root.key == record.root), None)
    layer = code.find(record.code) if _KEY.fullmatch(record.code) else None
    if root is None or layer is None:
        return None
    roots.verify(root)
    return Guest(kernel, world.of_root(root, Code(record.code, layer)))


def find_kernel(manifest: Manifest) -> Kernel | None:
    """The kernel of this user that made a run, or None."""
    kernels = cache.find_all()
    return next((kernel for kernel in kernels if kernel.sha256 == _sha256(manifest)), None)


def _sha256(manifest: Manifest) -> str:
    return str(manifest.kernel.get("sha256"))


def _record(manifest: Manifest) -> GuestRecord:
    """The manifest's record of a guest that can be packed. Raises InputError."""
    record = manifest.guest
    if record is None or not _KEY.fullmatch(record.root) or not _KEY.fullmatch(str(record.code)):
        raise InputError(
            "the run had no root of its own, but the programs of the machine that made it; a guest "
            "that can be packed has guest.root: locked"
        )
    return record
