"""Shared libraries of programs' files: which they need, and whether the guest's glibc has enough.

The guest's own C library serves every program, because it fits the guest's loader. Other libraries
are copied beside a program, if it asks for that.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from outcast.engines.guest.world import World
from outcast.errors import ConfigError, FeatureMissingError

_ELF = b"\x7fELF"
_OF_GLIBC = re.compile(
    r"(?:ld-linux.*|linux-vdso|lib(?:c|m|mvec|pthread|dl|rt|util|resolv|anl|nss_.*|BrokenLocale))\.so.*"
)
"""Libraries of glibc itself (libc6 of Debian), which have to be those of its loader."""
_LISTED = re.compile(r"^\s*(\S+) => (not found|\S+)", re.MULTILINE)
_VERSION = re.compile(rb"GLIBC_([0-9]+)\.([0-9]+)")
_LIBC = "/lib/x86_64-linux-gnu/libc.so.6"


def elf_files(paths: Sequence[Path]) -> Iterator[Path]:
    """The programs and libraries among these files, and in these folders."""
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                with file.open("rb") as stream:
                    if stream.read(len(_ELF)) == _ELF:
                        yield file


def needed_by(file: Path, where: str) -> dict[str, Path]:
    """The libraries that a file needs besides glibc's, by their names, as ldd(1) finds them.

    Raises:
        ConfigError: a library is not there.
        FeatureMissingError: ldd is not there.
    """
    try:
        argv = ["ldd", str(file.absolute())]
        listed = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        raise FeatureMissingError(f"{where}: ldd is missing (package libc-bin)") from None
    found = {}
    for name, path in _LISTED.findall(listed):
        if _OF_GLIBC.fullmatch(name):
            continue
        if path == "not found":
            raise ConfigError(
                f"{where}: {file.name} needs {name}, which this machine does not have; allowed is "
                "to install it, or a program that is linked statically"
            )
        found[name] = Path(path)
    return found


def require_glibc(paths: Sequence[Path], where: str, sees: World) -> None:
    """Raises FeatureMissingError where a file needs a newer glibc than the guest has."""
    has = _newest(sees.on_host(_LIBC))
    for file in elf_files(paths):
        needs = _newest(file)
        if needs > has:
            wanted, there = (".".join(map(str, version)) for version in (needs, has))
            raise FeatureMissingError(
                f"{where}: {file.name} needs glibc {wanted}, the guest has {there}; allowed is a "
                "program that is linked statically or made on an older system, or guest.root: host"
            )


def _newest(file: Path) -> tuple[int, int]:
    """The newest version of glibc's symbols that a file names; (0, 0) if it names none."""
    try:
        found = _VERSION.findall(file.read_bytes())
    except OSError:
        return 0, 0
    return max(((int(major), int(minor)) for major, minor in found), default=(0, 0))
