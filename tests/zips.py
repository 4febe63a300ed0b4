"""Archives that somebody changed, with hashes that fit or without."""

import hashlib
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path


def contents(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def written(target: Path, held: Mapping[str, bytes]) -> Path:
    """Writes an archive of these contents."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in held.items():
            archive.writestr(name, content)
    return target


def rewritten(target: Path, held: Mapping[str, bytes], record: str = "outcast.json") -> Path:
    """Writes an archive of other contents, and records the hashes of these."""
    hashes = {
        name: hashlib.sha256(content).hexdigest()
        for name, content in held.items()
        if name != record
    }
    told = json.dumps({**json.loads(held[record]), "files": hashes})
    return written(target, {**held, record: told.encode()})
