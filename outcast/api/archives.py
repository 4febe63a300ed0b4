"""Archives of runs, runs that are made again, and whether these can be compared."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from outcast import archive
from outcast import experiment as reading
from outcast.api import making
from outcast.api.progress import note
from outcast.archive import Packed
from outcast.archive.contents import Captures, require_unchanged
from outcast.engines import ledger
from outcast.engines.guest import kernels, roots
from outcast.errors import ConfigError, InputError, OutcastError, without_folder
from outcast.experiment import Experiment, Trace
from outcast.experiment.parts import files_of
from outcast.networks import resolve
from outcast.plan.model import Planned
from outcast.records import kept_captures
from outcast.records import replay as comparing
from outcast.records.interventions import Interventions
from outcast.records.replay import Explanation
from outcast.records.run_directory import Manifest, RunDirectory

_COMPARED = ("packets", "flows", "throughput", "streams")
FEW = 3
"""How many runs of a sweep go into its archive whole, where nobody says it."""


def require_comparable(directory: RunDirectory, where: str) -> None:
    """Requires that a run can be made again here, and compared packet by packet with that run.

    Raises InputError, which begins with `where`: also if another kernel or root made the run,
    because then it would differ everywhere.
    """
    manifest = directory.read_manifest()
    require_virtual(where, manifest.engine)
    if different := other_guest(manifest):
        raise InputError(f"{where}: {different}; make the run again: outcast run")
    if dropped := kept_captures.not_kept(directory, manifest):
        raise InputError(
            f"{where}: {dropped[0]} was not kept, so no run can be compared with it packet by "
            "packet; allowed are runs with their captures"
        )
    for name in (*(f"{table}.parquet" for table in _COMPARED), "summary.json"):
        if name in manifest.files and not (directory.path / name).exists():
            raise InputError(f"{where}: no {name}; outcast analyze makes it")


@dataclass(frozen=True)
class Replay:
    """A run that was made again, or runs of a sweep.

    Attributes:
        runs: the names of these runs; the run's own one where it is of no sweep.
        planned: how many runs the sweep has.
        captures: how many captures were compared.
        values: how many values of the tables of a sweep were compared.
        differing: what differs, in lines. Of a run it is the first difference alone.
        explanation: where a run parts from the earlier one, and what could have caused it.
        directory: the folder with what is new; None if it was not kept.
    """

    runs: tuple[str, ...]
    planned: int
    captures: int
    values: int
    differing: tuple[str, ...]
    explanation: Explanation | None
    directory: Path | None

    @property
    def difference(self) -> str:
        """What differs first, in one line; empty if nothing does."""
        return self.differing[0] if self.differing else ""

    @property
    def equal(self) -> bool:
        """Whether all captures are equal to the byte, and all values of a sweep's tables."""
        return not self.differing


def pack(
    directory: str | os.PathLike[str],
    file: str | os.PathLike[str],
    *,
    captures: Captures = "keep",
    runs: int | Literal["all"] | None = None,
) -> Packed:
    """Makes one archive of a finished run or sweep, which others can read and replay.

    Args:
        directory: the run directory, or the sweep's folder.
        file: the zip file to write. A file of this name is replaced.
        captures: `keep`, or `hashes`, by which a replay can still show whether it is equal.
        runs: how many runs of a sweep go in whole, 3 if None; all others lack captures and the
            tables of packets.

    Raises:
        InputError: it is no finished run or sweep, or what it wrote was changed since.
        ConfigError: an argument is refused.
        OSError: the archive cannot be written.
    """
    if captures not in ("keep", "hashes"):
        raise ConfigError(f"captures: {captures!r}: allowed are 'keep' and 'hashes'")
    path = Path(directory)
    if not _is_sweep(path):
        _require_no_options(path, runs)
        return archive.write(Path(file), RunDirectory(path), captures)
    from outcast.sweep import packing, store

    whole = sys.maxsize if runs == "all" else runs or FEW
    return packing.write(Path(file), store.SweepDirectory(path), whole, captures)


