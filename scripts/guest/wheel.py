"""Lays out the package outcast-guest: what the virtual engine boots, packed, with its licences.

`scripts/release.sh` builds the wheel from it. The same kernel, root and programs give the same
files, to the byte.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import stat
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import zstandard

import outcast
from outcast.engines.guest import code, kernels, parts, roots
from outcast.engines.guest.kernels import Kernel
from outcast.engines.guest.parts import PACKAGE, PROJECT, RECORD, TIME_S, WINDOW_LOG, Guest, Part
from outcast.engines.guest.roots import Root
from outcast.errors import OutcastError
from outcast.files import sha256
from scripts.guest import root as script

HERE = Path(__file__).parent
_LEVEL = 12
"""19 makes a root a tenth smaller, and takes ten times as long."""
LICENSE_NAME = re.compile("(?:LICEN[CS]E|COPYING|NOTICE|AUTHORS)", re.IGNORECASE)

PYPROJECT = f"""\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "{PROJECT}"
version = "{outcast.__version__}"
description = "The kernel and the programs of outcast's virtual engine, ready to boot"
readme = "README.md"
requires-python = ">=3.11"
license = {{ text = "GPL-2.0-only (the kernel) and others: see the folder licenses" }}

[tool.setuptools]
packages = ["{PACKAGE}"]

[tool.setuptools.package-data]
"*" = ["**"]
"""
SETUP = """\
[bdist_wheel]
plat_name = manylinux2014_x86_64
"""
MODULE = f'''"""The virtual engine's kernel, root and programs, which outcast unpacks at first use.

`{RECORD}` says what the archives are. SOURCES.md says where the source code of each program can be
had, and `licenses` has the licence of each.
"""
'''
README = f"""\
# {PROJECT}

What the virtual engine of outcast boots, ready to use: a
User-Mode Linux kernel, the programs that run in it, and their libraries. They are Debian's packages
and wheels, unchanged, as the lock of outcast-testbed {outcast.__version__} pins them.

`outcast-testbed` {outcast.__version__} finds this package by itself. Nothing has to be built then.
"""


def main() -> int:
    """Writes the package's source tree into a new folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where to write it; it must not exist")
    arguments = parser.parse_args()
    try:
        lay_out(arguments.folder)
    except OutcastError as error:
        print(f"wheel: {error}", file=sys.stderr)
        return error.exit_status
    return 0


def lay_out(folder: Path) -> None:
    """Writes the tree. Raises OutcastError where something is missing."""
    root, kernel = roots.find(), kernels.find()
    if root is None or kernel is None:
        raise OutcastError("the kernel or the root is missing; run: scripts/guest/build")
    package = folder / PACKAGE
    package.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PYPROJECT, encoding="utf-8")
    (folder / "setup.cfg").write_text(SETUP, encoding="utf-8")
    (folder / "README.md").write_text(README, encoding="utf-8")
    (package / "__init__.py").write_text(MODULE, encoding="utf-8")
    with _as_shipped(kernel) as kernel_folder:
        packed = [
            _pack(root.folder.parent, "roots", root.key, package),
            _pack(kernel_folder, "kernels", kernel.key, package),
        ]
    programs = _programs_folder()
    packed.append(_pack(programs, "programs", programs.name, package))
    guest = Guest(version=outcast.__version__, parts=tuple(packed))
    (package / RECORD).write_text(guest.model_dump_json(indent=1) + "\n", encoding="utf-8")
    _write_licenses(package, root, kernel)


def _programs_folder() -> Path:
    compiler = parts.PINNED.build
    if code.find_programs(compiler) is None:
        raise OutcastError(
            "our programs in C are not compiled; a run of the virtual engine does it"
        )
    return code.programs_folder(compiler)


