"""The roots that this user has.

`$XDG_CACHE_HOME/outcast/roots/KEY/` holds `root`, which the guest sees as its `/`, the list of its
files, and `root.json`. KEY is the beginning of the list's hash, so the name says what is in it. The
folder gets its name by a rename when everything in it is whole. Nothing in it is ever changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from outcast import handed_in
from outcast.engines import pinned, shipped
from outcast.engines.pinned import Kind
from outcast.engines.root import files_list
from outcast.engines.root.files_list import Item
from outcast.errors import InputError, RootError
from outcast.handed_in import Versioned

_ROOT = "root"
_LIST = "files.tsv"
_RECORD = "root.json"
REBUILD = "scripts/guest/build --again makes it again"


class _Record(Versioned):
    """The content of `root.json`; see Root."""

    lock: str
    packages: dict[str, str]


@dataclass(frozen=True)
class Root:
    """A root that was made and kept.

    Attributes:
        folder: what the guest sees as its `/`.
        key: the beginning of the hash of its list of files. It is the same on every machine.
    """

    folder: Path
    key: str
    lock: str
    packages: Mapping[str, str]

    @property
    def list_path(self) -> Path:
        """The list of its files; see `files_list`."""
        return self.folder.with_name(_LIST)

    def list_items(self) -> list[Item]:
        """The list of its files, read. Raises RootError where it is not the one that names it."""
        return files_list.loads(_list_of(self))


def find(kind: Kind = "runtime", folder: Path | None = None) -> Root | None:
    """The pinned root, or None where this user does not have it; see `shipped.find`."""
    return shipped.find("roots", getattr(pinned.OURS, kind), _read, folder)


def verify(root: Root, *, every_byte: bool = False) -> None:
    """Checks that a root is as it was kept.

    Kinds, sizes, times and modes are compared, which takes some hundredths of a second. With
    `every_byte` all its files are hashed too.

    Raises RootError: it names the first path that differs.
    """
    items = root.list_items()
    changed = files_list.first_change(root.folder, items)
    if changed is None and every_byte:
        differing = set(files_list.scan(root.folder)) ^ set(items)
        changed = min((item.path for item in differing), default=None)
    if changed is not None:
        raise RootError(
            f"the guest's root {root.folder} is damaged: {changed} is not as it was kept; {REBUILD}"
        )


def _list_of(root: Root) -> str:
    """The root's list of files. Raises RootError where it is not the one that names the root."""
    try:
        listed = handed_in.read_text(root.list_path, handed_in.MOST_BYTES)
    except (OSError, InputError):
        listed = ""
    if files_list.digest(listed)[: len(root.key)] != root.key:
        raise RootError(
            f"the guest's root {root.folder} is damaged: {root.list_path.name} is not as it was "
            f"kept; {REBUILD}"
        )
    return listed


def _read(folder: Path) -> Root | None:
    try:
        record = handed_in.read_model(folder / _RECORD, _Record)
    except (OSError, InputError):
        return None
    root = Root(folder / _ROOT, folder.name, record.lock, record.packages)
    return root if root.folder.is_dir() else None
