"""One experiment, from the configuration to the figures. It appears whole, or not at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outcast import files, handed_in
from outcast.engines import Engine, OnEvent, ledger, own_modules, programs
from outcast.errors import ConfigError, InputError, OutcastError, RunError, with_folder
from outcast.experiment import Experiment, Noise, Transport, dump
from outcast.experiment.engine import EngineName, properties
from outcast.experiment.links import RateTrace
from outcast.experiment.noise import PROFILES
from outcast.files import write_text
from outcast.plan import trace_files
from outcast.plan.make import make_plan, plan_of_command
from outcast.records.run_directory import RunDirectory
from outcast.view import drawing


class TakenError(ConfigError):
    """The place of a result holds something, or another run has it."""


@dataclass(frozen=True)
class Outcome:
    """A finished run.

    Attributes:
        distrust: reasons why its captures or counters cannot be trusted; empty where they can.
    """

    directory: RunDirectory
    figures: tuple[Path, ...]
    distrust: tuple[str, ...]


_ALLOWED = "allowed is a new or empty folder of yours"
_LONGEST_NAME = 255
_LONGEST_PATH = 4095
"""In bytes (limits.h, NAME_MAX and PATH_MAX without the null)."""
_ROOM_IN_NAME = 16
_ROOM_IN_PATH = 256
"""Bytes that the files in a run directory need, and the longer name of a failed run."""


def resolve(experiment: Experiment, engine: EngineName) -> Experiment:
    """The experiment with every default filled in: engine, delay, noise, sampling interval."""
    noise = experiment.noise.resolved(engine)
    links = experiment.links.resolved(properties(engine).delay_ns, noise)
    # A key of the links wins, and the configuration then says so in both places.
    noise = noise.model_copy(update={"oscillators_ppm": links.clock_offset_ppm})
    if experiment.links.jitter_ns is not None and not noise.greatest_jitter:
        noise = noise.model_copy(update={"switch_latency_ns": links.jitter_ns})
    samples = experiment.samples
    if samples.every_ns is None:
        samples = samples.model_copy(update={"every_ns": properties(engine).samples_every_ns})
    return experiment.model_copy(
        update={
            "links": links,
            "noise": noise,
            "transport": _with_offloads(experiment, noise),
            "engine": engine,
            "samples": samples,
        }
    )


def _with_offloads(experiment: Experiment, noise: Noise) -> Transport:
    """TCP's settings, with the profile's offloads if none are given and nothing forbids them."""
    base = experiment.transport
    if base.offloads is not None:
        return base
    transports = [base, *map(experiment.group_transport, range(len(experiment.flows)))]
    cuts = experiment.blackout is not None or any(tcp.tcprand is not None for tcp in transports)
    on = noise.profile is not None and PROFILES[noise.profile].offloads
    return base.model_copy(update={"offloads": on and not cuts and not _has_own_mtu(experiment)})


def _has_own_mtu(experiment: Experiment) -> bool:
    """Whether a link may take larger frames than another one.

    With offloads several segments would cross it as one frame, which the next link cuts.
    """
    links = experiment.links
    keys = [*links.overrides, *(own for _, own in links.layers.given())]
    network = getattr(experiment.topology, "network", None)
    own = (words for link in (network.links if network else ()) for words in link.own.values())
    return any(key.mtu_bytes is not None for key in keys) or any("mtu" in words for words in own)


def default_directories(experiment: Experiment) -> Iterator[Path]:
    """The folder results/NAME-DATE-TIME below the working directory, then others with a suffix.

    Several runs may start within one second.
    """
    first = f"{experiment.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    yield Path("results", first)
    yield from (Path("results", f"{first}-{number}") for number in range(2, 100))


def execute(
    experiment: Experiment,
    engine: Engine,
    target: Path,
    on_event: OnEvent,
    *,
    draw: bool = True,
    on_analysed: Callable[[RunDirectory], None] | None = None,
) -> Outcome:
    """Runs, analyses and draws an experiment; `target` appears when the result is complete.

    Raises:
        ConfigError: `target` already holds something, or a run could not put its result there.
        OutcastError: the run failed. What it had written is kept beside `target`, under its name
            with `.failed`, or `.failed-2` and so on if that is taken. A complete result that
            cannot be put in its place is kept too, and the error names its folder.
    """
    with unfinished(target, _notes(on_event)) as partial:
        directory = RunDirectory(partial.path)
        resolved = _with_own_files(experiment, engine, directory)
        directory.write_plan(make_plan(resolved))
        write_text(directory.config, dump(_with_own_traces(directory, resolved)))
        with _Pictures(directory, partial.entry, draw) as pictures:
            if properties(engine.name).virtual_clock:
                pictures.get_ready()
                on_event = _importing(on_event)
            wall_s = dict(engine.run(directory, partial.entry, on_event))
            _keep_source(directory, resolved)
            figures, distrust = _evaluate(directory, wall_s, on_event, pictures, on_analysed)
    return Outcome(
        RunDirectory(target),
        tuple(target / figure.relative_to(partial.path) for figure in figures),
        distrust,
    )


def _with_own_traces(directory: RunDirectory, experiment: Experiment) -> Experiment:
    """The experiment with the run's own copies of its rate traces, by paths within the run.

    The plan has the rates, so nothing but another run of this configuration reads the copies.

    Raises ConfigError: a file cannot be read.
    """
    overrides = []
    for number, override in enumerate(experiment.links.overrides):
        rate = override.rate_bps
        if isinstance(rate, RateTrace):
            own_name = f"{number}-{rate.trace.name.removeprefix(f'{number}-')}"
            copy = Path(directory.sources.name, own_name)
            directory.sources.mkdir(exist_ok=True)
            try:
                content = handed_in.read_bytes(rate.trace, trace_files.MOST_BYTES)
            except FileNotFoundError:
                raise ConfigError(f"{rate.trace}: there is no such file") from None
            except InputError as error:
                raise ConfigError(str(error)) from None
            with files.writing(directory.path / copy) as stream:
                stream.write(content)
            own = rate.model_copy(update={"trace": copy})
            overrides.append(override.model_copy(update={"rate_bps": own}))
        else:
            overrides.append(override)
    links = experiment.links.model_copy(update={"overrides": tuple(overrides)})
    return experiment.model_copy(update={"links": links})


def _with_own_files(experiment: Experiment, engine: Engine, directory: RunDirectory) -> Experiment:
    """The resolved experiment, whose programs and modules name copies in the run directory."""
    resolved = programs.take_files(resolve(experiment, engine.name), directory)
    return own_modules.copy_sources(resolved, directory.path)


def _keep_source(directory: RunDirectory, experiment: Experiment) -> None:
    """Keeps the user's file that the network was made from. Nothing reads the copy."""
    origin = getattr(experiment.topology, "origin", None)
    if origin is not None:
        directory.sources.mkdir(exist_ok=True)
        with files.writing(directory.sources / origin.name) as stream:
            stream.write(origin.content)