@contextmanager
def _as_shipped(kernel: Kernel) -> Iterator[Path]:
    """A copy of a kernel's folder without what differs from build to build."""
    with tempfile.TemporaryDirectory(prefix="outcast-guest-wheel-") as name:
        copy = Path(name) / "kernel"
        shutil.copytree(kernel.program.parent, copy, symlinks=True)
        record = json.loads((copy / "kernel.json").read_text(encoding="utf-8"))
        record["built_s"] = 0.0
        (copy / "kernel.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        yield copy


def _pack(source: Path, kind: str, key: str, package: Path) -> Part:
    path = package / f"{kind}.tar.zst"
    with path.open("wb") as stream:
        pack(source, stream)
    paths = [path for path in source.rglob("*") if path.is_file() and not path.is_symlink()]
    size = sum(path.stat().st_size for path in paths)
    return Part(kind=kind, key=key, file=path.name, sha256=sha256(path), unpacked_bytes=size)


def pack(folder: Path, stream: BinaryIO) -> None:
    """Writes all files, folders and links below a folder as a tar file in a zstd frame.

    They have the order of their names, so the same folder gives the same bytes, with the same
    version of zstandard. Wheels keep neither links nor modes, hence this form.

    Owners are left out. Modes are 755 or 644, and all times are TIME_S, as in every root.

    Raises:
        OSError: a file cannot be read, or the stream cannot be written.
        ValueError: there is something else, such as a device.
    """
    parameters = zstandard.ZstdCompressionParameters.from_level(
        _LEVEL, window_log=WINDOW_LOG, enable_ldm=True
    )
    compressor = zstandard.ZstdCompressor(compression_params=parameters)
    with (
        compressor.stream_writer(stream, closefd=False) as compressed,
        tarfile.open(fileobj=compressed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in _below(folder):
            member = _member(path, path.relative_to(folder).as_posix())
            if member.isreg():
                with path.open("rb") as content:
                    archive.addfile(member, content)
            else:
                archive.addfile(member)


def _below(folder: Path) -> Iterator[Path]:
    for name in sorted(os.listdir(folder)):
        path = folder / name
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _below(path)


def _member(path: Path, name: str) -> tarfile.TarInfo:
    status = path.lstat()
    member = tarfile.TarInfo(name)
    is_program = stat.S_ISDIR(status.st_mode) or status.st_mode & stat.S_IXUSR
    member.mode = 0o755 if is_program else 0o644
    member.mtime = TIME_S
    if stat.S_ISLNK(status.st_mode):
        member.type, member.linkname = tarfile.SYMTYPE, os.readlink(path)
    elif stat.S_ISDIR(status.st_mode):
        member.type = tarfile.DIRTYPE
    elif stat.S_ISREG(status.st_mode):
        member.size = status.st_size
    else:
        raise ValueError(f"{path} is neither file, folder nor link")
    return member


def _write_licenses(package: Path, root: Root, kernel: Kernel) -> None:
    """Writes every package's licence, and where the source of everything can be had."""
    licenses, documentation = package / "licenses", root.folder / "usr/share/doc"
    for debian in script.LOCK["runtime"]:
        licence = documentation / debian["name"] / "copyright"
        if not licence.is_file():
            raise OutcastError(f"the package {debian['name']} has no file of its licence")
        _copy(licence, licenses / "debian" / debian["name"] / licence.name)
    for path in (root.folder / "usr/share/common-licenses").iterdir():
        _copy(path, licenses / "common-licenses" / path.name)
    for path in sorted(root.folder.rglob("*.dist-info/**/*")):
        if path.is_file() and LICENSE_NAME.match(path.name):
            of = next(above.stem for above in path.parents if above.suffix == ".dist-info")
            _copy(path, licenses / "wheels" / of / path.name)
    _copy(kernel.headers / "source/COPYING", licenses / "linux" / "COPYING")
    sources = package / "sources"
    sources.mkdir()
    for path in (*sorted((HERE / "patches").glob("*.patch")), HERE / "fragment.config"):
        shutil.copyfile(path, sources / path.name)
    (package / "SOURCES.md").write_text(_sources_text(kernel), encoding="utf-8")


def _copy(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, target)


def _sources_text(kernel: Kernel) -> str:
    lock = script.LOCK
    lines = [
        "# Where the source code is",
        "",
        f"Debian's packages are in its archive ({lock['suite']}, main), and for good in its",
        f"snapshot archive at {lock['snapshot']}. `apt-get source NAME=VERSION` fetches a source.",
        "",
        "| package | version |",
        "|---|---|",
        *(f"| {package['name']} | {package['version']} |" for package in lock["runtime"]),
        "",
        f"The kernel is built from Debian's package `{kernel.source}` {kernel.version}, with the",
        "patches and the configuration in `sources/`.",
        "",
        "The wheels come from the Python package index, which has the sources beside them:",
        "",
        *(f"* {wheel['name']} {wheel['version']}" for wheel in lock["wheels"]),
        "",
        f"Our own programs in C are in the package outcast-testbed {outcast.__version__}, in",
        "`outcast/emulation/`.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
