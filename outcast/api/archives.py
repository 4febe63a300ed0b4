"""Archives of runs, and runs that are made again."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from outcast import archive
from outcast import experiment as reading
from outcast.api import runs
from outcast.api.progress import note
from outcast.archive import Packed
from outcast.archive.contents import Captures, listed, require_unchanged
from outcast.engines import ledger
from outcast.engines.kernel import cache
from outcast.errors import ConfigError, InputError, OutcastError, ReplayError, shortened
from outcast.experiment import Experiment, Module
from outcast.experiment.links import RateTrace
from outcast.networks import resolve
from outcast.records import replay as comparing
from outcast.records import verify
from outcast.records.replay import Explanation
from outcast.records.run_directory import Manifest, RunDirectory


@dataclass(frozen=True)
class Replay:
    """A run that was made again.

    Attributes:
        difference: what differs first, in one line; empty if all captures are equal to the byte.
        explanation: where the runs part, and what could have caused it.
        directory: the new run's directory; None if it was not kept.
    """

    difference: str
    explanation: Explanation
    directory: Path | None

    @property
    def equal(self) -> bool:
        """Whether all captures are equal to the byte."""
        return not self.difference

    @property
    def captures(self) -> int:
        """How many captures were compared."""
        return self.explanation.captures


def pack(
    directory: str | os.PathLike[str],
    file: str | os.PathLike[str],
    *,
    captures: Captures = "keep",
    license_url: str | None = None,
) -> Packed:
    """Makes one archive of a finished run, which others can read and replay.

    Args:
        directory: the run directory.
        file: the zip file to write. A file of this name is replaced.
        captures: `keep`, or `hashes`, by which a replay can still tell whether it is equal.
        license_url: where the license stands under which you give the archive away.

    Raises:
        InputError: it is no finished run, or what it wrote was changed since.
        ConfigError: an argument is refused.
        OSError: the archive cannot be written.
    """
    if captures not in ("keep", "hashes"):
        raise ConfigError(f"captures: {captures!r}: allowed are 'keep' and 'hashes'")
    if license_url is not None and not license_url.startswith(("http://", "https://")):
        raise ConfigError(
            f"license: {license_url!a}: allowed is an address, as "
            "https://spdx.org/licenses/CC-BY-4.0"
        )
    return archive.write(Path(file), RunDirectory(Path(directory)), captures, {}, license_url)


def replay(
    source: str | os.PathLike[str],
    directory: str | os.PathLike[str] | None = None,
    *,
    allow_programs: bool = False,
    progress: bool | None = None,
) -> Replay:
    """Makes a packed run again with its configuration and seed, and compares the captures.

    Args:
        source: an archive, or a run directory.
        directory: a new or empty folder in which the new run is kept; None keeps nothing.
        allow_programs: whether the programs that the run names may run here, and its kernel
            modules be compiled. They have your rights.
        progress: whether to show it on standard error; None shows it on a terminal and in a
            notebook.

    Raises:
        InputError: the archive is broken or cannot be replayed.
        OutcastError: the run failed, as in `run`.
    """
    with opened(Path(source)) as packed, _scratch() as scratch:
        experiment = _replayable(packed, str(source), allow_programs)
        other = other_guest(packed.read_manifest())
        if other:
            note(progress, f"{source}: {other}, so the captures may differ")
        target = scratch / "again" if directory is None else Path(directory)
        fresh = runs.execute(experiment, target, progress, draw=directory is not None)
        difference = _difference(packed, fresh)
        explanation = comparing.explain(packed, fresh)
    return Replay(difference, explanation, None if directory is None else target)


def _difference(one: RunDirectory, other: RunDirectory) -> str:
    try:
        comparing.require_equal(one, other)
    except ReplayError as error:
        return str(error)
    return ""


@contextmanager
def opened(source: Path) -> Iterator[RunDirectory]:
    """The run in an archive, unpacked for as long as the block takes, or in a run directory.

    Raises:
        InputError: it is neither, or what the run wrote was changed since.
        OSError: the archive cannot be unpacked; the error names the file.
    """
    if source.is_dir():
        directory = RunDirectory(source)
        differences = verify.differences(directory, directory.read_manifest())
        require_unchanged(directory, differences)
        yield directory
        return
    with _scratch() as folder:
        try:
            yield archive.unpack(source, folder).run
        except OutcastError as error:
            # The folder is gone when somebody reads this.
            text = str(error).replace(f"{folder}{os.sep}", f"{source}: ")
            error.args = (text, *error.args[1:])
            raise


@contextmanager
def _scratch() -> Iterator[Path]:
    """A temporary folder, which `outcast clean` removes if we are killed."""
    entry = ledger.open_entry(ledger.default_folder())
    folder = Path(tempfile.mkdtemp(prefix="outcast-replay-"))
    try:
        entry.folders.append(str(folder))
        entry.write()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        entry.remove()


def other_guest(manifest: Manifest) -> str:
    """What of the guest here differs from the guest that made a run; empty if nothing does."""
    kernel = cache.find()
    sha256 = str(manifest.kernel.get("sha256"))
    if kernel is None or sha256 == kernel.sha256:
        return ""
    return f"made by kernel {sha256[:12]}, here is {kernel.sha256[:12]}"


def _replayable(directory: RunDirectory, where: str, allow_programs: bool) -> Experiment:
    """The experiment of a run that somebody handed in, if it can be made again here.

    Raises:
        InputError: it cannot be, it names files that are not its own, or it would start programs
            or compile modules and that is not allowed. The error begins with `where`.
    """
    manifest = directory.read_manifest()
    experiment = resolve.experiment_of(reading.read(directory.config))
    if "realtime" in (manifest.engine, experiment.engine):
        raise InputError(
            f"{where}: ran in real time, so it cannot be replayed; its captures can be read: "
            "outcast analyze, outcast inspect"
        )
    if experiment.engine != "virtual":
        raise InputError(f"{directory.config}: engine: allowed is virtual, as a run resolves it")
    if not manifest.captures:
        raise InputError(f"{directory.manifest}: names no captures, so there is nothing to compare")
    _require_own(directory, _files_of(experiment))
    brought = [
        *(
            f"the program {shortened(shlex.join(program.command), 60)!r}"
            for program in experiment.programs
        ),
        *(f"the kernel module {module.path.name}" for module in _modules(experiment)),
    ]
    if brought and not allow_programs:
        raise InputError(
            f"{where}: a replay runs what the run brings, with your rights: {listed(brought)}; "
            "if you trust them, allow it: --allow-programs"
        )
    return experiment


def _files_of(experiment: Experiment) -> list[Path]:
    """The files that a run of this experiment reads."""
    rates = (override.rate_bps for override in experiment.links.overrides)
    return [
        *(path for program in experiment.programs for path in program.files),
        *(module.path for module in _modules(experiment)),
        *(rate.trace for rate in rates if isinstance(rate, RateTrace)),
    ]


def _modules(experiment: Experiment) -> tuple[Module, ...]:
    return () if experiment.kernel is None else experiment.kernel.modules


def _require_own(directory: RunDirectory, paths: Sequence[Path]) -> None:
    """Raises InputError if one of the files is not in the run's directory.

    What somebody packed could otherwise name any file of this machine, and the new run would hold
    a copy of it.
    """
    own = directory.path.absolute()
    for path in paths:
        # The reader has made the paths absolute and without `..`, and the folder has no links.
        if not path.is_relative_to(own):
            raise InputError(
                f"{directory.config}: {path}: is no file of the run; a replay reads only the "
                "run's own files"
            )
