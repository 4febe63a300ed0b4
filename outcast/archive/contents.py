"""Says which files of a run's directory go into an archive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from outcast import handed_in
from outcast.errors import InputError
from outcast.files import sha256
from outcast.records import kept_captures, trace, verify
from outcast.records.run_directory import Manifest, RunDirectory

Captures = Literal["keep", "hashes"]

_DERIVED = (".parquet", ".png", ".html", ".pdf", ".svg")
_MOST_NAMED = 3


@dataclass(frozen=True)
class Contents:
    """Lists what of a run goes into an archive; the manifest has the hashes of these files.

    `left_out` names files in the folder that the run did not write.
    """

    files: Mapping[str, Path]
    manifest: Manifest
    left_out: tuple[str, ...]

    def without(self, is_left_out: Callable[[str], bool]) -> Contents:
        """Less of the run: no file of whose name `is_left_out` is true."""
        hashes = {n: h for n, h in self.manifest.files.items() if not is_left_out(n)}
        return Contents(
            files={name: self.files[name] for name in hashes},
            manifest=self.manifest.model_copy(update={"files": hashes}),
            left_out=self.left_out,
        )

    def members(self, prefix: str, directory: RunDirectory) -> dict[str, Path | bytes]:
        """The files and the manifest, by names that begin with `prefix`."""
        files = {f"{prefix}{name}": file for name, file in self.files.items()}
        return {**files, f"{prefix}manifest.json": self.manifest_text(directory)}

    def manifest_text(self, directory: RunDirectory) -> bytes:
        """The manifest as its file has it: the run's own one, if nothing in it is other."""
        if self.manifest == directory.read_manifest():
            return handed_in.read_bytes(directory.manifest)
        newest = Manifest.model_fields["format"].default
        written = self.manifest.model_copy(update={"format": newest})
        return f"{written.model_dump_json(indent=1)}\n".encode()


def collect(directory: RunDirectory, captures: Captures) -> Contents:
    """Chooses the files of a finished run.

    Tables, figures and pages may be newer than the run, because other verbs make them again. Any
    other file has to be as the run left it.

    Raises InputError if it is no finished run, or a file of the run was changed or removed.
    """
    manifest = directory.read_manifest()
    differences = require_unchanged(directory)
    hashes = {
        name: digest for name, digest in manifest.files.items() if name not in differences.missing
    }
    for name in (*differences.changed, *filter(_is_derived, differences.added)):
        hashes[name] = sha256(directory.path / name)
    if captures == "hashes":
        manifest = _without_captures(directory, manifest)
        hashes = {name: h for name, h in hashes.items() if not name.startswith("captures/")}
    hashes = dict(sorted(hashes.items()))
    return Contents(
        files={name: directory.path / name for name in hashes},
        manifest=manifest.model_copy(update={"files": hashes}),
        left_out=tuple(name for name in differences.added if not _is_derived(name)),
    )


def require_unchanged(directory: RunDirectory) -> verify.Differences:
    """What differs from a run's manifest. Raises InputError if what it wrote changed or is missing.

    Tables, figures and pages may have changed, because other verbs make them again.
    """
    differences = verify.differences(directory, directory.read_manifest())
    for names, what in (
        (differences.changed, "changed after the run"),
        (differences.missing, "missing"),
    ):
        wrong = [name for name in names if not _is_derived(name)]
        if wrong:
            raise InputError(
                f"{directory.path}/{listed(wrong)}: {what}; allowed is a run as it was written"
            )
    return differences


def listed(names: list[str] | tuple[str, ...]) -> str:
    """The first of these names, and how many more there are."""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def _is_derived(name: str) -> bool:
    """Whether a file is computed from what the run wrote."""
    if name.startswith(f"{trace.FOLDER}/"):
        return name.endswith((".parquet", ".json"))
    return "/" not in name and (name == "summary.json" or name.endswith(_DERIVED))


def _without_captures(directory: RunDirectory, manifest: Manifest) -> Manifest:
    """The manifest with hashes of the captures as they were written, and without the captures."""
    records = [
        record.model_copy(update={"file": record.file.removesuffix(kept_captures.COMPRESSED)})
        for record in manifest.captures
    ]
    return manifest.model_copy(
        update={"captures": records, "dropped": kept_captures.digests(directory)}
    )
