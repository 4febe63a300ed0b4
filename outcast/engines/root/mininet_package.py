"""Mininet's Python package from the guest's root, for planning where this Python has none.

Debian has Mininet for its own Python alone, and planning needs its `Topo`. `import outcast` puts
this behind all other finders.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from typing import TYPE_CHECKING

from outcast.engines import pinned
from outcast.engines.root import cache

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

NAME = "mininet"
REMEDY = f"{pinned.REMEDY}, or install Debian's package mininet and use its Python"
PACKAGES = "usr/lib/python3/dist-packages"
"""The folder of a Debian root in which its packages for Python stand."""


class _ReadingLoader(SourceFileLoader):
    """Writes no bytecode, because nothing in the guest's root may change."""

    def set_data(self, path: str, data: ReadableBuffer, *, _mode: int = 0o666) -> None:
        """Does nothing, in the place of writing the file."""


def find_spec(name: str, path: Sequence[str] | None = None) -> ModuleSpec | None:
    """The specification of Mininet's package, or of a module in it; None if there is no root."""
    root = cache.find()
    if root is None or path:
        return None
    folder = root.folder / PACKAGES / NAME
    file = folder / "__init__.py" if name == NAME else folder / f"{name.rpartition('.')[2]}.py"
    if not file.is_file():
        return None
    loader = _ReadingLoader(name, str(file))
    spec = importlib.util.spec_from_file_location(name, file, loader=loader)
    if spec is not None and name == NAME:
        # Without a search path, no other finder finds the package's modules, and writes bytecode.
        spec.submodule_search_locations = []
    return spec


def is_there() -> bool:
    """Whether this Python can import Mininet from anywhere."""
    return importlib.util.find_spec(NAME) is not None


def is_the_guests(spec: ModuleSpec) -> bool:
    """Whether Mininet with this specification is that of the guest's root."""
    return isinstance(spec.loader, _ReadingLoader)
