"""An archive of a run or a sweep: a zip file that others can read, and that outcast can replay.

```
README.txt    what this is, and the commands that replay it
outcast.json  this module's Record: the format's version, and the hash of every file
run/          the run's directory (outcast.records.run_directory)
sweep/        in its place, a sweep's folder (outcast.sweep.packing)
```

docs/archive.md describes the format for readers that do not have this program.
"""

from __future__ import annotations

import hashlib
import os
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from outcast import __version__, handed_in
from outcast.archive import contents, zips
from outcast.archive.contents import Captures
from outcast.errors import InputError, OutcastError
from outcast.experiment.engine import properties
from outcast.files import sha256
from outcast.handed_in import plain_files
from outcast.records import kept_captures
from outcast.records.run import Run
from outcast.records.run_directory import Manifest, RunDirectory, read_record

README = "README.txt"
RECORD = "outcast.json"
RUN = "run"
SWEEP = "sweep"


class Record(handed_in.Versioned):
    """outcast.json: what is in the archive.

    `guest` is true only in archives of earlier versions. The guest in them is not used.
    """

    format: int = 3
    outcast: str = __version__
    captures: Literal["keep", "hashes"]
    guest: bool = False
    sweep: bool = False
    files: dict[handed_in.FileName, str] = Field(default_factory=dict)


@dataclass(frozen=True)
class Packed:
    """An archive that was written.

    Attributes:
        files: the number of files in the zip file `path`.
        left_out: names of files in the run's directory that the run did not write.
        notes: sentences for the reader of the archive.
    """

    path: Path
    files: int
    left_out: tuple[str, ...]
    notes: tuple[str, ...]


def write(path: Path, directory: RunDirectory, captures: Captures) -> Packed:
    """Writes the archive of a finished run, whole or not at all.

    The same run gives the same bytes with the same version of outcast and of zlib.

    Raises:
        InputError: it is no finished run, or one of its files was changed or removed.
        OSError: a file cannot be read, or the archive cannot be written.
    """
    collected = contents.collect(directory, captures)
    manifest = collected.manifest
    has_captures = captures == "keep" and not kept_captures.not_kept(directory, manifest)
    notes = (*_on_analysis(directory), *on_replays([manifest], has_captures))
    title = f"Run {manifest.name} of outcast, seed {manifest.seed}"
    text = readme(title, [_DESCRIPTION, *notes], _USAGE)
    members = {**collected.members(f"{RUN}/"), README: text}
    count = put(path, members, Record(captures=captures), directory.manifest.stat().st_mtime)
    return Packed(path, count, collected.left_out, notes)


def put(path: Path, members: zips.Members, record: Record, date_s: float) -> int:
    """Writes an archive, and returns the number of its files.

    `date_s` is the time of all files, in seconds of Unix time. Raises as `zips.write`.
    """
    hashes = {
        name: sha256(each) if isinstance(each, Path) else hashlib.sha256(each).hexdigest()
        for name, each in members.items()
    }
    text = record.model_copy(update={"files": hashes}).model_dump_json(indent=1)
    return zips.write(path, {**members, RECORD: f"{text}\n".encode()}, date_s)


def readme(title: str, sentences: Iterable[str], usage: str) -> bytes:
    text = textwrap.fill(" ".join(sentences), 90)
    return f"{title}\n\n{text}\n\n{_WITHOUT_OUTCAST}\n{usage}".encode()


_WITHOUT_OUTCAST = """\
Without outcast: captures (*.pcap) open in Wireshark and tcpdump, tables (*.parquet) in any reader
of Apache Parquet, all other files as text or in a browser. manifest.json of a run says what ran, on
what and with which settings; config.yaml is the experiment, summary.json what the analysis found.
outcast.json has the SHA-256 of every file.
"""
_DESCRIPTION = (
    "One experiment on Linux's own TCP in an emulated network, captured packet by packet at a "
    "switch's ports."
)
_USAGE = """\
With outcast: `outcast replay FILE.zip` makes the run again and compares the captures to the
byte. After unpacking, `outcast inspect run` and `outcast report run` read it.
"""


def _on_analysis(directory: RunDirectory) -> list[str]:
    if not directory.summary.exists():
        return ["The run was not analysed."]
    run = Run(directory)
    reasons = "; ".join(run.reasons)
    return [] if run.trusted else [f"Captures and counters of the run do not agree: {reasons}."]


def on_replays(manifests: Iterable[Manifest], has_captures: bool) -> list[str]:
    """Sentences on the needs of a replay of these runs, and on what it can compare."""
    notes: dict[str, None] = {}
    for manifest in manifests:
        if not properties(manifest.engine).virtual_clock:
            notes["What ran in real time cannot be replayed, but read and analysed."] = None
        if own := manifest.kernel.get("own"):
            patches = ", ".join(map(str, own)) if isinstance(own, list) else own
            notes[f"The guest's kernel was built with {patches}; a replay needs that one."] = None
    captures = [] if has_captures else ["Of captures there are only the hashes, in manifest.json."]
    return [*notes, *captures]


def unpack(path: Path, folder: Path) -> Record:
    """Unpacks an archive that somebody handed in into an empty folder, and compares every hash.

    The folder then has the run or the sweep, as RUN or SWEEP.

    Raises:
        InputError: it is not an archive of outcast, is broken or too large, or a file is missing,
            has no hash or another one.
        OSError: a file cannot be written; the error names it.
    """
    zips.unpack(path, folder)
    with named_as(path, folder):
        record = read_record(folder / RECORD, Record, "allowed is an archive of `outcast pack`")
        hashes = {str(each.relative_to(folder)): sha256(each) for each in plain_files(folder)}
        del hashes[RECORD]
        if wrong := hashes.items() ^ record.files.items():
            raise InputError(f"{folder}/{min(wrong)[0]}: has not the hash that {RECORD} says")
        runs = sorted(folder.glob(f"{SWEEP}/runs/*")) if record.sweep else [folder / RUN]
        for run in runs:
            contents.require_unchanged(RunDirectory(run))
            kept_captures.digests(RunDirectory(run))
    return record


@contextmanager
def named_as(path: Path, folder: Path) -> Iterator[None]:
    """Lets errors name an archive in place of its unpacked folder, which is soon gone."""
    try:
        yield
    except OutcastError as error:
        text = str(error).replace(f"{folder}{os.sep}", f"{path}: ").replace(str(folder), str(path))
        error.args = (text, *error.args[1:])
        raise
