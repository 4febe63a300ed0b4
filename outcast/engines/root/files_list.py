"""The list of a root's files, by whose hash the root is named.

It is a text with a line for each folder, file and symbolic link, sorted by path. Fields are
separated by tabs:

```
d   -     -   -        usr/bin
f   755   N   SHA256   usr/bin/dash
l   -     -   TARGET   usr/bin/sh
```

N is the size in bytes. Modes are 755 or 644. Owners and times are not in it, because no root has
its own: a root's files all carry the time `TIME_S`.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from outcast.errors import RootError

TIME_S = 1_000_000_000
"""The modification time of every file of a root. It is the time at which the guest boots."""

_LINE = re.compile(
    r"(?:d\t-\t-\t-|f\t(?P<mode>755|644)\t(?P<size>\d{1,12})\t(?P<sha256>[0-9a-f]{64})"
    r"|l\t-\t-\t(?P<target>[^\t\n]+))\t(?P<path>[^\t\n]+)"
)


class Item(NamedTuple):
    """A folder, a regular file or a symbolic link of a root.

    A tuple, because a run reads thousands of them before its guest boots.

    Attributes:
        path: relative to the root, as `usr/bin/dash`.
        sha256: of a file's content; empty for the others.
        target: where a link leads; empty for the others. It is relative.
    """

    path: str
    executable: bool = False
    size: int = 0
    sha256: str = ""
    target: str = ""

    @property
    def mode(self) -> int:
        """The permissions of a file or folder."""
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
    """Reads a list. Raises ValueError where a line is no entry, or leads out of the root."""
    items = []
    for number, line in enumerate(text.splitlines(), start=1):
        match = _LINE.fullmatch(line)
        mode, size, sha256, target, path = match.groups("") if match else ("",) * 5
        if not is_inside(path):
            raise ValueError(f"line {number} is not one of a list of files")
        items.append(Item(path, mode == "755", int(size or 0), sha256, target))
    return items


def digest(text: str) -> str:
    """The hash that names a root with this list."""
    return hashlib.sha256(text.encode()).hexdigest()


def is_inside(path: str) -> bool:
    """Whether a path is relative, printable, and has no empty part and none that leads upwards."""
    if not path.isprintable():
        return False
    # Few paths have these, and a list has thousands of paths.
    if "/." in path or "//" in path or path[:1] in ("", ".", "/") or path[-1] == "/":
        return not {"", ".", ".."} & set(path.split("/"))
    return True


def scan(folder: Path) -> list[Item]:
    """Lists what is in a folder, and hashes every file.

    Raises RootError: it holds something that is no folder, file or link.
    """
    return list(_walk(str(folder), ""))


def _walk(folder: str, above: str) -> Iterator[Item]:
    """Lists what is in a folder, whose own path ends with `above`."""
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
            yield _hashed(entry, name)
        else:
            raise RootError(f"{entry.path}: a root holds folders, regular files and links alone")


def _hashed(entry: os.DirEntry[str], name: str) -> Item:
    status = entry.stat(follow_symlinks=False)
    with open(entry.path, "rb", buffering=0) as stream:
        content = hashlib.file_digest(stream, "sha256").hexdigest()
    return Item(name, bool(status.st_mode & stat.S_IXUSR), status.st_size, content)


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


def first_change(folder: Path, items: Iterable[Item]) -> str | None:
    """The first path that is not as it was listed, judged without reading a file; or None.

    A file that was added or removed changes its folder's time, so no folder has to be listed.
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
    return None
