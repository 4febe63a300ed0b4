"""Fetches what lock.json pins, and lays out a root of the guest from it; stands alone.

    python3 root.py fetch FOLDER [--mirror URL]... [--snapshot URL] [--packages DIR]
    python3 root.py lay-out runtime|build FOLDER ROOT
    python3 root.py source PACKAGE FILE

`fetch` fills FOLDER with the packages and wheels that it lacks, each checked by its hash. `lay-out`
unpacks those of a root into the new folder ROOT/root, and writes files.tsv and root.json beside it.
`source` writes the tarball of the kernel that a Debian package has.
No script of a package is run. What these would have made and a run needs is in LINKS, COPIES and
USERS.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import io
import json
import os
import posixpath
import re
import struct
import subprocess
import sys
import tarfile
import time
import urllib.request
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

LOCK: dict[str, Any] = json.loads(Path(__file__).with_name("lock.json").read_text("utf-8"))
TIME_S = 1_000_000_000
"""The modification time of every file. It is the time at which the guest boots."""
TRIES, SILENCE_S = 3, 20.0

MERGED = ("bin", "lib", "lib64", "sbin")
"""Folders that are links to their namesakes below `usr`, as on every Debian since 12."""
FOLDERS = (
    *("dev", "etc", "home", "mnt", "opt", "proc", "root", "run", "sys", "tmp"),
    *("usr/local/bin", "usr/local/sbin", "var/lib", "var/log", "var/tmp", "etc/openvswitch"),
)
"""Folders that the guest's first process mounts something on, or that programs expect."""
_DROPPED_FOLDERS = (
    # Documentation and translations. Licences stay, because who passes a root on has to.
    *(
        f"usr/share/{name}"
        for name in (
            *("bash-completion", "bug", "doc-base", "emacs", "gcc", "gdb", "icons", "info"),
            *("lintian", "locale", "man", "menu", "pixmaps", "readline", "vim", "zsh"),
        )
    ),
    # What a service manager, a scheduler, a package manager or a login would read.
    *("etc/apparmor.d", "etc/cron.d", "etc/cron.daily", "etc/default", "etc/dpkg", "etc/init.d"),
    *("etc/logrotate.d", "etc/network", "etc/pam.d", "etc/profile.d", "etc/skel", "etc/ufw"),
    *("etc/update-motd.d", "usr/lib/systemd", "usr/lib/udev", "usr/share/initramfs-tools"),
    *("usr/share/dpkg", "usr/share/perl5", "var/backups", "var/cache", "var/spool"),
    # Character sets besides UTF-8, which the C library has in itself.
    "usr/lib/x86_64-linux-gnu/gconv",
    # Open vSwitch's scripts in shell and Python, which start it as a service and find faults.
    *("usr/share/openvswitch/bugtool-plugins", "usr/share/openvswitch/scripts"),
    # Python's converter from Python 2, and what it runs by.
    *("usr/lib/python3.11/lib2to3", "usr/share/python3", "usr/lib/valgrind"),
)
_DROPPED = re.compile(
    "|".join(
        (
            rf"(?:{'|'.join(map(re.escape, _DROPPED_FOLDERS))})(?:/.*)?",
            r"usr/share/doc/[^/]*/(?!copyright$).*",
            # Makers of network cards, a second build of zstandard, and os-ken's BGP.
            r".*/netaddr/eui/(?:iab|oui)\..*",
            r".*/zstandard/_cffi\..*",
            r".*/os_ken/services/protocols(?:/.*)?",
            # Tests that come with Python packages.
            r"usr/(?:local/)?lib/python3[^/]*/dist-packages/(?:.*/)?tests?(?:/.*)?",
        )
    )
)
LINKS = {
    # update-alternatives(1) would have made these.
    "usr/bin/awk": "mawk",
    "usr/bin/cc": "gcc",
    "usr/bin/nc": "nc.openbsd",
    "usr/bin/which": "which.debianutils",
    "usr/sbin/ovs-vswitchd": "../lib/openvswitch-switch/ovs-vswitchd",
    # The kernel writes the table of mounts; mount(8) and others look for it here.
    "etc/mtab": "../proc/self/mounts",
    "var/run": "../run",
    "var/lock": "../run/lock",
}
"""Links that packages' scripts make, where what they lead to is in the root."""
COPIES = {
    "etc/group": "usr/share/base-passwd/group.master",
    "etc/passwd": "usr/share/base-passwd/passwd.master",
    "etc/nsswitch.conf": "usr/share/libc-bin/nsswitch.conf",
}
"""Files that packages' scripts copy, where the original is in the root."""
USERS = {
    # As root, tcpdump gives its rights away to this user, unless an option names another.
    "usr/bin/tcpdump": {
        "etc/passwd": "tcpdump:x:100:102::/nonexistent:/usr/sbin/nologin\n",
        "etc/group": "tcpdump:x:102:\n",
    },
}
"""From a program to the lines by which its package's script adds a user."""
COMPILED = (
    "usr/lib/python3.11",
    "usr/lib/python3/dist-packages",
    "usr/local/lib/python3.11/dist-packages",
)
COMPILE = """
import compileall, py_compile, sys
root, *folders = sys.argv[1:]
sys.exit(not all([compileall.compile_dir(
    root + "/" + folder, maxlevels=40, force=True, quiet=1, stripdir=root, prependdir="/",
    invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    for folder in folders]))
"""


