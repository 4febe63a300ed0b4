"""The state that results belong to: which outcast, kernel and root made their runs.

A number of one state says nothing of another one. So a folder of results holds runs of one state,
and a table shows results of one state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from outcast import __version__, handed_in
from outcast.api import SweepDirectory
from outcast.engines.chroot import Programs
from outcast.errors import CommandError, ConfigError
from outcast.files import write_text
from outcast.records import Manifest

FILE = "state.json"
_OURS = Path(__file__).resolve().parents[3]
_ROOMS = ("experiment", "plan", "networks", "records", "emulation", "analysis", "engines")
_FILES = ("netlink.py", "units.py", *(f"uses/papers/{it}.py" for it in ("model", "own_measures")))
_DECIDING = (*(f"outcast/{name}" for name in (*_ROOMS, *_FILES)), "controllers", "topologies")
"""The folders and files that decide a run's packets or its numbers."""
_HASH_DIGITS = 12
"""Digits of a hash by which states differ."""


class MadeBy(handed_in.Record):
    """The outcast that makes runs."""

    outcast: str
    commit: str | None = Field(
        description="of the checkout, with `+changes` where files differ from it; null without one"
    )
    code: str = Field(description="a digest of the modules that decide packets and numbers")


class State(MadeBy):
    """The software that made a result's runs."""

    kernel: str | None = Field(description="release and hash; null for computations")
    root: str | None = Field(description="the root's key; `host` for this machine's programs")

    def is_same(self, other: State) -> bool:
        """Whether results of the two can stand on one page. A computation needs no kernel."""
        pairs = ((self.kernel, other.kernel), (self.root, other.root))
        return self.code == other.code and all(None in pair or len({*pair}) == 1 for pair in pairs)

    def __str__(self) -> str:
        at = f"commit {self.commit[:_HASH_DIGITS]}" if self.commit else "no checkout"
        if self.commit and self.commit.endswith("+changes"):
            at += " with changes"
        parts = [f"outcast {self.outcast} ({at}, code {self.code})"]
        parts += [f"kernel {self.kernel}"] if self.kernel else []
        parts += [f"root {self.root}"] if self.root else []
        return ", ".join(parts)


def present(folder: Path = _OURS, run: Programs | None = None) -> MadeBy:
    """The outcast in this folder, which is a checkout or where it is installed."""
    digest = hashlib.sha256()
    for top in (folder / name for name in _DECIDING):
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.suffix in (".py", ".c", ".h", ".patch", ".config", ".json"):
                name = path.relative_to(folder).as_posix()
                digest.update(f"{name}\n".encode() + path.read_bytes())
    return MadeBy(
        outcast=__version__,
        commit=_commit(folder, run or Programs()),
        code=digest.hexdigest()[:_HASH_DIGITS],
    )


def _commit(folder: Path, run: Programs) -> str | None:
    if not (folder / ".git").exists():
        return None
    try:
        commit = run.run(["git", "rev-parse", "HEAD"], cwd=folder).strip()
        changes = run.run(["git", "status", "--porcelain", "-uno"], cwd=folder).strip()
    except CommandError:
        return None
    return f"{commit}+changes" if changes else commit


def hold(store: SweepDirectory, made_by: MadeBy) -> MadeBy:
    """Notes in a folder of results what makes its runs. Returns what the folder holds.

    Raises ConfigError: other code made the folder's runs.
    """
    path = store.path / FILE
    if not path.exists():
        write_text(path, made_by.model_dump_json(indent=1) + "\n")
        return made_by
    known = handed_in.read_model(path, MadeBy)
    if known.code != made_by.code:
        raise ConfigError(
            f"{store.path}: its runs are of {_short(known)}, and this is {_short(made_by)}; "
            "allowed is another folder (-o), which makes them again"
        )
    return known


def _short(made_by: MadeBy) -> str:
    return f"code {made_by.code} (commit {(made_by.commit or 'unknown')[:_HASH_DIGITS]})"


def of_runs(made_by: MadeBy, manifests: Sequence[Manifest]) -> State:
    """The state of runs that this outcast made.

    Raises ConfigError: different kernels or roots made them, or the code changed meanwhile.
    """
    kernels = sorted({_kernel(manifest) for manifest in manifests})
    roots = sorted({manifest.guest.root if manifest.guest else "host" for manifest in manifests})
    # The code can change while the runs are made; what the guest had is in each manifest.
    codes = sorted({manifest.guest.code or "unknown" for manifest in manifests if manifest.guest})
    for what, known in (("kernels", kernels), ("roots", roots), ("codes in the guest", codes)):
        if len(known) > 1:
            raise ConfigError(
                f"the runs are of different {what}: {' and '.join(known)}; allowed is one, as "
                "another folder (-o) has, which makes them again"
            )
    return State(
        **made_by.model_dump(),
        kernel=kernels[0] if kernels else None,
        root=roots[0][:_HASH_DIGITS] if roots else None,
    )


def _kernel(manifest: Manifest) -> str:
    release = str(manifest.kernel.get("release", "unknown"))
    digest = manifest.kernel.get("sha256")
    return f"{release} {str(digest)[:_HASH_DIGITS]}" if digest else release
