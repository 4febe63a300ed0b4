"""A sweep's folder: finished runs, failed runs, what a killed sweep left, and the user's files.

```
sweep.yaml          the configuration; `outcast sweep sweep.yaml --resume` continues the sweep
runs/NAME/          the run directory of a finished run; a rename puts it here, whole
failed/NAME/        what a failed run left, and why.json
unfinished/NAME/    runs in progress; emptied when the sweep continues
networks.json       the networks of the points, where they come from the user's files
sources/            copies of these files, for the record only, and files from outside of the
                    configuration's folder
runs.parquet, run_flows.parquet
```

A user's file below the folder of the configuration goes to the same place below the sweep's folder.
So swept values, which decide the runs' names and seeds, stay as they are. sweep.yaml names every
other file by its place in `sources/`.
"""

from __future__ import annotations

import fcntl
import filecmp
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import zstandard

from outcast import experiment, files, handed_in
from outcast.engines import ledger, own_modules
from outcast.errors import BusyError, ConfigError, InputError, shortened
from outcast.experiment import Experiment, OwnTopology
from outcast.experiment.engine import candidates
from outcast.experiment.parts import files_of, with_files
from outcast.files import sha256, write_json, write_text
from outcast.networks import resolve as networks
from outcast.records.counters import CaptureRecord
from outcast.records.kept_captures import COMPRESSED, differences
from outcast.records.run_directory import Place, RunDirectory
from outcast.sweep.pool import Captures, Failure

RESULT = "run"
"""The name of the run directory in the folder of an attempt."""

_LOCK = ".lock"
"""A file of every store from its beginning on; other folders lack it."""

OF_THE_SWEEP = ("sweep", "repetitions")
"""Keys that may change when a sweep continues, because it can grow."""


@dataclass(frozen=True)
class SweepDirectory:
    """The paths of one sweep."""

    path: Path

    config = Place("sweep.yaml")
    networks = Place(networks.KEPT)
    sources = Place("sources")
    runs = Place("runs")
    unfinished = Place("unfinished")
    failed = Place("failed")

    def run(self, name: str) -> RunDirectory:
        return RunDirectory(self.runs / name)

    def read_experiment(self) -> Experiment:
        """Reads the configuration. Raises InputError if the folder does not hold a sweep."""
        if not self.config.exists():
            raise InputError(
                f"{self.path}: no {self.config.name}; a folder that `outcast sweep` wrote is needed"
            )
        return experiment.load_resolved(self.config)

    def attempt(self, name: str) -> Path:
        """The folder of a run in progress. Its run directory is RESULT in there."""
        return self.unfinished / name

    def accept(self, name: str) -> None:
        """Moves a run to the finished ones, and removes what earlier attempts left."""
        target = self.runs / name
        if target.exists():
            shutil.rmtree(target)
        (self.attempt(name) / RESULT).rename(target)
        self.clear(name)
        shutil.rmtree(self.failed / name, ignore_errors=True)

    def reject(self, name: str, failure: Failure, attempts: int) -> None:
        """Moves a run to the failed ones, with the reason."""
        target = self.failed / name
        shutil.rmtree(target, ignore_errors=True)
        self.failed.mkdir(exist_ok=True)
        self.attempt(name).mkdir(exist_ok=True)
        self.attempt(name).rename(target)
        # The message may name the attempt's folder, which has moved.
        message = failure.message.replace(str(self.attempt(name)), str(target))
        write_json(
            target / "why.json", {**asdict(failure), "message": message, "attempts": attempts}
        )

    def set_aside(self, name: str, why: str) -> None:
        """Moves a folder of `runs` that does not hold its run to the failed ones."""
        self.clear(name)
        self.attempt(name).mkdir()
        (self.runs / name).rename(self.attempt(name) / RESULT)
        self.reject(name, Failure(InputError.__name__, why, InputError.exit_status), 0)

    def clear(self, name: str) -> None:
        shutil.rmtree(self.attempt(name), ignore_errors=True)

    def failures(self) -> dict[str, Failure]:
        failures = {}
        for file in sorted(self.failed.glob("*/why.json")):
            fields = handed_in.read_json(file)
            del fields["attempts"]
            failures[file.parent.name] = Failure(**fields)
        return failures


