"""Lays out the package outcast-guest: what the virtual engine boots, packed, with its licences.

`scripts/release.sh` builds the wheel from it. The same kernel, root and programs give the same
files, to the byte.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import outcast
from outcast.engines import pinned
from outcast.engines.guest import helpers
from outcast.engines.kernel import cache as kernels
from outcast.engines.kernel.cache import Kernel
from outcast.engines.root import cache as roots
from outcast.engines.root import packed
from outcast.engines.root.cache import Root
from outcast.engines.shipped import PACKAGE, PROJECT, RECORD, Guest, Part
from outcast.errors import OutcastError
from outcast.files import sha256
from scripts.guest import root as script

HERE = Path(__file__).parent
DOCUMENTATION = "usr/share/doc/"
COMMON_LICENSES = "usr/share/common-licenses/"
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
    parser.add_argument("--packages", type=Path, help="a folder that has the Debian packages")
    arguments = parser.parse_args()
    try:
        lay_out(arguments.folder, arguments.packages)
    except OutcastError as error:
        print(f"wheel: {error}", file=sys.stderr)
        return error.exit_status
    return 0


def lay_out(folder: Path, packages: Path | None) -> None:
    """Writes the tree. Raises OutcastError where something is missing."""
    root, kernel = roots.find(), kernels.find()
    if root is None or kernel is None:
        raise OutcastError("the kernel or the root is missing; run: scripts/guest/build")
    if kernel.compiler_note:
        raise OutcastError(f"the kernel {kernel.key} was {kernel.compiler_note}")
    package = folder / PACKAGE
    package.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PYPROJECT, encoding="utf-8")
    (folder / "setup.cfg").write_text(SETUP, encoding="utf-8")
    (folder / "README.md").write_text(README, encoding="utf-8")
    (package / "__init__.py").write_text(MODULE, encoding="utf-8")
    with _as_shipped(kernel) as kernel_folder:
        parts = [
            _pack(root.folder.parent, "roots", root.key, package),
            _pack(kernel_folder, "kernels", kernel.key, package),
        ]
    programs = _programs_folder()
    parts.append(_pack(programs, "programs", programs.name, package))
    guest = Guest(version=outcast.__version__, parts=tuple(parts))
    (package / RECORD).write_text(guest.model_dump_json(indent=1) + "\n", encoding="utf-8")
    _write_licenses(package, root, kernel, packages)


def _programs_folder() -> Path:
    compiler = pinned.OURS.build
    if helpers.find(compiler) is None:
        raise OutcastError(
            "our programs in C are not compiled; a run of the virtual engine does it"
        )
    return helpers.default_folder() / helpers.key(compiler)


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
        packed.pack(source, stream)
    paths = [path for path in source.rglob("*") if path.is_file() and not path.is_symlink()]
    size = sum(path.stat().st_size for path in paths)
    return Part(kind=kind, key=key, file=path.name, sha256=sha256(path), unpacked_bytes=size)


def _write_licenses(package: Path, root: Root, kernel: Kernel, packages: Path | None) -> None:
    """Writes every package's licence, and where the source of everything can be had."""
    licenses = package / "licenses"
    rows = []
    shared: dict[str, str] = {}
    debians = script.LOCK["runtime"]
    with tempfile.TemporaryDirectory(prefix="outcast-guest-wheel-") as name:
        where = argparse.Namespace(mirror=[], snapshot=None, packages=packages)
        script.fetch(Path(name), debians, where)
        for debian in debians:
            path = Path(name, debian["path"].rpartition("/")[2])
            shared |= _take_licenses(path, debian["name"], licenses)
            rows.append(_source_of(path))
    for name, other in shared.items():
        _copy(licenses / "debian" / other / "copyright", licenses / "debian" / name / "copyright")
    for debian in debians:
        if not (licenses / "debian" / debian["name"] / "copyright").is_file():
            raise OutcastError(f"the package {debian['name']} has no file of its licence")
    for path in sorted(root.folder.rglob("*.dist-info/**/*")):
        if path.is_file() and LICENSE_NAME.match(path.name):
            of = next(above.stem for above in path.parents if above.suffix == ".dist-info")
            _copy(path, licenses / "wheels" / of / path.name)
    for path in kernel.headers.glob("COPYING"):
        _copy(path, licenses / "linux" / path.name)
    sources = package / "sources"
    sources.mkdir()
    for path in (*sorted((HERE / "patches").glob("*.patch")), HERE / "fragment.config"):
        shutil.copyfile(path, sources / path.name)
    (package / "SOURCES.md").write_text(_sources_text(rows, kernel), encoding="utf-8")


def _take_licenses(path: Path, name: str, licenses: Path) -> dict[str, str]:
    """Writes a Debian package's copyright file, and the licences that such files refer to.

    Returns:
        The package and the other one whose copyright file is its own, where a link says so.
    """
    shared = {}
    for content in script.of_package(path):
        if content.target and content.path == f"{DOCUMENTATION}{name}":
            shared[name] = content.target
        if content.data is None:
            continue
        if content.path.startswith(COMMON_LICENSES):
            target = licenses / "common-licenses" / Path(content.path).name
        elif content.path == f"{DOCUMENTATION}{name}/copyright":
            target = licenses / "debian" / name / "copyright"
        else:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.data)
    return shared


def _copy(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, target)


def _source_of(path: Path) -> tuple[str, str]:
    """The source package of a Debian package, with its version, as deb-control(5) has them."""
    command = ["dpkg-deb", "--showformat=${source:Package} ${source:Version}", "--show", str(path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    name, _, version = said.partition(" ")
    return name, version


def _sources_text(sources: Iterable[tuple[str, str]], kernel: Kernel) -> str:
    lock = script.LOCK
    lines = [
        "# Where the source code is",
        "",
        f"Debian's source packages are in its archive ({lock['suite']}, main), and for good in its",
        f"snapshot archive at {lock['snapshot']}. `apt-get source NAME=VERSION` fetches one.",
        "",
        "| source package | version |",
        "|---|---|",
        *(f"| {name} | {version} |" for name, version in sorted(set(sources))),
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
