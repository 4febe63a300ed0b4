"""Joined captures as a folder that is opened, analysed, reported and inspected like a run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from outcast import analysis, files, workflow
from outcast.analysis import captured
from outcast.analysis.capture.pcap import shared_files
from outcast.analysis.capture.records import shown_name
from outcast.api import joining, joins
from outcast.api.runs import Run
from outcast.errors import ConfigError, InputError
from outcast.records import captures as records
from outcast.records.captures import CapturedFile, CapturesManifest, JoinRequest
from outcast.records.run_directory import RunDirectory

_MOST_NAME = 40
"""The heading of a small figure has no place for more columns."""

if TYPE_CHECKING:
    from outcast.analysis.run_analysis import Analysis
    from outcast.api.joins import Join


def save(join: Join, directory: str | os.PathLike[str]) -> Run:
    """Writes joined captures into a new folder; see `Join.save`."""
    target = Path(directory)
    with workflow.unfinished(target) as partial:
        paths = RunDirectory(partial.path)
        read = {each.file.path for each in join.request.captures}
        with ThreadPoolExecutor(max_workers=2) as pool:
            hashed = dict(zip(read, pool.map(_described, read), strict=True))
        request = _with_files(join.request, hashed)
        name = shown_name(Path(os.path.abspath(target)).name, blank="captures", most=_MOST_NAME)
        _write(paths, captured.compute(paths, name, request, join))
    return Run(target)


def again(directory: RunDirectory, manifest: CapturesManifest) -> Run:
    """Joins the captures of a folder again, and writes everything that follows.

    Raises InputError if a capture is missing, or has another content than it had.
    """
    there = _with_files(
        manifest.request,
        {
            each.file.path: CapturedFile(path=str(records.find(directory, each.file)))
            for each in manifest.request.captures
        },
    )
    join = joins.join_files(there, shared_files(joining.files_of(there)))
    _write(directory, captured.compute(directory, manifest.name, manifest.request, join))
    return Run(directory.path)


def _write(directory: RunDirectory, computed: Analysis) -> None:
    from outcast.view import figures, report

    directory.write_manifest(computed.manifest)
    analysis.write(directory, computed)
    figures.draw(directory)
    report.write(directory)
    sealed = computed.manifest.model_copy(update={"files": directory.hashes()})
    directory.write_manifest(sealed)


def _described(path: str) -> CapturedFile:
    whole = os.path.abspath(path)
    if not whole.isprintable():
        raise ConfigError(f"{whole!a}: allowed is a path that can be shown")
    try:
        size = os.stat(path).st_size
        return CapturedFile(path=whole, bytes=size, sha256=files.sha256(Path(path)))
    except OSError as error:
        raise InputError(files.describe(files.named(error, Path(path)) or error)) from None


def _with_files(request: JoinRequest, by_path: Mapping[str, CapturedFile]) -> JoinRequest:
    captures = [
        each.model_copy(update={"file": by_path[each.file.path]}) for each in request.captures
    ]
    return request.model_copy(update={"captures": captures})


def export(source: str | os.PathLike[str], file: str | os.PathLike[str]) -> int:
    """Writes the captured packets of all ports to a pcapng file, with verdicts as comments.

    Args:
        source: the directory of a run, or of joined captures.
        file: the file to write; its name ends in `.pcapng`.

    Returns how many packets it wrote.

    Raises:
        ConfigError: the file's name is refused.
        InputError: the run or a capture is missing or broken, or the file cannot be written.
    """
    from outcast.analysis import export as packets
    from outcast.analysis.selection import open_source

    path = Path(file)
    if path.suffix != ".pcapng":
        raise ConfigError(f"{path}: allowed are names that end in .pcapng")
    opened = open_source(Path(source))
    if opened.run is None:
        raise ConfigError(f"{source}: is a table alone; captured packets need a run's folder")
    return packets.write(opened, opened.run, path)
