"""A folder to make something in, beside where it is kept: whole, it gets there by a rename."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from outcast import files
from outcast.errors import FeatureMissingError

Made = TypeVar("Made")


@contextlib.contextmanager
def workshop(
    folder: Path,
    on_wait: Callable[[], None] = lambda: None,
    *,
    lock: str = "lock",
    prefix: str = "unfinished-",
) -> Iterator[Path]:
    """A new folder in this one, for one process at a time; another one is waited for.

    What killed processes left is removed. `on_wait` is called if there is one to wait for.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / lock).open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(held, fcntl.LOCK_EX)
        for leftover in folder.glob(f"{prefix}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        with temporary(folder, prefix) as place:
            yield place


@contextlib.contextmanager
def temporary(folder: Path, prefix: str = "unfinished-") -> Iterator[Path]:
    """A new folder in this one, for any number of processes."""
    with tempfile.TemporaryDirectory(prefix=prefix, dir=folder, ignore_cleanup_errors=True) as name:
        yield Path(name)


def kept(
    folder: Path, key: str, find: Callable[[], Made | None], make: Callable[[Path], None]
) -> Made | None:
    """What `find` finds in a folder, where `make` puts it by this key if it is missing or damaged.

    `make` is given a new folder for it. Returns None where it cannot be kept.

    Raises as `make`, and OSError: the folder cannot be written to; it names the folder.
    """
    if (found := find()) is not None:
        return found
    folder.mkdir(parents=True, exist_ok=True)
    with files.about(folder), temporary(folder) as place:
        whole = place / "whole"
        whole.mkdir()
        make(whole)
        with contextlib.suppress(OSError):  # another run has just kept the same
            if (folder / key).exists() and find() is None:
                (folder / key).rename(place / "damaged")
            whole.rename(folder / key)
    return find()


def key_beginning(
    keys: Iterable[str], beginning: str, what: str, where: str = "", remedy: str = ""
) -> str:
    """The one key that begins so. Raises FeatureMissingError, which names all that there are."""
    listed = list(keys)
    matching = [key for key in listed if key.startswith(beginning)]
    if len(matching) != 1:
        which = f"several {what}s have" if matching else f"there is no {what} with"
        there = ", ".join(listed) or "none"
        raise FeatureMissingError(
            f"{where}{which} a key that begins with {beginning} (here: {there}){remedy}"
        )
    return matching[0]
