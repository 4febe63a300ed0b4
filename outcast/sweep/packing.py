"""A sweep in an archive.

Every run goes in with its configuration, manifest and small tables, and with the hashes of its
captures; some go in whole. So the unpacked archive is a sweep's folder, and each run can be
replayed.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from outcast import archive, experiment
from outcast.archive import Packed, Record, contents
from outcast.errors import InputError
from outcast.experiment import Sweep
from outcast.handed_in import plain_files
from outcast.sweep import dataset, groups, store
from outcast.sweep.dataset import State
from outcast.sweep.points import combinations
from outcast.sweep.store import SweepDirectory

SAMPLE = 5
"""The number of runs of a sweep that are made again by default."""
_LARGE = ("captures/", "samples/", "trace/")
_TABLES = ("packets.parquet", "queue.parquet", "sockets.parquet", "ports.parquet")
_PICTURES = (".png", ".html", ".pdf", ".svg")


def write(
    path: Path,
    directory: SweepDirectory,
    whole: int,
    captures: contents.Captures,
) -> Packed:
    """Writes the archive of a sweep, with `whole` runs complete and all others without captures.

    Raises:
        InputError: a run is missing or was changed, or a file that the sweep needs stands outside
            of the folder.
        OSError: the archive cannot be written.
    """
    sweep = dataset.read_state(directory)
    if lacking := [*sweep.failures, *sweep.left]:
        raise InputError(
            f"{directory.path}: {len(lacking)} of {len(sweep.planned)} runs have no result "
            f"({contents.listed(lacking)}); allowed is a whole sweep: --resume makes them"
        )
    names = [point.name for point in sweep.planned]
    count = len(names)
    whole = min(whole, count)
    # Spread over the sweep's points.
    chosen = {names[index * count // whole] for index in range(whole)}
    members: dict[str, Path | bytes] = {}
    manifests = []
    for name in names:
        collected = (
            contents.collect(directory.run(name), captures)
            if name in chosen
            else contents.collect(directory.run(name), "hashes", _is_large)
        )
        members |= collected.members(f"{archive.SWEEP}/runs/{name}/")
        manifests.append(collected.manifest)
    for file in _files_of_all(directory, sweep):
        members[f"{archive.SWEEP}/{file.relative_to(directory.path)}"] = file
    has_captures = any("/captures/" in name for name in members)
    notes = (*_on_results(sweep), *archive.on_replays(manifests, has_captures))
    members[archive.README] = archive.readme(
        f"Sweep {sweep.experiment.name} of outcast, {count} runs",
        [_DESCRIPTION.format(len(chosen), count), *notes],
        _USAGE.format(file=shlex.quote(path.name)),
    )
    date_s = max(directory.run(name).manifest.stat().st_mtime for name in names)
    record = Record(captures=captures, sweep=True)
    return Packed(path, archive.put(path, members, record, date_s), (), notes)


_DESCRIPTION = (
    "An experiment on Linux's own TCP in an emulated network, run with other values and seeds. "
    "{} of {} runs are there whole, all others with results and the hashes of their captures."
)
_USAGE = """\
With outcast, unpack this archive, and run in its folder:

   outcast results sweep

To make runs again, and to compare captures to the byte and all values:

   outcast replay {file} --runs 5
   outcast replay {file} --runs all

To go on with the sweep elsewhere: outcast sweep sweep/sweep.yaml -o FOLDER
"""


def _is_large(name: str) -> bool:
    return name.startswith(_LARGE) or name in _TABLES or name.endswith(_PICTURES)


def _files_of_all(directory: SweepDirectory, sweep: State) -> list[Path]:
    """The files of the sweep itself, and the user's files that it names."""
    config = experiment.read(directory.config, own_folder=directory.path)
    settings = combinations(sweep.experiment.sweep or Sweep())
    points = (config.at_point(each).experiment() for each in settings)
    own = store.own_files_of(sweep.experiment, points, directory.path)
    if own.outside:
        raise InputError(
            f"{directory.path}: a swept value names {own.outside[0]}, which is outside of the "
            "configuration's folder; allowed are files below it"
        )
    dataset.write(directory)
    names = ("runs.parquet", "run_flows.parquet", *map(str, own.places))
    paths = [directory.config, directory.networks, *(directory.path / name for name in names)]
    return [
        file
        for path in paths
        if path.exists()
        for file in (plain_files(path) if path.is_dir() else [path])
    ]


def _on_results(sweep: State) -> list[str]:
    notes = []
    if sweep.disagreeing:
        notes.append(
            f"{len(sweep.disagreeing)} of its runs have captures and counters that do not agree."
        )
    if len(sweep.makers) > 1:
        notes.append(f"Its runs were made by: {'; '.join(sweep.makers)}.")
    runs = groups.agreeing(sweep.results.runs)
    by = groups.default_by(sweep.results)
    return notes + groups.remarks_on_trends(groups.summarize(runs, by, (), "mean"))
