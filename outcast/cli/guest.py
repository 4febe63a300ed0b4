"""`outcast guest`: makes, shows and checks the virtual engine's kernel and root.

`outcast kernel` and `outcast root` do the same for one of the two.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from outcast.cli import shared, terminal
from outcast.errors import FeatureMissingError

if TYPE_CHECKING:
    from outcast.engines.kernel.cache import Kernel
    from outcast.engines.root.cache import Root
    from outcast.engines.root.lock import Kind
    from outcast.engines.root.places import Named


def _named(mirror: str | None, snapshot: str | None, packages: Path | None) -> Named:
    from outcast.engines.root.places import Named

    return Named(mirror, snapshot, packages)


from_where = shared.gathered(
    "named",
    _named,
    click.option(
        "--mirror",
        metavar="URL",
        help="A mirror of Debian, instead of OUTCAST_MIRROR and the machine's apt sources.",
    ),
    click.option(
        "--snapshot",
        metavar="URL",
        help="An archive of old packages, for those that the mirror no longer has. "
        "@SNAPSHOTID@ in it stands for the lock's time.",
    ),
    shared.path(
        *("FOLDER", "A folder with files of packages and wheels, which is looked into first."),
        "--packages",
    ),
)
again = click.option("--again", is_flag=True, help="Make it even if it is there already.")
of_kernel = shared.together(
    shared.path(
        "FILE", "Build from this kernel source, or Debian's package of one, instead.", "--tarball"
    ),
    shared.several(
        *("FILE", "Symbols besides ours, as CONFIG_TCP_CONG_NV=y."),
        *("--config-fragment", "fragments"),
        type=click.Path(path_type=Path),
    ),
    shared.several(
        *("FILE", "Apply this patch (patch -p1) after ours.", "--patch", "patches"),
        type=click.Path(path_type=Path),
    ),
    click.option(
        "--jobs",
        type=click.IntRange(min=1),
        metavar="N",
        help="How many compilers run at a time [default: as many as cores].",
    ),
    click.option(
        "--symbols",
        is_flag=True,
        help="Also make what outcast debug needs. It would make it itself.",
    ),
)


@click.group("guest", epilog=shared.examples("outcast guest build"))
def command() -> None:
    """Make, show or check the virtual engine's kernel, and what its guest sees as `/`."""


@command.command(
    "build",
    epilog=shared.examples("outcast guest build", "outcast guest build --packages FOLDER"),
)
@of_kernel
@from_where
@again
def build(**options: Any) -> None:
    """Make the guest's roots and its kernel, where they are not there; no root needed."""
    build_roots(named=options["named"], again=options["again"])
    build_kernel(**options)


@command.command("info", epilog=shared.examples("outcast guest info"))
def info() -> None:
    """Show the roots and the kernels; the first of each is the one that runs use by default."""
    show_roots()
    show_kernels()


@command.command("check", epilog=shared.examples("outcast guest check"))
def check() -> None:
    """Hash every file of the roots and the kernel, and compare it with what was kept."""
    from outcast.engines.kernel import cache

    show_roots(verify=True)
    kernel = cache.find()
    if kernel is None:
        raise FeatureMissingError("the virtual engine's kernel is missing; run outcast guest build")
    cache.verify(kernel)
    terminal.echo(f"{kernel.program}\nverified: the kernel is as it was kept")


def build_kernel(fragments: tuple[Path, ...], patches: tuple[Path, ...], **options: Any) -> None:
    """Builds the kernel and says what it is."""
    from outcast.api.building import build_kernel as build
    from outcast.engines.kernel.recipe import OURS

    kernel = build(recipe=OURS.with_own(fragments, patches), **options)
    terminal.echo(_kernel_text(kernel))


def show_kernels() -> None:
    """Says what kernels there are. Raises FeatureMissingError where the default one is missing."""
    from outcast.engines.kernel import cache

    default = cache.find()
    others = [kernel for kernel in cache.find_all() if kernel != default]
    if default is None:
        remedy = "the virtual engine's kernel is missing; run outcast kernel build"
        if others:
            remedy += f" (there are others: {', '.join(kernel.key for kernel in others)})"
        raise FeatureMissingError(remedy)
    terminal.echo("\n\n".join(_kernel_text(kernel) for kernel in (default, *others)))


def _kernel_text(kernel: Kernel) -> str:
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


def build_roots(**options: Any) -> None:
    """Makes the guest's root, and the one with a compiler for the kernel and our programs."""
    from outcast.api.building import build_root

    kinds: tuple[Kind, ...] = ("runtime", "build")
    for kind in kinds:
        root = build_root(kind, **options)
        terminal.echo(f"{root.key} {root.folder}")


def show_roots(*, listed: bool = False, verify: bool = False) -> None:
    """Says what roots there are, and checks them.

    Raises:
        FeatureMissingError: the guest's root is missing.
        RootError: a root is damaged.
    """
    from outcast.engines.root import cache

    runtime = cache.find()
    if runtime is None:
        raise FeatureMissingError("the guest's root is missing; outcast root build makes it")
    compiler = cache.find("build")
    for root, use in ((runtime, "what guests see as /"), (compiler, "the compiler")):
        if root is not None:
            cache.verify(root, every_byte=verify)
            terminal.echo(_root_text(root, use, listed))
            if verify:
                terminal.echo("verified: every file is as the root's list has it")


def _root_text(root: Root, use: str, listed: bool) -> str:
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
