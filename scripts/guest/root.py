"""Fetches what lock.json pins, and lays out a root of the guest from it; stands alone.

`fetch` fills a folder with the packages and wheels that it lacks, each checked by its hash.
`lay-out` unpacks those of a root into a new folder. No script of a package is run. What these would
have made and a run needs is in LINKS and COPIES. The rest of what scripts/guest/build does
in Python is here, too.
"""

from __future__ import annotations

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
import urllib.request
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
LOCK: dict[str, Any] = json.loads((HERE / "lock.json").read_text("utf-8"))
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
_DROPPED = re.compile(
    r"""(?:
    # Documentation and translations. Licences stay, because who passes a root on has to.
    usr/share/(?:bash-completion|bug|doc-base|emacs|gcc|gdb|icons|info|lintian|locale|man|menu|pixmaps
        |readline|vim|zsh)
    # What a service manager, a scheduler, a package manager or a login would read.
    | etc/(?:apparmor\.d|cron\.d|cron\.daily|default|dpkg|init\.d|logrotate\.d|network|pam\.d)
    | etc/(?:profile\.d|skel|ufw|update-motd\.d)
    | usr/lib/(?:systemd|udev|valgrind) | usr/share/(?:dpkg|initramfs-tools|perl5)
    | var/(?:backups|cache|spool)
    # Character sets besides UTF-8, which the C library has in itself.
    | usr/lib/x86_64-linux-gnu/gconv
    # Open vSwitch's scripts in shell and Python, which start it as a service and find faults.
    | usr/share/openvswitch/(?:bugtool-plugins|scripts)
    # Python's converter from Python 2, and what it runs by.
    | usr/lib/python3\.11/lib2to3 | usr/share/python3
    # os-ken's BGP, and tests that come with Python packages.
    | .*/os_ken/services/protocols
    | usr/(?:local/)?lib/python3[^/]*/dist-packages/(?:.*/)?tests?
    )(?:/.*)?
    | usr/share/doc/[^/]*/(?!copyright$).*
    # Makers of network cards, and a second build of zstandard.
    | .*/netaddr/eui/(?:iab|oui)\..* | .*/zstandard/_cffi\..*""",
    re.VERBOSE,
)
LINKS = {
    # update-alternatives(1) would have made these.
    **{"usr/bin/awk": "mawk", "usr/bin/cc": "gcc", "usr/bin/nc": "nc.openbsd"},
    "usr/bin/which": "which.debianutils",
    "usr/sbin/ovs-vswitchd": "../lib/openvswitch-switch/ovs-vswitchd",
    # The kernel writes the table of mounts; mount(8) and others look for it here.
    **{"etc/mtab": "../proc/self/mounts", "var/run": "../run", "var/lock": "../run/lock"},
}
"""Links that packages' scripts make, where what they lead to is in the root."""
TCPDUMP = {
    "etc/group": "tcpdump:x:102:\n",
    "etc/passwd": "tcpdump:x:100:102::/nonexistent:/usr/sbin/nologin\n",
}
"""The user that tcpdump's script adds, and that tcpdump becomes."""
COPIES = {
    "etc/group": "usr/share/base-passwd/group.master",
    "etc/passwd": "usr/share/base-passwd/passwd.master",
    "etc/nsswitch.conf": "usr/share/libc-bin/nsswitch.conf",
}
"""Files that packages' scripts copy, where the original is in the root."""
WHEELS = "usr/local/lib/python3.11/dist-packages"
COMPILED = ("usr/lib/python3.11", "usr/lib/python3/dist-packages", WHEELS)


class Content(NamedTuple):
    """A folder, a file or a symbolic link; `data` is None for a folder or a link."""

    path: str
    data: bytes | None = None
    executable: bool = False
    target: str = ""


def die(text: str) -> Any:
    """Ends the program."""
    sys.exit(f"guest: error: {text}")


def fetch(folder: Path, files: Iterable[Mapping[str, Any]]) -> None:
    """Fills a folder with the files that it lacks. Ends the program where one cannot be had."""
    folder.mkdir(parents=True, exist_ok=True)
    lacking = [pin for pin in files if not _is_there(folder / _name(pin), pin)]
    packages = [pin for pin in lacking if "path" in pin]
    if packages:
        archives = addresses()
        with ThreadPoolExecutor(6) as pool:
            fetched = pool.map(lambda pin: _download(folder, pin, archives), packages)
            for done, _ in enumerate(fetched, 1):
                if done % 20 == 0 or done == len(packages):
                    print(f"guest: fetched {done} of {len(packages)} packages", file=sys.stderr)
    if wheels := [pin for pin in lacking if "file" in pin]:
        _by_pip(folder, wheels)


