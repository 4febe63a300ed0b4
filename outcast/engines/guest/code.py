"""Our code in the guest: Python modules compiled by the root's Python, and programs in C.

`$XDG_CACHE_HOME/outcast/code/KEY/` holds `layer`, which lies over the guest's root, and the list of
its files. `$XDG_CACHE_HOME/outcast/programs/KEY/` holds the compiled programs and their hashes. KEY
is a hash of all that they were made from, and of the root that compiled them. So the outcome of a
run depends neither on where our checkout stands nor on its Python. What has changed since it was
made is made again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from outcast import files, handed_in
from outcast.emulation import c_programs
from outcast.emulation.c_programs import CProgram
from outcast.engines.chroot import Programs
from outcast.engines.guest import boot, files_list, parts, world
from outcast.engines.guest.kernels import Kernel
from outcast.engines.guest.parts import kept, temporary
from outcast.engines.guest.roots import Root
from outcast.engines.guest.world import World
from outcast.errors import CommandError, GuestError, InputError, RootError

_CHECKOUT = Path(__file__).resolve().parents[3]
_LAYER = "layer"
_LIST = "files.tsv"
_HASHES = "sha256.json"
_FORMAT = 4
_PROGRAMS_FORMAT = 2
"""Raise one of these when what is kept is made in another way."""

PACKAGES = ("controllers", "topologies")
ROOMS = ("experiment", "plan", "records", "emulation")
"""The inner program imports these of `outcast`, besides the modules at its root."""
_LEFT_OUT = (".c", ".h", ".typed")
COMPILER = "gcc-12"
_COMPILE = """
import compileall, py_compile, sys
whole = compileall.compile_dir(
    sys.argv[1], quiet=2, stripdir=sys.argv[1], prependdir=sys.argv[2],
    invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
sys.exit(not whole)
"""


@dataclass(frozen=True)
class Code:
    """Our code as a guest sees it: a folder that lies over its root, named by its content."""

    key: str
    layer: Path


def sources(folder: Path = _CHECKOUT) -> dict[str, bytes]:
    """The inner program's files, by the path relative to our checkout."""
    package = folder / "outcast"
    paths = [path for path in package.glob("*.py") if path.name != "__main__.py"]
    for top in (*(package / subdir for subdir in ROOMS), *(folder / name for name in PACKAGES)):
        paths += [path for path in top.rglob("*") if path.is_file()]
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in paths
        if path.suffix not in _LEFT_OUT and "__pycache__" not in path.parts
    }


def find(key: str, folder: Path) -> Path | None:
    """The layer of this key, or None where it is not there or not as it was kept."""
    layer = folder / key / _LAYER
    try:
        items = files_list.loads(handed_in.read_text(folder / key / _LIST, handed_in.MOST_BYTES))
        changed = files_list.first_change(layer, items, every_byte=True)
    except (OSError, InputError, RootError, ValueError):
        return None
    return layer if changed is None else None


def provide(
    root: Root,
    programs: Mapping[str, bytes],
    *,
    folder: Path | None = None,
    run: Programs | None = None,
) -> Code:
    """Our code for this root, which is copied and compiled if the cache does not have it.

    Raises:
        RootError: the root's Python does not work on this machine.
        OSError: the cache cannot be written to; the error names it.
    """
    folder = folder or files.cache_folder() / "code"
    contents = {
        **sources(),
        **{f"{world.PROGRAMS}/{name}": content for name, content in programs.items()},
    }
    digest = hashlib.sha256(f"code {_FORMAT}\n{root.key}\n".encode())
    for name in sorted(contents):
        digest.update(f"{hashlib.sha256(contents[name]).hexdigest()} {name}\n".encode())
    key = digest.hexdigest()[:20]

    def make(whole: Path) -> None:
        _fill(whole / _LAYER, contents, root, run or Programs())
        files.write_text(whole / _LIST, files_list.settle(whole / _LAYER))

    layer = kept(folder, key, lambda: find(key, folder), make)
    if layer is None:
        raise RootError(f"{folder / key}: our code for the guest cannot be kept there")
    return Code(key, layer)