def _is_sweep(folder: Path) -> bool:
    return (folder / "sweep.yaml").exists() and not RunDirectory(folder).manifest.exists()


def _require_no_options(run: Path, *options: object) -> None:
    if any(option is not None for option in options):
        raise ConfigError(f"{run}: is a run; --runs and --jobs are of a sweep")


def replay(
    source: str | os.PathLike[str],
    directory: str | os.PathLike[str] | None = None,
    *,
    runs: int | Literal["all"] | None = None,
    jobs: int | None = None,
    allow_programs: bool = False,
    progress: bool | None = None,
) -> Replay:
    """Makes a packed run, or runs of a sweep, again, and compares captures.

    Of a sweep also all values of the tables are compared.

    Args:
        source: an archive, a run directory or a sweep's folder.
        directory: a new or empty folder in which what is new is kept; None keeps nothing.
        runs: how many runs of a sweep, drawn at random; 5 if None.
        jobs: how many runs of a sweep go on at a time; None is as many as there are cores.
        allow_programs: whether what the run brings may start here, with your rights: programs
            and kernel modules.
        progress: as in `outcast.run`.

    Raises:
        InputError: the archive is broken or cannot be replayed.
        OutcastError: the run failed, as in `run`.
    """
    path, target = Path(source), None if directory is None else Path(directory)
    with opened(path, sweeps=True) as there, scratch_folder() as scratch:
        if _is_sweep(there.path):
            from outcast.api.sweeps import replay_sweep

            return replay_sweep(
                there.path, path, target, scratch, runs, jobs, allow_programs, progress
            )
        _require_no_options(path, runs, jobs)
        how = make_again(
            there,
            str(path),
            target or scratch / "again",
            kept=target is not None,
            allow_programs=allow_programs,
            progress=progress,
        )
    differing = () if how.equal else (how.difference,)
    return Replay((path.name,), 1, how.captures, 0, differing, how, target)


def make_again(
    earlier: RunDirectory,
    source: str,
    target: Path,
    *,
    kept: bool,
    allow_programs: bool,
    progress: bool | None,
    events: Sequence[str] | None = None,
    interventions: Interventions | None = None,
    on_analysed: Callable[[RunDirectory], None] | None = None,
) -> Explanation:
    """Makes a run again in a new or empty folder, and compares it with the earlier one.

    Errors call the earlier run `source`. Of a folder that is kept, figures and the report are
    drawn. Without `events` and `interventions`, those of the earlier run come again. `on_analysed`
    is called with the new run's folder before figures are drawn. Raises as `replay`.
    """
    experiment = replayable(earlier, source, allow_programs)
    if events is not None:
        experiment = experiment.model_copy(update={"trace": Trace(events=tuple(events))})
    manifest = earlier.read_manifest()
    if other := other_guest(manifest):
        note(progress, f"{source}: {other}, so the captures may differ")
    kernel = kernels.of_sha256(manifest.kernel.get("sha256"))
    try:
        fresh = making.execute(
            Planned(experiment),
            target,
            progress,
            draw=kept,
            kernel=None if kernel == kernels.find() else kernel,
            interventions=interventions or manifest.interventions,
            on_analysed=on_analysed,
        )
    except OutcastError as error:
        if not kept:
            # What was written up to then is gone when somebody reads this.
            error.args = (without_folder(str(error)), *error.args[1:])
        raise
    return comparing.explain(earlier, fresh)