class Content(NamedTuple):
    """A folder, a file or a symbolic link; `data` is None for a folder or a link."""

    path: str
    data: bytes | None = None
    executable: bool = False
    target: str = ""


def die(text: str) -> Any:
    """Ends the program."""
    sys.exit(f"guest: error: {text}")


# Fetching.


def fetch(folder: Path, files: Iterable[Mapping[str, Any]], where: argparse.Namespace) -> None:
    """Fills a folder with the files that it lacks. Ends the program where one cannot be had."""
    folder.mkdir(parents=True, exist_ok=True)
    lacking = [pin for pin in files if not _is_there(folder / _name(pin), pin)]
    for pin in lacking if where.packages else ():
        # An epoch's colon is %3a in a file's name, and people save files under either name.
        for name in (_name(pin), _name(pin).replace("%3a", ":")):
            if _is_there(where.packages / name, pin):
                _put(folder / _name(pin), (where.packages / name).read_bytes())
    lacking = [pin for pin in lacking if not (folder / _name(pin)).exists()]
    wheels = [pin for pin in lacking if "file" in pin]
    packages = [pin for pin in lacking if "path" in pin]
    if packages:
        archives = addresses(where)
        done = 0
        with ThreadPoolExecutor(6) as pool:
            for _ in pool.map(lambda pin: _download(folder, pin, archives), packages):
                done += 1
                if done % 20 == 0 or done == len(packages):
                    print(f"guest: fetched {done} of {len(packages)} packages", file=sys.stderr)
    if wheels:
        _by_pip(folder, wheels)
    for pin in lacking:
        if not _is_there(folder / _name(pin), pin):
            die(f"{_name(pin)}: another file than lock.json pins (its SHA-256 differs)")


def _name(pin: Mapping[str, Any]) -> str:
    return str(pin.get("file") or pin["path"].rpartition("/")[2])


def _is_there(path: Path, pin: Mapping[str, Any]) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == pin["sha256"]


