"""The state that results belong to: which outcast, kernel and root made their runs.

A number of one state says nothing of another one: a change of the inner program, the kernel or the
root changes the packets, and a change of the analysis changes what is counted. So a folder of
results holds runs of one state, and a table shows results of one state.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import Field

from outcast import __version__, handed_in
from outcast.analysis import kinds
from outcast.api import SweepDirectory
from outcast.engines.chroot import Programs
from outcast.errors import CommandError, ConfigError
from outcast.files import write_text
from outcast.records import Manifest

FILE = "state.json"
_OURS = Path(__file__).resolve().parents[3]
_ROOMS = ("experiment", "plan", "networks", "records", "emulation", "analysis", "engines")
"""The rooms of `outcast` that decide a run's packets or its numbers."""
_FILES = ("netlink.py", "units.py", "uses/papers/model.py")
"""Single files of `outcast` that do too. A row's own measures can be in other files: `measures`."""
_PACKAGES = ("controllers", "topologies")
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

    measures: str | None = Field(
        default=None,
        description="a digest of the files of its measures that `code` leaves out; null if none",
    )
    kernel: str | None = Field(description="release and hash; null for computations")
    root: str | None = Field(description="the root's key; `host` for this machine's programs")

    def is_same(self, other: State) -> bool:
        """Whether results of the two can stand on one page. A computation needs no kernel."""
        if self.code != other.code:
            return False
        pairs = ((self.kernel, other.kernel), (self.root, other.root))
        return all(None in pair or pair[0] == pair[1] for pair in pairs)

    def __str__(self) -> str:
        at = f"commit {self.commit[:_HASH_DIGITS]}" if self.commit else "no checkout"
        if self.commit and self.commit.endswith("+changes"):
            at += " with changes"
        parts = [f"outcast {self.outcast} ({at}, code {self.code})"]
        parts += [f"kernel {self.kernel}"] if self.kernel else []
        parts += [f"root {self.root}"] if self.root else []
        parts += [f"measures {self.measures}"] if self.measures else []
        return ", ".join(parts)


def present(folder: Path = _OURS, run: Programs | None = None) -> MadeBy:
    """The outcast in this folder, which is a checkout or where it is installed."""
    digest = hashlib.sha256()
    rooms = [folder / "outcast" / package for package in _ROOMS]
    for top in (*rooms, *(folder / name for name in _PACKAGES)):
        for path in sorted(top.rglob("*")):
            if path.suffix in (".py", ".c", ".h", ".patch", ".config", ".json"):
                _add(digest, path, folder)
    for path in (folder / "outcast" / name for name in _FILES):
        _add(digest, path, folder)
    return MadeBy(
        outcast=__version__,
        commit=_commit(folder, run or Programs()),
        code=digest.hexdigest()[:_HASH_DIGITS],
    )


def _add(digest: hashlib._Hash, path: Path, folder: Path) -> None:
    digest.update(f"{path.relative_to(folder).as_posix()}\n".encode() + path.read_bytes())


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

    Raises ConfigError: the folder's runs were made by other code, or by nobody knows what.
    """
    path = store.path / FILE
    allowed = "allowed is another folder (-o)"
    if path.exists():
        known = handed_in.read_model(path, MadeBy)
        if known.code != made_by.code:
            raise ConfigError(
                f"{store.path}: its runs are of {_short(known)}, and this is {_short(made_by)}; "
                f"{allowed}, which makes them again"
            )
        return known
    patterns = ("*/result.json", "*/noise/*/result.json", "runs/*/manifest.json")
    if any(any(store.path.glob(pattern)) for pattern in patterns):
        raise ConfigError(
            f"{store.path}: its runs are of a state that was not recorded; {allowed}, which makes "
            "them again"
        )
    write_text(path, made_by.model_dump_json(indent=1) + "\n")
    return made_by


def _short(made_by: MadeBy) -> str:
    return f"code {made_by.code} (commit {(made_by.commit or 'unknown')[:_HASH_DIGITS]})"


def of_runs(
    made_by: MadeBy, manifests: Sequence[Manifest], measures: Iterable[kinds.Function] = ()
) -> State:
    """The state of runs that this outcast made, and of what is measured of them.

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
    digest = hashlib.sha256()
    every = {Path(inspect.getfile(function)).resolve() for function in measures}
    rooms = {_OURS / "outcast" / room for room in _ROOMS}
    own = sorted(path for path in every if rooms.isdisjoint(path.parents))
    for path in own:
        _add(digest, path, _OURS)
    return State(
        **made_by.model_dump(),
        measures=digest.hexdigest()[:_HASH_DIGITS] if own else None,
        kernel=kernels[0] if kernels else None,
        root=roots[0][:_HASH_DIGITS] if roots else None,
    )


def _kernel(manifest: Manifest) -> str:
    release = str(manifest.kernel.get("release", "unknown"))
    digest = manifest.kernel.get("sha256")
    return f"{release} {str(digest)[:_HASH_DIGITS]}" if digest else release
