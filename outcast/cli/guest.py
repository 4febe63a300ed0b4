"""`outcast guest`: shows and checks the virtual engine's kernel and roots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outcast.cli import shared, terminal
from outcast.errors import FeatureMissingError

if TYPE_CHECKING:
    from outcast.engines.guest.kernels import Kernel
    from outcast.engines.guest.roots import Root


@shared.verbs("guest", "outcast guest info")
def command() -> None:
    """Show or check the virtual engine's kernel, and what its guest sees as `/`."""


@shared.verb("info", "outcast guest info", "outcast guest info --packages", group=command)
@shared.flag("--packages", "List the packages of the roots with their versions.", "listed")
def info(listed: bool) -> None:
    """Show the roots and the kernels; the first of each is the one that runs use by default."""
    from outcast.engines.guest import kernels

    _show_roots(listed=listed)
    default = kernels.require()
    others = (kernel for kernel in kernels.find_all() if kernel != default)
    terminal.echo("\n\n".join(map(_kernel_text, [default, *others])))


@shared.verb("check", "outcast guest check", group=command)
def check() -> None:
    """Hash every file of the roots and the kernel, boot the kernel, and try what runs use of it."""
    from outcast.engines import doctor
    from outcast.engines.guest import kernels, roots, world

    _show_roots(verify=True)
    kernel = kernels.require()
    kernels.verify(kernel)
    terminal.echo(f"{kernel.program}\nverified: the kernel is as it was kept")
    root = roots.find()
    assert root is not None
    doctor.boot_and_try(kernel.program, world.of_root(root))
    terminal.echo("verified: it boots, and has what experiments use")


def _kernel_text(kernel: Kernel) -> str:
    from outcast.engines.guest import parts

    own = f" with {', '.join(kernel.own)}" if kernel.own else ""
    if kernel.key == parts.PINNED.kernel:
        own = ", of the lock"
    built = f", built in {kernel.built_s:g} s" if kernel.built_s else ""
    return (
        f"{kernel.program}\n"
        f"Linux {kernel.release} from {kernel.source} {kernel.version}{own}\n"
        f"recipe {kernel.recipe[:12]}, sha256 {kernel.sha256[:12]}{built}\n"
        f"compiler: {kernel.compiler or 'unknown'}\n"
        f"congestion controls: {', '.join(kernel.congestion_controls)}\n"
        f"sources to start from: {kernel.headers / 'source/net'}\n"
        f"a run uses it with: kernel.build={kernel.key}"
    )


def _show_roots(*, listed: bool = False, verify: bool = False) -> None:
    """Prints what roots there are, and checks them.

    Raises:
        FeatureMissingError: the guest's root is missing.
        RootError: a root is damaged.
    """
    from outcast.engines.guest import parts, roots

    runtime = roots.find()
    if runtime is None:
        raise FeatureMissingError(f"the guest's root is missing; {parts.REMEDY}")
    compiler = roots.find("build")
    for root, use in ((runtime, "what guests see as /"), (compiler, "the compiler")):
        if root is not None:
            roots.verify(root, every_byte=verify)
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
