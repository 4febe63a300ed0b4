"""The list of a root's files, by whose hash the root is named.

It is a text with a line for each folder, file and symbolic link, sorted by path. Fields are
separated by tabs:

```
d   -     -   -        usr/bin
f   755   N   SHA256   usr/bin/dash
l   -     -   TARGET   usr/bin/sh
```

N is the size in bytes. Modes are 755 or 644. Owners and times are not in it, because all files of a
root have the same owner and the time `parts.TIME_S`.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from outcast.engines.guest.parts import TIME_S
from outcast.errors import RootError


class Item(NamedTuple):
    """A folder, a regular file or a symbolic link of a root.

    A tuple, because a run reads thousands of them before its guest boots.

    Attributes:
        path: relative to the root, as `usr/bin/dash`.
        sha256: of a file's content; empty for the others.
        target: where a link leads; empty for the others.
    """

    path: str
    executable: bool = False
    size: int = 0
    sha256: str = ""
    target: str = ""

    @property
    def mode(self) -> int:
        return 0o644 if self.sha256 and not self.executable else 0o755


def dumps(items: Iterable[Item]) -> str:
    """The text of a list."""
    lines = []
    for item in sorted(items, key=lambda item: item.path):
        if item.sha256:
            lines.append(f"f\t{item.mode:o}\t{item.size}\t{item.sha256}\t{item.path}\n")
        elif item.target:
            lines.append(f"l\t-\t-\t{item.target}\t{item.path}\n")
        else:
            lines.append(f"d\t-\t-\t-\t{item.path}\n")
    return "".join(lines)


def loads(text: str) -> list[Item]:
    """Reads a list. Raises ValueError where a line is no entry."""
    items = []
    for line in text.splitlines():
        kind, mode, size, value, path = line.split("\t")
        if kind == "f":
            items.append(Item(path, mode == "755", int(size), value))
        else:
            items.append(Item(path, target=value if kind == "l" else ""))
    return items


def scan(folder: Path) -> list[Item]:
    """Lists what is in a folder, and hashes every file.

    Raises RootError: something in it is no folder, file or link.
    """
    return list(_walk(str(folder), ""))


def _walk(folder: str, above: str) -> Iterator[Item]:
    """The items in `folder`. The paths of items begin with `above`."""
    with os.scandir(folder) as entries:
        inner = sorted(entries, key=lambda entry: entry.name)
    for entry in inner:
        name = f"{above}{entry.name}"
        if entry.is_symlink():
            yield Item(name, target=os.readlink(entry.path))
        elif entry.is_dir():
            yield Item(name)
            yield from _walk(entry.path, f"{name}/")
        elif entry.is_file():
            status = entry.stat(follow_symlinks=False)
            with open(entry.path, "rb", buffering=0) as stream:
                content = hashlib.file_digest(stream, "sha256").hexdigest()
            yield Item(name, bool(status.st_mode & stat.S_IXUSR), status.st_size, content)
        else:
            raise RootError(f"{entry.path}: a root holds folders, regular files and links alone")


def settle(folder: Path) -> str:
    """Gives everything in a finished root its mode and time. Returns the list of its files."""
    items = scan(folder)
    # From the inside to the outside, because a change inside renews a folder's time.
    for item in sorted(items, key=lambda item: item.path, reverse=True):
        path = folder / item.path
        if not item.target:
            os.chmod(path, item.mode)
        os.utime(path, (TIME_S, TIME_S), follow_symlinks=False)
    os.chmod(folder, 0o755)
    os.utime(folder, (TIME_S, TIME_S))
    return dumps(items)


def first_change(folder: Path, items: Iterable[Item], *, every_byte: bool = False) -> str | None:
    """The first path that is not as it was listed, or None.

    Kinds, sizes, times and modes are compared, which takes some hundredths of a second. A file that
    was added or removed changes its folder's time. With `every_byte` all files are hashed too.
    """
    time_ns = TIME_S * 10**9
    for item in items:
        # Thousands of times, so by text and not by pathlib.
        path = f"{folder}/{item.path}"
        try:
            status = os.lstat(path)
            is_same = (
                stat.S_ISLNK(status.st_mode) and os.readlink(path) == item.target
                if item.target
                else status.st_mtime_ns == time_ns
                and status.st_mode == item.mode | (stat.S_IFREG if item.sha256 else stat.S_IFDIR)
                and (not item.sha256 or status.st_size == item.size)
            )
        except OSError:
            is_same = False
        if not is_same:
            return item.path
    if not every_byte:
        return None
    return min((item.path for item in set(scan(folder)) ^ set(items)), default=None)
