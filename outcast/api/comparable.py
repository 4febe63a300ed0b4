"""Whether a run that was made again can be compared with the one before it."""

from __future__ import annotations

import shutil

from outcast.api import archives
from outcast.errors import InputError
from outcast.files import sha256
from outcast.records import kept_captures
from outcast.records.run_directory import RunDirectory

_COMPARED = (
    *(f"{n}.parquet" for n in ("packets", "flows", "throughput", "streams")),
    "summary.json",
)


def require(directory: RunDirectory, where: str) -> None:
    """Requires a run's captures, and tables that are what its captures give.

    `outcast analyze` makes tables anew, perhaps of another version. So where one has another hash
    than the manifest says, the captures are analysed once more.

    Raises InputError: a capture was not kept, a table is missing or is another one. The error
    begins with `where`.
    """
    manifest = directory.read_manifest()
    if dropped := kept_captures.not_kept(directory, manifest):
        raise InputError(
            f"{where}: {dropped[0]} was not kept, so no run can be compared with it packet by "
            "packet; allowed are runs with their captures"
        )
    hashes = {
        name: sha256(directory.path / name) if (directory.path / name).exists() else None
        for name in _COMPARED
    }
    for name in manifest.files:
        if name in hashes and hashes[name] is None:
            raise InputError(f"{where}: no {name}; outcast analyze writes it anew")
    changed = [name for name, digest in hashes.items() if digest != manifest.files.get(name)]
    if changed:
        _require_of_captures(directory, changed, where)


def _require_of_captures(directory: RunDirectory, names: list[str], where: str) -> None:
    from outcast import analysis

    with archives.scratch_folder() as scratch:
        again = RunDirectory(scratch / "again")
        left_out = shutil.ignore_patterns(directory.captures.name, "*.parquet", *_COMPARED)
        shutil.copytree(directory.path, again.path, ignore=left_out)
        analysis.write(again, analysis.compute(directory))
        for name in names:
            made = again.path / name
            if not made.exists() or sha256(made) != sha256(directory.path / name):
                raise InputError(
                    f"{where}: {name} is not what its captures give; outcast analyze makes it anew"
                )
