"""Builds the kernel: fetches, unpacks, patches, configures, compiles, strips, boots, keeps it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from outcast import netlink
from outcast.engines import doctor, processor, shipped
from outcast.engines.guest import boot, check, world
from outcast.engines.guest.world import World
from outcast.engines.kernel import bench, cache, headers
from outcast.engines.kernel.bench import Bench
from outcast.engines.kernel.cache import Kernel
from outcast.engines.kernel.headers import VARIABLES
from outcast.engines.kernel.programs import Programs, SystemPrograms
from outcast.engines.kernel.recipe import OURS, Recipe
from outcast.engines.kernel.source import Source, from_tarball
from outcast.engines.kernel.supply import LockSupply, Supply
from outcast.engines.root import contents
from outcast.errors import CommandError, FeatureMissingError, KernelError, RootError
from outcast.experiment.queues.base import QueueKind

Stage = Literal["fetch", "compiler", "unpack", "configure", "compile", "check"]

COMPILE_STEPS = 800
"""Roughly the number of lines that make prints, for the progress display alone."""

_STEP = re.compile(r"^  [A-Z]+ ")
_SOURCE = re.compile(r"usr/src/(linux-source-[^/]*\.tar\.[a-z0-9]+)")
"""Where a package has the kernel's source."""

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
class Progress:
    """How far a build has come.

    Attributes:
        stage: the stage that is going on.
        done, total: steps of that stage; total is 0 where they are not counted.
        detail: what the stage works on.
    """

    stage: Stage
    done: int = 0
    total: int = 0
    detail: str = ""


