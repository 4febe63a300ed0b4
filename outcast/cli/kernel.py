"""`outcast kernel`: what `outcast guest` does, for the kernel alone."""

from __future__ import annotations

from typing import Any

import click

from outcast.cli import guest, shared


@click.group("kernel", hidden=True, epilog=shared.examples("outcast kernel build"))
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
@guest.of_kernel
@guest.from_where
@guest.again
def build(**options: Any) -> None:
    """Fetch, configure, compile and boot the kernel; no root needed.

    The lock pins the source and the compiler, so that every machine builds the same file.
    """
    guest.build_kernel(**options)


@command.command("info", epilog=shared.examples("outcast kernel info"))
def info() -> None:
    """Show the kernels that there are; the first is the one that runs use by default."""
    guest.show_kernels()
