"""Chooses the files of a run's directory for an archive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from outcast.errors import InputError
from outcast.files import sha256
from outcast.records import kept_captures, trace
from outcast.records.run_directory import Manifest, RunDirectory

Captures = Literal["keep", "hashes"]

_DERIVED = (".parquet", ".png", ".html", ".pdf", ".svg")
_MOST_NAMED = 3


@dataclass(frozen=True)
class Contents:
    """The files of a run in an archive, by their hashes in the manifest.

    `left_out` names files in the folder that the run did not write.
    """

    directory: RunDirectory
    manifest: Manifest
    left_out: tuple[str, ...]

    def members(self, prefix: str) -> dict[str, Path | bytes]:
        """The files and the manifest, by names that begin with `prefix`."""
        files = {f"{prefix}{name}": self.directory.path / name for name in self.manifest.files}
        return {**files, f"{prefix}manifest.json": self.manifest_text}

    @property
    def manifest_text(self) -> bytes:
        newest = Manifest.model_fields["format"].default
        written = self.manifest.model_copy(update={"format": newest})
        return f"{written.model_dump_json(indent=1)}\n".encode()


def collect(
    directory: RunDirectory,
    captures: Captures,
    is_left_out: Callable[[str], bool] = lambda name: False,
) -> Contents:
    """Chooses the files of a finished run whose name is not left out.

    Tables, figures and pages may be newer than the run, because other verbs make them again. Any
    other file has to be as the run left it.

    Raises InputError if it is no finished run, or a file of the run was changed or removed.
    """
    manifest = directory.read_manifest()
    differences = require_unchanged(directory)
    newer = (*differences.changed, *filter(_is_derived, differences.added))
    hashes = manifest.files | {name: sha256(directory.path / name) for name in newer}
    if captures == "hashes":
        manifest = _without_captures(directory, manifest)
    files = {
        name: digest
        for name, digest in sorted(hashes.items())
        if name not in differences.missing
        and not is_left_out(name)
        and (captures == "keep" or not name.startswith("captures/"))
    }
    left_out = tuple(name for name in differences.added if not _is_derived(name))
    return Contents(directory, manifest.model_copy(update={"files": files}), left_out)


def require_unchanged(directory: RunDirectory) -> kept_captures.Differences:
    """The differences from a run's manifest, only in tables, figures and pages.

    Raises InputError if any other file was changed or is missing.
    """
    differences = kept_captures.differences(directory, directory.read_manifest())
    for names, what in (
        (differences.changed, "changed after the run"),
        (differences.missing, "missing"),
    ):
        if wrong := [name for name in names if not _is_derived(name)]:
            raise InputError(
                f"{directory.path}/{listed(wrong)}: {what}; allowed is a run as it was written"
            )
    return differences


def listed(names: Sequence[str]) -> str:
    """The first of these names, and the number of the others."""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def _is_derived(name: str) -> bool:
    """Whether verbs compute the file from the run's other files."""
    if name.startswith(f"{trace.FOLDER}/"):
        return name.endswith((".parquet", ".json"))
    return "/" not in name and (name == "summary.json" or name.endswith(_DERIVED))


def _without_captures(directory: RunDirectory, manifest: Manifest) -> Manifest:
    """The manifest without captures, but with their hashes as they were written."""
    records = [
        record.model_copy(update={"file": record.file.removesuffix(kept_captures.COMPRESSED)})
        for record in manifest.captures
    ]
    return manifest.model_copy(
        update={"captures": records, "dropped": kept_captures.digests(directory)}
    )
