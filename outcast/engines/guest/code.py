"""Our code in the guest: a folder that is the same everywhere, compiled by the root's Python.

`$XDG_CACHE_HOME/outcast/code/KEY/` holds `layer`, which lies over the guest's root, and the list of
its files. KEY is a hash of all that it was made from and of the root, so the outcome of a run
depends neither on where our checkout stands nor on its Python. The folder gets its name by a rename
when it is whole. One that has changed since is made again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from outcast import files, handed_in
from outcast.engines.kernel.enclosed import Programs
from outcast.engines.pinned import kept
from outcast.engines.root import files_list
from outcast.engines.root.cache import Root
from outcast.errors import CommandError, InputError, RootError

_OURS = Path(__file__).resolve().parents[3]
_LAYER = "layer"
_LIST = "files.tsv"
_PLACE = "opt/outcast"
"""The code's place in the layer; `outcast.engines.guest.world.CODE` is the same in the guest."""
_FORMAT = 4
"""Raise it when what is kept is made in another way."""

PACKAGES = ("controllers", "topologies")
ROOMS = ("experiment", "plan", "records", "emulation")
"""The inner program imports these of `outcast`, besides the modules at its root."""
_LEFT_OUT = (".c", ".h", ".typed")
_COMPILE = """
import compileall, py_compile, sys
whole = compileall.compile_dir(
    sys.argv[1], quiet=2, stripdir=sys.argv[1], prependdir=sys.argv[2],
    invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
sys.exit(not whole)
"""


@dataclass(frozen=True)
class Code:
    """Our code as a guest sees it.

    Attributes:
        key: names all that is in it.
    """

    PROGRAMS: ClassVar[str] = "programs"
    """The folder of our programs in C, within the code."""

    key: str
    layer: Path


def default_folder() -> Path:
    """The folder of this user's copies of our code."""
    return files.cache_folder() / "code"


def sources(folder: Path = _OURS) -> dict[str, bytes]:
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


def find(key: str, folder: Path | None = None) -> Path | None:
    """The layer of this name, or None where it is not here or not as it was kept."""
    place = (folder or default_folder()) / key
    layer = place / _LAYER
    try:
        items = files_list.loads(handed_in.read_text(place / _LIST, handed_in.MOST_BYTES))
        is_whole = files_list.first_change(layer, items) is None and (
            set(files_list.scan(layer)) == set(items)
        )
    except (OSError, InputError, RootError, ValueError):
        return None
    return layer if is_whole else None


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
        OSError: the cache cannot be written to; it names the cache.
    """
    folder = folder or default_folder()
    contents = {
        **sources(),
        **{f"{Code.PROGRAMS}/{name}": content for name, content in programs.items()},
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
    place = layer / _PLACE
    for name, content in contents.items():
        target = place / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    try:
        run.run(
            [*python_of(root), "-S", "-s", "-P", "-c", _COMPILE, str(place), f"/{_PLACE}"],
            cwd=Path("/"),
            environment={"PYTHONHASHSEED": "0"},
        )
    except CommandError as error:
        raise RootError(f"the guest's root cannot compile our code: {error}") from None
    for path in (place / Code.PROGRAMS).glob("*"):
        path.chmod(0o755)


def python_of(root: Root) -> list[str]:
    """The command that starts a root's Python on this machine, by the root's own libraries."""
    libraries = root.folder / "usr/lib/x86_64-linux-gnu"
    return [
        str(libraries / "ld-linux-x86-64.so.2"),
        *("--library-path", str(libraries)),
        str(root.folder / "usr/bin/python3"),
    ]
