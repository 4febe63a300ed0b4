"""Keeps what modules are compiled against of a built kernel.

`source/` has the headers, the makefiles and their scripts, and TCP's and the qdiscs' own source,
from which people start. `output/` has what the build generated. A compiler of modules only reads
both, so several can work at the same time.
"""

from __future__ import annotations

import shutil
from pathlib import Path

SOURCE, OUTPUT = "source", "output"

VARIABLES = ("ARCH=um", "RUSTC=none", "PAHOLE=none")
"""Variables for make. Rust's compiler and pahole are switched off, although the build needs
neither, because the kernel contains its configuration, which would name their versions. A machine
that has them would otherwise build another program."""

_FOLDERS = (
    "include",
    "scripts",
    "arch/um",
    "arch/x86/include",
    "arch/x86/um",
    "net/ipv4",
    "net/sched",
)
"""Folders of the source that are kept."""
_FILES = ("Makefile", "Kbuild", "COPYING", "arch/x86/Makefile*", "tools/scripts/*.include")
_NEVER_INCLUDED = {
    "include": {"dt-bindings", "drm", "media", "sound", "soc", "video", "rdma", "xen", "scsi"},
    "scripts": {
        *("dtc", "gdb", "coccinelle", "kconfig", "genksyms", "gcc-plugins", "sbom"),
        # A link out of what is kept.
        "kernel-doc",
    },
}
"""A module of TCP or of a qdisc has no use for these, and they are large."""
_OBJECTS = ("*.o", "*.a", "*.cmd", "*.d")
_GENERATED = ("include", "arch/um/include", "arch/x86/include", "scripts")
"""Folders of the output that are kept."""


def keep(tree: Path, output: Path, target: Path) -> None:
    """Copies from a kernel's source tree and its build what compiling a module needs."""
    source, generated = target / SOURCE, target / OUTPUT
    for name in _FOLDERS:
        if (tree / name).is_dir():
            left_out = shutil.ignore_patterns(*_OBJECTS, *_NEVER_INCLUDED.get(name, ()))
            shutil.copytree(tree / name, source / name, ignore=left_out, symlinks=True)
    for pattern in _FILES:
        for path in tree.glob(pattern):
            _copy(path, source / path.relative_to(tree))
    for name in _GENERATED:
        if (output / name).is_dir():
            left_out = shutil.ignore_patterns(*_OBJECTS, "kconfig")
            shutil.copytree(output / name, generated / name, ignore=left_out, symlinks=True)
    _copy(output / ".config", generated / ".config")
    # `make modules` would give the same file for a kernel that has no modules of its own.
    _copy(output / "vmlinux.symvers", generated / "Module.symvers")


def _copy(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, target)


def make_arguments(headers: Path) -> tuple[str, ...]:
    """The arguments of make(1) that compile against kept headers; the module's own follow."""
    return ("-C", str(headers / SOURCE), f"O={headers / OUTPUT}", *VARIABLES)
