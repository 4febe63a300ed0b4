"""A folder to make something in, beside where it is kept: whole, it gets there by a rename."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from outcast import files

Made = TypeVar("Made")


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
