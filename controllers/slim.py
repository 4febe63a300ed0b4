"""Packages whose `__init__` imports far more than a program uses.

networkx imports 287 modules for one class, and pyroute2 all of its protocols. In the guest of the
virtual engine each module costs a millisecond, in every run. A package that was slimmed has the
members of some of its parts. Whatever else is asked of it makes it import itself as usual.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module, util
from typing import Any

GRAPHS = ("networkx", ("exception", "utils.backends", "utils.misc", "convert", "classes"))
"""What `slim` is given for `networkx.Graph` alone."""
ROUTING_SOCKETS = ("pyroute2", ("iproute",))
"""What it is given for `pyroute2.IPRoute` alone."""


def slim(package: str, parts: Sequence[str]) -> None:
    """Makes a package that nobody has imported yet have the members of these parts alone.

    A version of the package that has no such parts is imported as usual.

    Args:
        package: its name.
        parts: names of its modules below it, in the order in which they need each other.
    """
    if package in sys.modules:
        return
    spec = util.find_spec(package)
    if spec is None or spec.loader is None:
        return
    loader, module, is_whole = spec.loader, util.module_from_spec(spec), False
    is_ready = False

    def missing(name: str) -> Any:
        nonlocal is_whole
        # Before that, Python asks for modules that it then imports.
        if not is_ready or is_whole:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        is_whole = True
        loader.exec_module(module)
        return getattr(module, name)

    vars(module)["__getattr__"] = missing
    sys.modules[package] = module
    try:
        for part in parts:
            members = vars(import_module(f"{package}.{part}"))
            vars(module).update(
                {name: member for name, member in members.items() if not name.startswith("__")}
            )
    except (ImportError, AttributeError):
        for name in [name for name in sys.modules if f"{name}.".startswith(f"{package}.")]:
            del sys.modules[name]
        return
    is_ready = True
