"""Large arrays: in memory where they fit, and otherwise in files that nobody else sees.

An array on disk is mapped into memory. So code uses it like any other, the kernel keeps of it what
fits, and the results are the same. The file has no name, and its space is free again when the array
is gone.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import resource
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from outcast.analysis.compiled import Array
from outcast.errors import OutcastError

SHARE = 50
"""An array goes to disk if it needs more than this part of the memory that is available. A join has
some 190 bytes for each packet in arrays of at most 8, so all together then need half of it."""

_LEAST_BYTES = 1 << 20
_FOLDER = "/var/tmp"
"""Not /tmp, which is in memory on many machines."""


def empty(size: int, dtype: Any) -> Array:
    """An array with undefined content, like numpy's.

    Raises OutcastError if it fits neither into memory nor into the folder for temporary files.
    """
    needed = size * np.dtype(dtype).itemsize
    if needed < _LEAST_BYTES or needed * SHARE <= available_bytes():
        return np.empty(size, dtype)
    folder = os.environ.get("TMPDIR") or _FOLDER
    try:
        with tempfile.TemporaryFile(dir=folder, prefix="outcast-") as file:
            # Reserved now, because a full disk would later end the process by a signal.
            os.posix_fallocate(file.fileno(), 0, needed)
            mapped = mmap.mmap(file.fileno(), needed)
    except OSError as error:
        raise OutcastError(
            f"{folder}: no room for {needed >> 20} MiB of packets, which do not fit into memory: "
            f"{error.strerror or error}; TMPDIR names another folder"
        ) from None
    return np.frombuffer(mapped, dtype)


def resized(array: Array, size: int) -> Array:
    """The array with another length. What is new is undefined, and the old array is given up."""
    needed = size * array.itemsize
    is_small = needed < max(array.nbytes, _LEAST_BYTES)
    if array.flags.owndata and (
        is_small or (size > array.size and needed * SHARE <= available_bytes())
    ):
        # Remapped, not copied, if it is large.
        array.resize(size, refcheck=False)
        return array
    if size <= array.size:
        return array[:size]
    longer = empty(size, array.dtype)
    longer[: array.size] = array
    return longer


def available_bytes() -> int:
    """How much more memory this process can have: of the machine, its control group, its limits."""
    limits = [_field(Path("/proc/meminfo"), "MemAvailable")]
    with contextlib.suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup") / _own_group()
        limit = (group / "memory.max").read_text().strip()
        if limit != "max":
            limits.append(int(limit) - int((group / "memory.current").read_text()))
    status = Path("/proc/self/status")
    for kind, field in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        soft, _ = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY:
            limits.append(soft - (_field(status, field) or 0))
    known = [bytes_ for bytes_ in limits if bytes_ is not None]
    return max(0, min(known, default=1 << 62))


def _own_group() -> str:
    """The path of this process's control group (cgroups(7), version 2)."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::"):
            return line[3:].lstrip("/")
    return ""


def _field(path: Path, name: str) -> int | None:
    """A value of a file of the kernel that has lines as `MemAvailable:  123 kB`."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in path.read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return None
