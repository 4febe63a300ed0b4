"""An archive of one run: a zip file that others can read, and that outcast can replay.

```
README.txt              what this is, for people who have no outcast
ro-crate-metadata.json  the same for programs (outcast.archive.crate)
outcast.json            this module's Record: the format's version, and the hash of every file
run/                    the run's directory (outcast.records.run_directory)
guest/                  if asked for, what the guest was made of (outcast.engines.guest.packed)
```

docs/archive.md describes the format for readers that do not have this program.
"""

from __future__ import annotations

import hashlib
import os
import textwrap
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from outcast import __version__, files, handed_in
from outcast.archive import contents, zips
from outcast.archive.contents import Captures, Described, Kind
from outcast.errors import InputError
from outcast.records import replay, verify
from outcast.records.run import Run
from outcast.records.run_directory import Manifest, RunDirectory

README = "README.txt"
RECORD = "outcast.json"
RUN = "run"
GUEST = "guest"

_MADE_FROM = ("config.yaml", "sources/", "modules/")
"""What a run is made from; everything else is its result."""


class Record(handed_in.Versioned):
    """outcast.json: what is in the archive."""

    format: int = 1
    outcast: str
    captures: Literal["keep", "hashes"]
    guest: bool
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

    Attributes:
        run: the run's directory.
        guest: the folder of what the guest was made of; None if the archive has none.
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

    The same run gives the same bytes with the same version of outcast and of zlib.

    Args:
        path: the zip file.
        directory: the run's directory.
        captures: whether the captures go in, or only their hashes.
        guest: the files of the guest by their names in its folder; empty for none.
        license_url: where the license stands under which the archive is given away.

    Raises:
        InputError: it is no finished run, or one of its files was changed or removed.
        OSError: a file cannot be read, or the archive cannot be written.
    """
    # Loaded here, because a replay does not need it and it takes a tenth of a second.
    from outcast.archive import crate

    collected = contents.collect(directory, captures)
    manifest = collected.manifest
    members: dict[str, Path | bytes] = {
        **{f"{RUN}/{name}": file for name, file in collected.files.items()},
        f"{RUN}/manifest.json": collected.manifest_text(directory),
        **{f"{GUEST}/{name}": content for name, content in guest.items()},
    }
    for name in members:
        zips.require_name(name)
    known = {f"{RUN}/{name}": digest for name, digest in manifest.files.items()}
    described = {
        name: _described(name, content, known.get(name)) for name, content in members.items()
    }
    notes = _notes(directory, manifest, captures)
    title = f"Run {manifest.name} of outcast, seed {manifest.seed}"
    description = " ".join((_DESCRIPTION, *notes))
    readme = _readme(title, description, described).encode()
    described[README] = _described(README, readme, None)
    made_from = tuple(
        name for name in described if name.removeprefix(f"{RUN}/").startswith(_MADE_FROM)
    )
    date = time.gmtime(max(directory.manifest.stat().st_mtime, _EARLIEST))
    metadata = crate.metadata(
        described,
        manifest,
        title=title,
        description=description,
        date=time.strftime("%Y-%m-%d", date),
        license_url=license_url,
        made_from=made_from,
    )
    hashes = {name: file.sha256 for name, file in described.items()}
    hashes[crate.FILE] = hashlib.sha256(metadata).hexdigest()
    record = Record(
        outcast=__version__,
        captures=captures,
        guest=bool(guest),
        files=dict(sorted(hashes.items())),
    )
    members |= {
        README: readme,
        crate.FILE: metadata,
        RECORD: f"{record.model_dump_json(indent=1)}\n".encode(),
    }
    zips.write(path, members, (date.tm_year, date.tm_mon, date.tm_mday))
    return Packed(path, len(members), collected.left_out, notes)


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
        kind = contents.kind_of(name.removeprefix(f"{RUN}/"))
    if isinstance(content, bytes):
        return Described(kind, len(content), hashlib.sha256(content).hexdigest())
    return Described(kind, content.stat().st_size, sha256 or files.sha256(content))


def _notes(directory: RunDirectory, manifest: Manifest, captures: Captures) -> tuple[str, ...]:
    """What whoever gets the archive should know, in sentences."""
    notes = []
    if directory.summary.exists():
        run = Run(directory)
        if not run.trusted:
            notes.append(f"The run is not to be trusted: {'; '.join(run.reasons)}.")
    else:
        notes.append("The run was not analysed.")
    if manifest.engine == "realtime":
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


def _readme(title: str, description: str, described: Mapping[str, Described]) -> str:
    kinds: dict[str, str] = {}
    for name, file in described.items():
        folder = GUEST if name.startswith(f"{GUEST}/") else RUN
        kinds.setdefault(f"{folder}/{file.kind.pattern}", file.kind.is_what)
    width = max(map(len, kinds))
    rows = "\n".join(f"{pattern:{width}}  {is_what}" for pattern, is_what in sorted(kinds.items()))
    return _README.format(title=title, description=textwrap.fill(description, 90), rows=rows)


_README = """\
{title}

{description}

{rows}

Without outcast: captures open in Wireshark and tcpdump, tables (*.parquet) in any reader of
Apache Parquet, all other files as text or in a browser. outcast.json has the SHA-256 of every
file, and ro-crate-metadata.json describes them by RO-Crate (https://w3id.org/ro/crate).

With outcast: `outcast replay FILE.zip` makes the run again and compares the captures to the
byte. After unpacking, `outcast inspect run` and `outcast report run` read it.
"""


def unpack(path: Path, folder: Path) -> Unpacked:
    """Unpacks an archive that somebody handed in, and compares the hash of every file.

    Args:
        path: the zip file.
        folder: an empty folder.

    Raises:
        InputError: it is no archive of ours, is broken, is too large, or a file is missing, is
            there without a hash or has another one.
        OSError: a file cannot be written; the error names it.
    """
    zips.unpack(path, folder)

    def refusal(what: str) -> InputError:
        return InputError(f"{path}: {what}; allowed is an archive as `outcast pack` wrote it")

    try:
        record = handed_in.read_model(folder / RECORD, Record)
        if wrong := contents.broken(folder, RECORD, record.files):
            raise refusal(wrong)
        directory = RunDirectory(folder / RUN)
        contents.require_unchanged(
            directory, verify.differences(directory, directory.read_manifest())
        )
        replay.require_finished(directory)
    except FileNotFoundError:
        raise refusal(f"has no {RECORD}") from None
    except InputError as error:
        # The folder is ours and is gone when somebody reads this.
        text = str(error).replace(f"{folder}{os.sep}", "")
        raise InputError(text if text.startswith(f"{path}: ") else f"{path}: {text}") from None
    return Unpacked(directory, folder / GUEST if record.guest else None)
