"""A root's own Python, run on this machine.

No chroot is needed, because its linker is told where the libraries are.
"""

from __future__ import annotations

from pathlib import Path

from outcast.engines.kernel.programs import Programs
from outcast.errors import CommandError, RootError

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


def argv(root: Path, *arguments: str) -> list[str]:
    """The command that runs the Python of the root in this folder, with its own libraries."""
    libraries = root / "usr/lib/x86_64-linux-gnu"
    return [
        str(root / "usr/lib64/ld-linux-x86-64.so.2"),
        *("--inhibit-cache", "--library-path", str(libraries)),
        str(root / "usr/bin/python3.11"),
        *arguments,
    ]


def compile_all(root: Path, run: Programs) -> None:
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
            argv(root, "-B", "-P", "-S", "-s", "-c", _COMPILE, str(root), *folders),
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
