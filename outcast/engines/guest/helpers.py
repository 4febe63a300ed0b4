"""Our programs in C for the guest, compiled once by the locked compiler.

`$XDG_CACHE_HOME/outcast/programs/KEY/` holds them and their hashes. KEY is a hash of their sources
and of the root that compiles. That root lies over the guest's own in a guest, because it needs no
rights on the host there. Programs that have changed since are removed and made again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

from outcast import files
from outcast.emulation import in_c
from outcast.emulation.in_c import InC
from outcast.engines import pinned, shipped
from outcast.engines.guest import boot
from outcast.engines.guest.world import World
from outcast.engines.kernel.cache import Kernel
from outcast.engines.pinned import kept, temporary
from outcast.engines.root.cache import Root
from outcast.errors import GuestError

COMPILER = "gcc-12"
_FORMAT = 2
"""Raise it when what is kept is made in another way."""
_HASHES = "sha256.json"


def default_folder() -> Path:
    """The folder of this user's compiled programs."""
    return files.cache_folder() / "programs"


def key(compiler: str) -> str:
    """The name of the folder of our programs, made by the root with this key."""
    digest = hashlib.sha256(f"programs {_FORMAT}\n{compiler}\n{COMPILER}\n".encode())
    for program in in_c.IN_GUEST:
        digest.update(f"{shlex.join(_arguments(program))}\n".encode())
        for source in (*program.sources, *program.headers):
            digest.update(f"{hashlib.sha256(source.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:20]


def _arguments(program: InC) -> list[str]:
    """The compiler's arguments in a folder that has the sources, where the result appears too."""
    here = InC(
        program.name, tuple(Path(source.name) for source in program.sources), (), program.libraries
    )
    return here.arguments(program.name)


def find(compiler: str, folder: Path | None = None) -> dict[str, bytes] | None:
    """The programs by their names, or None where they are not compiled yet.

    An installed outcast-guest is unpacked first. Raises as `shipped.provide`.
    """
    place = (folder or default_folder()) / key(compiler)
    named = os.environ.get(pinned.VARIABLE) if folder is None else None
    ready = (_read(Path(named, "programs", place.name)) if named else None) or _read(place)
    if ready is None:
        # Whoever uses the programs has read them, so nobody needs what is damaged.
        shutil.rmtree(place, ignore_errors=True)
        ready = _read(place) if shipped.provide(place) else None
    return ready


def _read(place: Path) -> dict[str, bytes] | None:
    try:
        ready = {program.name: (place / program.name).read_bytes() for program in in_c.IN_GUEST}
        hashes = json.loads((place / _HASHES).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return ready if hashes == _hashes(ready) else None


def _hashes(programs: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in programs.items()}


def keep(whole: Path) -> None:
    """Writes the hashes of the compiled programs in a folder beside them."""
    ready = {program.name: (whole / program.name).read_bytes() for program in in_c.IN_GUEST}
    files.write_json(whole / _HASHES, _hashes(ready))


def provide(
    kernel: Kernel, root: Root, compiler: Root, folder: Path | None = None
) -> dict[str, bytes]:
    """The programs by their names; they are compiled if the cache does not have them.

    Raises:
        GuestError: the compiler failed, or its guest did.
        OSError: the cache cannot be written to; it names the cache.
    """
    folder = folder or default_folder()

    def make(whole: Path) -> None:
        with temporary(folder) as place:
            _compile(kernel, World(root.folder, compiler.folder), place)
            for program in in_c.IN_GUEST:
                shutil.move(place / program.name, whole / program.name)
        keep(whole)

    made = kept(folder, key(compiler.key), lambda: find(compiler.key, folder), make)
    if made is None:
        raise GuestError(f"{folder}: our programs for the guest cannot be kept there")
    return made


def _compile(kernel: Kernel, sees: World, place: Path) -> None:
    for program in in_c.IN_GUEST:
        for source in (*program.sources, *program.headers):
            shutil.copyfile(source, place / source.name)
    script = " && ".join(shlex.join([COMPILER, *_arguments(program)]) for program in in_c.IN_GUEST)
    said: list[str] = []
    argv = ["/bin/sh", "-c", script]
    guest = boot.Boot(kernel.program, place, argv, seed=1, sees=sees)
    result = boot.boot(guest, said.append)
    if result.status != 0:
        words = " | ".join([*said, *result.said()][-5:])
        raise GuestError(f"our programs for the guest cannot be compiled: {words}")