def keep_networks(directory: SweepDirectory, topologies: Iterable[OwnTopology]) -> None:
    """Keeps the networks of a sweep's points, so that it continues without the user's files.

    Raises ConfigError: a file makes another network than when the sweep began.
    """
    kept = networks.read_kept(directory.path)
    for topology in topologies:
        assert topology.network is not None
        known = networks.among(kept, topology)
        if known is None:
            kept.append(topology.network)
        elif known != topology.network:
            raise ConfigError(
                f"{directory.path}: {topology.path} makes another network than when the sweep "
                "began; allowed is a new folder"
            )
        if topology.origin is not None:
            directory.sources.mkdir(exist_ok=True)
            with files.writing(directory.sources / topology.origin.name) as stream:
                stream.write(topology.origin.content)
    if kept:
        write_json(
            directory.networks, [network.model_dump(exclude_defaults=True) for network in kept]
        )


def problem(directory: RunDirectory) -> str | None:
    """Why a run directory does not hold a finished run; None if it does.

    Every file that the manifest names must be there and have its hash.
    """
    try:
        found = differences(directory, directory.read_manifest())
    except InputError as error:
        return str(error)
    wrong = dict.fromkeys(found.missing, "missing")
    wrong |= dict.fromkeys(found.changed, "not as it was when the run ended")
    return next((f"{directory.path / name}: {why}" for name, why in wrong.items()), None)


def other_key(directory: RunDirectory, requested: Experiment) -> str | None:
    """The first key in which a run differs from the requested one; None where it is that run.

    The manifest shows that a run is whole, but not that it is in the right folder. A topology's
    file can also have another content on the machine that made the run.

    Raises InputError: the run's configuration cannot be read.
    """
    made = experiment.load_resolved(directory.config)
    engine = made.engine if made.engine in candidates(requested.engine) else requested.engine
    there, here = (_facts(each.resolved(candidates(engine)[0])) for each in (made, requested))
    other = next((key for key in (*here, *there) if here.get(key) != there.get(key)), None)
    # The manifest says which seed the run really had.
    return "seed" if other is None and directory.read_manifest().seed != requested.seed else other


def take_stock(
    directory: SweepDirectory, experiments: Mapping[str, Experiment], note: Callable[[str], None]
) -> set[str]:
    """Names of the runs that are whole and were made as requested by `experiments`.

    Anything else in their places is set aside, so that no later step takes it for a result.
    """
    finished = set()
    for name, requested in experiments.items():
        run = directory.run(name)
        if not run.path.exists():
            continue
        why = problem(run)
        if why is None and (key := other_key(run, requested)):
            why = f"{run.path}: was made with another {key}"
        if why is None:
            finished.add(name)
        else:
            directory.set_aside(name, why)
            note(f"set aside and made again: {why}")
    return finished


@contextmanager
def opened(
    path: Path,
    config: Experiment,
    resume: bool,
    note: Callable[[str], None] = lambda text: None,
    own: OwnFiles | None = None,
) -> Iterator[SweepDirectory]:
    """Opens a sweep's folder for this process alone, as `locked`; keeps the user's files in it.

    Raises:
        ConfigError: if the folder holds something and `resume` is false, or if it holds a sweep of
            another configuration or with other files.
        BusyError: if another process works in the folder.
    """
    _require_usable(SweepDirectory(path), config, resume)
    with locked(path, note) as directory:
        if own is not None:
            keep_own_files(own, path)
            config = own.rewritten(config)
        write_text(directory.config, experiment.dump(config))
        yield directory


