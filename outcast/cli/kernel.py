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
        "outcast kernel build", "outcast kernel build --tarball linux-7.3.4.tar.xz --jobs 2"
    ),
)
@click.option(
    "--suite",
    "suites",
    multiple=True,
    help="A suite of the distribution's archive in which to look for the source. Can be repeated.",
)
@click.option(
    "--package", metavar="NAME", help="A package, as linux-source-6.1, instead of the newest."
)
@click.option(
    "--tarball",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Build from this kernel source instead of a package.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many compilers run at a time [default: as many as cores].",
)
@click.option("--again", is_flag=True, help="Build even if the kernel is there already.")
def build_kernel(
    suites: tuple[str, ...],
    package: str | None,
    tarball: Path | None,
    jobs: int | None,
    again: bool,
) -> None:
    """Fetch, configure, compile and boot the kernel; no root needed."""
    from outcast.api.kernel import build_shown
    from outcast.engines.kernel import source

    kernel = build_shown(
        suites=suites or source.SUITES, package=package, tarball=tarball, jobs=jobs, again=again
    )
    terminal.echo(_describe(kernel))


@command.command("info", epilog=shared.examples("outcast kernel info"))
def info() -> None:
    """Show the kernel that the virtual engine uses."""
    from outcast.engines.kernel import cache

    kernel = cache.find()
    if kernel is None:
        raise FeatureMissingError(
            "the virtual engine's kernel is missing; run outcast kernel build"
        )
    terminal.echo(_describe(kernel))


def _describe(kernel: Kernel) -> str:
    return (
        f"{kernel.program}\n"
        f"Linux {kernel.release} from {kernel.source} {kernel.version}\n"
        f"recipe {kernel.recipe[:12]}, sha256 {kernel.sha256[:12]}, built in {kernel.built_s:g} s"
    )