def execute_command(
    experiment: Experiment,
    engine: Engine,
    host: str | None,
    command: Sequence[str],
    within_ns: int,
    on_event: OnEvent,
) -> None:
    """Builds an experiment's network and runs one command in it; nothing is kept.

    Raises:
        ConfigError: there is no such host.
        FeatureMissingError: there is no such program.
        OutcastError: the network could not be built, or the command took too long.
    """
    entry = ledger.begin(_notes(on_event))
    folder = Path(tempfile.mkdtemp(prefix="outcast-exec-"))
    try:
        entry.note_folder(folder)
        directory = RunDirectory(folder)
        resolved = _with_own_files(experiment, engine, directory)
        plan = plan_of_command(make_plan(resolved), host, command, os.getcwd(), within_ns)
        write_text(directory.config, dump(_with_own_traces(directory, resolved)))
        directory.write_plan(plan)
        engine.run(directory, entry, on_event)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        entry.remove()


class _Pictures:
    """Processes that draw the figures, if any are wanted. They end with the `with` block."""

    def __init__(self, directory: RunDirectory, entry: ledger.Entry, draw: bool) -> None:
        self._directory = directory
        self._entry = entry
        self._stack = contextlib.ExitStack()
        self._drawing: drawing.Drawing | None = None
        self.draw = draw

    def __enter__(self) -> _Pictures:
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def get_ready(self) -> None:
        """Starts the processes, unless they are there."""
        if not self.draw or self._drawing is not None:
            return
        self._drawing = self._stack.enter_context(drawing.Drawing(self._directory))
        self._entry.note_process(self._drawing.pid)

    def write(self) -> list[Path]:
        """Draws the figures and writes the report. Returns their paths. Raises as Drawing.draw."""
        return [] if self._drawing is None else self._drawing.draw()


