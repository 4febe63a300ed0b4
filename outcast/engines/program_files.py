"""The configuration's programs before the run: whether they are there, and copies of their files.

The guest's own C library serves every program, because it fits the guest's loader. Other libraries
are copied beside a program if the configuration says so.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from outcast import handed_in
from outcast.engines.guest import init, world
from outcast.engines.guest.world import World
from outcast.errors import ConfigError, FeatureMissingError, InputError
from outcast.experiment import Experiment, Program
from outcast.plan.programs import LIBRARIES, SEARCH_PATH, Command
from outcast.records.run_directory import RunDirectory

MOST_FILES_BYTES = 1 << 30

_ELF = b"\x7fELF"
_OF_GLIBC = re.compile(
    r"(?:ld-linux.*|linux-vdso|lib(?:c|m|mvec|pthread|dl|rt|util|resolv|anl|nss_.*|BrokenLocale))\.so.*"
)
"""Libraries of glibc itself (libc6 of Debian), which have to be those of its loader."""
_LISTED = re.compile(r"^\s*(\S+) => (not found|\S+)", re.MULTILINE)


_INSTEAD = (
    "outcast guest info --packages lists what is there; guest: {root: host} "
    "(--set guest.root=host) takes this machine's programs"
)


def require(experiment: Experiment, sees: World | None) -> None:
    """Checks that every program and every file of the configuration is there.

    Raises:
        ConfigError: a file is missing, cannot be copied, or the files are too large.
        FeatureMissingError: a program is missing, or the guest would not see it.
    """
    for index, program in enumerate(experiment.programs):
        where = f"programs.{index}"
        for path in program.files:
            _require_copyable(path, f"{where}.files")
        _require_program(program, f"{where}.command", sees)
        if program.libraries:
            for file in elf_files(program.files):
                needed_by(file, f"{where}.libraries")


def require_command(command: Command, sees: World | None) -> None:
    """Raises FeatureMissingError where the program of a single command is not there."""
    name = command.argv[0]
    if "/" not in name:
        _require_named(name, "COMMAND", sees)
    elif sees is None or sees.is_host or not os.path.isabs(name):
        _require_executable(Path(command.folder, name), f"COMMAND: {name}")
    else:
        _require_in_root(name, "COMMAND", sees)


def _require_copyable(path: Path, where: str) -> None:
    try:
        if path.is_dir():
            handed_in.require_plain(path, most_bytes=MOST_FILES_BYTES)
        else:
            handed_in.opened(path).close()
    except FileNotFoundError:
        raise ConfigError(f"{where}: {path}: there is no such file or folder") from None
    except OSError as error:
        raise ConfigError(f"{where}: {path}: {error.strerror or error}") from None
    except InputError as error:
        raise ConfigError(f"{where}: {error}") from None


def _require_program(program: Program, where: str, sees: World | None) -> None:
    name = program.command[0]
    if "/" not in name:
        _require_named(name, where, sees)
        return
    if not os.path.isabs(name):
        at = _of_files(program.files, Path(name))
        if at is None:
            raise ConfigError(
                f"{where}: {name}: is in none of its `files`; allowed are a program's name, an "
                "absolute path, or a path in the program's own folder"
            )
    elif sees is not None and not sees.is_host:
        _require_in_root(name, where, sees, "a program of yours is given by `files`; ")
        return
    else:
        at = Path(name)
        hidden = None if sees is None else _hidden(name)
        if hidden is not None:
            raise FeatureMissingError(
                f"{where}: {name}: the guest does not see the host's {hidden}; keep the program "
                "in another folder, or give it by `files`"
            )
    _require_executable(at, f"{where}: {name}")


def _require_in_root(name: str, where: str, sees: World, more: str = "") -> None:
    """Checks that a name or an absolute path is a program of the guest's own root."""
    path = sees.on_host(name) if "/" in name else sees.which(name, SEARCH_PATH)
    if path is None or not path.is_file() or not os.access(path, os.X_OK):
        raise FeatureMissingError(
            f"{where}: {name}: no such program in the guest's own root; {more}{_INSTEAD}"
        )