def build(
    *,
    tarball: Path | None = None,
    jobs: int | None = None,
    again: bool = False,
    folder: Path | None = None,
    recipe: Recipe = OURS,
    mirror: str | None = None,
    snapshot: str | None = None,
    packages: Path | None = None,
    supply: Supply | None = None,
    run: Programs | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Kernel:
    """The kernel of the lock's source, or of another, which is built if the cache lacks it.

    Args:
        tarball: a source of the user's to use instead: a tarball, or Debian's package of one.
        jobs: the number of compilers at a time; the number of cores if left out.
        again: whether to build although the cache has the kernel.
        folder: the cache.
        recipe: the configuration and the patches.
        mirror: the address of an archive that has what the lock pins; see `places.find`.
        snapshot: the address of a snapshot archive that has it.
        packages: a folder that has it.
        supply: what gives it; from there if left out.
        run: what starts programs.
        on_progress: is called with how far the build has come.

    Raises:
        FeatureMissingError: a program that the build needs is missing, nothing says where
            packages can be had, or the processor cannot run the kernel.
        RootError: what the lock pins cannot be had.
        KernelError: there is no source, or our patches or our configuration do not fit it.
        CommandError: a program failed; nothing is kept.
        GuestError: the built kernel does not boot; it is not kept.
    """
    processor.require()
    run = run or SystemPrograms()
    supply = supply or LockSupply(run, mirror, snapshot, packages)
    folder = folder or cache.default_folder()
    began = time.monotonic()
    if not (again or tarball):
        # A kernel that is there needs no wait for another build.
        there = cache.find_exactly(
            *(supply.source.name, supply.source.version, recipe),
            folder=folder,
            compiler=bench.locked_compiler(),
        )
        if there is not None:
            return there
    with cache.workshop(folder) as workshop:
        source, fetch = _choose(workshop, supply, tarball, on_progress)
        kept = partial(cache.find_exactly, source.name, source.version, recipe, folder=folder)
        locked = cache.key(source.name, source.version, recipe.digest, bench.locked_compiler())
        if not again:
            shipped.provide(folder / locked)
        cached = None if again else kept(compiler=bench.locked_compiler())
        if cached is not None:
            return cached
        fetched = fetch()
        on_progress(Progress("compiler"))
        is_locked = source.version == supply.source.version
        place = bench.set_up(workshop, supply.provide_root, run, needs_lock=is_locked)
        cached = None if again else kept(compiler=place.compiler)
        if cached is not None:
            return cached
        sees = _world(supply, needs_lock=is_locked)
        program, symbols, for_modules = _make(place, fetched, recipe, jobs, on_progress)
        on_progress(Progress("check"))
        said = _check(program, sees)
        kernel = Kernel(
            source=source.name,
            version=source.version,
            recipe=recipe.digest,
            release=said["release"],
            built_s=round(time.monotonic() - began, 1),
            sha256=hashlib.sha256(program.read_bytes()).hexdigest(),
            program=program,
            congestion_controls=tuple(said["congestion_controls"]),
            own=tuple(path.name for path in (*recipe.own_fragments, *recipe.own_patches)),
            compiler=place.compiler,
            compiler_note=place.note,
        )
        return cache.keep(kernel, folder, for_modules, symbols)


def _choose(
    workshop: Path,
    supply: Supply,
    tarball: Path | None,
    on_progress: Callable[[Progress], None],
) -> tuple[Source, Callable[[], Path]]:
    """The source, and a function that fetches its tarball or the package that has it."""
    if tarball is not None:
        source = from_tarball(tarball)
        return source, tarball.resolve
    downloads = workshop / "fetched"
    downloads.mkdir()

    source = Source(supply.source.name, supply.source.version)

    def fetch() -> Path:
        on_progress(Progress("fetch", detail=f"{source.name} {source.version}"))
        return supply.fetch_source(downloads)

    return source, fetch


def _make(
    place: Bench,
    fetched: Path,
    recipe: Recipe,
    jobs: int | None,
    on_progress: Callable[[Progress], None],
) -> tuple[Path, Path, Path]:
    """Unpacks, patches, configures and compiles.

    Returns:
        The program, what a debugger knows of it, and the folder that modules are compiled against.
    """
    run = place.programs
    tree = place.folder / "source"
    on_progress(Progress("unpack", detail=fetched.name))
    _unpack(place.admit(_tarball(fetched, place.folder)), tree, run)
    _patch(tree, place, recipe)
    output = _configure(tree, recipe, run, on_progress)
    cores = len(os.sched_getaffinity(0))
    program, symbols = _compile(tree, output, jobs or cores, run, on_progress)
    for_modules = place.folder / "headers"
    headers.keep(tree, output, for_modules)
    return program, symbols, for_modules


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
    # Every folder's Kconfig is needed to configure. Code that is switched off is not.
    unused = [f"--exclude=*/{part}" for part in ("drivers/gpu/*.[ch]", "Documentation/*.rst")]
    argv = ["tar", "--extract", "--no-same-owner", "--strip-components=1", *unused]
    run.run([*argv, "--file", str(tarball)], cwd=tree)
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
    jobs: int,
    run: Programs,
    on_progress: Callable[[Progress], None],
) -> tuple[Path, Path]:
    """Compiles. Returns the program, and what a debugger knows of it."""
    done = 0

    def on_line(line: str) -> None:
        nonlocal done
        if _STEP.match(line):
            done += 1
            on_progress(Progress("compile", min(done, COMPILE_STEPS), COMPILE_STEPS, line.strip()))

    # By a flag, and not in the configuration, which the program contains: it stays as it was. The
    # debugger is told the same paths wherever this is built.
    for_debugger = f"KCFLAGS=-g -gdwarf-5 -fdebug-prefix-map={tree.parent}={headers.BUILT_AT}"
    argv = ["make", *VARIABLES, for_debugger, f"O={output}", f"--jobs={jobs}"]
    for target in ("linux", "modules_prepare"):
        run.run([*argv, target], cwd=tree, environment=_REPRODUCIBLE, on_line=on_line)
    program, symbols = tree.parent / "linux", tree.parent / "linux.debug"
    run.run(["strip", "-o", str(program), str(output / "linux")], cwd=output)
    split = ["objcopy", "--only-keep-debug", "--compress-debug-sections=zlib"]
    run.run([*split, str(output / "linux"), str(symbols)], cwd=output)
    return program, symbols


def _world(supply: Supply, *, needs_lock: bool) -> World:
    """What the guest sees when it is checked: its own root, or else this machine's programs."""
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
        result = boot.boot(
            program, Path(name), argv, seed=1, on_line=lines.append, stall_s=60.0, sees=sees
        )
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
            doctor.set_up(qdisc, options, check.DEVICE, python=world.PYTHON, program=program),
        )
        for qdisc, options in doctor.QDISCS.items()
    ]
    (folder / check.COMMANDS).write_text(json.dumps(qdiscs), encoding="utf-8")
    return [world.PYTHON, "-I", str(boot.RUN_DIRECTORY / Path(check.__file__).name)]