def _put(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_bytes(data)
    new.rename(path)


def addresses(where: argparse.Namespace) -> list[str]:
    """Archives: what the user names, or those of this machine's apt; the snapshot archive last."""
    mirrors = [*where.mirror] or os.environ.get("OUTCAST_MIRROR", "").split()
    if not mirrors:
        rows = _said("apt-get", "indextargets", "--format", "$(REPO_URI) $(COMPONENT)",
                     "Created-By: Packages").splitlines()  # fmt: skip
        named = {row.split()[0].rstrip("/") for row in rows if row.endswith(" main")}
        mirrors = sorted(named, key=lambda address: ("security" in address, address))[:3]
    snapshot = where.snapshot or ""
    if not snapshot:
        said = _said("apt-config", "shell", "A", "Acquire::Snapshots::URI::Origin::Debian")
        snapshot = said.partition("'")[2].rpartition("'")[0]
    snapshot = snapshot.replace("@SNAPSHOTID@", LOCK["snapshot"])
    found = [address.rstrip("/") for address in (*mirrors, snapshot) if address]
    return found or die(
        "this machine's apt names no archive; name a mirror of Debian with --mirror URL or "
        "OUTCAST_MIRROR, or give the files with --packages FOLDER"
    )


def _said(*argv: str) -> str:
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""


def _download(folder: Path, pin: Mapping[str, Any], archives: list[str]) -> None:
    reasons = {}
    for tried in range(TRIES):
        for address in archives:
            try:
                with urllib.request.urlopen(f"{address}/{pin['path']}", timeout=SILENCE_S) as it:
                    data = it.read(pin["size"] + 1)
            except (OSError, ValueError) as error:
                reasons[address] = f"{address}: {error}"
                continue
            if hashlib.sha256(data).hexdigest() == pin["sha256"]:
                _put(folder / _name(pin), data)
                return
            reasons[address] = f"{address}: another file than lock.json pins"
        time.sleep(2.0 * tried)
    die(
        f"{_name(pin)} cannot be fetched: {'; '.join(reasons.values())}; name another mirror with "
        "--mirror URL or an archive of old packages with --snapshot URL, or give the files with "
        "--packages FOLDER"
    )


def _by_pip(folder: Path, wheels: list[Mapping[str, Any]]) -> None:
    """Pip knows the machine's index, proxies and certificates."""
    tags = {tag for pin in wheels for tag in pin["file"][:-4].rpartition("-")[2].split(".")}
    wanted = "".join(f"{p['name']}=={p['version']} --hash=sha256:{p['sha256']}\n" for p in wheels)
    new = folder / ".requirements.txt"
    new.write_text(wanted, "utf-8")
    options = ["--only-binary=:all:", "--no-deps", "--require-hashes", "--python-version=3.11"]
    platforms = [f"--platform={tag}" for tag in sorted(tags - {"any"})]
    done = subprocess.run(
        [*(sys.executable, "-I", "-m", "pip", "download", "--quiet", "--no-input"),
         *("--disable-pip-version-check", "--no-cache-dir", *options, *platforms),
         *("--dest", str(folder), "--requirement", str(new))],
        check=False,
    )  # fmt: skip
    if done.returncode:
        die("pip cannot fetch the wheels; give the files with --packages FOLDER")


# Reading packages.


def of_package(path: Path) -> Iterator[Content]:
    """What a Debian package installs: `ar` of three members, the last a tar file (deb(5))."""
    archive, at, packed = path.read_bytes(), 8, b""
    while at + 60 <= len(archive):
        size = int(archive[at + 48 : at + 58])
        if archive.startswith(b"data.tar", at):
            packed = archive[at + 60 : at + 60 + size]
        at += 60 + size + size % 2
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        for member in tar:
            name = posixpath.normpath(member.name)
            if member.isdir():
                if name != ".":
                    yield Content(name)
            elif member.issym():
                yield Content(name, target=member.linkname)
            elif (stream := tar.extractfile(member)) is not None:
                yield Content(name, stream.read(), bool(member.mode & 0o100))
            else:
                die(f"{path}: {name} is no folder, file or link")


def of_wheel(path: Path) -> Iterator[Content]:
    """What a wheel installs (PEP 427), but its list of hashes."""
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            first, _, rest = member.filename.partition("/")
            name = member.filename
            if first.endswith(".data"):
                scheme, _, name = rest.partition("/")
                if scheme not in ("purelib", "platlib"):
                    continue
            if member.is_dir() or (
                first.endswith(".dist-info") and rest in ("RECORD", "REQUESTED")
            ):
                continue
            executable = bool(member.external_attr >> 16 & 0o100)
            yield Content(f"{COMPILED[2]}/{name}", archive.read(member), executable)


# Laying out.


class Tree:
    """A root that is written into an empty folder. A path is written once."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.there = folder, dict[str, Content]()
        for name in ("usr", *(f"usr/{name}" for name in MERGED), *FOLDERS):
            self.make_folder(name)
        for name in MERGED:
            self.add(Content(name, target=f"usr/{name}"))

    def make_folder(self, path: str) -> None:
        """A folder and all above it."""
        if path and path not in self.there:
            self.make_folder(posixpath.dirname(path))
            (self.folder / path).mkdir()
            self.there[path] = Content(path)
        elif path and self.there[path] != Content(path):
            die(f"two packages have another {path}")

    def add(self, content: Content) -> None:
        """Writes one content."""
        path = content.path
        if content.data is None and not content.target:
            self.make_folder(path)
            return
        kept = content._replace(data=content.data and hashlib.sha256(content.data).digest())
        if path in self.there:
            if self.there[path] != kept:
                die(f"two packages have another {path}")
            return
        self.make_folder(posixpath.dirname(path))
        self.there[path] = kept
        if content.target:
            os.symlink(content.target, self.folder / path)
            return
        with open(self.folder / path, "xb") as stream:
            stream.write(content.data or b"")
        os.chmod(self.folder / path, 0o755 if content.executable else 0o644)

    def place(self, content: Content) -> None:
        """Adds what a package has, unless it is left out. An absolute link becomes a relative one,
        so that the root's programs also find their files where the root is no `/`.
        """
        path = _merged(content.path)
        if _DROPPED.fullmatch(path) or path in MERGED:
            return
        target = content.target
        if target:
            folder = posixpath.dirname(content.path)
            whole = posixpath.normpath(posixpath.join("/", folder, target))
            target = posixpath.relpath(f"/{_merged(whole[1:])}", f"/{posixpath.dirname(path)}")
        self.add(content._replace(path=path, target=target))

    def finish(self) -> None:
        """Adds what the packages' scripts would have made."""
        for path, original in COPIES.items():
            if original in self.there:
                more = (of.get(path, "") for program, of in USERS.items() if program in self.there)
                data = (self.folder / original).read_bytes() + "".join(more).encode()
                self.add(Content(path, data))
        for path, target in LINKS.items():
            at = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
            if (at in self.there or not at.startswith("usr/")) and path not in self.there:
                self.add(Content(path, target=target))
        library = re.compile(r"usr/lib/x86_64-linux-gnu/(?:lib|ld-)[^/]*\.so(?:\.[^/]*)?")
        libraries = [f"/{path}" for path in self.there if library.fullmatch(path)]
        self.add(Content("etc/ld.so.cache", linker_cache(libraries)))


def _merged(path: str) -> str:
    return f"usr/{path}" if path.split("/", 1)[0] in MERGED else path


def linker_cache(libraries: Iterable[str]) -> bytes:
    """/etc/ld.so.cache in glibc's format, `struct cache_file_new` in sysdeps/generic/dl-cache.h.

    ldconfig(8) has to be root to work in another root. Without the cache the linker tries folders
    for libraries of the very processor, and so makes other system calls on another one.
    """
    paths = {path.rpartition("/")[2]: path for path in libraries}
    # The linker searches by halves, in descending order.
    names = sorted(paths, key=functools.cmp_to_key(_compare), reverse=True)
    header, entry = struct.Struct("<20sIIB3xI12x"), struct.Struct("<iIIIQ")
    begins = header.size + entry.size * len(names)
    texts, entries = b"", b""
    for name in names:
        at = begins + len(texts)
        # FLAG_X8664_LIB64 | FLAG_ELF_LIBC6 in elf/cache.c.
        entries += entry.pack(0x0303, at + len(paths[name]) - len(name), at, 0, 0)
        texts += paths[name].encode() + b"\0"
    return header.pack(b"glibc-ld.so.cache1.1", len(names), len(texts), 2, 0) + entries + texts


def _compare(name: str, other: str) -> int:
    """_dl_cache_libcmp in elf/dl-cache.c: runs of digits count as numbers, and digits come last."""
    parts = re.compile("[0-9]+|[^0-9]")
    for mine, its in zip(parts.findall(name), parts.findall(other), strict=False):
        if mine.isdigit() != its.isdigit():
            return 1 if mine.isdigit() else -1
        if mine != its:
            difference = int(mine) - int(its) if mine.isdigit() else ord(mine) - ord(its)
            if difference:
                return difference
    return len(name) - len(other)


def settle(folder: Path) -> str:
    """Gives everything its mode and time. Returns the list of all files, which names the root."""
    lines = {}
    for above, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(above, name)
            shown = path.relative_to(folder).as_posix()
            if path.is_symlink():
                lines[shown] = f"l\t-\t-\t{os.readlink(path)}\t{shown}\n"
            elif path.is_dir():
                lines[shown] = f"d\t-\t-\t-\t{shown}\n"
            else:
                data, mode = path.read_bytes(), 0o755 if os.stat(path).st_mode & 0o100 else 0o644
                os.chmod(path, mode)
                digest = hashlib.sha256(data).hexdigest()
                lines[shown] = f"f\t{mode:o}\t{len(data)}\t{digest}\t{shown}\n"
    for shown in sorted(lines, reverse=True):
        if lines[shown].startswith("d"):
            os.chmod(folder / shown, 0o755)
        os.utime(folder / shown, (TIME_S, TIME_S), follow_symlinks=False)
    os.chmod(folder, 0o755)
    os.utime(folder, (TIME_S, TIME_S))
    return "".join(lines[shown] for shown in sorted(lines))


def lay_out(kind: str, downloads: Path, target: Path) -> str:
    """Makes a root; the hash of its list of files. Its own Python compiles its code, so that
    Python in the guest neither compiles nor looks at the source.
    """
    root = target / "root"
    root.mkdir(parents=True)
    tree = Tree(root)
    pins = pinned(kind)
    for pin in pins:
        path = downloads / _name(pin)
        for content in of_wheel(path) if "file" in pin else of_package(path):
            tree.place(content)
    tree.finish()
    folders = [folder for folder in COMPILED if (root / folder).is_dir()]
    subprocess.run(
        [str(root / "usr/lib64/ld-linux-x86-64.so.2"), "--inhibit-cache", "--library-path",
         str(root / "usr/lib/x86_64-linux-gnu"), str(root / "usr/bin/python3.11"),
         *("-B", "-P", "-S", "-s", "-c", COMPILE, str(root), *folders)],
        cwd=root,
        env={"PYTHONHOME": str(root / "usr"), "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"},
        check=True,
    )  # fmt: skip
    listed = settle(root)
    (target / "files.tsv").write_text(listed, "utf-8")
    digest = hashlib.sha256(json.dumps(pins, sort_keys=True).encode()).hexdigest()
    record = {"format": 1, "lock": digest, "packages": {p["name"]: p["version"] for p in pins}}
    (target / "root.json").write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    return hashlib.sha256(listed.encode()).hexdigest()


def pinned(kind: str) -> list[dict[str, Any]]:
    """The packages and wheels of a root."""
    return [*LOCK[kind], *(LOCK["wheels"] if kind == "runtime" else ())]


def main() -> None:
    """One of the verbs."""
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    of_fetch = verbs.add_parser("fetch")
    of_fetch.add_argument("folder", type=Path)
    of_fetch.add_argument("--mirror", action="append", default=[])
    of_fetch.add_argument("--snapshot")
    of_fetch.add_argument("--packages", type=Path)
    of_layout = verbs.add_parser("lay-out")
    of_layout.add_argument("kind", choices=("runtime", "build"))
    of_layout.add_argument("folder", type=Path)
    of_layout.add_argument("root", type=Path)
    of_source = verbs.add_parser("source")
    of_source.add_argument("package", type=Path)
    of_source.add_argument("file", type=Path)
    asked = parser.parse_args()
    if asked.verb == "source":
        tarballs = (c.data for c in of_package(asked.package) if ".tar." in c.path and c.data)
        asked.file.write_bytes(next(tarballs, None) or die(f"{asked.package} has no tarball"))
        return
    if asked.verb == "fetch":
        pins = {_name(pin): pin for kind in ("runtime", "build") for pin in pinned(kind)}
        fetch(asked.folder, [*pins.values(), LOCK["kernel_source"]], asked)
        return
    made = lay_out(asked.kind, asked.folder, asked.root)
    if made != LOCK["content"][asked.kind]:
        die(
            f"the root {asked.kind} has the key {made[:20]} instead of "
            f"{LOCK['content'][asked.kind][:20]}; after a change of lock.json, write the new hash "
            f"into its `content`: {made}"
        )


if __name__ == "__main__":
    main()
