"""The bytecode of many modules in one file, read in place of thousands of small files.

To find and read a module takes Python ten system calls or more, and each is dear in the guest of
the virtual engine. `use` makes it one. The file stands beside our packages in the guest alone;
elsewhere Python imports as usual. It has, in this order:

- the length of the index in bytes, as eight bytes, the lowest first;
- the index: a JSON object with, by each module's name, its source's path, whether it is a package,
  and where its bytecode begins and how many bytes it has;
- the bytecode of all modules, as `marshal` writes it.

`python -m controllers.bytecode MODULE` lists what could be in the file: all that MODULE imports, a
JSON array on a line for each, with its name, whether it is a package, and the paths of source and
bytecode.
"""

from __future__ import annotations

import json
import marshal
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import FrozenImporter, ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from types import CodeType, ModuleType

NAME = "outcast-bytecode"
"""The file's name, in the folder with the packages."""
_LENGTH_BYTES = 8


@dataclass(frozen=True)
class Module:
    """A module in the file.

    Attributes:
        source: the path of its source.
        is_package: whether other modules are below it.
        code: its bytecode.
    """

    source: str
    is_package: bool
    code: bytes


def dumps(modules: Mapping[str, Module]) -> bytes:
    """The file's content, for modules by their names."""
    index, at, codes = {}, 0, []
    for name in sorted(modules):
        module = modules[name]
        index[name] = (module.source, module.is_package, at, len(module.code))
        at += len(module.code)
        codes.append(module.code)
    text = json.dumps(index).encode()
    return b"".join([len(text).to_bytes(_LENGTH_BYTES, "little"), text, *codes])


def use(folder: str = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) -> None:
    """Imports modules from the file in this folder from now on, if there is one.

    Modules that it does not have are imported as usual.
    """
    try:
        descriptor = os.open(os.path.join(folder, NAME), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    length = int.from_bytes(os.pread(descriptor, _LENGTH_BYTES, 0), "little")
    index = json.loads(os.pread(descriptor, length, _LENGTH_BYTES))
    # Built-in and frozen modules need no file, so their finders stay before ours.
    after = sys.meta_path.index(FrozenImporter) + 1
    sys.meta_path.insert(after, _Finder(descriptor, _LENGTH_BYTES + length, index))


class _Finder(MetaPathFinder):
    def __init__(
        self, descriptor: int, start: int, index: Mapping[str, tuple[str, bool, int, int]]
    ) -> None:
        self._descriptor, self._start, self._index = descriptor, start, index

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        if name not in self._index:
            return None
        source, is_package, _, _ = self._index[name]
        return spec_from_file_location(
            name,
            source,
            loader=_BytecodeLoader(name, source, self),
            submodule_search_locations=[os.path.dirname(source)] if is_package else None,
        )

    def code(self, name: str) -> CodeType:
        """A module's bytecode."""
        _, _, at, size = self._index[name]
        code: CodeType = marshal.loads(os.pread(self._descriptor, size, self._start + at))
        return code


class _BytecodeLoader(SourceFileLoader):
    """Python's usual loader, which knows where the source is, but not where the bytecode is."""

    def __init__(self, name: str, source: str, finder: _Finder) -> None:
        super().__init__(name, source)
        self._finder = finder

    def get_code(self, fullname: str) -> CodeType:
        """See `importlib.abc.InspectLoader`."""
        return self._finder.code(fullname)


def main() -> None:
    """Lists what a module imports; see above."""
    import_module(sys.argv[1])
    for name, module in sys.modules.items():
        spec = getattr(module, "__spec__", None)
        # A module that waits to be imported has another loader.
        if spec is not None and spec.name == name and isinstance(spec.loader, SourceFileLoader):
            is_package = spec.submodule_search_locations is not None
            print(json.dumps([name, is_package, spec.origin, spec.cached]))


if __name__ == "__main__":
    main()
