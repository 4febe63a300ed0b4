"""A folder to make something in, beside where it is kept: whole, it gets there by a rename."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path


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