def _require_named(name: str, where: str, sees: World | None) -> None:
    if sees is not None and not sees.is_host:
        _require_in_root(name, where, sees)
    elif shutil.which(name, path=SEARCH_PATH) is None:
        raise FeatureMissingError(
            f"{where}: {name}: no such program in {SEARCH_PATH}; install it, or name its path"
        )


def _require_executable(path: Path, what: str) -> None:
    if not path.is_file() or not os.access(path, os.X_OK):
        why = "no such program"
        if path.exists():
            why = "cannot be executed"
        if path.is_file():
            why += "; name the interpreter before it, as python3, or make it executable by chmod +x"
        raise FeatureMissingError(f"{what}: {why}")


def _of_files(files: Sequence[Path], name: Path) -> Path | None:
    """The file that a program will have under this name in its folder, or None."""
    parts = [part for part in name.parts if part != "."]
    for path in files:
        if parts and parts[0] == path.name and ".." not in parts:
            return path.joinpath(*parts[1:])
    return None


def _hidden(name: str) -> str | None:
    """The folder of the host that the guest sees empty, if the program is below one."""
    for path in (Path(os.path.normpath(name)), Path(os.path.realpath(name))):
        if not any(path.is_relative_to(folder) for folder in world.python_folders()):
            for folder in init.EMPTY:
                if path.is_relative_to(folder):
                    return folder
    return None


def take_files(experiment: Experiment, directory: RunDirectory) -> Experiment:
    """Copies the programs' files to the run directory. Returns the experiment that names these.

    Links are followed only where the configuration names one.

    Raises:
        ConfigError: a library is not there.
        OSError: a file cannot be read, or a copy not written; the error names it.
    """
    if not experiment.programs:
        return experiment
    programs = []
    for index, program in enumerate(experiment.programs):
        folder = directory.programs / program.name / "files"
        taken = []
        for path in program.files:
            folder.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                shutil.copytree(path, folder / path.name, symlinks=True)
            else:
                shutil.copy(path, folder / path.name)
            taken.append((folder / path.name).relative_to(directory.path))
        copies = folder / LIBRARIES
        for file in elf_files(program.files) if program.libraries else ():
            for name, path in needed_by(file, f"programs.{index}.libraries").items():
                copies.mkdir(exist_ok=True)
                shutil.copyfile(path, copies / name)
        if program.libraries and copies.is_dir():
            taken.append(copies.relative_to(directory.path))
        # A run of the copies takes these libraries, whatever the machine has by then.
        update = {"files": tuple(taken), "libraries": False}
        programs.append(program.model_copy(update=update))
    return experiment.model_copy(update={"programs": tuple(programs)})


def elf_files(paths: Sequence[Path]) -> Iterator[Path]:
    """The programs and libraries (elf(5)) among these files, and in these folders."""
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                with file.open("rb") as stream:
                    if stream.read(len(_ELF)) == _ELF:
                        yield file


def needed_by(file: Path, where: str) -> dict[str, Path]:
    """The libraries that a file needs besides glibc's, by their names, as ldd(1) finds them.

    Raises:
        ConfigError: a library is not there.
        FeatureMissingError: ldd is not there.
    """
    try:
        argv = ["ldd", str(file.absolute())]
        listed = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        raise FeatureMissingError(f"{where}: ldd is missing (package libc-bin)") from None
    found = {}
    for name, path in _LISTED.findall(listed):
        if _OF_GLIBC.fullmatch(name):
            continue
        if path == "not found":
            raise ConfigError(
                f"{where}: {file.name} needs {name}, which this machine does not have; allowed is "
                "to install it, or a program that is linked statically"
            )
        found[name] = Path(path)
    return found