@contextmanager
def locked(path: Path, note: Callable[[str], None] = lambda text: None) -> Iterator[SweepDirectory]:
    """Opens a folder of runs for this process alone. Removes what a killed process left there.

    `note` gets a line about what a killed process left on the machine.

    Raises:
        ConfigError: if the folder cannot be made, or holds something else.
        BusyError: if another process works in the folder.
    """
    directory = SweepDirectory(path)
    try:
        files.make_folders(path)
        # We empty this folder below, so it must not be somebody's own in a folder of another kind.
        is_store = (path / _LOCK).exists() or directory.config.exists()
        if not is_store and os.path.lexists(directory.unfinished):
            raise ConfigError(
                f"{path}: outcast did not make this folder, and {directory.unfinished.name} is in "
                "it; allowed is a new folder"
            )
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path / _LOCK, flags, 0o666)
        for folder in (directory.runs, directory.unfinished):
            folder.mkdir(exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; allowed is a new folder of yours") from None
    with open(descriptor, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(f"{path}: another outcast works in it; wait until it ends") from None
        # What killed runs of this sweep left on the machine.
        ledger.undo_dead(note)
        shutil.rmtree(directory.unfinished)
        directory.unfinished.mkdir()
        try:
            yield directory
        finally:
            files.hand_over(path)


def _require_usable(directory: SweepDirectory, config: Experiment, resume: bool) -> None:
    path = directory.path
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not directory.config.exists():
        raise ConfigError(f"{path}: exists and holds no sweep; allowed is a new folder")
    if not resume:
        raise ConfigError(f"{path}: holds a sweep already; --resume continues it")
    there, here = (_facts(tree) for tree in (directory.read_experiment(), config))
    for key in here.keys() | there.keys():
        if here.get(key) != there.get(key):
            raise ConfigError(
                f"{path}: holds a sweep with another {key} "
                f"({shortened(str(there.get(key)), 200)} there, "
                f"{shortened(str(here.get(key)), 200)} here); "
                f"its configuration is {directory.config}"
            )


def _facts(config: Experiment) -> dict[str, Any]:
    """A configuration's keys to compare. Files lose their folders, because a run has copies."""
    tree = with_files(config, lambda file: Path(file.name)).model_dump(mode="json", by_alias=True)
    tree["topology"].pop("path", None)
    for number, override in enumerate(tree["links"]["overrides"]):
        if isinstance(override.get("rate"), dict):
            name = override["rate"]["trace"]
            override["rate"]["trace"] = name.removeprefix(f"{number}-")
    return {key: value for key, value in tree.items() if key not in OF_THE_SWEEP}


def reduce(directory: RunDirectory, choice: Captures) -> None:
    """Compresses or removes the captures, and seals the manifest again.

    A compressed capture has `.zst` after its name and is read as before. The manifest keeps the
    hashes of removed captures in `dropped`. After a crash in between the manifest does not verify.
    """
    files = sorted(directory.captures.glob("*"))
    if choice == "drop":
        dropped = {str(path.relative_to(directory.path)): sha256(path) for path in files}
        shutil.rmtree(directory.captures)
        directory.seal(dropped=dropped)
    elif choice == "compress":
        for path in files:
            with path.open("rb") as source, Path(f"{path}{COMPRESSED}").open("wb") as sink:
                # A higher level than zstd's default costs a sweep more time than it is worth.
                zstandard.ZstdCompressor(level=3, write_checksum=True).copy_stream(source, sink)
            path.unlink()
        counters = directory.read_counters()
        named = {"captures": _compressed(counters.captures)}
        directory.write_counters(counters.model_copy(update=named))
        directory.seal(captures=_compressed(directory.read_manifest().captures))


def _compressed(records: Iterable[CaptureRecord]) -> list[CaptureRecord]:
    return [record.model_copy(update={"file": record.file + COMPRESSED}) for record in records]


_OF_THE_FOLDER = frozenset(
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


def own_files_of(whole: Experiment, points: Iterable[Experiment], folder: Path) -> OwnFiles:
    """The files that a configuration in `folder` names, itself or at the points of its sweep.

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
    return None if path.parts[0] in _OF_THE_FOLDER else path


def _with_headers(place: Path, file: Path) -> dict[Path, Path]:
    """A file by its place, with what the source of a kernel module includes from beside it."""
    if file.suffix != ".c":
        return {place: file}
    return {place.parent / name: file.parent / name for name in own_modules.sources(file)}


def keep_own_files(own: OwnFiles, folder: Path) -> None:
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
