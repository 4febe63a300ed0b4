"""An archive of a run or a sweep: a zip file that others can read, and that outcast can replay.

```
README.txt    what this is, and the commands that replay it
outcast.json  this module's Record: the format's version, and the hash of every file
run/          the run's directory (outcast.records.run_directory)
sweep/        in its place, a sweep's folder (outcast.sweep.packing)
claims/       beside a sweep, what the commands of its claims printed and drew
```

docs/archive.md describes the format for readers that do not have this program.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from outcast import __version__, handed_in
from outcast.archive import contents, zips
from outcast.archive.contents import Captures
from outcast.errors import InputError
from outcast.experiment.engine import properties
from outcast.records import kept_captures
from outcast.records.run import Run
from outcast.records.run_directory import Manifest, RunDirectory

README = "README.txt"
RECORD = "outcast.json"
RUN = "run"
SWEEP = "sweep"
CLAIMS = "claims"


class Record(handed_in.Versioned):
    """outcast.json: what is in the archive.

    `guest` is true only in archives of earlier versions; what they have of a guest is not used.
    """

    format: int = 3
    outcast: str = __version__
    captures: Literal["keep", "hashes"]
    guest: bool = False
    sweep: bool = False
    files: dict[handed_in.FileName, str]


@dataclass(frozen=True)
class Packed:
    """An archive that was written.

    Attributes:
        path: the zip file.
        files: how many files it holds.
        left_out: names of files in the run's directory that the run did not write.
        notes: what whoever gets the archive should know, in sentences.
    """

    path: Path
    files: int
    left_out: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class About:
    """The text of README.txt: a title, a description, the commands, and an address of a license."""

    title: str
    description: str
    usage: str
    license_url: str | None

    def text(self) -> str:
        """The file's text."""
        terms = f"License: {self.license_url}\n\n" if self.license_url is not None else ""
        description = textwrap.fill(self.description, 90)
        return f"{self.title}\n\n{description}\n\n{terms}{_WITHOUT_OUTCAST}\n{self.usage}"


_WITHOUT_OUTCAST = """\
Without outcast: captures (*.pcap) open in Wireshark and tcpdump, tables (*.parquet) in any reader
of Apache Parquet, all other files as text or in a browser. manifest.json of a run says what ran, on
what and with which settings; config.yaml is the experiment, summary.json what the analysis found.
outcast.json has the SHA-256 of every file.
"""


def write(
    path: Path, directory: RunDirectory, captures: Captures, license_url: str | None
) -> Packed:
    """Writes the archive of a finished run, whole or not at all.

    The same run gives the same bytes with the same version of outcast and of zlib.

    Raises:
        InputError: it is no finished run, or one of its files was changed or removed.
        OSError: a file cannot be read, or the archive cannot be written.
    """
    collected = contents.collect(directory, captures)
    manifest = collected.manifest
    notes = _notes(directory, manifest, captures)
    about = About(
        title=f"Run {manifest.name} of outcast, seed {manifest.seed}",
        description=" ".join((_DESCRIPTION, *notes)),
        usage=_USAGE,
        license_url=license_url,
    )
    members = collected.members(f"{RUN}/", directory)
    count = put(path, members, about, captures, directory.manifest.stat().st_mtime)
    return Packed(path, count, collected.left_out, notes)


def put(
    path: Path,
    members: zips.Members,
    about: About,
    captures: Captures,
    date_s: float,
    *,
    is_sweep: bool = False,
) -> int:
    """Writes an archive with its README and its record; how many files it has.

    `date_s` is the time of all files, in seconds of Unix time. Raises as `zips.write`.
    """
    members = {**members, README: about.text().encode()}
    record = Record(captures=captures, sweep=is_sweep, files={})
    return zips.write(path, members, date_s, (RECORD, record))


_DESCRIPTION = (
    "One experiment on Linux's own TCP in an emulated network, captured packet by packet at a "
    "switch's ports."
)
_USAGE = """\
With outcast: `outcast replay FILE.zip` makes the run again and compares the captures to the
byte. After unpacking, `outcast inspect run` and `outcast report run` read it.
"""


def _notes(directory: RunDirectory, manifest: Manifest, captures: Captures) -> tuple[str, ...]:
    """Notes for whoever gets the archive, in sentences."""
    notes = []
    if directory.summary.exists():
        run = Run(directory)
        if not run.trusted:
            notes.append(
                f"Captures and counters of the run do not agree: {'; '.join(run.reasons)}."
            )
    else:
        notes.append("The run was not analysed.")
    if not properties(manifest.engine).virtual_clock:
        notes.append(
            "It ran in real time, so it cannot be replayed; its captures can be read and analysed."
        )
    own = manifest.kernel.get("own")
    if isinstance(own, list) and own:
        notes.append(
            f"Its guest's kernel was built with {', '.join(map(str, own))}; a replay needs that "
            "kernel."
        )
    if captures == "hashes" or kept_captures.not_kept(directory, manifest):
        notes.append("Of its captures there are only the hashes, in run/manifest.json.")
    return tuple(notes)


def unpack(path: Path, folder: Path) -> RunDirectory:
    """Unpacks an archive that somebody handed in into an empty folder, and compares every hash.

    Raises:
        InputError: it is no archive of ours, is broken, is too large, or a file is missing, is
            there without a hash or has another one.
        OSError: a file cannot be written; the error names it.
    """
    with _unpacked(path, folder) as record:
        if record.sweep:
            raise _refusal(path, "holds a sweep; only `outcast replay` reads its archive")
        require_whole(directory := RunDirectory(folder / RUN))
    return directory


def unpack_sweep(path: Path, folder: Path) -> Path:
    """Unpacks an archive of a sweep; the sweep's folder. Raises as `unpack`."""
    with _unpacked(path, folder) as record:
        if not record.sweep:
            raise _refusal(path, "holds no sweep")
        for run in sorted((folder / SWEEP / "runs").iterdir()):
            require_whole(RunDirectory(run))
    return folder / SWEEP


def require_whole(directory: RunDirectory) -> None:
    """Raises InputError if a run is not finished, or what it wrote was changed since."""
    contents.require_unchanged(directory)
    kept_captures.digests(directory)


def _refusal(path: Path, what: str) -> InputError:
    return InputError(f"{path}: {what}; allowed is an archive as `outcast pack` wrote it")


@contextmanager
def _unpacked(path: Path, folder: Path) -> Iterator[Record]:
    """An archive whose files are unpacked and have the hashes that its record says."""
    zips.unpack(path, folder)
    try:
        record = handed_in.read_model(folder / RECORD, Record)
        if wrong := zips.broken(folder, RECORD, record.files):
            raise _refusal(path, wrong)
        yield record
    except FileNotFoundError as error:
        lacking = os.path.relpath(error.filename or RECORD, folder)
        raise _refusal(path, f"has no {lacking}") from None
    except InputError as error:
        # The folder is ours and is gone when somebody reads this.
        text = str(error).replace(f"{folder}{os.sep}", "")
        raise InputError(text if text.startswith(f"{path}: ") else f"{path}: {text}") from None
