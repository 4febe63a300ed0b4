"""The dynamic linker's cache, /etc/ld.so.cache, for a root that ldconfig(8) cannot be run in.

ldconfig has to be root to work in another root. Without the cache the linker tries folders for
libraries that are made for the very processor, such as x86-64-v3, and so makes other system calls
on another processor. The format is glibc's, `struct cache_file_new` in sysdeps/generic/dl-cache.h.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from functools import cmp_to_key

_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER = struct.Struct("<20sIIB3xI12x")
_ENTRY = struct.Struct("<iIIIQ")
_LITTLE_ENDIAN = 2
_X86_64_LIBRARY = 0x0303
"""FLAG_X8664_LIB64 | FLAG_ELF_LIBC6 in elf/cache.c."""
_PARTS = re.compile("[0-9]+|[^0-9]")


def dumps(libraries: Iterable[str]) -> bytes:
    """The cache of these libraries.

    Args:
        libraries: absolute paths, as `/lib/x86_64-linux-gnu/libc.so.6`. A library is found by the
            name of its file.
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


def _compare(one: str, other: str) -> int:
    """_dl_cache_libcmp in elf/dl-cache.c: runs of digits count as numbers, and digits come last."""
    for mine, its in zip(_PARTS.findall(one), _PARTS.findall(other), strict=False):
        if mine.isdigit() != its.isdigit():
            return 1 if mine.isdigit() else -1
        if mine.isdigit() and int(mine) != int(its):
            return int(mine) - int(its)
        if not mine.isdigit() and mine != its:
            return ord(mine) - ord(its)
    return len(one) - len(other)
