"""Writes a root into a folder: packages' contents, what their scripts would add, and bytecode."""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
from collections.abc import Iterable
from pathlib import Path

from outcast.engines.root import files_list, layout
from outcast.engines.root.contents import Content
from outcast.engines.root.files_list import TIME_S, Item
from outcast.errors import RootError

_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_LIBRARY = re.compile(rf"{_LIBRARIES}/(?:lib|ld-)[^/]*\.so(?:\.[^/]*)?")


class Tree:
    """A root that is being written into an empty folder.

    A path is written once, and only below folders that were written before. So no link of a
    package leads what comes after it to another place.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._items: dict[str, Item] = {}
        for name in ("usr", *(f"usr/{name}" for name in layout.MERGED), *layout.FOLDERS):
            self._make_folder(name)
        for name in layout.MERGED:
            self._add(Content(name, target=f"usr/{name}"))

    def add(self, contents: Iterable[Content]) -> None:
        """Adds what a package holds, without what `layout` leaves out.

        Raises:
            RootError: two packages hold one path with different contents.
            OSError: it cannot be written.
        """
        for content in contents:
            placed = layout.place(content)
            if placed is not None:
                self._add(placed)

    def finish(self) -> None:
        """Adds what the packages' scripts would have made."""
        for path, original in layout.COPIES.items():
            if original in self._items:
                users = self._users(path)
                self._add(Content(path, (self._folder / original).read_bytes() + users))
        for path, target in layout.LINKS.items():
            at = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
            if (at in self._items or not at.startswith("usr/")) and path not in self._items:
                self._add(Content(path, target=target))
        libraries = [f"/{path}" for path in self._items if _LIBRARY.fullmatch(path)]
        self._add(Content("etc/ld.so.cache", layout.linker_cache(libraries)))

    def _users(self, path: str) -> bytes:
        """Lines that users of programs that are here add to a file."""
        lines = (lines for program, lines in layout.USERS.items() if program in self._items)
        return "".join(of_user.get(path, "") for of_user in lines).encode()

    def _add(self, content: Content) -> None:
        path = content.path
        if content.data is None and not content.target:
            self._make_folder(path)
            return
        if content.target:
            item = Item(path, target=content.target)
        else:
            assert content.data is not None
            digest = hashlib.sha256(content.data).hexdigest()
            item = Item(path, content.executable, len(content.data), digest)
        there = self._items.get(path)
        if there is not None:
            if there != item:
                raise RootError(f"two packages have another {path}")
            return
        self._make_folder(posixpath.dirname(path))
        self._items[path] = item
        if content.target:
            os.symlink(content.target, self._folder / path)
        else:
            assert content.data is not None
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(self._folder / path, flags, 0o600), "wb") as stream:
                stream.write(content.data)
                os.fchmod(stream.fileno(), item.mode)

    def _make_folder(self, path: str) -> None:
        there = self._items.get(path)
        if there is None and path:
            self._make_folder(posixpath.dirname(path))
            (self._folder / path).mkdir()
            self._items[path] = Item(path)
        elif there is not None and (there.sha256 or there.target):
            raise RootError(f"two packages have another {path}")


def settle(folder: Path) -> str:
    """Gives everything in a finished root its mode and time. Returns the list of its files."""
    items = files_list.scan(folder)
    # From the inside to the outside, because a change inside renews a folder's time.
    for item in sorted(items, key=lambda item: item.path, reverse=True):
        path = folder / item.path
        if not item.target:
            os.chmod(path, item.mode)
        os.utime(path, (TIME_S, TIME_S), follow_symlinks=False)
    os.chmod(folder, 0o755)
    os.utime(folder, (TIME_S, TIME_S))
    return files_list.dumps(items)
