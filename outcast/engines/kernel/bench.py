"""The place where a kernel is built, and the compiler.

The compiler is the one that the lock names, in a root of its own, so that every machine builds the
same kernel to the byte. Where such a root cannot be entered, the machine's own compiler serves. The
kernel's record then says so.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from outcast.engines.kernel import programs
from outcast.engines.kernel.enclosed import enclose
from outcast.engines.kernel.programs import Programs
from outcast.engines.root import lock
from outcast.engines.root.cache import Root
from outcast.engines.root.lock import Kind
from outcast.errors import FeatureMissingError, RootError


@dataclass(frozen=True)
class Bench:
    """The place where a kernel is built, and the compiler.

    Attributes:
        programs: starts the programs that build. They see that folder, and maybe nothing else.
        note: why it is not the lock's; empty if it is.
    """

    folder: Path
    programs: Programs
    compiler: str
    note: str = ""

    def admit(self, path: Path) -> Path:
        """Copies a file to where the programs see it; the copy, which has the file's name."""
        copies = self.folder / "admitted"
        copies.mkdir(exist_ok=True)
        return Path(shutil.copyfile(path, copies / path.name))


def locked_compiler() -> str:
    """The compiler of the lock, as a kernel's record names it."""
    ours = lock.ours()
    return f"gcc-12 {ours.versions('build')['gcc-12']}, packages {ours.digest('build')[:20]}"


def set_up(
    workshop: Path, provide_root: Callable[[Kind], Root], run: Programs, *, needs_lock: bool
) -> Bench:
    """A bench with the lock's compiler, or else with the machine's.

    Args:
        workshop: an empty folder to build in.
        provide_root: gives a root of the lock.
        run: what starts programs.
        needs_lock: whether it is an error if that root cannot be had. Where it can be had, but
            cannot be entered on this machine, the machine's compiler serves in any case.

    Raises:
        FeatureMissingError: neither can be used; the text says why.
        RootError: the root cannot be had, and it is needed.
        OSError: a file cannot be written.
    """
    root = workshop / "root"
    try:
        enclosed = enclose(provide_root("build").folder, root, run)
    except (FeatureMissingError, RootError) as error:
        if needs_lock and isinstance(error, RootError):
            raise
        shutil.rmtree(root, ignore_errors=True)
        return _of_this_machine(workshop, str(error), run)
    folder = root / "build"
    folder.mkdir()
    return Bench(folder, enclosed, locked_compiler())


def _of_this_machine(workshop: Path, why: str, run: Programs) -> Bench:
    try:
        programs.require()
    except FeatureMissingError as error:
        raise FeatureMissingError(f"{error}; and {why}") from None
    compiler = run.run(["gcc", "--version"], cwd=workshop).partition("\n")[0]
    return Bench(workshop, run, compiler, f"built by this machine's compiler, because {why}")