def _importing(on_event: OnEvent) -> OnEvent:
    """`on_event`, which also imports what `_evaluate` needs while the guest sets up its network.

    The guest keeps one core busy for seconds then. In real time any other work would disturb the
    run.
    """

    def take(event: Mapping[str, Any]) -> None:
        on_event(event)
        if event.get("phase") == "setup":
            from outcast import analysis

            analysis.get_ready()

    return take


def _evaluate(
    directory: RunDirectory,
    wall_s: dict[str, float],
    on_event: OnEvent,
    pictures: _Pictures,
    on_analysed: Callable[[RunDirectory], None] | None,
) -> tuple[list[Path], tuple[str, ...]]:
    from outcast import analysis

    pictures.get_ready()
    on_event({"event": "phase", "phase": "analysis"})
    began = time.monotonic()
    computed = analysis.compute(directory)
    wall_s["analysis"] = round(time.monotonic() - began, 3)
    manifest = directory.read_manifest()
    directory.write_manifest(manifest.model_copy(update={"wall_s": wall_s}))
    summary = analysis.write(directory, computed)
    if on_analysed is not None:
        on_analysed(directory)
    if pictures.draw:
        on_event({"event": "phase", "phase": "figures"})
    drawn = pictures.write()
    directory.seal()
    return drawn, tuple(summary.capture.reasons)


@dataclass(frozen=True)
class Partial:
    """A folder that is not complete yet, and its entry in the ledger."""

    path: Path
    entry: ledger.Entry


def _notes(on_event: OnEvent) -> Callable[[str], None]:
    return lambda text: on_event({"event": "note", "text": text})


@contextmanager
def unfinished(target: Path, tell: Callable[[str], None] = lambda text: None) -> Iterator[Partial]:
    """A folder beside `target` that is renamed to it when the block ends well.

    `tell` is given a line if killed runs had left something, which is removed.
    """
    require_free(target)
    path = _partial_of(target)
    entry = ledger.begin(tell)
    entry.folders.append(str(path))
    to_remove = False
    try:
        with _reserved(target, entry):
            try:
                path.mkdir()
            except OSError as error:
                raise ConfigError(f"{path}: {error.strerror}; {_ALLOWED}") from None
            to_remove = True
            try:
                yield Partial(path, entry)
            except Exception as error:
                _keep_failed(path, target, error)
                raise
            try:
                _put_in_place(path, target)
            except RunError:
                to_remove = False
                raise
    finally:
        if to_remove:
            shutil.rmtree(path, ignore_errors=True)
        entry.remove()


def _partial_of(target: Path) -> Path:
    """The run's folder until it is complete; the ledger removes only folders of such names."""
    return Path(os.path.abspath(target.parent)) / f".{target.name}.{os.getpid()}.partial"


@contextmanager
def _reserved(target: Path, entry: ledger.Entry) -> Iterator[None]:
    """Holds the result's place by a locked empty folder, so that no second run begins there.

    Raises ConfigError: another run holds it, or it cannot be made.
    """
    if not os.path.lexists(target):
        entry.reserved = os.path.abspath(target)
    entry.write()
    try:
        files.make_folders(target.parent)
        try:
            target.mkdir()
        except FileExistsError:
            entry.reserved = None
        descriptor = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"{target}: {error.strerror}; {_ALLOWED}") from None
    try:
        _lock(target, descriptor)
        yield
    finally:
        if entry.reserved is not None:
            # This fails where the result is in its place, because then the folder is not empty.
            with contextlib.suppress(OSError):
                target.rmdir()
        os.close(descriptor)


