"""`outcast guest`: makes, shows and checks the virtual engine's kernel and root.

`outcast kernel` and `outcast root`, which the help leaves out, do the same for one of the two.
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
    shared.option(
        "--mirror URL",
        "A mirror of Debian, instead of OUTCAST_MIRROR and the machine's apt sources.",
    ),
    shared.option(
        "--snapshot URL",
        "An archive of old packages, for those that the mirror no longer has. "
        "@SNAPSHOTID@ in it stands for the lock's time.",
    ),
    shared.path(
        "--packages FOLDER",
        "A folder with files of packages and wheels, which is looked into first.",
    ),
)
again = shared.flag("--again", "Make it even if it is there already.")
of_kernel = shared.together(
    shared.path(
        "--tarball FILE", "Build from this kernel source, or Debian's package of one, instead."
    ),
    shared.several(
        "--config-fragment FILE",
        "Symbols besides ours, as CONFIG_TCP_CONG_NV=y.",
        "fragments",
        type=click.Path(path_type=Path),
    ),
    shared.several(
        "--patch FILE",
        "Apply this patch (patch -p1) after ours.",
        "patches",
        type=click.Path(path_type=Path),
    ),
    shared.option(
        "--jobs N",
        "How many compilers run at a time [default: as many as cores].",
        type=click.IntRange(min=1),
    ),
)


@shared.verbs("guest", "outcast guest build")
def command() -> None:
    """Make, show or check the virtual engine's kernel, and what its guest sees as `/`."""


@shared.verb("build", "outcast guest build", "outcast guest build --packages FOLDER", group=command)
@of_kernel
@from_where
@again
def build(**options: Any) -> None:
    """Make the guest's roots and its kernel, where they are not there; no root needed."""
    build_roots(named=options["named"], again=options["again"])
    build_kernel(**options)


@shared.verb("info", "outcast guest info", group=command)
def info() -> None:
    """Show the roots and the kernels; the first of each is the one that runs use by default."""
    show_roots()
    show_kernels()


@shared.verb("check", "outcast guest check", group=command)
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


@shared.verbs("kernel", "outcast kernel build", hidden=True)
def kernel() -> None:
    """Build or show the kernel of the virtual engine. It is built once and kept for this user."""


@shared.verb(
    "build",
    "outcast kernel build",
    "outcast kernel build --tarball linux-7.3.4.tar.xz --jobs 2",
    "outcast kernel build --patch mine.patch --config-fragment mine.config",
    group=kernel,
)
@of_kernel
@from_where
@again
def kernel_build(**options: Any) -> None:
    """Fetch, configure, compile and boot the kernel; no root needed.

    The lock pins the source and the compiler, so that every machine builds the same file.
    """
    build_kernel(**options)


@shared.verb("info", "outcast kernel info", group=kernel)
def kernel_info() -> None:
    """Show the kernels that there are; the first is the one that runs use by default."""
    show_kernels()


@shared.verbs("root", "outcast root build", hidden=True)
def root() -> None:
    """Make or show what the virtual engine's guest sees as its `/`. It is made once."""


@shared.verb(
    "build",
    "outcast root build",
    "outcast root build --mirror http://mirror.example.org/debian",
    "outcast root build --packages FOLDER",
    group=root,
)
@from_where
@again
def root_build(**options: Any) -> None:
    """Fetch and unpack the packages of the lock; no root needed.

    Besides the guest's root there is one with a compiler, for the kernel and our programs.
    """
    build_roots(**options)


@shared.verb("share", "outcast root share", group=root)
def share() -> None:
    """Unpack the wheel outcast-guest once for all users of this Python.

    Each user's cache then has links to it instead of copies of 230 MB.
    """
    from outcast.engines import shipped

    for folder in shipped.share():
        terminal.echo(str(folder))


@shared.verb("info", "outcast root info", "outcast root info --verify", group=root)
@shared.flag("--packages", "List its packages with their versions.", "listed")
@shared.flag("--verify", "Hash every file and compare it with the root's list.")
def root_info(listed: bool, verify: bool) -> None:
    """Show the root that guests boot from, and the one with the compiler."""
    show_roots(listed=listed, verify=verify)
