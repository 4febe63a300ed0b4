"""Says which files of a run's directory go into an archive, and what each file is."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from outcast import handed_in
from outcast.errors import InputError
from outcast.files import sha256
from outcast.records import kept_captures, trace, verify
from outcast.records.run_directory import Manifest, RunDirectory

Captures = Literal["keep", "hashes"]

_DERIVED = (".parquet", ".png", ".html", ".pdf", ".svg")
_MOST_NAMED = 3


@dataclass(frozen=True)
class Kind:
    """The meaning of the files whose names in the run's directory match a shell's pattern."""

    pattern: str
    is_what: str


KINDS = tuple(
    Kind(pattern, is_what)
    for pattern, is_what in (
        ("config.yaml", "the experiment, with every default filled in"),
        ("sweep.yaml", "the sweep: its experiment and its values"),
        ("networks.json", "networks that came of files of the author's"),
        ("plan.json", "the planned network, its captures and flows"),
        (
            "manifest.json",
            "what ran, on what, with which settings in effect, and the SHA-256 of every file",
        ),
        ("counters.json", "the kernel's counters before and after the flows"),
        ("summary.json", "what the analysis found"),
        ("blackout.json", "the periods of a synthetic blackout"),
        ("rates.json", "rates of links over time, as they were set"),
        ("log.txt", "the run's progress"),
        ("report.html", "the report, which opens offline in a browser"),
        ("captures/*.pcap", "packets at a switch's port, with time stamps in nanoseconds"),
        ("captures/*.pcap.zst", "a capture, compressed by zstd"),
        ("flows/*", "logs of senders and receivers, and what the kernel said of their sockets"),
        ("trace/*.parquet", "a table of events of the guest's kernel"),
        ("trace/*.json", "which events of the kernel were recorded, and how"),
        ("samples/*", "sockets and queues over time, as the kernel's messages"),
        ("programs/*", "a program's files, or what it wrote"),
        ("modules/*", "the source of a kernel module that the run loaded"),
        ("sources/*", "a copy of a file that the run was made from"),
        ("claim-*", "what the command of a claim printed or drew"),
        ("runs.parquet", "a row for each run of the sweep"),
        ("run_flows.parquet", "a row for each flow"),
        ("*.parquet", "a table of the analysis"),
        ("*.png", "a figure"),
        ("*.svg", "a figure"),
        ("*.pdf", "a figure"),
        ("*.html", "a page"),
    )
)
"""The first kind whose pattern fits is a file's."""


def kind_of(name: str) -> Kind:
    """The kind of a file; `name` is relative to the run's directory."""
    fitting = (kind for kind in KINDS if fnmatch.fnmatchcase(name, kind.pattern))
    return next(fitting, Kind(name, "a file that it was made from or that belongs to it"))


@dataclass(frozen=True)
class About:
    """An archive's description of itself.

    Attributes:
        usage: the end of README.txt.
        date_s: when it was made, in seconds of Unix time.
    """

    title: str
    description: str
    usage: str
    date_s: float
    license_url: str | None


@dataclass(frozen=True)
class Contents:
    """Lists what of a run goes into an archive; the manifest has the hashes of these files.

    `left_out` names files in the folder that the run did not write.
    """

    files: Mapping[str, Path]
    manifest: Manifest
    left_out: tuple[str, ...]

    def without(self, is_left_out: Callable[[str], bool]) -> Contents:
        """Less of the run: no file of whose name `is_left_out` is true."""
        hashes = {n: h for n, h in self.manifest.files.items() if not is_left_out(n)}
        return Contents(
            files={name: self.files[name] for name in hashes},
            manifest=self.manifest.model_copy(update={"files": hashes}),
            left_out=self.left_out,
        )

    def manifest_text(self, directory: RunDirectory) -> bytes:
        """The manifest as its file has it: the run's own one, if nothing in it is other."""
        if self.manifest == directory.read_manifest():
            return handed_in.read_bytes(directory.manifest)
        newest = Manifest.model_fields["format"].default
        written = self.manifest.model_copy(update={"format": newest})
        return f"{written.model_dump_json(indent=1)}\n".encode()


def collect(directory: RunDirectory, captures: Captures) -> Contents:
    """Chooses the files of a finished run.

    Tables, figures and pages may be newer than the run, because other verbs make them anew. Any
    other file has to be as the run left it.

    Raises InputError if it is no finished run, or a file of the run was changed or removed.
    """
    manifest = directory.read_manifest()
    differences = require_unchanged(directory)
    hashes = {
        name: digest for name, digest in manifest.files.items() if name not in differences.missing
    }
    for name in (*differences.changed, *filter(_is_derived, differences.added)):
        hashes[name] = sha256(directory.path / name)
    if captures == "hashes":
        manifest = _without_captures(directory, manifest)
        hashes = {name: digest for name, digest in hashes.items() if not _is_capture(name)}
    hashes = dict(sorted(hashes.items()))
    return Contents(
        files={name: directory.path / name for name in hashes},
        manifest=manifest.model_copy(update={"files": hashes}),
        left_out=tuple(name for name in differences.added if not _is_derived(name)),
    )


def require_unchanged(directory: RunDirectory) -> verify.Differences:
    """What differs from a run's manifest. Raises InputError if what it wrote changed or is missing.

    Tables, figures and pages may have changed, because other verbs make them anew.
    """
    differences = verify.differences(directory, directory.read_manifest())
    for names, what in (
        (differences.changed, "changed after the run"),
        (differences.missing, "missing"),
    ):
        wrong = [name for name in names if not _is_derived(name)]
        if wrong:
            raise InputError(
                f"{directory.path}/{listed(wrong)}: {what}; allowed is a run as it was written"
            )
    return differences


def broken(folder: Path, record: str, hashes: Mapping[str, str]) -> str:
    """How the files of an unpacked archive differ from its record of them; empty if they do not.

    `record` is the name of the file with the `hashes` of all others.

    Raises:
        InputError: it holds something that is neither a file nor a folder.
        OSError: a file cannot be read.
    """
    present = {
        str(file.relative_to(folder)): file
        for file in handed_in.plain_files(folder)
        if file != folder / record
    }
    for name in sorted({*present, *hashes}):
        if name not in present:
            return f"{name} is missing"
        if name not in hashes:
            return f"{name} has no hash in {record}"
        if sha256(present[name]) != hashes[name]:
            return f"{name} has another hash than {record} says"
    return ""


def listed(names: list[str] | tuple[str, ...]) -> str:
    """The first of these names, and how many more there are."""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def _is_derived(name: str) -> bool:
    """Whether a file is computed from what the run wrote."""
    if name.startswith(f"{trace.FOLDER}/"):
        return name.endswith((".parquet", ".json"))
    return "/" not in name and (name == "summary.json" or name.endswith(_DERIVED))


def _is_capture(name: str) -> bool:
    return name.startswith("captures/")


def _without_captures(directory: RunDirectory, manifest: Manifest) -> Manifest:
    """The manifest with hashes of the captures as they were written, and without the captures."""
    records = [
        record.model_copy(update={"file": record.file.removesuffix(kept_captures.COMPRESSED)})
        for record in manifest.captures
    ]
    return manifest.model_copy(
        update={"captures": records, "dropped": kept_captures.digests(directory)}
    )
