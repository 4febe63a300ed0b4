"""The guest that this outcast runs: its processor, its parts' keys, and the folders they are in.

`scripts/guest/build --keys` writes `pinned.json` from the lock, the patches and the configuration.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from outcast import files
from outcast.errors import FeatureMissingError

PROCESSOR = "x86_64"
"""As uname(2) names it. Linux itself has User-Mode Linux for x86 only (arch/x86/um)."""
VARIABLE = "OUTCAST_GUEST"
"""The environment's variable that names a folder with `roots`, `kernels` and maybe `programs`."""
SCRIPT = Path(__file__).parents[2] / "scripts" / "guest" / "build"
"""What makes the guest; only a checkout has it."""
REMEDY = "install the wheel outcast-guest, or run scripts/guest/build in a checkout"

Made = TypeVar("Made")
Kind = Literal["runtime", "build"]
"""Which root: what runs in the guest, or what compiles for it."""


class Pinned(NamedTuple):
    """The keys of both roots and the kernel, and what decides the kernel's."""

    runtime: str
    build: str
    kernel: str
    source: str
    version: str
    recipe: str
    compiler: str


OURS = Pinned(**json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8")))


def named_folder(kind: str, key: str) -> Path | None:
    """The part in the folder that OUTCAST_GUEST names; None if it names none.

    Raises FeatureMissingError where that folder lacks the part.
    """
    named = os.environ.get(VARIABLE)
    if not named:
        return None
    folder = Path(named) / kind / key
    if not folder.is_dir():
        raise FeatureMissingError(
            f"{VARIABLE}: {folder} is missing; allowed is a folder as scripts/guest/build makes it "
            f"for this version ({files.cache_folder()})"
        )
    return folder


def misfit() -> str:
    """Why this machine's processor cannot run the guest, and what to do; empty if it can."""
    machine = platform.machine()
    if machine == PROCESSOR:
        return ""
    return (
        f"the virtual engine needs an {PROCESSOR} processor, and this machine's is {machine}; run "
        "it in GitHub Codespaces, on a server or in an emulated machine (docs/anywhere.md)"
    )


@contextlib.contextmanager
def temporary(folder: Path) -> Iterator[Path]:
    """A new folder in this one, for any number of processes."""
    made = tempfile.TemporaryDirectory("", "unfinished-", folder, ignore_cleanup_errors=True)
    with made as name:
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
    try:
        with temporary(folder) as place:
            whole = place / "whole"
            whole.mkdir()
            make(whole)
            with contextlib.suppress(OSError):  # another run has just kept the same
                if (folder / key).exists() and find() is None:
                    (folder / key).rename(place / "damaged")
                whole.rename(folder / key)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from error
    return find()
