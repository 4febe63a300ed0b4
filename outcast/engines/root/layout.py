"""Says where the contents of packages go in the root, what is left out, and what is added.

No script of a package is run. What these scripts would have made and a run needs is in `LINKS`,
`COPIES` and `FILES`, each with its reason.
"""

from __future__ import annotations

import posixpath
import re
import struct
from collections.abc import Iterable, Mapping
from functools import cmp_to_key

from outcast.engines.root.contents import Content

MERGED = ("bin", "lib", "lib64", "sbin")
"""Folders that are links to their namesakes below `usr`, as on every Debian since 12."""

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
    "usr/lib/python3.11/lib2to3",
    "usr/share/python3",
    "usr/lib/valgrind",
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

FOLDERS = (
    *("dev", "etc", "home", "mnt", "opt", "proc", "root", "run", "sys", "tmp"),
    *("usr/local/bin", "usr/local/sbin", "var/lib", "var/log", "var/tmp", "etc/openvswitch"),
)
"""Folders that the guest's first process mounts something on, or that programs expect."""

LINKS: Mapping[str, str] = {
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

COPIES: Mapping[str, str] = {
    # base-passwd and libc-bin keep what their scripts copy.
    "etc/group": "usr/share/base-passwd/group.master",
    "etc/passwd": "usr/share/base-passwd/passwd.master",
    "etc/nsswitch.conf": "usr/share/libc-bin/nsswitch.conf",
}
"""Files that packages' scripts copy, where the original is in the root."""

USERS: Mapping[str, Mapping[str, str]] = {
    # As root, tcpdump gives its rights away to this user unless it is told another.
    "usr/bin/tcpdump": {
        "etc/passwd": "tcpdump:x:100:102::/nonexistent:/usr/sbin/nologin\n",
        "etc/group": "tcpdump:x:102:\n",
    },
}
"""From a program to the lines by which its package's script adds a user."""


def place(content: Content) -> Content | None:
    """Says what becomes of a package's content in the root; None if it is left out.

    Folders such as `bin` are merged into `usr`. An absolute link becomes a relative one. So the
    root's programs also find their files where the root is no `/`.
    """
    path = merged(content.path)
    if _DROPPED.fullmatch(path) or path in MERGED:
        return None
    if not content.target:
        return Content(path, content.data, content.executable)
    whole = posixpath.normpath(posixpath.join("/", posixpath.dirname(content.path), content.target))
    target = posixpath.relpath("/" + merged(whole.lstrip("/")), "/" + posixpath.dirname(path))
    return Content(path, target=target)


def merged(path: str) -> str:
    """A path with `bin`, `lib`, `lib64` and `sbin` below `usr`."""
    return f"usr/{path}" if path.split("/", 1)[0] in MERGED else path


_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER = struct.Struct("<20sIIB3xI12x")
_ENTRY = struct.Struct("<iIIIQ")
_LITTLE_ENDIAN = 2
_X86_64_LIBRARY = 0x0303
"""FLAG_X8664_LIB64 | FLAG_ELF_LIBC6 in elf/cache.c."""
_PARTS = re.compile("[0-9]+|[^0-9]")


def linker_cache(libraries: Iterable[str]) -> bytes:
    """Makes /etc/ld.so.cache for libraries with these absolute paths, found by their files' names.

    ldconfig(8) has to be root to work in another root. Without the cache the linker tries folders
    for libraries of the very processor, such as x86-64-v3, and so makes other system calls on
    another one. The format is glibc's, `struct cache_file_new` in sysdeps/generic/dl-cache.h.
    """
    paths = {path.rpartition("/")[2]: path for path in libraries}
    # The linker searches by halves, in descending order.
    names = sorted(paths, key=cmp_to_key(_compare), reverse=True)
    begins = _HEADER.size + _ENTRY.size * len(names)
    texts = bytearray()
    entries = bytearray()
    for name in names:
        path = paths[name]
        at = begins + len(texts)
        entries += _ENTRY.pack(_X86_64_LIBRARY, at + len(path) - len(name), at, 0, 0)
        texts += path.encode() + b"\0"
    header = _HEADER.pack(_MAGIC, len(names), len(texts), _LITTLE_ENDIAN, 0)
    return header + bytes(entries) + bytes(texts)


def _compare(name: str, other: str) -> int:
    """_dl_cache_libcmp in elf/dl-cache.c: runs of digits count as numbers, and digits come last."""
    for mine, its in zip(_PARTS.findall(name), _PARTS.findall(other), strict=False):
        if mine.isdigit() != its.isdigit():
            return 1 if mine.isdigit() else -1
        if mine.isdigit() and int(mine) != int(its):
            return int(mine) - int(its)
        if not mine.isdigit() and mine != its:
            return ord(mine) - ord(its)
    return len(name) - len(other)
