"""What becomes of a run's captures after its analysis; the manifest goes on telling the truth."""

from __future__ import annotations

from pathlib import Path

import zstandard

from outcast.files import sha256
from outcast.records.run_directory import CaptureRecord, RunDirectory
from outcast.sweep.task import Captures

_LEVEL = 3
"""zstd's default: more costs more time than a sweep gives for it."""


def reduce(directory: RunDirectory, choice: Captures) -> None:
    """Compresses or removes the captures, and seals the manifest anew.

    Compressed ones have `.zst` after their name and are read as before; `dropped` in the manifest
    has the hashes of removed ones. A crash in between leaves a manifest that does not verify.
    """
    if choice == "keep":
        return
    manifest = directory.read_manifest()
    files = sorted(path for path in directory.captures.glob("*") if path.is_file())
    if choice == "drop":
        gone = {str(path.relative_to(directory.path)): sha256(path) for path in files}
        for path in files:
            path.unlink()
        directory.captures.rmdir()
        directory.seal(dropped=gone)
        return
    for path in files:
        _compress(path)
    records = [_compressed(directory, record) for record in manifest.captures]
    counters = directory.read_counters()
    directory.write_counters(
        counters.model_copy(
            update={"captures": [_compressed(directory, each) for each in counters.captures]}
        )
    )
    directory.seal(captures=records)


def _compress(path: Path) -> None:
    if path.suffix == ".zst":
        return
    target = path.with_name(f"{path.name}.zst")
    with path.open("rb") as source, target.open("wb") as sink:
        zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).copy_stream(source, sink)
    path.unlink()


def _compressed(directory: RunDirectory, record: CaptureRecord) -> CaptureRecord:
    name = f"{record.file}.zst"
    return record.model_copy(update={"file": name}) if (directory.path / name).exists() else record
