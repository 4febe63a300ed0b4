"""Modules of the user's: compiled from C files against a kernel's headers, and kept by content.

`$XDG_CACHE_HOME/outcast/modules/KEY/` holds a compiled module. The key is a hash of everything that
decides what the compiler makes: the sources, the kernel, and the compiler. So a change of any of
them is a new module, and the same again is found.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from outcast import files, handed_in
from outcast.engines import pinned
from outcast.engines.kernel import cache
from outcast.engines.kernel.cache import Kernel
from outcast.engines.kernel.enclosed import Programs, enclose, link_or_copy
from outcast.engines.pinned import temporary
from outcast.engines.root import cache as roots
from outcast.errors import CommandError, ConfigError, FeatureMissingError, InputError
from outcast.experiment import Experiment, Module

FOLDER = "modules"
"""The folder of a run directory that has the sources."""
MOST_SOURCE_BYTES = 4 << 20
_MOST_FILES = 100
_MOST_ERRORS_SHOWN = 3
_NEEDED = {"make": "make", "gcc": "gcc", "ld": "binutils"}
"""From each program to the Debian package that has it."""

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
_ERROR = re.compile(
    r"^(?P<file>[^\s:][^:\n]*):(?P<place>\d+(?::\d+)?): (?P<what>(?:fatal )?error: .+)"
)
_MODPOST = re.compile(r"^ERROR: modpost: (?P<what>.+)")


_VARIABLES = ("ARCH=um", "RUSTC=none", "PAHOLE=none")
"""What scripts/guest/build gives make(1) for the kernel, too."""


def make_arguments(headers: Path) -> tuple[str, ...]:
    """The arguments of make(1) that compile against kept headers; the module's own follow."""
    return ("-C", str(headers / "source"), f"O={headers / 'output'}", *_VARIABLES)


@dataclass(frozen=True)
class Headers:
    """A kernel's headers.

    Attributes:
        kernel: names the kernel, as part of the key of what is compiled against them.
        make: the arguments of make(1) that compile against them.
    """

    kernel: str
    make: tuple[str, ...]
    kept: Path | None = None


@dataclass(frozen=True)
class Compiler:
    """A compiler of modules. `root` is the root that it is in; None for the machine's own."""

    name: str
    root: Path | None = None


@dataclass(frozen=True)
class Compiled:
    """A compiled module.

    Attributes:
        arguments: its parameters, as finit_module(2) takes them.
        sha256: the hash of each source by its name: the C file, and headers beside it.
    """

    name: str
    program: Path
    arguments: str
    compiler: str
    sha256: Mapping[str, str]


def of_guest(kernel: Kernel) -> Headers:
    """The headers of a kernel of the virtual engine."""
    return Headers(f"guest {kernel.sha256}", make_arguments(kernel.headers), kernel.headers)


def of_this_machine(modules: Path = Path("/lib/modules")) -> Headers:
    """The headers of the running kernel.

    Raises FeatureMissingError: this kernel takes no modules, or its headers are not installed.
    """
    system = os.uname()
    instead = "or use --engine virtual"
    if not Path("/proc/modules").exists():
        raise FeatureMissingError(
            f"kernel.modules: this machine's kernel, {system.release}, takes no modules; "
            "run another kernel, or use --engine virtual"
        )
    folder = modules / system.release / "build"
    if not (folder / "Makefile").exists():
        raise FeatureMissingError(
            f"kernel.modules: the headers of this machine's kernel are missing ({folder}); "
            f"install the package linux-headers-{system.release}, {instead}"
        )
    return Headers(f"{system.release} {system.version}", ("-C", str(folder)))


def default_folder() -> Path:
    """The folder of this user's compiled modules."""
    return cache.default_folder().with_name("modules")


def sources(path: Path) -> dict[str, bytes]:
    """A C file and what it includes from its own folder, by the names relative to that folder.

    Raises ConfigError: a file cannot be read, is too large, or stands outside of the folder.
    """
    contents: dict[str, bytes] = {}
    waiting = [path.name]
    while waiting:
        name = waiting.pop()
        if name in contents:
            continue
        try:
            contents[name] = handed_in.read_bytes(path.parent / name, MOST_SOURCE_BYTES)
        except FileNotFoundError:
            raise ConfigError(f"kernel.modules: {path}: there is no such file") from None
        except InputError as error:
            raise ConfigError(f"kernel.modules: {error}") from None
        if len(contents) > _MOST_FILES:
            raise ConfigError(f"kernel.modules: {path}: includes more than {_MOST_FILES} files")
        for included in _INCLUDE.findall(contents[name]):
            # A header of the kernel is looked for beside the file first, as the compiler does.
            beside = os.path.normpath(os.path.join(os.path.dirname(name), os.fsdecode(included)))
            if not (path.parent / beside).is_file():
                continue
            if os.path.isabs(beside) or Path(beside).parts[0] == "..":
                raise ConfigError(
                    f"kernel.modules: {path}: includes {os.fsdecode(included)!r}; allowed are "
                    "files in its own folder and the kernel's headers"
                )
            waiting.append(beside)
    return contents


def copy_sources(experiment: Experiment, directory: Path) -> Experiment:
    """The experiment with the sources of its modules in its run directory, where they are copied.

    The paths are relative to the run directory, because it has to stand alone and can be moved.

    Raises ConfigError: a source cannot be read.
    """
    if experiment.kernel is None or not experiment.kernel.modules:
        return experiment
    modules = [
        module.model_copy(update={"path": _copied(module, directory)})
        for module in experiment.kernel.modules
    ]
    kernel = experiment.kernel.model_copy(update={"modules": tuple(modules)})
    return experiment.model_copy(update={"kernel": kernel})


