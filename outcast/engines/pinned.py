"""The guest that this outcast runs: the keys of its parts, and the folders to look for them in.

`scripts/guest/build --keys` writes `pinned.json` from the lock, the patches and the configuration.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Literal, NamedTuple

from outcast import files
from outcast.errors import FeatureMissingError

VARIABLE = "OUTCAST_GUEST"
"""The environment's variable that names a folder with `roots`, `kernels` and maybe `programs`."""
SCRIPT = Path(__file__).parents[2] / "scripts" / "guest" / "build"
"""What makes the guest; only a checkout has it."""
REMEDY = "install the wheel outcast-guest, or run scripts/guest/build in a checkout"

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
