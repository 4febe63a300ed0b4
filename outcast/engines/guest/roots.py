"""The roots that this user has, and Mininet's Python package in one of them.

`$XDG_CACHE_HOME/outcast/roots/KEY/` holds `root`, which the guest sees as its `/`, the list of its
files, and `root.json`. KEY is the beginning of the list's hash. Nothing in it is ever changed.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING

from outcast import handed_in
from outcast.engines.guest import files_list, parts
from outcast.engines.guest.files_list import Item
from outcast.engines.guest.parts import Kind
from outcast.errors import InputError, RootError
from outcast.handed_in import Versioned

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_ROOT = "root"
_LIST = "files.tsv"
_RECORD = "root.json"
REBUILD = "scripts/guest/build --again makes it again"
MININET = "mininet"
MININET_REMEDY = f"{parts.REMEDY}, or install Debian's package mininet and use its Python"
PACKAGES = "usr/lib/python3/dist-packages"
"""The folder of a Debian root in which its packages for Python stand."""


class _Record(Versioned):
    lock: str
    packages: dict[str, str]


@dataclass(frozen=True)
class Root:
    """A root that was made and kept.

    Attributes:
        folder: what the guest sees as its `/`.
        key: the beginning of the hash of its list of files. It is the same on every machine.
        lock: the hash of what it was made from.
        packages: the version of each package in it.
    """

    folder: Path
    key: str
    lock: str
    packages: Mapping[str, str]

    @property
    def list_path(self) -> Path:
        return self.folder.with_name(_LIST)

    def list_items(self) -> list[Item]:
        """The list of its files. Raises RootError where it is not the one that names the root."""
        try:
            listed = handed_in.read_text(self.list_path, handed_in.MOST_BYTES)
        except (OSError, InputError):
            listed = ""
        if not hashlib.sha256(listed.encode()).hexdigest().startswith(self.key):
            raise self.damaged(self.list_path.name)
        return files_list.loads(listed)

    def damaged(self, what: str) -> RootError:
        """The error for a path that is not as it was kept."""
        return RootError(
            f"the guest's root {self.folder} is damaged: {what} is not as it was kept; {REBUILD}"
        )


def find(kind: Kind = "runtime", folder: Path | None = None) -> Root | None:
    """The pinned root, or None where this user does not have it; see `parts.find`."""
    return parts.find("roots", getattr(parts.PINNED, kind), _read, folder)


def _read(folder: Path) -> Root | None:
    try:
        record = handed_in.read_model(folder / _RECORD, _Record)
    except (OSError, InputError):
        return None
    root = Root(folder / _ROOT, folder.name, record.lock, record.packages)
    return root if root.folder.is_dir() else None


def verify(root: Root, *, every_byte: bool = False) -> None:
    """Checks that a root is as it was kept; see `files_list.first_change`.

    Raises RootError: it names the first path that differs.
    """
    items = root.list_items()
    if changed := files_list.first_change(root.folder, items, every_byte=every_byte):
        raise root.damaged(changed)


class _ReadingLoader(SourceFileLoader):
    """Writes no bytecode, because nothing in the guest's root may change."""

    def set_data(self, path: str, data: ReadableBuffer, *, _mode: int = 0o666) -> None:
        """Does nothing, in the place of writing the file."""


def find_mininet(name: str, path: Sequence[str] | None = None) -> ModuleSpec | None:
    """Finds Mininet's package, or a module in it, in the guest's root; None if there is no root.

    Debian has Mininet for its own Python alone, and planning needs its `Topo`. `import outcast`
    puts this behind all other finders.
    """
    root = find()
    if root is None or path:
        return None
    folder = root.folder / PACKAGES / MININET
    file = folder / "__init__.py" if name == MININET else folder / f"{name.rpartition('.')[2]}.py"
    if not file.is_file():
        return None
    loader = _ReadingLoader(name, str(file))
    spec = importlib.util.spec_from_file_location(name, file, loader=loader)
    if spec is not None and name == MININET:
        # Without a search path, no other finder finds the package's modules, and writes bytecode.
        spec.submodule_search_locations = []
    return spec


def has_mininet() -> bool:
    """Whether this Python can import Mininet, from anywhere."""
    return importlib.util.find_spec(MININET) is not None


def is_the_guests(spec: ModuleSpec) -> bool:
    """Whether this is the specification of the Mininet in the guest's root."""
    return isinstance(spec.loader, _ReadingLoader)
