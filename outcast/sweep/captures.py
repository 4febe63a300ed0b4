"""Keeps, compresses or drops a run's captures after its analysis, and updates the manifest."""

from __future__ import annotations

from pathlib import Path

import zstandard

from outcast.files import sha256
from outcast.records.counters import CaptureRecord
from outcast.records.run_directory import RunDirectory
from outcast.sweep.task import Captures

_LEVEL = 3
"""zstd's default, because a higher level costs a sweep more time than it is worth."""


def reduce(directory: RunDirectory, choice: Captures) -> None:
    """Compresses or removes the captures, and seals the manifest again.

    A compressed capture has `.zst` after its name and is read as before. The manifest keeps the
    hashes of removed captures in `dropped`. After a crash in between the manifest does not verify.
    """
    if choice == "keep":
        return
    manifest = directory.read_manifest()
    files = sorted(path for path in directory.captures.glob("*") if path.is_file())
    if choice == "drop":
        dropped = {str(path.relative_to(directory.path)): sha256(path) for path in files}
        for path in files:
            path.unlink()
        directory.captures.rmdir()
        directory.seal(dropped=dropped)
        return
    for path in files:
        _compress(path)
    records = [_compressed(directory, record) for record in manifest.captures]
    counters = directory.read_counters()
    directory.write_counters(
        counters.model_copy(
            update={"captures": [_compressed(directory, entry) for entry in counters.captures]}
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
