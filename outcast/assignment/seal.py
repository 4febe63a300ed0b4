"""Checks that a run directory still matches its manifest, file by file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from outcast.records import verify as verification
from outcast.records.run_directory import Manifest, RunDirectory

_WITHOUT_EVIDENCE = (".png", ".html", ".pdf", ".svg")
"""Pictures and pages are no evidence: any later verb draws them anew, and nothing reads them."""

_FOLDERS = ("captures", "flows", "samples")

_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class Seal:
    """The files that differ from the manifest's hashes."""

    changed: tuple[str, ...]
    missing: tuple[str, ...]
    added: tuple[str, ...]

    @property
    def broken(self) -> str:
        """Says what is wrong, in one line; empty if nothing is."""
        kinds = (
            (self.changed, "changed after the run"),
            (self.missing, "missing"),
            (self.added, "added after the run"),
        )
        return "; ".join(f"{_listed(names)} {what}" for names, what in kinds if names)


def verify(directory: RunDirectory, manifest: Manifest) -> Seal:
    """Compares every file that is evidence with the manifest. Raises as `verify.differences`."""
    differences = verification.differences(directory, manifest)
    hashed = {name for name in manifest.files if is_evidence(name)}
    # A manifest may name captures for which it has no hash.
    captures = {capture.file for capture in manifest.captures}
    return Seal(
        changed=tuple(filter(is_evidence, differences.changed)),
        missing=tuple(sorted(hashed & set(differences.missing) | captures - hashed)),
        added=tuple(
            name
            for name in differences.added
            if is_evidence(name) and Path(name).parts[0] in _FOLDERS
        ),
    )


def is_evidence(name: str) -> bool:
    """Whether a file of a run counts as evidence; `name` is relative to the run's folder."""
    return not name.endswith(_WITHOUT_EVIDENCE)


def _listed(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
