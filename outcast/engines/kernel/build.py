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
from pathlib import Path
from typing import Literal

from outcast import netlink
from outcast.engines import doctor
from outcast.engines.guest import boot, check
from outcast.engines.kernel import cache, headers, programs
from outcast.engines.kernel.cache import Kernel
from outcast.engines.kernel.headers import VARIABLES
from outcast.engines.kernel.programs import Programs, SystemPrograms
from outcast.engines.kernel.recipe import OURS, Recipe
from outcast.engines.kernel.source import SUITES, Archive, Source, from_tarball
from outcast.errors import CommandError, KernelError
from outcast.experiment.queues.base import QueueKind

Stage = Literal["search", "fetch", "unpack", "configure", "compile", "check"]

COMPILE_STEPS = 800
"""Roughly the number of lines that make prints, for the progress display alone."""

_STEP = re.compile(r"^  [A-Z]+ ")
_GUEST_PYTHON = "/usr/bin/python3"

# The same in every build, because the kernel mixes its own version text into its random numbers.
_REPRODUCIBLE = {
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
    suites: Sequence[str] = SUITES,
    package: str | None = None,
    tarball: Path | None = None,
    jobs: int | None = None,
    again: bool = False,
    folder: Path | None = None,
    recipe: Recipe = OURS,
    run: Programs | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Kernel:
    """The kernel of the newest source, which is built if the cache does not have it.

    Args:
        suites: the suites of the distribution's archive in which the source is looked for.
        package: the source package to use instead of the newest.
        tarball: a source file of the user to use instead of a package.
        jobs: the number of compilers at a time; the number of cores if left out.
        again: whether to build although the cache has the kernel.
        folder: the cache.
        recipe: the configuration and the patches.
        run: what starts programs.
        on_progress: is called with how far the build has come.

    Raises:
        FeatureMissingError: a program that the build needs is missing.
        KernelError: there is no source, or our patches or our configuration do not fit it.
        CommandError: a program failed; nothing is kept.
        GuestError: the built kernel does not boot; it is not kept.
    """
    programs.require()
    run = run or SystemPrograms()
    folder = folder or cache.default_folder()
    began = time.monotonic()
    with cache.workshop(folder) as workshop:
        source, fetch = _choose(workshop, run, suites, package, tarball, on_progress)
        if not again:
            cached = cache.find_exactly(source.name, source.version, recipe, folder)
            if cached is not None:
                return cached
        tree = workshop / "source"
        _unpack(fetch(), tree, run, on_progress)
        _patch(tree, recipe, run)
        output = _configure(tree, recipe, run, on_progress)
        program = _compile(tree, output, jobs or len(os.sched_getaffinity(0)), run, on_progress)
        for_modules = workshop / "headers"
        headers.keep(tree, output, for_modules)
        on_progress(Progress("check"))
        said = _check(program)
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
        )
        return cache.keep(kernel, folder, for_modules)


def _choose(
    workshop: Path,
    run: Programs,
    suites: Sequence[str],
    package: str | None,
    tarball: Path | None,
    on_progress: Callable[[Progress], None],
) -> tuple[Source, Callable[[], Path]]:
    """The source, and a function that fetches its tarball."""
    if tarball is not None:
        source = from_tarball(tarball)
        return source, tarball.resolve
    on_progress(Progress("search", detail=", ".join(suites)))
    folder = workshop / "apt"
    folder.mkdir()
    archive = Archive(folder, run, suites)
    source = archive.newest(package)

    def fetch() -> Path:
        on_progress(Progress("fetch", detail=f"{source.name} {source.version}"))
        return archive.fetch(source)

    return source, fetch


def _unpack(
    tarball: Path, tree: Path, run: Programs, on_progress: Callable[[Progress], None]
) -> None:
    on_progress(Progress("unpack", detail=tarball.name))
    tree.mkdir()
    # Every folder's Kconfig is needed to configure. Code that is switched off is not.
    unused = [f"--exclude=*/{part}" for part in ("drivers/gpu/*.[ch]", "Documentation/*.rst")]
    run.run(["tar", "--extract", "--strip-components=1", *unused, "--file", str(tarball)], cwd=tree)
    if not (tree / "arch/um/Kconfig").exists():
        raise KernelError(f"{tarball}: not the source of a Linux kernel: it has no arch/um/Kconfig")


def _patch(tree: Path, recipe: Recipe, run: Programs) -> None:
    for path in (*recipe.patches, *recipe.own_patches):
        try:
            run.run(["patch", "--strip=1", "--forward", "--fuzz=0", "--input", str(path)], cwd=tree)
        except CommandError as error:
            raise KernelError(f"{path.name} does not fit this source: {error.stderr}") from None


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
) -> Path:
    done = 0

    def on_line(line: str) -> None:
        nonlocal done
        if _STEP.match(line):
            done += 1
            on_progress(Progress("compile", min(done, COMPILE_STEPS), COMPILE_STEPS, line.strip()))

    argv = ["make", *VARIABLES, f"O={output}", f"--jobs={jobs}"]
    for target in ("linux", "modules_prepare"):
        run.run([*argv, target], cwd=tree, environment=_REPRODUCIBLE, on_line=on_line)
    program = tree.parent / "linux"
    run.run(["strip", "-o", str(program), str(output / "linux")], cwd=output)
    return program


def _check(program: Path) -> check.Said:
    """Boots the kernel, which sets up all that experiments use; what it says of itself.

    Raises:
        GuestError: it does not boot.
        KernelError: it lacks something.
    """
    # The check has a folder of its own, because the guest may write to it.
    with tempfile.TemporaryDirectory(prefix="outcast-check-") as name:
        argv = prepare_check(Path(name))
        lines: list[str] = []
        result = boot.boot(program, Path(name), argv, seed=1, on_line=lines.append, stall_s=60.0)
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
            doctor.set_up(qdisc, options, check.DEVICE, python=_GUEST_PYTHON, program=program),
        )
        for qdisc, options in doctor.QDISCS.items()
    ]
    (folder / check.COMMANDS).write_text(json.dumps(qdiscs), encoding="utf-8")
    return [_GUEST_PYTHON, "-I", str(boot.RUN_DIRECTORY / Path(check.__file__).name)]
