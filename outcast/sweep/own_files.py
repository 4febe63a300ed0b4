"""The user's files that a sweep names, kept in its folder, so that sweep.yaml works anywhere.

A file below the folder of the configuration goes to the same place below the sweep's folder, so
that swept values, which decide the runs' names and seeds, stay as they are. Any other file of the
experiment goes to `sources/`, and sweep.yaml names it there.
"""

from __future__ import annotations

import filecmp
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from outcast import files
from outcast.engines import own_modules
from outcast.errors import ConfigError
from outcast.experiment import Experiment
from outcast.experiment.parts import files_of, with_files

_OURS = frozenset(
    (
        *("runs", "failed", "unfinished", "sources", "sweep.yaml", "networks.json", ".lock"),
        *("runs.parquet", "run_flows.parquet"),
    )
)
"""The files of a sweep's folder that are its own."""


@dataclass(frozen=True)
class OwnFiles:
    """A sweep's files by their places in its folder; `outside` are swept ones without a place."""

    places: Mapping[Path, Path]
    outside: tuple[Path, ...]

    def rewritten(self, whole: Experiment) -> Experiment:
        """The configuration, whose files are named by their places."""
        there = {file: place for place, file in self.places.items()}
        return with_files(whole, lambda file: there.get(file, file))


def of_sweep(whole: Experiment, points: Iterable[Experiment], folder: Path) -> OwnFiles:
    """The files that a configuration in a folder names, itself or at the points of its sweep.

    Raises ConfigError: a kernel module's source cannot be read.
    """
    above = Path(os.path.abspath(folder))
    own = dict.fromkeys(files_of(whole))
    places: dict[Path, Path] = {}
    for number, file in enumerate(own):
        places |= _with_headers(
            _below(above, file) or Path("sources", str(number), file.name), file
        )
    outside = []
    for file in dict.fromkeys(file for point in points for file in files_of(point)):
        if file in own:
            continue
        if (place := _below(above, file)) is None:
            outside.append(file)
        else:
            places |= _with_headers(place, file)
    return OwnFiles(places, tuple(outside))


def _below(folder: Path, file: Path) -> Path | None:
    """A file's path below a folder; None if it is elsewhere or has a name that outcast uses."""
    if not file.is_relative_to(folder) or file == folder:
        return None
    path = file.relative_to(folder)
    return None if path.parts[0] in _OURS else path


def _with_headers(place: Path, file: Path) -> dict[Path, Path]:
    """A file by its place, with what the source of a kernel module includes from beside it."""
    if file.suffix != ".c":
        return {place: file}
    return {place.parent / name: file.parent / name for name in own_modules.sources(file)}


def keep(own: OwnFiles, folder: Path) -> None:
    """Copies the files to the sweep's folder, unless they are there.

    Raises:
        ConfigError: a file is another one than when the sweep began.
        OSError: a file cannot be read, or a copy not be written.
    """
    for place, file in own.places.items():
        copy = folder / place
        if not copy.exists():
            files.make_folders(copy.parent)
            if file.is_dir():
                shutil.copytree(file, copy, symlinks=True)
            else:
                shutil.copy(file, copy)
        elif file.is_file() and not filecmp.cmp(file, copy, shallow=False):
            raise ConfigError(
                f"{file}: is another file than when the sweep began ({copy}); allowed is a new "
                "folder"
            )