def _copied(module: Module, directory: Path) -> Path:
    """Copies a module's sources; the copy's path in the run directory."""
    folder = Path(FOLDER) / module.name
    for name, content in sources(module.path).items():
        target = directory / folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with files.writing(target) as stream:
            stream.write(content)
    return folder / module.path.name


def compile_of(
    experiment: Experiment, headers: Callable[[], Headers] = of_this_machine
) -> list[Compiled]:
    """The experiment's own modules, compiled against these headers. Raises as `compile_all`."""
    if experiment.kernel is None or not experiment.kernel.modules:
        return []
    return compile_all(experiment.kernel.modules, headers())


def compile_all(
    modules: Sequence[Module],
    headers: Headers,
    run: Programs | None = None,
    folder: Path | None = None,
) -> list[Compiled]:
    """Compiles modules, or finds them in the cache.

    Raises:
        ConfigError: a file cannot be read, or is no module; with the compiler's words.
        FeatureMissingError: a program is missing.
    """
    run, folder = run or Programs(), folder or default_folder()
    return [_compile(module, headers, run, folder) for module in modules]


def _compilers(headers: Headers, run: Programs) -> Iterator[Compiler]:
    """The compilers that may serve, the better first. Raises FeatureMissingError after the last.

    A module of the guest's is compiled as its kernel was, where this user has the root for it.
    """
    root = None if headers.kept is None else roots.find("build")
    if root is not None:
        yield Compiler(f"pinned: {pinned.OURS.compiler}", root.folder)
    lacking = [program for program in _NEEDED if shutil.which(program) is None]
    if lacking:
        packages = ", ".join(_NEEDED[program] for program in lacking)
        raise FeatureMissingError(
            f"kernel.modules cannot be compiled: {', '.join(lacking)} missing; install the "
            f"packages {packages} (scripts/install.sh does)"
        )
    version = run.run(["gcc", "--version"], cwd=Path("/")).partition("\n")[0]
    yield Compiler(f"this machine's: {version}")


def _compile(module: Module, headers: Headers, run: Programs, folder: Path) -> Compiled:
    contents = sources(module.path)
    sha256 = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    for compiler in _compilers(headers, run):
        parts = [
            headers.kernel,
            compiler.name,
            *(f"{sha256[name]} {name}" for name in sorted(sha256)),
        ]
        key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:20]
        program = folder / key / f"{module.path.stem}.ko"
        if program.exists():
            break
        folder.mkdir(parents=True, exist_ok=True)
        with temporary(folder) as workshop:
            try:
                place = _place(headers, compiler, run, workshop)
            except FeatureMissingError:
                # That root cannot be entered here. The machine's own compiler is next.
                continue
            built = _make(module, contents, place)
            whole = workshop / "whole"
            whole.mkdir()
            shutil.move(built, whole / program.name)
            try:
                whole.rename(folder / key)
            except OSError:
                # Another run may have compiled the same meanwhile.
                if not program.exists():
                    raise
        break
    return Compiled(module.name, program, module.arguments, compiler.name, sha256)


def records(modules: Sequence[Compiled]) -> dict[str, dict[str, object]]:
    """The modules of a run for the manifest: by module, its sources' hashes and its parameters.

    The sources are named as the run directory has them.
    """
    return {
        module.name: {
            "loaded": "by this run",
            "compiler": module.compiler,
            "sources": {
                f"{FOLDER}/{module.name}/{name}": digest for name, digest in module.sha256.items()
            },
            "parameters": module.arguments,
        }
        for module in modules
    }


@dataclass(frozen=True)
class _Place:
    """The folder where a module is compiled.

    `seen` is the name by which the compiler knows that folder.
    """

    folder: Path
    seen: Path
    programs: Programs
    make: tuple[str, ...]


def _place(headers: Headers, compiler: Compiler, run: Programs, workshop: Path) -> _Place:
    """Raises FeatureMissingError where the compiler's root cannot be entered."""
    if compiler.root is None or headers.kept is None:
        return _Place(workshop / "module", workshop / "module", run, headers.make)
    root = workshop / "root"
    enclosed = enclose(compiler.root, root, run)
    kept = root / "headers"
    shutil.copytree(headers.kept, kept, symlinks=True, copy_function=link_or_copy)
    return _Place(root / "module", Path("/module"), enclosed, make_arguments(kept))


def _make(module: Module, contents: Mapping[str, bytes], place: _Place) -> Path:
    """Compiles a module in a folder of its own. Raises ConfigError with the compiler's words."""
    for name, content in contents.items():
        target = place.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    stem = module.path.stem
    (place.folder / "Makefile").write_text(f"obj-m := {stem}.o\n", encoding="utf-8")
    argv = ["make", *place.make, f"M={place.folder}", "modules"]
    said: list[str] = []
    try:
        place.programs.run(argv, cwd=place.folder, on_line=said.append)
    except CommandError as error:
        raise ConfigError(
            _why(module.path, place.seen, said) or f"{module.path}: {error}"
        ) from None
    return place.folder / f"{stem}.ko"


def _why(path: Path, place: Path, said: Sequence[str]) -> str:
    """The compiler's errors in one line, with the user's file in place of the copy."""
    errors = []
    for line in said:
        if match := _ERROR.match(line):
            # The compiler names a file as it was given it: by its path, or from where it works.
            name = match["file"].removeprefix(f"{place}/").removeprefix("./")
            own = path.parent / name
            errors.append(f"{own if own.exists() else name}:{match['place']}: {match['what']}")
        elif match := _MODPOST.match(line):
            errors.append(f"{path}: {match['what']}")
    if not errors:
        return ""
    more = len(errors) - _MOST_ERRORS_SHOWN
    first = "; ".join(errors[:_MOST_ERRORS_SHOWN])
    return f"{first}; and {more} more" if more > 0 else first
