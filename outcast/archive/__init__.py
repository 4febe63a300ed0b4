"""An archive of a run or a sweep: a zip file that others can read, and that outcast can replay.

```
README.txt    what this is, and the commands that replay it
outcast.json  this module's Record: the format's version, and the hash of every file
run/          the run's directory (outcast.records.run_directory)
guest/        if asked for, what the guest was made of (outcast.engines.guest.packed)
sweep/        in place of both, a sweep's folder (outcast.sweep.packing)
claims/       beside a sweep, what the commands of its claims printed and drew
```

docs/archive.md describes the format for readers that do not have this program.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from outcast import __version__, handed_in
from outcast.archive import contents, zips
from outcast.archive.contents import About, Captures
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
GUEST = "guest"


class Record(handed_in.Versioned):
    """outcast.json: what is in the archive."""

    format: int = 3
    outcast: str
    captures: Literal["keep", "hashes"]
    guest: bool
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
class Unpacked:
    """An archive that was unpacked, with every hash compared.

    `guest` is the folder of what the guest was made of; None if the archive has none.
    """

    run: RunDirectory
    guest: Path | None


def write(
    path: Path,
    directory: RunDirectory,
    captures: Captures,
    guest: Mapping[str, Path | bytes],
    license_url: str | None,
) -> Packed:
    """Writes the archive of a finished run, whole or not at all.

    The same run gives the same bytes with the same version of outcast and of zlib. `guest` has the
    files of the guest by their names in its folder.

    Raises:
        InputError: it is no finished run, or one of its files was changed or removed.
        OSError: a file cannot be read, or the archive cannot be written.
    """
    collected = contents.collect(directory, captures)
    manifest = collected.manifest
    parts = Parts({}, {})
    parts.add(f"{RUN}/", collected, directory)
    parts.members.update({f"{GUEST}/{name}": content for name, content in guest.items()})
    notes = _notes(directory, manifest, captures)
    about = About(
        title=f"Run {manifest.name} of outcast, seed {manifest.seed}",
        description=" ".join((_DESCRIPTION, *notes)),
        usage=_USAGE,
        date_s=directory.manifest.stat().st_mtime,
        license_url=license_url,
    )
    record = Record(outcast=__version__, captures=captures, guest=bool(guest), files={})
    count = put(path, parts, about, record)
    return Packed(path, count, collected.left_out, notes)


@dataclass(frozen=True)
class Parts:
    """The content of an archive.

    `members` maps names in the archive to contents, or to the files that have them; `known` has the
    SHA-256 of members where it is known.
    """

    members: dict[str, Path | bytes]
    known: dict[str, str]

    def add(self, prefix: str, collected: contents.Contents, directory: RunDirectory) -> None:
        """Adds what was collected of a run, under names that begin with `prefix`."""
        self.members.update({f"{prefix}{name}": file for name, file in collected.files.items()})
        self.members[f"{prefix}manifest.json"] = collected.manifest_text(directory)
        self.known.update({f"{prefix}{name}": h for name, h in collected.manifest.files.items()})


def put(path: Path, parts: Parts, about: About, record: Record) -> int:
    """Writes an archive with its README and its record; how many files it has.

    Raises:
        InputError: a file has a name that no archive can have, they are too many or too large, or
            one has changed meanwhile.
        OSError: a file cannot be read, or the archive cannot be written.
    """
    members = {**parts.members, README: _readme(about, parts.members).encode()}
    if len(members) > zips.MOST_FILES:
        raise InputError(f"{path}: {len(members)} files; an archive holds {zips.MOST_FILES}")
    for name in members:
        zips.require_name(name)
    known = parts.known
    hashes = {name: known.get(name) or zips.digest(members[name]) for name in sorted(members)}
    whole = record.model_copy(update={"files": hashes})
    members[RECORD] = f"{whole.model_dump_json(indent=1)}\n".encode()
    zips.write(path, members, zips.day(about.date_s), hashes)
    return len(members)


_WITHIN = re.compile(f"({RUN}|{SWEEP}/runs/[^/]+|{SWEEP}|{CLAIMS})/(.*)")


def _within(name: str) -> tuple[str, str]:
    """A file's folder, as README.txt says it, and its name in there."""
    found = _WITHIN.fullmatch(name)
    folder, inner = found.groups() if found else name.split("/", 1) if "/" in name else ("", name)
    return (f"{SWEEP}/runs/*" if folder.startswith(f"{SWEEP}/") else folder), inner


_DESCRIPTION = (
    "One experiment on Linux's own TCP in an emulated network, captured packet by packet at a "
    "switch's ports."
)


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
    if captures == "hashes" or not all(
        (directory.path / record.file).exists() for record in manifest.captures
    ):
        notes.append("Of its captures there are only the hashes, in run/manifest.json.")
    return tuple(notes)


def _readme(about: About, names: Iterable[str]) -> str:
    kinds = {f"/{RECORD}": "the version of outcast, and the SHA-256 of every file"}
    for name in names:
        folder, inner = _within(name)
        kind = GUEST_PART if folder == GUEST else contents.kind_of(inner)
        kinds.setdefault(f"{folder}/{kind.pattern}", kind.is_what)
    width = max(map(len, kinds))
    rows = "\n".join(f"{pattern:{width}}  {is_what}" for pattern, is_what in sorted(kinds.items()))
    description = textwrap.fill(about.description, 90)
    terms = f"License: {about.license_url}\n\n" if about.license_url is not None else ""
    return f"{about.title}\n\n{description}\n\n{terms}{rows}\n{_WITHOUT_OUTCAST}\n{about.usage}"


GUEST_PART = contents.Kind("*", "a part of the guest in which the run took place")


_WITHOUT_OUTCAST = """
Without outcast: captures open in Wireshark and tcpdump, tables (*.parquet) in any reader of
Apache Parquet, all other files as text or in a browser.
"""

_USAGE = """\
With outcast: `outcast replay FILE.zip` makes the run again and compares the captures to the
byte. After unpacking, `outcast inspect run` and `outcast report run` read it.
"""


def unpack(path: Path, folder: Path) -> Unpacked:
    """Unpacks an archive that somebody handed in into an empty folder, and compares every hash.

    Raises:
        InputError: it is no archive of ours, is broken, is too large, or a file is missing, is
            there without a hash or has another one.
        OSError: a file cannot be written; the error names it.
    """
    with _unpacked(path, folder) as record:
        if record.sweep:
            raise _refusal(path, "holds a sweep; only `outcast replay` reads its archive")
        directory = RunDirectory(folder / RUN)
        require_whole(directory)
    return Unpacked(directory, folder / GUEST if record.guest else None)


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
        if wrong := contents.broken(folder, RECORD, record.files):
            raise _refusal(path, wrong)
        yield record
    except FileNotFoundError as error:
        lacking = os.path.relpath(error.filename or RECORD, folder)
        raise _refusal(path, f"has no {lacking}") from None
    except InputError as error:
        # The folder is ours and is gone when somebody reads this.
        text = str(error).replace(f"{folder}{os.sep}", "")
        raise InputError(text if text.startswith(f"{path}: ") else f"{path}: {text}") from None
