"""`outcast kernel`: builds and shows the kernel of the virtual engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from outcast.cli import shared, terminal
from outcast.errors import FeatureMissingError

if TYPE_CHECKING:
    from outcast.engines.kernel.cache import Kernel


@click.group("kernel", epilog=shared.examples("outcast kernel build"))
def command() -> None:
    """Build or show the kernel of the virtual engine. It is built once and kept for this user."""


@command.command(
    "build",
    epilog=shared.examples(
        "outcast kernel build",
        "outcast kernel build --tarball linux-7.3.4.tar.xz --jobs 2",
        "outcast kernel build --patch mine.patch --config-fragment mine.config",
    ),
)
@click.option(
    "--tarball",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Build from this kernel source, or Debian's package of one, instead.",
)
@click.option(
    "--config-fragment",
    "fragments",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Symbols besides ours, as CONFIG_TCP_CONG_NV=y. Can be repeated.",
)
@click.option(
    "--patch",
    "patches",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Apply this patch (patch -p1) after ours. Can be repeated.",
)
@click.option(
    "--mirror", metavar="URL", help="A mirror of Debian, instead of the one of this machine's apt."
)
@click.option(
    "--snapshot", metavar="URL", help="An archive that keeps packages which mirrors have no more."
)
@click.option(
    "--packages",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="A folder with files of packages, which is looked in first.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many compilers run at a time [default: as many as cores].",
)
@click.option("--again", is_flag=True, help="Build even if the kernel is there already.")
def build_kernel(
    tarball: Path | None,
    fragments: tuple[Path, ...],
    patches: tuple[Path, ...],
    mirror: str | None,
    snapshot: str | None,
    packages: Path | None,
    jobs: int | None,
    again: bool,
) -> None:
    """Fetch, configure, compile and boot the kernel; no root needed.

    The lock pins the source and the compiler, so that every machine builds the same file.
    """
    from outcast.api.building import build_kernel as build
    from outcast.engines.kernel.recipe import OURS

    kernel = build(
        tarball=tarball,
        recipe=OURS.with_own(fragments, patches),
        mirror=mirror,
        snapshot=snapshot,
        packages=packages,
        jobs=jobs,
        again=again,
    )
    terminal.echo(_describe(kernel))


@command.command("info", epilog=shared.examples("outcast kernel info"))
def info() -> None:
    """Show the kernels that there are; the first is the one that runs use by default."""
    from outcast.engines.kernel import cache

    default = cache.find()
    others = [kernel for kernel in cache.find_all() if kernel != default]
    if default is None:
        remedy = "the virtual engine's kernel is missing; run outcast kernel build"
        if others:
            remedy += f" (there are others: {', '.join(kernel.key for kernel in others)})"
        raise FeatureMissingError(remedy)
    terminal.echo("\n\n".join(_describe(kernel) for kernel in (default, *others)))


def _describe(kernel: Kernel) -> str:
    from outcast.engines.root import lock

    own = f" with {', '.join(kernel.own)}" if kernel.own else ""
    pinned = lock.ours().kernel_source
    if (kernel.source, kernel.version) == (pinned.name, pinned.version):
        own = f", of the lock{own}"
    built = f", built in {kernel.built_s:g} s" if kernel.built_s else ""
    note = f", {kernel.compiler_note}" if kernel.compiler_note else ""
    return (
        f"{kernel.program}\n"
        f"Linux {kernel.release} from {kernel.source} {kernel.version}{own}\n"
        f"recipe {kernel.recipe[:12]}, sha256 {kernel.sha256[:12]}{built}\n"
        f"compiler: {kernel.compiler or 'unknown'}{note}\n"
        f"congestion controls: {', '.join(kernel.congestion_controls)}\n"
        f"sources to start from: {kernel.headers / 'source/net'}\n"
        f"a run uses it with: kernel.build={kernel.key}"
    )
