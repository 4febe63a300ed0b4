"""Makes a root: fetches what the lock pins, unpacks it, compiles its Python code, keeps it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from outcast import files
from outcast.engines import processor
from outcast.engines import workshop as workshops
from outcast.engines.kernel.programs import Programs
from outcast.engines.root import cache, contents, fetch, files_list, lock, places
from outcast.engines.root.cache import Root
from outcast.engines.root.lock import Kind, Lock, Package
from outcast.engines.root.places import NOTHING, Named
from outcast.engines.root.unpack import Tree, settle
from outcast.engines.workshop import Progress
from outcast.errors import CommandError, RootError

ROOM_MB = 600
"""Both roots take this, with the packages that wait to be unpacked."""


def build(
    kind: Kind = "runtime",
    *,
    named: Named = NOTHING,
    again: bool = False,
    folder: Path | None = None,
    pinned: Lock | None = None,
    run: Programs | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Root:
    """The root that the lock pins, which is made if the cache does not have it. No root is needed.

    Raises:
        InputError: an address or folder of packages cannot be used.
        FeatureMissingError: nothing says where packages can be had, or the processor cannot run
            what they hold.
        RootError: a package or wheel cannot be had, what came of them is not what is pinned, or a
            file cannot be written. Nothing is kept.
    """
    processor.require()
    pinned = pinned or lock.ours()
    folder = folder or cache.default_folder()
    run = run or Programs()
    if not again and (root := cache.find(kind, folder, pinned)) is not None:
        return root
    if kind not in pinned.content:
        raise RootError(f"the lock pins no root {kind}")
    try:
        with workshops.workshop(folder, partial(on_progress, Progress("wait"))) as workshop:
            if not again and (root := cache.find(kind, folder, pinned)) is not None:
                return root
            where = places.find(run, workshop, pinned.snapshot, named)
            unpacked, listed = unpack(kind, pinned, where, workshop, run, on_progress)
            _require_content(files_list.digest(listed), pinned.content[kind])
            return cache.keep(unpacked, kind, pinned, folder, listed, again)
    except OSError as error:
        why = files.describe(files.named(error, folder) or error)
        raise RootError(
            f"the guest's root cannot be written: {why}; both roots take {ROOM_MB} MB; let "
            "XDG_CACHE_HOME name a folder with room that you can write to"
        ) from None


def _require_content(made: str, pinned: str) -> None:
    if made != pinned:
        raise RootError(
            f"the root that was made here has the key {cache.key_of(made)} instead of "
            f"{cache.key_of(pinned)}, so runs would not replay; please report this with the "
            "machine's distribution, or install the wheel outcast-guest"
        )


def unpack(
    kind: Kind,
    pinned: Lock,
    where: places.Places,
    workshop: Path,
    run: Programs,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> tuple[Path, str]:
    """Makes a root in a folder of the workshop. Returns the folder and the list of its files.

    Raises as `build`, and OSError where a file cannot be written.
    """
    packages = pinned.packages(kind)
    downloads, unpacked = workshop / "downloads", workshop / "unpacked"
    downloads.mkdir()
    unpacked.mkdir()
    total = len(packages)
    fetched: list[Package] = []

    def on_fetched(package: Package) -> None:
        fetched.append(package)
        on_progress(Progress("fetch", len(fetched), total))

    on_progress(Progress("fetch", 0, total))
    tree = Tree(unpacked)
    with fetch.packages(packages, where, downloads, on_fetched) as paths:
        for path in paths:
            tree.add(contents.of_debian_package(path))
            path.unlink()
    if pinned.wheels_of(kind):
        on_progress(Progress("wheels"))
    for path in fetch.wheels(pinned.wheels_of(kind), where.folder, downloads, run):
        tree.add(contents.of_wheel(path))
        path.unlink()
    tree.finish()
    on_progress(Progress("compile"))
    _compile_all(unpacked, run)
    on_progress(Progress("check"))
    return unpacked, settle(unpacked)


_COMPILED = (
    "usr/lib/python3.11",
    "usr/lib/python3/dist-packages",
    "usr/local/lib/python3.11/dist-packages",
)
"""Folders with Python code. `settle` has not yet given them their times."""

_COMPILE = """
import compileall, py_compile, sys
root, *folders = sys.argv[1:]
sys.exit(not all([compileall.compile_dir(
    root + "/" + folder, maxlevels=40, force=True, quiet=1, stripdir=root, prependdir="/",
    invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    for folder in folders]))
"""


def _own_python(root: Path, *arguments: str) -> list[str]:
    """The command that runs the Python of the root in this folder, with its own libraries.

    No chroot is needed, because its linker is told where the libraries are.
    """
    libraries = root / "usr/lib/x86_64-linux-gnu"
    return [
        str(root / "usr/lib64/ld-linux-x86-64.so.2"),
        *("--inhibit-cache", "--library-path", str(libraries)),
        str(root / "usr/bin/python3.11"),
        *arguments,
    ]


def _compile_all(root: Path, run: Programs) -> None:
    """Compiles a root's Python code to bytecode that Python uses without looking at the source.

    Otherwise Python would compile in the guest, and read the clock while it does. The bytecode is
    the same on every machine: the same Python makes it, from sources in the same order.

    Raises RootError: the root's Python cannot be run on this machine, or refuses a file.
    """
    folders = [folder for folder in _COMPILED if (root / folder).is_dir()]
    if not folders:
        return
    try:
        run.run(
            _own_python(root, "-B", "-P", "-S", "-s", "-c", _COMPILE, str(root), *folders),
            cwd=root,
            environment={"PYTHONHOME": str(root / "usr"), "PYTHONHASHSEED": "0"},
        )
    except PermissionError:
        raise RootError(
            f"no program can be started in {root}; is it on a mount with noexec? Let "
            "XDG_CACHE_HOME name a folder that allows programs"
        ) from None
    except CommandError as error:
        raise RootError(f"the root's Python does not compile its packages: {error}") from None
