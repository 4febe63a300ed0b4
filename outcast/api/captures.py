"""Joined captures as a folder that is opened, analysed, reported and inspected like a run."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from outcast import analysis, files, workflow
from outcast.analysis import captured
from outcast.analysis.capture.pcap import shared_files
from outcast.analysis.capture.records import shown_name
from outcast.api import joining, joins
from outcast.api.joining import Asked
from outcast.api.runs import Run
from outcast.errors import ConfigError, InputError
from outcast.records import captures as records
from outcast.records.captures import CapturedFile, CapturedPort, CapturesManifest, JoinRequest
from outcast.records.run_directory import RunDirectory

_MOST_NAME = 40
"""The heading of a small figure has no place for more columns."""

if TYPE_CHECKING:
    from outcast.analysis.run_analysis import Analysis
    from outcast.api.joins import Join


def save(join: Join, directory: str | os.PathLike[str]) -> Run:
    """Writes joined captures into a new folder: tables, summary, figures and report.

    The folder appears whole, or not at all. It names the captures with their SHA-256, and
    `analyze` reads them again.

    Args:
        join: what `join_captures` returned.
        directory: a new or empty folder.

    Raises:
        ConfigError: the folder cannot be used.
        InputError: a capture is not there any more, or there is nothing to analyse.
    """
    target = Path(directory)
    with workflow.unfinished(target) as partial:
        paths = RunDirectory(partial.path)
        request = _request(join.asked)
        name = shown_name(Path(os.path.abspath(target)).name, blank="captures", most=_MOST_NAME)
        _write(paths, captured.compute(paths, name, request, join))
    return Run(target)


def again(directory: RunDirectory, manifest: CapturesManifest) -> Run:
    """Joins the captures of a folder again, and writes everything that follows.

    Raises InputError if a capture is missing, or has another content than it had.
    """
    request = manifest.request
    sides: dict[str, dict[str, Path]] = {"in": {}, "out": {}, "any": {}}
    for capture in request.captures:
        sides[capture.direction][capture.port] = records.find(directory, capture.file)
    parsed = Asked(
        joining.captures(sides["in"], sides["out"], sides["any"], None),
        joining.parse_addresses(request.destinations),
        request.routed,
        request.one_clock,
        request.max_sojourn_ns,
        request.rate_bps,
        request.limit_bytes,
    )
    join = joins.join_files(parsed, shared_files(parsed.files))
    _write(directory, captured.compute(directory, manifest.name, request, join))
    return Run(directory.path)


def _write(directory: RunDirectory, computed: Analysis) -> None:
    from outcast.view import figures, report

    directory.write_manifest(computed.manifest)
    analysis.write(directory, computed)
    figures.draw(directory)
    report.write(directory)
    sealed = computed.manifest.model_copy(update={"files": directory.hashes()})
    directory.write_manifest(sealed)


def _request(request: Asked) -> JoinRequest:
    """The request, with the hash of every capture."""

    def described(path: Path) -> CapturedFile:
        whole = os.path.abspath(path)
        if not whole.isprintable():
            raise ConfigError(f"{whole!a}: allowed is a path that can be shown")
        try:
            return CapturedFile(path=whole, bytes=path.stat().st_size, sha256=files.sha256(path))
        except OSError as error:
            raise InputError(files.describe(files.named(error, path) or error)) from None

    # Several ports can be interfaces of one file.
    paths = {capture.path for capture in request.captures}
    with ThreadPoolExecutor(max_workers=2) as pool:
        made = dict(zip(paths, pool.map(described, paths), strict=True))
    return JoinRequest(
        captures=[
            CapturedPort(
                port=capture.port,
                direction=capture.direction,
                file=made[capture.path],
            )
            for capture in request.captures
        ],
        destinations=sorted(request.destinations),
        routed=request.routed,
        one_clock=request.one_clock,
        max_sojourn_ns=request.max_sojourn_ns,
        rate_bps=request.rate_bps,
        limit_bytes=request.limit_bytes,
    )