def _name(pin: Mapping[str, Any]) -> str:
    return str(pin.get("file") or pin["path"].rpartition("/")[2])


def _is_there(path: Path, pin: Mapping[str, Any]) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == pin["sha256"]


def _put(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_bytes(data)
    new.rename(path)


def addresses() -> list[str]:
    """What OUTCAST_MIRROR names, or else the archives of this machine's apt, the snapshots last.

    @SNAPSHOTID@ in an address stands for the lock's time.
    """
    named = os.environ.get("OUTCAST_MIRROR", "").split()
    if not named:
        rows = _said(
            "apt-get indextargets --format '$(REPO_URI) $(COMPONENT)' 'Created-By: Packages'"
        )
        mains = {row.split()[0] for row in rows.splitlines() if row.endswith(" main")}
        named = sorted(mains, key=lambda address: ("security" in address, address))[:3]
        said = _said("apt-config shell A Acquire::Snapshots::URI::Origin::Debian")
        named += filter(None, [said.partition("'")[2].rpartition("'")[0]])
    return [name.replace("@SNAPSHOTID@", LOCK["snapshot"]).rstrip("/") for name in named]


def _said(command: str) -> str:
    argv = ["sh", "-c", command]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout


def _download(folder: Path, pin: Mapping[str, Any], archives: list[str]) -> None:
    why: object = "no archive is named"
    for address in archives * TRIES:
        try:
            with urllib.request.urlopen(f"{address}/{pin['path']}", timeout=SILENCE_S) as stream:
                _put(folder / _name(pin), stream.read())
        except (OSError, ValueError) as error:
            why = error
            continue
        if _is_there(folder / _name(pin), pin):
            return
        why = "another file than lock.json pins"
        (folder / _name(pin)).unlink()
    die(
        f"{_name(pin)} cannot be fetched from {', '.join(archives) or 'nowhere'}: {why}; let "
        "OUTCAST_MIRROR name a mirror of Debian, and an archive of old packages after it, or give "
        "the files with --packages FOLDER"
    )


def _by_pip(folder: Path, wheels: list[Mapping[str, Any]]) -> None:
    """Pip knows the machine's index, proxies and certificates, and checks the hashes."""
    tags = {tag for pin in wheels for tag in pin["file"][:-4].rpartition("-")[2].split(".")}
    wanted = "".join(f"{p['name']}=={p['version']} --hash=sha256:{p['sha256']}\n" for p in wheels)
    new = folder / ".requirements.txt"
    new.write_text(wanted, "utf-8")
    done = subprocess.run(
        [*(sys.executable, "-I", "-m", "pip", "download", "--quiet", "--no-input", "--no-deps"),
         *("--disable-pip-version-check", "--no-cache-dir", "--only-binary=:all:"),
         *("--require-hashes", "--python-version=3.11", "--dest", str(folder)),
         *(f"--platform={tag}" for tag in sorted(tags - {"any"})), "--requirement", str(new)],
        check=False,
    )  # fmt: skip
    if done.returncode:
        die("pip cannot fetch the wheels; give the files with --packages FOLDER")


def of_package(path: Path) -> Iterator[Content]:
    """What a Debian package installs: `ar` of three members, the last a tar file (deb(5))."""
    archive, at = path.read_bytes(), 8
    while not archive.startswith(b"data.tar", at):
        at += 60 + (int(archive[at + 48 : at + 58]) + 1) // 2 * 2
    with tarfile.open(fileobj=io.BytesIO(archive[at + 60 :])) as tar:
        for member in tar:
            name = posixpath.normpath(member.name)
            if member.issym():
                yield Content(name, target=member.linkname)
            elif (stream := tar.extractfile(member)) is not None:
                yield Content(name, stream.read(), bool(member.mode & 0o100))
            elif name != ".":
                yield Content(name)


def of_wheel(path: Path) -> Iterator[Content]:
    """What a wheel installs (PEP 427), but its list of hashes and headers of C."""
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            first, _, rest = member.filename.partition("/")
            if member.is_dir() or first.endswith(".data") or rest in ("RECORD", "REQUESTED"):
                continue
            executable = bool(member.external_attr >> 16 & 0o100)
            yield Content(f"{WHEELS}/{member.filename}", archive.read(member), executable)


def collect(packages: Iterable[Path]) -> dict[str, Content]:
    """What packages and wheels install, and what the packages' scripts would have made."""
    tree: dict[str, Content] = {path: Content(path, target=f"usr/{path}") for path in MERGED}
    tree |= {path: Content(path) for path in (*(f"usr/{path}" for path in MERGED), *FOLDERS)}
    for package in packages:
        for content in of_wheel(package) if package.suffix == ".whl" else of_package(package):
            path = _merged(content.path)
            if _DROPPED.fullmatch(path) or path in MERGED:
                continue
            target = content.target
            if target:
                # Relative, so that the root's programs also find their files where it is no `/`.
                whole = posixpath.join("/", posixpath.dirname(content.path), target)
                target = _merged(posixpath.normpath(whole)[1:])
                target = posixpath.relpath(f"/{target}", f"/{posixpath.dirname(path)}")
            placed = content._replace(path=path, target=target)
            if tree.setdefault(path, placed) != placed:
                die(f"two packages have another {path}")
    users = TCPDUMP if "usr/bin/tcpdump" in tree else {}
    for path, original in COPIES.items():
        if original in tree:
            data = (tree[original].data or b"") + users.get(path, "").encode()
            tree[path] = Content(path, data)
    for path, target in LINKS.items():
        at = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        if at in tree or not at.startswith("usr/"):
            tree.setdefault(path, Content(path, target=target))
    library = re.compile(r"usr/lib/x86_64-linux-gnu/(?:lib|ld-)[^/]*\.so(?:\.[^/]*)?")
    libraries = [f"/{path}" for path in tree if library.fullmatch(path)]
    tree["etc/ld.so.cache"] = Content("etc/ld.so.cache", linker_cache(libraries))
    return tree


def write(tree: Mapping[str, Content], root: Path) -> None:
    """Makes all that a tree has in a new folder."""
    for path, content in sorted(tree.items()):
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if content.target:
            place.symlink_to(content.target)
        elif content.data is None:
            place.mkdir(exist_ok=True)
        else:
            place.write_bytes(content.data)
            if content.executable:
                place.chmod(0o755)


def _merged(path: str) -> str:
    return f"usr/{path}" if path.split("/", 1)[0] in MERGED else path


def linker_cache(libraries: Iterable[str]) -> bytes:
    """/etc/ld.so.cache in glibc's format, `struct cache_file_new` in sysdeps/generic/dl-cache.h.

    ldconfig(8) has to be root to work in another root. Without the cache the linker tries folders
    for libraries of the very processor, and so makes other system calls on another one.
    """
    paths = {path.rpartition("/")[2]: path for path in libraries}
    # The linker searches by halves, in the descending order of _dl_cache_libcmp in elf/dl-cache.c:
    # runs of digits count as numbers, and come after all else.
    names = sorted(paths, key=_order, reverse=True)
    header, entry = struct.Struct("<20sIIB3xI12x"), struct.Struct("<iIIIQ")
    begins = header.size + entry.size * len(names)
    texts, entries = b"", b""
    for name in names:
        at = begins + len(texts)
        # FLAG_X8664_LIB64 | FLAG_ELF_LIBC6 in elf/cache.c.
        entries += entry.pack(0x0303, at + len(paths[name]) - len(name), at, 0, 0)
        texts += paths[name].encode() + b"\0"
    return header.pack(b"glibc-ld.so.cache1.1", len(names), len(texts), 2, 0) + entries + texts


def _order(name: str) -> list[tuple[bool, int]]:
    parts = re.findall("[0-9]+|[^0-9]", name)
    return [(part.isdigit(), int(part) if part.isdigit() else ord(part)) for part in parts]


def settle(root: Path) -> str:
    """Gives everything its time. Returns the list of all files, which names the root."""
    lines = {}
    for path in root.rglob("*"):
        shown = path.relative_to(root).as_posix()
        if path.is_symlink():
            lines[shown] = f"l\t-\t-\t{os.readlink(path)}\t{shown}\n"
        elif path.is_dir():
            lines[shown] = f"d\t-\t-\t-\t{shown}\n"
        else:
            data, mode = path.read_bytes(), path.stat().st_mode & 0o777
            digest = hashlib.sha256(data).hexdigest()
            lines[shown] = f"f\t{mode:o}\t{len(data)}\t{digest}\t{shown}\n"
    for shown in (*sorted(lines, reverse=True), ""):
        os.utime(root / shown, (TIME_S, TIME_S), follow_symlinks=False)
    return "".join(lines[shown] for shown in sorted(lines))


def lay_out(kind: str, downloads: Path, target: Path) -> str:
    """Makes a root; the hash of its list of files. Its own Python compiles its code, so that
    Python in the guest neither compiles nor looks at the source.
    """
    os.umask(0o022)
    root, pins = target / "root", pinned(kind)
    write(collect(downloads / _name(pin) for pin in pins), root)
    folders = [f"{root}/{folder}" for folder in COMPILED if (root / folder).is_dir()]
    subprocess.run(
        [str(root / "usr/lib64/ld-linux-x86-64.so.2"), "--inhibit-cache", "--library-path",
         str(root / "usr/lib/x86_64-linux-gnu"), str(root / "usr/bin/python3.11"),
         *("-B", "-P", "-S", "-s", "-m", "compileall", "-q", "-f", "-r", "40", "-s", str(root)),
         *("-p", "/", "--invalidation-mode", "unchecked-hash", *folders)],
        cwd=root,
        env={"PYTHONHOME": str(root / "usr"), "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"},
        check=True,
    )  # fmt: skip
    listed = settle(root)
    (target / "files.tsv").write_text(listed, "utf-8")
    digest = hashlib.sha256(json.dumps(pins, sort_keys=True).encode()).hexdigest()
    about = {"format": 1, "lock": digest, "packages": {p["name"]: p["version"] for p in pins}}
    (target / "root.json").write_text(json.dumps(about, indent=1) + "\n", "utf-8")
    return hashlib.sha256(listed.encode()).hexdigest()


def pinned(kind: str) -> list[dict[str, Any]]:
    """The packages and wheels of a root."""
    return [*LOCK[kind], *(LOCK["wheels"] if kind == "runtime" else ())]


def keys(tarball: str, more: Iterable[str]) -> dict[str, str]:
    """The keys of the roots and the kernel, and what decides the kernel's.

    `tarball` is another source of the kernel than the lock's; `more` are files of the user besides
    the recipe, which counts by the names and contents of its files.
    """
    recipe = hashlib.sha256(b"kept 3\n")
    patches = sorted((HERE / "patches").glob("*.patch"))
    for path in (HERE / "fragment.config", *patches, *map(Path, more)):
        data = path.read_bytes()
        recipe.update(f"{path.name} {len(data)}\n".encode() + data)
    source, version = LOCK["kernel_source"]["name"], LOCK["kernel_source"]["version"]
    if tarball:
        source, version = "tarball", hashlib.sha256(Path(tarball).read_bytes()).hexdigest()
    packages = hashlib.sha256(json.dumps(LOCK["build"], sort_keys=True).encode()).hexdigest()
    (gcc,) = (pin["version"] for pin in LOCK["build"] if pin["name"] == "gcc-12")
    compiler = f"gcc-12 {gcc}, packages {packages[:20]}"
    decides = "\n".join((source, version, recipe.hexdigest(), compiler))
    return {
        **{kind: LOCK["content"][kind][:20] for kind in ("runtime", "build")},
        "kernel": hashlib.sha256(decides.encode()).hexdigest()[:20],
        **{"source": source, "version": version},
        **{"recipe": recipe.hexdigest(), "compiler": compiler},
    }


def record(kernel: Path, output: Path, seconds: str, tarball: str, more: list[str]) -> None:
    """Writes what is known of a kernel."""
    decides = keys(tarball, more)
    config = (output / ".config").read_text("utf-8")
    built = re.findall(r"^CONFIG_TCP_CONG_(?!ADVANCED)([A-Z0-9]+)=y$", config, re.MULTILINE)
    names = {"HSTCP": "highspeed"}
    about = {
        **{name: decides[name] for name in ("source", "version", "recipe", "compiler")},
        "release": (output / "include/config/kernel.release").read_text("utf-8").strip(),
        "built_s": float(seconds),
        "sha256": hashlib.sha256((kernel / "linux").read_bytes()).hexdigest(),
        "congestion_controls": sorted({"reno", *(names.get(n, n.lower()) for n in built)}),
        "own": [Path(file).name for file in more],
    }
    (kernel / "kernel.json").write_text(json.dumps(about, indent=2) + "\n", "utf-8")


def main() -> None:
    """One of the verbs."""
    match sys.argv[1:]:
        case ["keys", tarball, *more]:
            print(json.dumps(keys(tarball, more), indent=1))
        case ["fetch", folder]:
            pins = {_name(p): p for kind in ("runtime", "build") for p in pinned(kind)}
            fetch(Path(folder), [*pins.values(), LOCK["kernel_source"]])
        case ["lay-out", kind, folder, root]:
            made = lay_out(kind, Path(folder), Path(root))
            if made != LOCK["content"][kind]:
                die(f"the root {kind} is another than lock.json says: {made}")
        case ["record", kernel, output, seconds, tarball, *more]:
            record(Path(kernel), Path(output), seconds, tarball, more)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
