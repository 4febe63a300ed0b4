"""A folder to make something in, beside where it is kept: whole, it gets there by a rename."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_POLL_S = 0.1


@contextlib.contextmanager
def workshop(
    folder: Path,
    busy: Exception,
    *,
    lock: str = "lock",
    prefix: str = "unfinished-",
    patience_s: float = 0.0,
) -> Iterator[Path]:
    """A new folder in this one, for one process at a time. What killed ones left is removed."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / lock).open("w") as held:
        deadline = time.monotonic() + patience_s
        while True:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise busy from None
                time.sleep(_POLL_S)
        for leftover in folder.glob(f"{prefix}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        with temporary(folder, prefix) as place:
            yield place


@contextlib.contextmanager
def temporary(folder: Path, prefix: str = "unfinished-") -> Iterator[Path]:
    """A new folder in this one, for any number of processes."""
    with tempfile.TemporaryDirectory(prefix=prefix, dir=folder, ignore_cleanup_errors=True) as name:
        yield Path(name)
