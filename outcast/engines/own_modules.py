"""A user's kernel modules: compiled from C files against a kernel's headers, and kept by content.

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
from outcast.engines.chroot import Programs, enclose, link_or_copy
from outcast.engines.guest import parts, roots
from outcast.engines.guest.kernels import Kernel
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


@dataclass(frozen=True)
class Headers:
    """A kernel's headers.

    Attributes:
        kernel: names the kernel, as part of the key of what is compiled against them.
        make: the arguments of make(1) that compile against them; the module's own follow.
        kept: their folder, for a kernel of the guest.
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


def make_arguments(headers: Path) -> tuple[str, ...]:
    return ("-C", str(headers / "source"), f"O={headers / 'output'}", *_VARIABLES)


def of_guest(kernel: Kernel) -> Headers:
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
    """Copies a module's sources to the run directory. Returns the path there."""
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
    """Compiles the experiment's modules against these headers. Raises as `compile_all`."""
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
    run, folder = run or Programs(), folder or files.cache_folder() / "modules"
    return [_compile(module, headers, run, folder) for module in modules]


def _compilers(headers: Headers, run: Programs) -> Iterator[Compiler]:
    """The compilers that may serve, the best first. Raises FeatureMissingError after the last.

    A module for the guest is compiled as the guest's kernel was, if this user has the root for it.
    """
    root = None if headers.kept is None else roots.find("build")
    if root is not None:
        yield Compiler(f"pinned: {parts.PINNED.compiler}", root.folder)
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
        listed = [f"{sha256[name]} {name}" for name in sorted(sha256)]
        text = "\n".join([headers.kernel, compiler.name, *listed])
        key = hashlib.sha256(text.encode()).hexdigest()[:20]
        program = folder / key / f"{module.path.stem}.ko"

        def make(whole: Path, compiler: Compiler = compiler) -> None:
            with parts.temporary(folder) as workshop:
                place = _place(headers, compiler, run, workshop)
                shutil.move(_make(module, contents, place), whole)

        def find(program: Path = program) -> Path | None:
            return program if program.exists() else None

        try:
            parts.kept(folder, key, find, make)
            break
        except FeatureMissingError:
            # That root cannot be entered here. The machine's own compiler is next.
            continue
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