def _fill(layer: Path, contents: Mapping[str, bytes], root: Root, run: Programs) -> None:
    place = layer / world.CODE.removeprefix("/")
    for name, content in contents.items():
        target = place / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    # The root's Python runs on this machine by the root's own libraries.
    libraries = root.folder / "usr/lib/x86_64-linux-gnu"
    python = [str(libraries / "ld-linux-x86-64.so.2"), "--library-path", str(libraries)]
    python += [str(root.folder / "usr/bin/python3"), "-S", "-s", "-P"]
    try:
        run.run(
            [*python, "-c", _COMPILE, str(place), world.CODE],
            cwd=Path("/"),
            environment={"PYTHONHASHSEED": "0"},
        )
    except CommandError as error:
        raise RootError(f"the guest's root cannot compile our code: {error}") from None
    for path in (place / world.PROGRAMS).glob("*"):
        path.chmod(0o755)


def programs_folder(compiler: str) -> Path:
    """The folder of this user's programs in C that the root with this key compiled."""
    digest = hashlib.sha256(f"programs {_PROGRAMS_FORMAT}\n{compiler}\n{COMPILER}\n".encode())
    for program in c_programs.IN_GUEST:
        digest.update(f"{shlex.join(_arguments(program))}\n".encode())
        for source in (*program.sources, *program.headers):
            digest.update(f"{hashlib.sha256(source.read_bytes()).hexdigest()}\n".encode())
    return files.cache_folder() / "programs" / digest.hexdigest()[:20]


def _arguments(program: CProgram) -> list[str]:
    """The compiler's arguments in a folder that has the sources, where the result appears too."""
    here = tuple(Path(source.name) for source in program.sources)
    return CProgram(program.name, here, (), program.libraries).arguments(program.name)


def find_programs(compiler: str) -> dict[str, bytes] | None:
    """The programs by their names, or None where they are not compiled yet.

    An installed outcast-guest is unpacked first. Raises as `parts.provide`.
    """
    place = programs_folder(compiler)
    named = os.environ.get(parts.VARIABLE)
    ready = (_read(Path(named, "programs", place.name)) if named else None) or _read(place)
    if ready is None:
        # Users of the programs have read them by now, so nobody needs a damaged folder.
        shutil.rmtree(place, ignore_errors=True)
        ready = _read(place) if parts.provide(place) else None
    return ready


def _read(place: Path) -> dict[str, bytes] | None:
    try:
        ready = _programs_in(place)
        hashes = json.loads((place / _HASHES).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return ready if hashes == _hashes(ready) else None


def _programs_in(folder: Path) -> dict[str, bytes]:
    return {program.name: (folder / program.name).read_bytes() for program in c_programs.IN_GUEST}


def _hashes(programs: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in programs.items()}


def write_hashes(folder: Path) -> None:
    """Writes the hashes of the compiled programs in a folder beside them."""
    files.write_json(folder / _HASHES, _hashes(_programs_in(folder)))


def provide_programs(kernel: Kernel, root: Root, compiler: Root) -> dict[str, bytes]:
    """The programs by their names; they are compiled if the cache does not have them.

    The compiler's root lies over the guest's own in a guest, because that needs no rights here.

    Raises:
        GuestError: the compiler failed, or its guest did.
        OSError: the cache cannot be written to; the error names it.
    """
    target = programs_folder(compiler.key)

    def make(whole: Path) -> None:
        with temporary(target.parent) as place:
            _compile(kernel, World(root.folder, compiler.folder), place)
            for program in c_programs.IN_GUEST:
                shutil.move(place / program.name, whole / program.name)
        write_hashes(whole)

    made = kept(target.parent, target.name, lambda: find_programs(compiler.key), make)
    if made is None:
        raise GuestError(f"{target.parent}: our programs for the guest cannot be kept there")
    return made


def _compile(kernel: Kernel, sees: World, place: Path) -> None:
    for program in c_programs.IN_GUEST:
        for source in (*program.sources, *program.headers):
            shutil.copyfile(source, place / source.name)
    script = " && ".join(
        shlex.join([COMPILER, *_arguments(program)]) for program in c_programs.IN_GUEST
    )
    said: list[str] = []
    argv = ["/bin/sh", "-c", script]
    result = boot.boot(boot.Boot(kernel.program, place, argv, seed=1, sees=sees), said.append)
    if result.status != 0:
        words = " | ".join([*said, *result.said()][-5:])
        raise GuestError(f"our programs for the guest cannot be compiled: {words}")
