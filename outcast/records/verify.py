"""Compares the files of a run directory with the hashes in its manifest."""

from __future__ import annotations

from dataclasses import dataclass

from outcast import handed_in
from outcast.files import sha256
from outcast.records.run_directory import Manifest, RunDirectory


@dataclass(frozen=True, slots=True)
class Differences:
    """Files that differ from the manifest, by their names in the run directory.

    Attributes:
        changed: files whose hash is not the manifest's.
        missing: files that the manifest has a hash of and the folder lacks.
        added: files in the folder that the manifest has no hash of.
    """

    changed: tuple[str, ...]
    missing: tuple[str, ...]
    added: tuple[str, ...]


def differences(directory: RunDirectory, manifest: Manifest) -> Differences:
    """Hashes every file of the run again and compares the hashes with the manifest's.

    Raises:
        InputError: the folder holds something that is neither a file nor a folder.
        OSError: a file cannot be read.
    """
    present = {
        str(path.relative_to(directory.path)): path
        for path in handed_in.plain_files(directory.path)
        if path != directory.manifest
    }
    return Differences(
        changed=tuple(
            name
            for name, digest in manifest.files.items()
            if name in present and sha256(present[name]) != digest
        ),
        missing=tuple(name for name in manifest.files if name not in present),
        added=tuple(name for name in present if name not in manifest.files),
    )
