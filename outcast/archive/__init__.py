"""An archive of a run or a sweep: a zip file that others can read, and that outcast can replay.

```
README.txt              what this is, for people who have no outcast
ro-crate-metadata.json  the same for programs (outcast.archive.crate)
outcast.json            this module's Record: the format's version, and the hash of every file
run/                    the run's directory (outcast.records.run_directory)
guest/                  if asked for, what the guest was made of (outcast.engines.guest.packed)
sweep/                  in place of both, a sweep's folder (outcast.sweep.packing)
claims/                 beside a sweep, what the commands of its claims printed and drew
```

docs/archive.md describes the format for readers that do not have this program.
"""

from __future__ import annotations

import hashlib
import os
import re
import textwrap
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from outcast import __version__, files, handed_in
from outcast.archive import contents, zips
from outcast.archive.contents import About, Captures, Described, Kind
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

_MADE_FROM = ("config.yaml", "sources/", "modules/")
"""A run is made from these; everything else is its result."""


class Record(handed_in.Versioned):
    """outcast.json: what is in the archive. Only a sweep's has format 2 and the key `sweep`."""

    format: int = 2
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
        action=f"{manifest.name}, by the {manifest.engine} engine with seed {manifest.seed}",
        manifest=manifest,
        date_s=directory.manifest.stat().st_mtime,
        license_url=license_url,
    )
    record = Record(format=1, outcast=__version__, captures=captures, guest=bool(guest), files={})
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
    """Writes an archive with its README, its metadata and its record; how many files it has.

    Raises:
        InputError: a file has a name that no archive can have, or there are too many.
        OSError: a file cannot be read, or the archive cannot be written.
    """
    # Loaded here, because a replay does not need it and it takes a tenth of a second.
    from outcast.archive import crate

    members = dict(parts.members)
    if len(members) > zips.MOST_FILES:
        raise InputError(f"{path}: {len(members)} files; an archive holds {zips.MOST_FILES}")
    for name in members:
        zips.require_name(name)
    described = {
        name: _described(name, content, parts.known.get(name)) for name, content in members.items()
    }
    readme = _readme(about, described).encode()
    described[README] = _described(README, readme, None)
    made_from = tuple(name for name in described if _within(name)[1].startswith(_MADE_FROM))
    date = time.gmtime(max(about.date_s, _EARLIEST))
    metadata = crate.metadata(described, about, time.strftime("%Y-%m-%d", date), made_from)
    hashes = {name: file.sha256 for name, file in described.items()}
    hashes[crate.FILE] = hashlib.sha256(metadata).hexdigest()
    whole = record.model_copy(update={"files": dict(sorted(hashes.items()))})
    left_out = None if record.sweep else {"sweep"}
    members |= {
        README: readme,
        crate.FILE: metadata,
        RECORD: f"{whole.model_dump_json(indent=1, exclude=left_out)}\n".encode(),
    }
    zips.write(path, members, (date.tm_year, date.tm_mon, date.tm_mday))
    return len(members)


_WITHIN = re.compile(f"({RUN}|{SWEEP}/runs/[^/]+|{SWEEP}|{CLAIMS})/(.*)")


def _within(name: str) -> tuple[str, str]:
    """A file's folder, as README.txt says it, and its name in there."""
    found = _WITHIN.fullmatch(name)
    folder, inner = found.groups() if found else name.split("/", 1) if "/" in name else ("", name)
    return (f"{SWEEP}/runs/*" if folder.startswith(f"{SWEEP}/") else folder), inner


_EARLIEST = 315_532_800
"""1980-01-01, the first day that a zip file knows."""

_DESCRIPTION = (
    "One experiment on Linux's own TCP in an emulated network, captured packet by packet at a "
    "switch's ports."
)


def _described(name: str, content: Path | bytes, sha256: str | None) -> Described:
    if name == README:
        kind = Kind(README, "what this archive is, for people", "text/plain")
    elif name.startswith(f"{GUEST}/"):
        kind = Kind("*", "a part of the guest in which the run took place")
    else:
        kind = contents.kind_of(_within(name)[1])
    if isinstance(content, bytes):
        return Described(kind, len(content), hashlib.sha256(content).hexdigest())
    return Described(kind, content.stat().st_size, sha256 or files.sha256(content))


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


def _readme(about: About, described: Mapping[str, Described]) -> str:
    kinds: dict[str, str] = {}
    for name, file in described.items():
        kinds.setdefault(f"{_within(name)[0]}/{file.kind.pattern}", file.kind.is_what)
    width = max(map(len, kinds))
    rows = "\n".join(f"{pattern:{width}}  {is_what}" for pattern, is_what in sorted(kinds.items()))
    description = textwrap.fill(about.description, 90)
    return f"{about.title}\n\n{description}\n\n{rows}\n{_WITHOUT_OUTCAST}\n{about.usage}"


_WITHOUT_OUTCAST = """
Without outcast: captures open in Wireshark and tcpdump, tables (*.parquet) in any reader of
Apache Parquet, all other files as text or in a browser. outcast.json has the SHA-256 of every
file, and ro-crate-metadata.json describes them by RO-Crate (https://w3id.org/ro/crate).
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
