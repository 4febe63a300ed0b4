"""The guest's world: what it sees of the host besides the run directory.

By default that is the locked root with our code over it, and nothing else. With `guest.root: host`
it is this machine's own `/`.
"""

from __future__ import annotations

import compileall
import functools
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from outcast.emulation import c_programs
from outcast.emulation.commands import SystemCommands, python_module
from outcast.engines.guest.roots import Root

if TYPE_CHECKING:
    from outcast.engines.guest.code import Code

PYTHON = "/usr/bin/python3"
"""The Python of a locked root, and of the host for the guest's first process."""

_MOST_LINKS = 40
"""As many as Linux follows in a path (MAXSYMLINKS in include/linux/namei.h)."""

CODE = "/opt/outcast"
"""The path of our code in the guest."""
PROGRAMS = "programs"
"""The folder of our programs in C, within the code."""


@dataclass(frozen=True)
class World:
    """The folders and programs that a guest sees, besides its run directory.

    Attributes:
        root: the folder that is its `/`, read-only.
        code: a folder that lies over the root, read-only too; None if nothing does.
        folder: the working folder of a single command, which is `init.FOLDER` in the guest; None
            without one, or if the guest sees it where it stands.
        needed: folders that it sees although it has its own in place of those above them.
    """

    root: Path
    code: Path | None = None
    folder: Path | None = None
    needed: tuple[str, ...] = ()
    python: str = PYTHON
    environment: Mapping[str, str] = field(default_factory=dict)
    record: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_host(self) -> bool:
        """Whether the guest sees this machine's own `/`."""
        return self.root == Path("/")

    def on_host(self, path: str) -> Path:
        """The path on this machine of an absolute path in the guest; it need not exist.

        Links are followed as the guest follows them, so that none leads out of its root.
        """
        if self.is_host:
            return Path(path)
        names, at, links = path.split("/")[::-1], self.root, 0
        while names:
            part = names.pop()
            if part in ("", "."):
                continue
            if part == "..":
                at = at if at == self.root else at.parent
                continue
            entered = at / part
            if entered.is_symlink() and links < _MOST_LINKS:
                links += 1
                target = os.readlink(entered)
                at = self.root if os.path.isabs(target) else at
                names += target.split("/")[::-1]
            else:
                at = entered
        return at

    def which(self, name: str, folders: str) -> Path | None:
        """The program of this name in the first folder that has it; `folders` is as in PATH."""
        for folder in folders.split(":"):
            path = self.on_host(f"{folder}/{name}")
            if path.is_file() and os.access(path, os.X_OK):
                return path
        return None

    def python_module(self, name: str) -> list[str]:
        """The command that starts a module of outcast in the guest."""
        return [self.python, *python_module(name)[1:]]


def of_root(root: Root, code: Code | None = None) -> World:
    """A locked root, with outcast's code over it."""
    if code is None:
        return World(root.folder)
    return World(
        root.folder,
        code.layer,
        environment={
            "PYTHONPATH": CODE,
            "SETUPTOOLS_USE_DISTUTILS": "stdlib",
            c_programs.READY: f"{CODE}/{PROGRAMS}",
        },
        record={"root": root.key, "lock": root.lock, "code": code.key},
    )


def of_host(needed: Sequence[str] = ()) -> World:
    """The programs of this machine, and our code where it stands. Raises as `python_folders`."""
    compile_own_modules()
    # Mininet imports distutils. By default setuptools replaces it by its own and imports itself.
    own = {"SETUPTOOLS_USE_DISTUTILS": "stdlib"} if sys.version_info < (3, 12) else {}
    return World(
        Path("/"),
        needed=_outermost([*python_folders(), *needed]),
        python=sys.executable,
        environment=own,
        record={"root": "host"},
    )


@functools.cache
def python_folders() -> tuple[str, ...]:
    """The folders of this Python and of what it can import; the guest sees them all.

    A new Python prints its search path, because this process's path also has the folder in which it
    was started. Two runs with one seed would differ if their folders did.

    Raises CommandError: this Python does not start.
    """
    # In hexadecimal, because a path is bytes, and the two Pythons may differ in how they read them.
    code = "import os, sys; print(*(os.fsencode(name).hex() for name in sys.path))"
    said = SystemCommands().run([sys.executable, "-I", "-c", code])
    path = [os.fsdecode(bytes.fromhex(name)) for name in said.split()]
    own = Path(__file__).resolve().parents[3]
    named = {sys.prefix, sys.base_prefix, str(own), *path}
    return _outermost([path for name in named if name for path in (name, os.path.realpath(name))])


def _outermost(names: Sequence[str]) -> tuple[str, ...]:
    """The folders among these that are below none of the others, each once."""
    folders = set(names)
    return tuple(
        name
        for name in sorted(folders)
        if os.path.isdir(name) and not any(str(parent) in folders for parent in Path(name).parents)
    )


def compile_own_modules() -> None:
    """Compiles our packages to bytecode, where that is not done yet.

    Python in the guest reads the clock more often if it has to compile, and that changes the run.
    So the first run of a fresh checkout would not be repeated by the next. scripts/install.sh has
    compiled a checkout that this user cannot write to.
    """
    root = Path(__file__).resolve().parents[3]
    for package in ("outcast", "controllers", "topologies"):
        compileall.compile_dir(root / package, quiet=2)
