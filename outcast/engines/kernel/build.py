"""Builds the kernel: fetches, unpacks, patches, configures, compiles, strips, boots, keeps it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from outcast import files, netlink
from outcast.engines import doctor, processor, shipped, trials
from outcast.engines.guest import boot, check, world
from outcast.engines.guest.world import World
from outcast.engines.kernel import bench, cache, headers
from outcast.engines.kernel.bench import Bench
from outcast.engines.kernel.cache import Kernel
from outcast.engines.kernel.headers import VARIABLES
from outcast.engines.kernel.programs import Programs
from outcast.engines.kernel.recipe import OURS, Recipe
from outcast.engines.root import build as roots
from outcast.engines.root import contents, fetch, lock, places
from outcast.engines.root.cache import Root
from outcast.engines.root.lock import Kind, Package
from outcast.engines.root.places import NOTHING, Named
from outcast.engines.workshop import Progress
from outcast.errors import CommandError, FeatureMissingError, InputError, KernelError, RootError
from outcast.experiment.queues.base import QueueKind

Made = TypeVar("Made")

COMPILE_STEPS = 780
"""Roughly the number of files that are compiled, for the progress display alone."""

_STEP = re.compile(r"^  (?:HOST)?CC ")
_NEVER_COMPILED = (
    *("Documentation/*.*", "tools/perf/*", "tools/testing/*", "sound/*.[ch]", "*.dts", "*.dtsi"),
    *(f"arch/{name}/*.[chS]" for name in ("a*", "m*", "p*", "s*")),
    *(
        f"drivers/{name}/*.[ch]"
        for name in ("gpu", "media", "scsi", "infiniband", "iio", "staging")
    ),
    *(f"drivers/{name}/*.[ch]" for name in ("clk", "pinctrl", "net/ethernet", "net/wireless")),
)
"""Two thirds of the source's files, of other machines. Every folder's Kconfig is needed."""
_SOURCE = re.compile(r"usr/src/(linux-source-[^/]*\.tar\.[a-z0-9]+)")
"""The file of a package that has the kernel's source."""

# The same in every build, because the program contains them, and the kernel mixes its own version
# text into its random numbers.
_REPRODUCIBLE = {
    "SOURCE_DATE_EPOCH": "1000000000",
    "KBUILD_BUILD_TIMESTAMP": "2001-09-09 01:46:40 UTC",
    "KBUILD_BUILD_USER": "outcast",
    "KBUILD_BUILD_HOST": "outcast",
    "KBUILD_BUILD_VERSION": "1",
}


@dataclass(frozen=True)
class Source:
    """A kernel source that can be fetched."""

    name: str
    version: str


def from_tarball(path: Path) -> Source:
    """The source in a user's file. Raises InputError if the file cannot be read."""
    try:
        return Source("tarball", files.sha256(path))
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror}; allowed is a kernel's source tarball, or Debian's package "
            "of one"
        ) from None


class Supply:
    """Gives what our lock pins."""

    def __init__(self, run: Programs, named: Named) -> None:
        self._run, self._named = run, named
        self._lock = lock.ours()

    @property
    def source(self) -> Package:
        """The package with the kernel's source."""
        return self._lock.kernel_source

    def fetch_source(self, into: Path) -> Path:
        """Fetches that package into a folder; its file. Raises RootError."""
        where = places.find(self._run, into, self._lock.snapshot, self._named)
        try:
            with fetch.packages([self.source], where, into) as paths:
                return next(paths)
        except RootError as error:
            raise RootError(f"{error}, or build another kernel with --tarball") from None

    def provide_root(self, kind: Kind) -> Root:
        """A root of the lock, which is made if it is not there. Raises as `build.build`."""
        return roots.build(kind, named=self._named, run=self._run)


