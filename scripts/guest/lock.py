"""Writes lock.json: what the guest's roots and its kernel are made of.

    .venv/bin/python -m scripts.guest.lock

apt resolves the packages of one suite with a configuration of its own. The machine's packages and
sources do not matter, except for the mirror's address. The wheels have the versions of
scripts/requirements.lock. Both roots are then made, and their hashes go into the lock as well.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from scripts.bill_of_materials import canonical, pins
from scripts.guest import root

Pin = dict[str, Any]

SUITE = "bookworm"
KERNEL_SUITE = "trixie-backports"
KERNEL_SOURCE = "linux-source-7.3"
"""From Linux 6.16 on the guest's system calls use seccomp, which is faster."""
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
PYTHON_LOCK = Path(__file__).parents[1] / "requirements.lock"

PACKAGES: dict[str, tuple[str, ...]] = {
    "runtime": (
        # The inner program, and what it starts.
        *("python3", "python3-distutils", "mininet", "openvswitch-switch", "iperf", "tcpdump"),
        *("iproute2", "ethtool", "util-linux"),
        # What configurations' programs and `outcast exec` usually are.
        *("bash", "curl", "findutils", "grep", "hostname", "iperf3", "iputils-ping", "mawk"),
        *("net-tools", "netcat-openbsd", "nginx-light", "procps", "sed"),
        # What all of these expect. apt takes them for granted, because they are essential.
        *("base-files", "base-passwd", "coreutils", "dash", "debianutils", "libc-bin", "netbase"),
    ),
    "build": (
        *("gcc", "binutils", "libc6-dev", "make", "flex", "bison", "bc", "patch"),
        *("tar", "xz-utils", "gzip", "bzip2", "diffutils", "findutils", "grep", "mawk", "sed"),
        *("bash", "python3"),
        *("base-files", "base-passwd", "coreutils", "dash", "debianutils", "libc-bin"),
    ),
}
"""What each root is asked for. apt adds what these depend on."""

LEFT_OUT: dict[str, Sequence[str]] = {
    "installing and configuring packages, which nobody does in the guest": (
        *("adduser", "debconf", "dpkg", "init-system-helpers", "lsb-base", "usrmerge"),
        *("sysvinit-utils", "ucf", "sensible-utils"),
    ),
    "logins and passwords": ("passwd", "libpam-modules", "libpam-modules-bin", "libpam0g"),
    "Perl, in which only scripts that we do not start are written": (
        *("perl", "libfile-find-rule-perl", "libnumber-compare-perl", "libtext-glob-perl"),
    ),
    "Python's tools for packages, and what Open vSwitch's scripts import": (
        *("python3-netifaces", "python3-openvswitch", "python3-pkg-resources"),
        *("python3-sortedcontainers", "python3-lib2to3"),
    ),
    "programs of packages that only their services or other parts of Mininet start": (
        *("cgroup-tools", "kmod", "openssl", "socat", "telnet", "util-linux-extra", "uuid-runtime"),
        *("libnginx-mod-http-echo", "iproute2-doc"),
    ),
}
"""Packages that others depend on and that no root has, by the reason."""

LEFT_OUT_OF: dict[str, Sequence[str]] = {"runtime": ("perl-base", "tar"), "build": ("perl-base",)}

WHEELS = (
    *("annotated-types", "networkx", "pydantic", "pydantic-core", "pyroute2", "PyYAML"),
    *("typing-extensions", "typing-inspection", "zstandard"),
    # The controller.
    *("eventlet", "greenlet", "netaddr", "os-ken", "oslo.config", "packaging", "pbr", "rfc3986"),
    "stevedore",
)
"""What the inner program and the controller import, and nothing else that these depend on."""

GLIBC = (2, 36)
"""The suite's, which decides which wheels run there."""

_INSTALLED = re.compile(r"^Inst (\S+) (?:\[[^]]*\] )?\((\S+) ", re.MULTILINE)


