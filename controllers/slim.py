"""Packages and modules of which a program uses a small part, or nothing at all.

networkx imports 287 modules for one class, and pyroute2 all of its protocols. In the guest of the
virtual engine each module costs a millisecond, in every run. There are two remedies:

- `slim`: a package has the members of some of its parts. The first use of another member makes
  it import itself as usual.
- `later`: a module is imported at the first use of a member. An `import` alone is no use.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module, util
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from threading import RLock
from types import ModuleType
from typing import Any

GRAPHS = ("networkx", ("exception", "utils.backends", "utils.misc", "convert", "classes"))
"""What `slim` is given for `networkx.Graph` alone."""

OPENFLOW = (
    *("asyncio", "pickle", "rfc3986", "stevedore"),
    *("eventlet.green.ssl", "eventlet.websocket", "eventlet.wsgi"),
    *(
        f"{framework}{name}"
        for framework in ("ryu", "os_ken")
        for name in (
            "",
            ".lib.packet",
            ".lib.packet.packet",
            *(f".ofproto.ofproto_v1_{minor}_parser" for minor in (0, 2, 4)),
        )
    ),
)
"""What `later` is given where OpenFlow 1.3 and 1.5 alone are spoken, and no packet is parsed."""


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
        # Before that, Python looks up modules that it then imports.
        if not is_ready or is_whole:
            raise _no_attribute(package, name)
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


def later(*names: str) -> None:
    """Makes modules and packages import themselves at the first use of a member.

    The use of a package's module imports that module alone. To list the members of a module is no
    use. `importlib.util.LazyLoader` is no help, because its modules are imported even by
    `inspect.isclass`. Modules that are imported already, or do not exist, are not changed.
    """
    sys.meta_path.insert(0, _Later(frozenset(names)))


class _Later(MetaPathFinder):
    """Finds some modules as Python does, and gives them a loader that waits."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._names:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _WaitingLoader(spec.loader)
                return spec
        return None


class _WaitingLoader(Loader):
    """Executes a module at the first use of a member that it does not have."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__getattr__"] = _executing(module, self._loader)


def _executing(module: ModuleType, loader: Loader) -> Callable[[str], Any]:
    """The function that Python calls for a member which the module does not have (PEP 562)."""
    is_executed = False
    # Another thread may use the module while it executes itself.
    lock = RLock()

    def missing(name: str) -> Any:
        nonlocal is_executed
        # Python looks for every module's path, and takes this answer for that of no package.
        if name == "__path__":
            raise _no_attribute(module.__name__, name)
        with lock:
            if is_executed:
                if name in vars(module):
                    return vars(module)[name]
                raise _no_attribute(module.__name__, name)
            below = f"{module.__name__}.{name}"
            if "__path__" in vars(module) and not name.startswith("__") and util.find_spec(below):
                return import_module(below)
            is_executed = True
            try:
                _execute(module, loader)
            except BaseException:
                is_executed = False
                raise
        return getattr(module, name)

    return missing


def _execute(module: ModuleType, loader: Loader) -> None:
    """Executes a module that has waited.

    If that fails, the module waits again, so that its next use fails alike and finds no part of it.
    """
    before = dict(vars(module))
    if module.__spec__ is not None:
        module.__spec__.loader = loader
    module.__loader__ = loader
    try:
        loader.exec_module(module)
    except BaseException as error:
        vars(module).clear()
        vars(module).update(before)
        if isinstance(error, AttributeError):
            # Python would take it for the answer that the module has no such member.
            raise ImportError(f"{module.__name__}: {error}") from error
        raise


def _no_attribute(module: str, name: str) -> AttributeError:
    return AttributeError(f"module {module!r} has no attribute {name!r}")