def build(
    *,
    tarball: Path | None = None,
    jobs: int | None = None,
    again: bool = False,
    folder: Path | None = None,
    recipe: Recipe = OURS,
    named: Named = NOTHING,
    supply: Supply | None = None,
    run: Programs | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Kernel:
    """The kernel of the lock's source, or of another, which is built if the cache lacks it.

    `tarball` is a source of the user's to use instead: a tarball, or Debian's package of one.

    Raises:
        FeatureMissingError: a program that the build needs is missing, nothing says where
            packages can be had, or the processor cannot run the kernel.
        RootError: what the lock pins cannot be had.
        KernelError: there is no source, or our patches or our configuration do not fit it.
        CommandError: a program failed; nothing is kept.
        GuestError: the built kernel does not boot; it is not kept.
    """
    processor.require()
    run = run or Programs()
    supply = supply or Supply(run, named)
    folder = folder or cache.default_folder()
    began, pinned = time.monotonic(), supply.source
    source = from_tarball(tarball) if tarball else Source(pinned.name, pinned.version)
    kept = partial(_kept, source, recipe, folder)
    # A kernel that is there needs no wait for another build.
    if not again and (cached := kept(bench.locked_compiler())):
        return cached
    with cache.workshop(folder, partial(on_progress, Progress("wait"))) as workshop:
        if not again and (cached := kept(bench.locked_compiler(), is_shipped=True)):
            return cached
        on_progress(Progress("fetch", detail=f"{source.name} {source.version}"))
        fetched = _meanwhile(partial(_fetch, workshop, supply, tarball))
        is_locked = source.version == pinned.version
        place = bench.set_up(workshop, supply.provide_root, run, needs_lock=is_locked)
        if not again and (cached := kept(place.compiler)):
            return cached
        # The guest's root is made while the compiler works.
        sees = _meanwhile(partial(_world, supply, needs_lock=is_locked))

        def tell(progress: Progress) -> None:
            if sees.done():
                sees.result()  # Where that failed, nobody waits for the compiler.
            on_progress(progress)

        # Who configures a kernel may want to debug it. Ours is the same file everywhere.
        is_own = bool(recipe.own_fragments)
        work = partial(_compile, jobs=jobs, keeps_symbols=is_own, on_progress=tell)
        program, for_modules = _make(place, fetched.result(), recipe, work, tell)
        on_progress(Progress("check"))
        said = _check(program, sees.result())
        kernel = _kernel(program, source, recipe, place, said, time.monotonic() - began)
        return cache.keep(kernel, folder, for_modules)


def _kept(
    source: Source, recipe: Recipe, folder: Path, compiler: str, *, is_shipped: bool = False
) -> Kernel | None:
    """The kernel that the cache has."""
    key = cache.key(source.name, source.version, recipe.digest, compiler)
    if is_shipped:
        shipped.provide(folder / key)
    return cache.read(folder / key)


def _kernel(
    program: Path, source: Source, recipe: Recipe, place: Bench, said: check.Said, built_s: float
) -> Kernel:
    return Kernel(
        source=source.name,
        version=source.version,
        recipe=recipe.digest,
        release=said["release"],
        built_s=round(built_s, 1),
        sha256=hashlib.sha256(program.read_bytes()).hexdigest(),
        program=program,
        congestion_controls=tuple(said["congestion_controls"]),
        own=tuple(path.name for path in (*recipe.own_fragments, *recipe.own_patches)),
        compiler=place.compiler,
        compiler_note=place.note,
    )


def _meanwhile(make: Callable[[], Made]) -> Future[Made]:
    """Begins to make something. The end of the program is its end too, so an interrupt is one."""
    future: Future[Made] = Future()

    def work() -> None:
        try:
            future.set_result(make())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future


def _fetch(workshop: Path, supply: Supply, tarball: Path | None) -> Path:
    """The file with the source: a tarball, or the package that has it."""
    if tarball is not None:
        return tarball.resolve()
    downloads = workshop / "fetched"
    downloads.mkdir()
    return supply.fetch_source(downloads)


def _make(
    place: Bench,
    fetched: Path,
    recipe: Recipe,
    compile_: Callable[[Path, Path, Programs], Path],
    on_progress: Callable[[Progress], None],
) -> tuple[Path, Path]:
    """Unpacks, patches, configures and compiles.

    Returns:
        The program, and the folder that modules are compiled against.
    """
    run = place.programs
    tree = place.folder / "source"
    on_progress(Progress("unpack", detail=fetched.name))
    _unpack(place.admit(_tarball(fetched, place.folder)), tree, run)
    _patch(tree, place, recipe)
    output = _configure(tree, recipe, run, on_progress)
    program = compile_(tree, output, run)
    for_modules = place.folder / "headers"
    headers.keep(tree, output, for_modules)
    return program, for_modules


def _tarball(fetched: Path, folder: Path) -> Path:
    """The tarball that was given or fetched, or the one in the package that was, in the folder."""
    if fetched.suffix != ".deb":
        return fetched
    for content in contents.of_debian_package(fetched):
        match = _SOURCE.fullmatch(content.path)
        if match and content.data is not None:
            tarball = folder / match[1]
            tarball.write_bytes(content.data)
            return tarball
    raise KernelError(f"{fetched.name}: the package has no tarball of a kernel's source")


def _unpack(tarball: Path, tree: Path, run: Programs) -> None:
    tree.mkdir()
    unused = [f"--exclude=*/{part}" for part in _NEVER_COMPILED]
    argv = ["tar", "--extract", "--no-same-owner", "--strip-components=1", *unused]
    # xz reads a package's many blocks at a time where it is told to.
    run.run([*argv, "--file", str(tarball)], cwd=tree, environment={"XZ_DEFAULTS": "--threads=0"})
    if not (tree / "arch/um/Kconfig").exists():
        raise KernelError(f"{tarball}: not the source of a Linux kernel: it has no arch/um/Kconfig")


def _patch(tree: Path, place: Bench, recipe: Recipe) -> None:
    for path in (*recipe.patches, *recipe.own_patches):
        argv = ["patch", "--strip=1", "--forward", "--fuzz=0", "--input", str(place.admit(path))]
        try:
            if path.name in recipe.optional and not _fits(argv, tree, place):
                continue
            place.programs.run(argv, cwd=tree)
        except CommandError as error:
            raise KernelError(f"{path.name} does not fit this source: {error.stderr}") from None


def _fits(argv: Sequence[str], tree: Path, place: Bench) -> bool:
    """Whether a patch fits as a whole; the source stays as it is."""
    try:
        place.programs.run([*argv, "--dry-run"], cwd=tree)
    except CommandError:
        return False
    return True


def _configure(
    tree: Path, recipe: Recipe, run: Programs, on_progress: Callable[[Progress], None]
) -> Path:
    on_progress(Progress("configure"))
    output = tree.parent / "output"
    output.mkdir()
    whole = tree.parent / "fragment.config"
    whole.write_text(recipe.configuration(), encoding="utf-8")
    fragment = f"KCONFIG_ALLCONFIG={whole}"
    run.run(["make", *VARIABLES, f"O={output}", fragment, "allnoconfig"], cwd=tree)
    recipe.require_configured((output / ".config").read_text(encoding="utf-8"))
    return output


def _compile(
    tree: Path,
    output: Path,
    run: Programs,
    *,
    jobs: int | None,
    keeps_symbols: bool,
    on_progress: Callable[[Progress], None],
) -> Path:
    """Compiles. Returns the program, without symbols if nobody wants them."""
    done = 0

    def on_line(line: str) -> None:
        nonlocal done
        if _STEP.match(line):
            done += 1
            on_progress(Progress("compile", min(done, COMPILE_STEPS), COMPILE_STEPS, line.strip()))

    cores = len(os.sched_getaffinity(0))
    argv = ["make", *VARIABLES, f"O={output}", f"--jobs={jobs or cores}"]
    for target in ("linux", "modules_prepare"):
        run.run([*argv, target], cwd=tree, environment=_REPRODUCIBLE, on_line=on_line)
    if keeps_symbols:
        return output / "linux"
    program = tree.parent / "linux"
    run.run(["strip", "-o", str(program), str(output / "linux")], cwd=output)
    return program


def _world(supply: Supply, *, needs_lock: bool) -> World:
    """Gives the guest that is checked its own root, or else this machine's programs."""
    try:
        return world.of_root(supply.provide_root("runtime"))
    except (RootError, FeatureMissingError):
        if needs_lock:
            raise
        return world.of_host()


def _check(program: Path, sees: World) -> check.Said:
    """Boots the kernel, which sets up all that experiments use; what it says of itself.

    Raises:
        GuestError: it does not boot.
        KernelError: it lacks something.
    """
    # The check has a folder of its own, because the guest may write to it.
    with tempfile.TemporaryDirectory(prefix="outcast-check-") as name:
        argv = prepare_check(Path(name))
        lines: list[str] = []
        guest = boot.Boot(program, Path(name), argv, seed=1, sees=sees)
        result = boot.boot(guest, lines.append)
    if result.status != 0 or not lines:
        raise KernelError(
            f"the kernel boots, but lacks something: {' | '.join([*lines, *result.console][-5:])}"
        )
    said: check.Said = json.loads(lines[-1])
    return said


def prepare_check(folder: Path) -> list[str]:
    """Puts the program that checks the guest's kernel into a folder; the command that runs it."""
    for module in (check, netlink):
        source = Path(str(module.__file__))
        shutil.copyfile(source, folder / source.name)
    program = boot.RUN_DIRECTORY / Path(netlink.__file__).name
    qdiscs = [
        (
            qdisc,
            doctor.SINCE.get(qdisc, QueueKind.since),
            trials.set_up(qdisc, options, check.DEVICE, python=world.PYTHON, program=program),
        )
        for qdisc, options in trials.QDISCS.items()
    ]
    (folder / check.COMMANDS).write_text(json.dumps(qdiscs), encoding="utf-8")
    return [world.PYTHON, "-I", str(boot.RUN_DIRECTORY / Path(check.__file__).name)]
