"""The place of a result: it appears there whole, or a failed run's files are kept beside it."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from outcast import files
from outcast.engines import ledger
from outcast.errors import ConfigError, OutcastError, RunError, with_folder

_ALLOWED = "allowed is a new or empty folder of yours"
_LONGEST_NAME, _LONGEST_PATH = 230, 3800
"""In bytes; below the file systems' limits, because names beside and in a run are longer."""


class TakenError(ConfigError):
    """The place of a result holds something, or another run has it."""


@dataclass(frozen=True)
class Partial:
    path: Path
    entry: ledger.Entry


@contextmanager
def unfinished(target: Path, tell: Callable[[str], None] = lambda text: None) -> Iterator[Partial]:
    """A folder beside `target` that is renamed to it when the block ends well.

    No second run begins while it is there. What killed runs had left is removed, and `tell` gets a
    line about it.

    Raises:
        ConfigError: `target` holds something, another run has the place, or it cannot be made.
        RunError: the result is complete, and cannot be renamed.
    """
    require_free(target)
    entry = ledger.begin(tell)
    try:
        path = _made(target)
        entry.note_folder(path)
        try:
            yield Partial(path, entry)
        except BaseException as error:
            if isinstance(error, Exception):
                _keep_failed(path, target, error)
            shutil.rmtree(path, ignore_errors=True)
            raise
        files.hand_over(path)
        try:
            path.rename(target)
        except OSError as error:
            raise RunError(
                f"{target}: {error.strerror}; the result is complete and stands in {path}"
            ) from None
    finally:
        entry.remove()


def _made(target: Path) -> Path:
    """Makes the folder under the name that it has until it is complete."""
    folder, name = Path(os.path.abspath(target.parent)), f".{target.name}."
    path = folder / f"{name}{os.getpid()}.partial"
    try:
        files.make_folders(folder)
        path.mkdir()
    except OSError as error:
        if path.exists():
            raise _taken(target, path) from None
        raise ConfigError(f"{target}: {error.strerror}; {_ALLOWED}") from None
    for other in folder.iterdir():
        number = other.name[len(name) : -len(".partial")] if other.name.startswith(name) else ""
        if other != path and number.isdigit() and Path("/proc", number).exists():
            path.rmdir()
            raise _taken(target, other)
    return path


def _taken(target: Path, folder: Path) -> TakenError:
    return TakenError(f"{target}: another run will put its result there ({folder}); {_ALLOWED}")


def _keep_failed(path: Path, target: Path, error: Exception) -> None:
    """Keeps a failed run's files, and adds their folder to the error.

    Raises RunError: in place of an OSError, as one line that names the file; or the disk is full.
    """
    is_full, full = path.exists() and files.is_full(path), os.strerror(errno.ENOSPC)
    kept = _set_aside(path, target) if (path / "log.txt").exists() else None

    def said(text: str) -> str:
        text = text.replace(str(path), str(kept or target))
        return with_folder(text, kept) if kept else text

    if is_full:
        came_of_it = "" if full in str(error) else f": {error}"
        raise RunError(said(f"{target}: {full}{came_of_it}")) from error
    if isinstance(error, OutcastError):
        error.args = (said(str(error)), *error.args[1:])
    elif isinstance(error, OSError):
        text = files.describe_with_remedy(files.named(error, path) or error)
        raise RunError(said(text)) from error
    elif kept:
        error.add_note(with_folder("", kept).strip())


def _set_aside(path: Path, target: Path) -> Path:
    """Renames an unfinished folder to `target`.failed, or to the next free name of this kind."""
    files.hand_over(path)
    endings = itertools.chain(("",), (f"-{number}" for number in itertools.count(2)))
    names = (target.with_name(f"{target.name}.failed{ending}") for ending in endings)
    return path.rename(next(name for name in names if not os.path.lexists(name)))


def require_free(target: Path) -> None:
    """Raises ConfigError unless this is a new path or an empty folder."""
    if target.name in ("", ".."):
        raise ConfigError(f"{target}: does not end with a name; {_ALLOWED}")
    try:
        whole = os.path.abspath(target).encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{str(target)!a}: is not valid UTF-8; {_ALLOWED}") from None
    if len(target.name.encode()) > _LONGEST_NAME or len(whole) > _LONGEST_PATH:
        raise ConfigError(
            f"{str(target)[:60]}...: too long; allowed are names of {_LONGEST_NAME} bytes and "
            f"paths of {_LONGEST_PATH}"
        )
    try:
        if target.is_symlink():
            raise ConfigError(f"{target}: is a symbolic link; {_ALLOWED}")
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise TakenError(f"{target}: exists already; {_ALLOWED}")
    except OSError as error:
        raise ConfigError(f"{target}: {error.strerror}; {_ALLOWED}") from None
