"""Archives of runs, runs that are made again, and whether these can be compared."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from outcast import archive
from outcast import experiment as reading
from outcast.api import making
from outcast.api.progress import note
from outcast.archive import Packed
from outcast.archive.contents import Captures, require_unchanged
from outcast.engines import ledger
from outcast.engines.kernel import cache
from outcast.engines.kernel.cache import Kernel
from outcast.engines.root import cache as roots
from outcast.errors import ConfigError, InputError, OutcastError, UntrustedError, without_folder
from outcast.experiment import Experiment, Module, Trace
from outcast.experiment.parts import files_of
from outcast.files import sha256
from outcast.networks import resolve
from outcast.plan.planned import Planned
from outcast.records import kept_captures
from outcast.records import replay as comparing
from outcast.records.interventions import Interventions
from outcast.records.replay import Explanation
from outcast.records.run_directory import Manifest, RunDirectory

_COMPARED = (
    *(f"{n}.parquet" for n in ("packets", "flows", "throughput", "streams")),
    "summary.json",
)


def require_tables(directory: RunDirectory, where: str) -> None:
    """Requires a run's captures, and tables that are what its captures give.

    `outcast analyze` makes tables again, perhaps of another version. So where one has another hash
    than the manifest says, the captures are analysed once more.

    Raises InputError: a capture was not kept, a table is missing or is another one. The error
    begins with `where`.
    """
    manifest = directory.read_manifest()
    if dropped := kept_captures.not_kept(directory, manifest):
        raise InputError(
            f"{where}: {dropped[0]} was not kept, so no run can be compared with it packet by "
            "packet; allowed are runs with their captures"
        )
    hashes = {
        name: sha256(directory.path / name) if (directory.path / name).exists() else None
        for name in _COMPARED
    }
    for name in manifest.files:
        if name in hashes and hashes[name] is None:
            raise InputError(f"{where}: no {name}; outcast analyze writes it anew")
    changed = [name for name, digest in hashes.items() if digest != manifest.files.get(name)]
    if changed:
        _require_of_captures(directory, changed, where)


def _require_of_captures(directory: RunDirectory, names: list[str], where: str) -> None:
    from outcast import analysis

    with scratch_folder() as scratch:
        again = RunDirectory(scratch / "again")
        left_out = shutil.ignore_patterns(directory.captures.name, "*.parquet", *_COMPARED)
        shutil.copytree(directory.path, again.path, ignore=left_out)
        analysis.write(again, analysis.compute(directory))
        for name in names:
            made = again.path / name
            if not made.exists() or sha256(made) != sha256(directory.path / name):
                raise InputError(
                    f"{where}: {name} is not what its captures give; outcast analyze makes it anew"
                )


@dataclass(frozen=True)
class Replay:
    """A run that was made again.

    Attributes:
        explanation: where the runs part, and what could have caused it.
        directory: the new run's directory; None if it was not kept.
    """

    explanation: Explanation
    directory: Path | None

    @property
    def difference(self) -> str:
        """What differs first, in one line; empty if all captures are equal to the byte."""
        return self.explanation.difference

    @property
    def equal(self) -> bool:
        """Whether all captures are equal to the byte."""
        return self.explanation.equal

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
        captures: `keep`, or `hashes`, by which a replay can still show whether it is equal.
        license_url: where the license stands under which you give the archive away.

    Raises:
        InputError: it is no finished run, or what it wrote was changed since.
        ConfigError: an argument is refused.
        OSError: the archive cannot be written.
    """
    require_choices(captures, license_url)
    return archive.write(Path(file), RunDirectory(Path(directory)), captures, license_url)