class Apt:
    """apt with lists and sources of its own, in which nothing is installed."""

    def __init__(self, folder: Path, mirror: str, suite: str) -> None:
        self._folder = folder
        for name in ("state/lists/partial", "cache/archives/partial"):
            (folder / name).mkdir(parents=True)
        (folder / "suite.sources").write_text(
            f"Types: deb\nURIs: {mirror}\nSuites: {suite}\nComponents: main\nSigned-By: {KEYRING}\n"
        )
        (folder / "apt.conf").write_text(
            f'Dir::State "{folder}/state";\nDir::State::status "{folder}/status";\n'
            f'Dir::Cache "{folder}/cache";\nDir::Etc::SourceList "{folder}/suite.sources";\n'
            'Dir::Etc::SourceParts "/dev/null";\nDir::Etc::Preferences "/dev/null";\n'
            'Dir::Etc::PreferencesParts "/dev/null";\nAcquire::Languages "none";\n'
            'APT::Update::Error-Mode "any";\nAPT::Sandbox::User "";\n'
            'APT::Install-Recommends "false";\n'
            'APT::Architecture "amd64";\nAPT::Architectures "amd64";\n'
        )
        (folder / "status").touch()
        self._ask("apt-get", "update", "--quiet")
        (self.release,) = (folder / "state/lists").glob("*InRelease")

    def closure(self, names: Sequence[str], left_out: Sequence[str]) -> list[Pin]:
        """The packages and all they depend on, as if what is left out were there already."""
        self._pretend(left_out)
        said = self._ask("apt-get", "install", "--simulate", "--no-install-recommends", *names)
        chosen = [f"{name}={version}" for name, version in _INSTALLED.findall(said)]
        return sorted(self.show(chosen), key=lambda package: str(package["name"]))

    def _pretend(self, names: Sequence[str]) -> None:
        """Says that these packages are installed, and that they depend on nothing."""
        stanzas = self.show(names) if names else []
        (self._folder / "status").write_text(
            "".join(
                f"Package: {package['name']}\nStatus: hold ok installed\nMulti-Arch: foreign\n"
                f"Architecture: {package['architecture']}\nVersion: {package['version']}\n"
                "Maintainer: none\nDescription: none\n\n"
                for package in stanzas
            )
        )

    def show(self, names: Sequence[str]) -> list[Pin]:
        """These packages, each in the newest version of the suite."""
        said = self._ask("apt-cache", "show", "--no-all-versions", *names)
        return [_package(stanza) for stanza in said.strip().split("\n\n")]

    def _ask(self, *argv: str) -> str:
        environment = {**os.environ, "APT_CONFIG": str(self._folder / "apt.conf"), "LC_ALL": "C"}
        done = subprocess.run(
            argv, cwd=self._folder, env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
        return done.stdout


def _package(stanza: str) -> Pin:
    fields = dict(re.findall(r"^(\S+): (.*)$", stanza, re.MULTILINE))
    return {
        "name": fields["Package"],
        "version": fields["Version"],
        "sha256": fields["SHA256"],
        "size": int(fields["Size"]),
        "architecture": fields["Architecture"],
        "path": fields["Filename"],
    }


def snapshot_of(release: Path) -> str:
    """The time of a Release file, as snapshot archives name it: 20260711T101637Z."""
    match = re.search(r"^Date: (.+)$", release.read_text(), re.MULTILINE)
    assert match is not None
    return parsedate_to_datetime(match[1]).strftime("%Y%m%dT%H%M%SZ")


def locked_wheels(folder: Path) -> Iterator[Pin]:
    """The wheels for the root's Python, downloaded into a folder."""
    pinned = pins(PYTHON_LOCK)
    folder.mkdir(exist_ok=True)
    wanted = folder / "requirements.txt"
    wanted.write_text("\n".join(pinned[canonical(name)][1] for name in WHEELS), encoding="utf-8")
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in range(GLIBC[1], 16, -1)]
    subprocess.run(
        [
            *(sys.executable, "-I", "-m", "pip", "download", "--quiet", "--only-binary=:all:"),
            *("--no-deps", "--python-version=3.11", "--require-hashes"),
            *(f"--platform={name}" for name in (*platforms, "manylinux2014_x86_64")),
            *("--dest", str(folder), "--requirement", str(wanted)),
        ],
        check=True,
    )
    for path in sorted(folder.glob("*.whl"), key=lambda path: path.name.lower()):
        name, version = path.name.split("-")[:2]
        data = path.read_bytes()
        yield {
            "name": name,
            "version": version,
            "sha256": hashlib.sha256(data).hexdigest(),
            "size": len(data),
            "file": path.name,
        }


def main() -> None:
    """Resolves, makes both roots, writes the lock."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mirror", help="a mirror of Debian, instead of the one of apt's sources")
    mirror = parser.parse_args().mirror or root.addresses()[0]
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        apt = Apt(work / "apt", mirror, SUITE)
        of_kernel = Apt(work / "kernel", mirror, KERNEL_SUITE)
        (kernel_source,) = of_kernel.show([KERNEL_SOURCE])
        all_left_out = [name for names in LEFT_OUT.values() for name in names]
        root.LOCK |= {
            "suite": SUITE,
            # The suite of the roots is frozen. So the later time has all that both have.
            "snapshot": max(snapshot_of(apt.release), snapshot_of(of_kernel.release)),
            **{
                kind: apt.closure(names, [*all_left_out, *LEFT_OUT_OF[kind]])
                for kind, names in PACKAGES.items()
            },
            "wheels": [*locked_wheels(work / "wheels")],
            "kernel_source": kernel_source,
        }
        for kind in PACKAGES:
            root.fetch(work / "files", root.pinned(kind))
            root.LOCK["content"][kind] = root.lay_out(kind, work / "files", work / kind)
            print(kind, len(root.LOCK[kind]), "packages, key", root.LOCK["content"][kind][:20])
    text = json.dumps(root.LOCK, indent=1) + "\n"
    Path(__file__).with_name("lock.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
