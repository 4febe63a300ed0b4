"""The working folder of a program: its files, its environment, and what it wrote there."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Collection, Iterable
from pathlib import Path

from outcast import files
from outcast.errors import RunError
from outcast.plan.programs import LIBRARIES, SEARCH_PATH
from outcast.records.run_directory import RunDirectory

MOST_WRITTEN_BYTES = 64 << 20
"""The most that is kept of the files that one program wrote."""
FILES_TIME_S = 1_000_000_000
"""A program's files have the time at which the guest's clock starts, because servers send the time
of a file."""
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9._+-]{0,120}")


def environment(folder: Path, seed: int, name: str, given: Iterable[str] = ()) -> dict[str, str]:
    """A program's whole environment, with its own libraries if `given` files are such."""
    has_libraries = any(path.startswith(f"{LIBRARIES}/") for path in given)
    return {
        "PATH": SEARCH_PATH,
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "USER": "root",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "TERM": "dumb",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "OUTCAST_SEED": str(seed),
        "OUTCAST_PROGRAM": name,
        **({"LD_LIBRARY_PATH": str(folder / LIBRARIES)} if has_libraries else {}),
    }


def found(argv: tuple[str, ...], folder: Path) -> list[str]:
    """The command with its program's whole path. Raises RunError if there is no such program."""
    if "/" in argv[0]:
        return [str(folder / argv[0]), *argv[1:]]
    path = shutil.which(argv[0], path=SEARCH_PATH)
    if path is None:
        raise RunError(f"{argv[0]}: no such program in {SEARCH_PATH}")
    return [path, *argv[1:]]


def program_files(directory: RunDirectory, name: str) -> Path:
    return directory.programs / name / "files"


def copy_files(source: Path, folder: Path) -> frozenset[str]:
    """Makes a working folder with a program's files; returns their paths, relative to it.

    A file has the same time and mode for every owner outside.
    """
    folder.mkdir(mode=0o755)
    given = set()
    for above, folders, names in os.walk(source):
        folders.sort()
        inner = folder / Path(above).relative_to(source)
        for name in sorted(names):
            path = inner / name
            shutil.copyfile(Path(above) / name, path)
            runs = (Path(above) / name).stat().st_mode & stat.S_IXUSR
            path.chmod(0o755 if runs else 0o644)
            os.utime(path, (FILES_TIME_S, FILES_TIME_S))
            given.add(str(path.relative_to(folder)))
        for name in folders:
            (inner / name).mkdir(mode=0o755)
    for above, _, _ in os.walk(folder, topdown=False):
        os.utime(above, (FILES_TIME_S, FILES_TIME_S))
    return frozenset(given)


OWN_FOLDERS = ("/run", "/tmp", "/var/lib", "/var/run")  # noqa: S108
"""Each host of a program has these to itself, because daemons keep locks, sockets and state there.
The last is usually a link to the first. Mininet calls such folders `privateDirs`."""


def own_folders(place: Path) -> dict[str, str]:
    """A host's own folders, by the path at which its programs see them; made at the first call.

    They have the folders that packages have there, empty, because daemons do not make them.
    """
    real = (path for path in OWN_FOLDERS if os.path.isdir(path) and not os.path.islink(path))
    own = {path: place / path[1:] for path in real}
    for path, folder in own.items():
        if not folder.exists():
            folder.mkdir(parents=True)
            inner = sorted(each for each in Path(path).iterdir() if each.is_dir())
            for source in [Path(path), *(inner if path != "/tmp" else ())]:  # noqa: S108
                made = folder / source.relative_to(path)
                made.mkdir(exist_ok=True)
                status = source.stat()
                os.chown(made, status.st_uid, status.st_gid)
                made.chmod(stat.S_IMODE(status.st_mode))
    return {path: str(folder) for path, folder in own.items()}


def size_bytes(folder: Path) -> int:
    below = (Path(where) / name for where, _, names in os.walk(folder) for name in names)
    return sum(path.lstat().st_blocks * 512 for path in below)


def keep_written(name: str, folder: Path, outputs: Path, given: Collection[str]) -> list[str]:
    """Copies the files that a program wrote to the run directory; a warning if some stay behind."""
    left_bytes, left_out = MOST_WRITTEN_BYTES, 0
    for above, folders, names in os.walk(folder):
        folders.sort()
        for file in sorted(names):
            path = Path(above) / file
            relative = path.relative_to(folder)
            status = path.lstat()
            if str(relative) in given and status.st_mtime == FILES_TIME_S:
                continue
            if not stat.S_ISREG(status.st_mode):
                continue
            if status.st_size > left_bytes or not all(map(_PLAIN_NAME.fullmatch, relative.parts)):
                left_out += 1
                continue
            left_bytes -= status.st_size
            kept = outputs / "written" / relative
            files.make_folders(kept.parent)
            shutil.copyfile(path, kept, follow_symlinks=False)
    if not left_out:
        return []
    return [
        f"program {name} wrote {left_out} files that are not kept, because they "
        f"are larger than {MOST_WRITTEN_BYTES >> 20} MiB in all or have unusual names"
    ]
