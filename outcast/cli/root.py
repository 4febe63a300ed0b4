"""`outcast root`: makes, shows and checks the guest's root."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from outcast.cli import shared, terminal
from outcast.errors import FeatureMissingError

if TYPE_CHECKING:
    from outcast.engines.root.cache import Root
    from outcast.engines.root.lock import Kind


@click.group("root", epilog=shared.examples("outcast root build"))
def command() -> None:
    """Make or show what the virtual engine's guest sees as its `/`. It is made once."""


@command.command(
    "build",
    epilog=shared.examples(
        "outcast root build",
        "outcast root build --mirror http://mirror.example.org/debian",
        "outcast root build --packages FOLDER",
    ),
)
@click.option(
    "--mirror",
    metavar="URL",
    help="A mirror of Debian, instead of OUTCAST_MIRROR and the machine's apt sources.",
)
@click.option(
    "--snapshot",
    metavar="URL",
    help="An archive of old packages, for those that the mirror no longer has. "
    "@SNAPSHOTID@ in it stands for the lock's time.",
)
@click.option(
    "--packages",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="A folder with files of packages and wheels, which is looked into first.",
)
@click.option("--again", is_flag=True, help="Make the roots even if they are there already.")
def build_roots(
    mirror: str | None, snapshot: str | None, packages: Path | None, again: bool
) -> None:
    """Fetch and unpack the packages of the lock; no root needed.

    Besides the guest's root there is one with a compiler, for the kernel and our programs.
    """
    from outcast.api.building import build_root

    kinds: tuple[Kind, ...] = ("runtime", "build")
    for kind in kinds:
        root = build_root(kind, mirror=mirror, snapshot=snapshot, packages=packages, again=again)
        terminal.echo(f"{root.key} {root.folder}")


@command.command("share", epilog=shared.examples("outcast root share"))
def share() -> None:
    """Unpack the wheel outcast-guest once for all users of this Python.

    Each user's cache then has links to it instead of copies of 230 MB.
    """
    from outcast.engines import shipped

    for folder in shipped.share():
        terminal.echo(str(folder))


@command.command("info", epilog=shared.examples("outcast root info", "outcast root info --verify"))
@click.option("--packages", "listed", is_flag=True, help="List its packages with their versions.")
@click.option("--verify", is_flag=True, help="Hash every file and compare it with the root's list.")
def info(listed: bool, verify: bool) -> None:
    """Show the root that guests boot from, and the one with the compiler."""
    from outcast.engines.root import cache

    runtime = cache.find()
    if runtime is None:
        raise FeatureMissingError("the guest's root is missing; outcast root build makes it")
    compiler = cache.find("build")
    roots = [(runtime, "what guests see as /"), (compiler, "the compiler")]
    for root, use in roots:
        if root is not None:
            cache.verify(root, every_byte=verify)
            terminal.echo(_describe(root, use, listed))
            if verify:
                terminal.echo("verified: every file is as the root's list has it")


def _describe(root: Root, use: str, listed: bool) -> str:
    items = root.list_items()
    size_bytes = sum(item.size for item in items)
    text = (
        f"{root.folder}\n"
        f"{use}: {len(root.packages)} packages, {len(items)} files, {size_bytes / 1e6:.0f} MB\n"
        f"key {root.key}, lock {root.lock[:12]}"
    )
    if listed:
        text += "".join(f"\n  {name} {version}" for name, version in root.packages.items())
    return text