@contextmanager
def opened(source: Path, *, sweeps: bool = False) -> Iterator[RunDirectory]:
    """The run in an archive, unpacked for as long as the block takes, or in a run directory.

    With `sweeps`, it may be a sweep's folder.

    Raises:
        InputError: it is neither, or what the run wrote was changed since.
        OSError: the archive cannot be unpacked; the error names the file.
    """
    with ExitStack() as stack:
        folder = source
        if not source.is_dir():
            scratch = stack.enter_context(scratch_folder())
            record = archive.unpack(source, scratch)
            stack.enter_context(archive.named_as(source, scratch))
            folder = scratch / (archive.SWEEP if record.sweep else archive.RUN)
        if not _is_sweep(folder):
            require_unchanged(RunDirectory(folder))
        elif not sweeps:
            raise InputError(f"{source}: is a sweep; only `outcast replay` reads its archive")
        yield RunDirectory(folder)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder, which `outcast clean` removes if this process is killed."""
    entry = ledger.begin()
    folder = Path(tempfile.mkdtemp(prefix="outcast-replay-"))
    try:
        entry.note_folder(folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        entry.remove()


def other_guest(manifest: Manifest) -> str:
    """What differs between the guest here and the guest of a run, in words; empty if nothing does.

    A kernel or a root that is missing here is no difference, because a run makes them first.
    """
    sha256 = str(manifest.kernel.get("sha256"))
    kernel, root = kernels.of_sha256(sha256) or kernels.find(), roots.find()
    if kernel is not None and sha256 != kernel.sha256:
        return f"made by kernel {sha256[:12]}, here is {kernel.sha256[:12]}"
    made_in = manifest.guest.root if manifest.guest is not None else "host"
    if root is not None and made_in not in ("host", root.key):
        return f"made in the root {made_in[:12]}, here is {root.key[:12]}"
    return ""


def replayable(directory: RunDirectory, where: str, allow_programs: bool) -> Experiment:
    """The experiment of a run that somebody handed in, if it can be made again here.

    Raises InputError, which begins with `where`: it cannot be, it names files that are not its own,
    or it would start programs or compile modules and that is not allowed.
    """
    manifest = directory.read_manifest()
    experiment = resolve.experiment_of(reading.read(directory.config, own_folder=directory.path))
    require_virtual(where, manifest.engine, experiment.engine)
    if experiment.engine != "virtual":
        raise InputError(f"{directory.config}: engine: allowed is virtual, as a run resolves it")
    if not manifest.captures:
        raise InputError(f"{directory.manifest}: names no captures, so there is nothing to compare")
    require_harmless(directory.config, where, [experiment], allow_programs)
    return experiment


def require_virtual(where: str, *engines: str) -> None:
    """Raises InputError if one of the engines is that of real time."""
    if "realtime" in engines:
        raise InputError(
            f"{where}: ran in real time, so it cannot be replayed; its captures can be read: "
            "outcast analyze, outcast inspect"
        )


def require_harmless(
    config: Path, where: str, experiments: Iterable[Experiment], allow_programs: bool
) -> None:
    """Raises InputError if experiments that somebody packed could do harm here.

    Each may name only files in the folder of its configuration, because the new run would hold a
    copy. What it starts with the user's rights needs their consent.
    """
    brought: list[str] = []
    for experiment in experiments:
        for path in files_of(experiment):
            # The reader has made paths absolute and without `..`, and the folder has no links.
            if not path.is_relative_to(config.parent.absolute()):
                raise InputError(
                    f"{config}: {path}: is no file of the run; a replay reads only the run's own "
                    "files"
                )
        modules = experiment.kernel.modules if experiment.kernel is not None else ()
        # The whole command, because its end can be what matters.
        brought += (f"the program {shlex.join(each.command)!r}" for each in experiment.programs)
        brought += (f"the kernel module {module.path.name}" for module in modules)
        if experiment.guest.root == "host":
            brought.append("a guest that sees this machine's files (guest.root: host)")
    if brought and not allow_programs:
        raise InputError(
            f"{where}: a replay runs what the run brings, with your rights: "
            f"{', '.join(dict.fromkeys(brought))}; if you trust them, allow it: --allow-programs"
        )