def _lock(target: Path, descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise TakenError(f"{target}: another run will put its result there; {_ALLOWED}") from None
    except OSError:
        # Some network file systems lock no folders (flock(2)). There the rename at the end decides.
        return
    require_free(target)
    if not target.exists() or not os.path.samestat(os.fstat(descriptor), target.stat()):
        raise TakenError(f"{target}: another run has just used it; {_ALLOWED}")


def _put_in_place(path: Path, target: Path) -> None:
    """Renames the result to `target`. Raises RunError, which names where the result is instead."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        path.rename(target)
    except OSError as error:
        raise RunError(
            f"{target}: {error.strerror}; the result is complete and stands in {path}"
        ) from None
    finally:
        files.hand_over(descriptor)
        os.close(descriptor)


def _keep_failed(path: Path, target: Path, error: Exception) -> None:
    """Keeps what a failed run has written, and adds its folder to the error.

    Raises RunError: in place of an OSError, as one line that names the file; or what was at
    fault where the error is only what came of it: the folder has gone, or its disk is full.
    """
    if not path.exists():
        raise RunError(f"{target}: removed while the run went on (as {path.name})") from error
    is_full = files.is_full(path)
    kept = _set_aside(path, target) if (path / "log.txt").exists() else None

    def said(text: str) -> str:
        text = text.replace(str(path), str(kept or target))
        return with_folder(text, kept) if kept else text

    if is_full:
        full = os.strerror(errno.ENOSPC)
        came_of_it = "" if full in str(error) else f": {error}"
        raise RunError(said(f"{target}: {full}{came_of_it}")) from error
    if isinstance(error, OutcastError):
        error.args = (said(str(error)), *error.args[1:])
    elif isinstance(error, OSError):
        text = files.describe_with_remedy(files.named(error, path) or error)
        raise RunError(said(text)) from error
    elif kept:
        error.add_note(with_folder("", kept).strip())


def _set_aside(path: Path, target: Path) -> Path:
    """Renames an unfinished folder to `target`.failed, or to the next such name that is free."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            files.hand_over(descriptor)
        finally:
            os.close(descriptor)
    for number in itertools.count(1):
        failed = target.with_name(f"{target.name}.failed{f'-{number}' if number > 1 else ''}")
        if not os.path.lexists(failed):
            break
    # If somebody takes the name now, this fails, or it replaces an empty folder.
    path.rename(failed)
    return failed


def require_free(target: Path) -> None:
    """Raises ConfigError where a run could not put its result here in the end.

    Allowed is a new path, or an empty folder that another folder can replace.
    """
    if target.name in ("", ".."):
        raise ConfigError(f"{target}: does not end with a name; {_ALLOWED}")
    try:
        _require_nameable(target)
        _require_own_place(target)
        if target.is_symlink():
            raise ConfigError(f"{target}: is a symbolic link; {_ALLOWED}")
        if not target.is_dir():
            if target.exists():
                raise TakenError(f"{target}: exists already; {_ALLOWED}")
            return
        if any(target.iterdir()):
            raise TakenError(f"{target}: exists already; {_ALLOWED}")
        _require_replaceable(target)
    except OSError as error:
        raise ConfigError(f"{target}: {error.strerror}; {_ALLOWED}") from None


def _require_own_place(target: Path) -> None:
    """Raises ConfigError where root would write below a folder in which every user can rename."""
    if os.geteuid() != 0:
        return
    for folder in Path(os.path.abspath(target)).parents:
        if not folder.exists():
            continue
        mode = folder.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise ConfigError(
                f"{target}: every user can exchange what root writes below {folder} (mode "
                f"{stat.S_IMODE(mode):o}, not sticky); allowed is a folder of yours"
            )


def _require_nameable(target: Path) -> None:
    """Raises ConfigError where names that a run needs beside it or in it would be too long."""
    try:
        name, path = _partial_of(target).name.encode(), os.path.abspath(target).encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{str(target)!a}: is not valid UTF-8; {_ALLOWED}") from None
    if b"\0" in path:
        raise ConfigError(f"{str(target)!r}: holds a null character; {_ALLOWED}")
    if len(name) > _LONGEST_NAME - _ROOM_IN_NAME or len(path) > _LONGEST_PATH - _ROOM_IN_PATH:
        raise ConfigError(
            f"{str(target)[:60]}...: too long; allowed are names of "
            f"{_LONGEST_NAME - _ROOM_IN_NAME - len(b'..1234567.partial')} bytes and paths of "
            f"{_LONGEST_PATH - _ROOM_IN_PATH}"
        )


def _require_replaceable(folder: Path) -> None:
    """Raises ConfigError where no folder can be renamed to this empty one (rename(2))."""
    if _mount(folder) != _mount(folder.parent):
        raise ConfigError(f"{folder}: a file system is mounted there; {_ALLOWED}")
    above, user = folder.parent.stat(), os.geteuid()
    if above.st_mode & stat.S_ISVTX and user not in (0, above.st_uid, folder.stat().st_uid):
        raise ConfigError(f"{folder}: belongs to another user; {_ALLOWED}")


def _mount(folder: Path) -> str:
    """The number of the mount that a folder is in (proc(5), fdinfo, mnt_id)."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        text = Path(f"/proc/self/fdinfo/{descriptor}").read_text()
    finally:
        os.close(descriptor)
    return next((line for line in text.splitlines() if line.startswith("mnt_id:")), "")