def require_choices(captures: str, license_url: str | None) -> None:
    """Raises ConfigError if an archive cannot be made with these."""
    if captures not in ("keep", "hashes"):
        raise ConfigError(f"captures: {captures!r}: allowed are 'keep' and 'hashes'")
    if license_url is not None and not license_url.startswith(("http://", "https://")):
        raise ConfigError(
            f"license: {license_url!a}: allowed is an address, as "
            "https://spdx.org/licenses/CC-BY-4.0"
        )


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
        allow_programs: whether what the run brings may start here, with your rights: programs
            and kernel modules.
        progress: as in `outcast.run`.

    Raises:
        InputError: the archive is broken or cannot be replayed.
        OutcastError: the run failed, as in `run`.
    """
    with opened(Path(source)) as earlier, scratch_folder() as scratch:
        target = scratch / "again" if directory is None else Path(directory)
        draw = directory is not None
        again = Again(scratch, target, allow_programs, progress, draw=draw)
        explanation = make_again(earlier, str(source), again)
    return Replay(explanation, None if directory is None else target)


@dataclass(frozen=True)
class Again:
    """How a run is made again, in a new or empty folder.

    Attributes:
        scratch: a folder whose name errors leave out.
        draw: whether figures and the report are drawn.
        events: the kernel's events to record; None records those that the run recorded.
        interventions: what is changed in the run; None makes those of the earlier run again.
        on_analysed: is called with the new run's folder before figures are drawn.
    """

    scratch: Path
    target: Path
    allow_programs: bool
    progress: bool | None
    _: KW_ONLY
    draw: bool
    events: Sequence[str] | None = None
    interventions: Interventions | None = None
    on_analysed: Callable[[RunDirectory], None] | None = None


def make_again(earlier: RunDirectory, source: str, how: Again) -> Explanation:
    """Makes a run again, and compares it with the earlier one. Errors call that `source`.

    Raises as `replay`.
    """
    experiment = replayable(earlier, source, how.allow_programs)
    if how.events is not None:
        experiment = experiment.model_copy(update={"trace": Trace(events=tuple(how.events))})
    planned = Planned(experiment)
    manifest = earlier.read_manifest()
    if other := other_guest(manifest):
        note(how.progress, f"{source}: {other}, so the captures may differ")
    try:
        fresh = making.execute(
            planned,
            how.target,
            how.progress,
            draw=how.draw,
            kernel=_kernel(manifest),
            interventions=how.interventions or manifest.interventions,
            on_analysed=how.on_analysed,
        )
    except OutcastError as error:
        if how.target.is_relative_to(how.scratch):
            # What was written up to then is gone when somebody reads this.
            error.args = (without_folder(str(error)), *error.args[1:])
        raise
    return comparing.explain(earlier, fresh)


def require_same(source: str, explanation: Explanation, consequence: str = "") -> None:
    """Raises UntrustedError if a run made again is another one than `source`."""
    if not explanation.equal:
        raise UntrustedError(
            f"{source}: the run made again is another one{consequence}: {explanation.difference}; "
            "outcast replay --explain says more"
        )


@contextmanager
def opened(source: Path) -> Iterator[RunDirectory]:
    """The run in an archive, unpacked for as long as the block takes, or in a run directory.

    Raises:
        InputError: it is neither, or what the run wrote was changed since.
        OSError: the archive cannot be unpacked; the error names the file.
    """
    if source.is_dir():
        directory = RunDirectory(source)
        require_unchanged(directory)
        yield directory
        return
    with scratch_folder() as folder, named_as(f"{source}: ", folder):
        yield archive.unpack(source, folder)


@contextmanager
def named_as(name: str, folder: Path) -> Iterator[None]:
    """Errors have this name for a folder, which is gone when somebody reads them."""
    try:
        yield
    except OutcastError as error:
        error.args = (str(error).replace(f"{folder}{os.sep}", name), *error.args[1:])
        raise


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder, which `outcast clean` removes if we are killed."""
    entry = ledger.begin()
    folder = Path(tempfile.mkdtemp(prefix="outcast-replay-"))
    try:
        entry.note_folder(folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        entry.remove()


def require_here(manifest: Manifest, where: str) -> None:
    """Raises InputError if another kernel or root made a run than those here.

    A run made by these differs from it everywhere, not only in what was changed.
    """
    if different := other_guest(manifest):
        raise InputError(f"{where}: {different}; make the run anew: outcast run")


def made_by(manifest: Manifest) -> tuple[object, ...]:
    """The kernel and the root that made a run."""
    return manifest.kernel.get("sha256"), manifest.guest.root if manifest.guest else None


def other_guest(manifest: Manifest) -> str:
    """Says what of the guest here differs from the guest that made a run; empty if nothing does.

    A kernel or a root that is not here yet is no difference, because a run makes them first.
    """
    sha256 = str(manifest.kernel.get("sha256"))
    kernel, root = cache.of_sha256(sha256) or cache.find(), roots.find()
    if kernel is not None and sha256 != kernel.sha256:
        return f"made by kernel {sha256[:12]}, here is {kernel.sha256[:12]}"
    made_in = manifest.guest.root if manifest.guest is not None else "host"
    if root is not None and made_in not in ("host", root.key):
        return f"made in the root {made_in[:12]}, here is {root.key[:12]}"
    return ""


def _kernel(manifest: Manifest) -> Kernel | None:
    """The kernel to replay a run in; None for the one that a run here would have."""
    kernel = cache.of_sha256(manifest.kernel.get("sha256"))
    return None if kernel is None or kernel == cache.find() else kernel


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
    require_own(directory.config, files_of(experiment))
    require_allowed(where, brought_by(experiment), allow_programs)
    return experiment


def require_virtual(where: str, *engines: str) -> None:
    """Raises InputError if one of the engines is that of real time."""
    if "realtime" in engines:
        raise InputError(
            f"{where}: ran in real time, so it cannot be replayed; its captures can be read: "
            "outcast analyze, outcast inspect"
        )


def brought_by(experiment: Experiment) -> list[str]:
    """Says what an experiment starts with the user's rights."""
    brought = [
        # The whole command, because its end can be what matters.
        *(f"the program {shlex.join(program.command)!r}" for program in experiment.programs),
        *(f"the kernel module {module.path.name}" for module in _modules(experiment)),
    ]
    if experiment.guest.root == "host":
        brought.append("a guest that sees this machine's files (guest.root: host)")
    return brought


def require_allowed(where: str, brought: Sequence[str], allow_programs: bool) -> None:
    """Raises InputError if something would be started that is not allowed."""
    if brought and not allow_programs:
        raise InputError(
            f"{where}: a replay runs what the run brings, with your rights: {', '.join(brought)}; "
            "if you trust them, allow it: --allow-programs"
        )


def _modules(experiment: Experiment) -> tuple[Module, ...]:
    return () if experiment.kernel is None else experiment.kernel.modules


def require_own(config: Path, paths: Sequence[Path]) -> None:
    """Raises InputError if one of the files is not in the folder of a run or a sweep.

    What somebody packed could otherwise name any file of this machine, and the new run would hold
    a copy of it.
    """
    own = config.parent.absolute()
    for path in paths:
        # The reader has made the paths absolute and without `..`, and the folder has no links.
        if not path.is_relative_to(own):
            raise InputError(
                f"{config}: {path}: is no file of the run; a replay reads only the run's own files"
            )
