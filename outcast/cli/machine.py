"""Verbs on this machine: `doctor`, `guest`, `clean` and `completion`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from outcast.cli import shared, terminal
from outcast.errors import FeatureMissingError, RunError

if TYPE_CHECKING:
    from outcast.engines.doctor import Diagnosis
    from outcast.engines.guest.kernels import Kernel
    from outcast.engines.guest.roots import Root

COMPLETE_VARIABLE = "_OUTCAST_COMPLETE"
"""The environment variable by which a shell asks click for completions."""


@shared.verb("doctor", "outcast doctor")
@shared.flag("--json", "Print JSON instead of a table.", "as_json")
def doctor(as_json: bool) -> int:
    """Show what this machine can emulate, feature by feature, and the remedy for what is missing.

    Exit status 0 if at least one engine can run the default experiment, else 3.
    """
    from outcast.engines.doctor import diagnose
    from outcast.engines.guest import kernels, roots

    diagnosis = diagnose(kernels.find(), root=roots.find())
    if as_json:
        features = [finding._asdict() for finding in diagnosis.findings]
        document = {"engines": diagnosis.engines, "features": features}
        terminal.echo(json.dumps(document, indent=1))
    else:
        _print(diagnosis)
    return 0 if any(diagnosis.engines.values()) else FeatureMissingError.exit_status


_TITLES = {
    "realtime": "engine realtime: this machine's kernel and programs",
    "virtual": "engine virtual: a guest with a kernel and programs of its own",
}


def _print(diagnosis: Diagnosis) -> None:
    from rich.table import Table
    from rich.text import Text

    console = terminal.console()
    for engine, title in _TITLES.items():
        table = Table("feature", "here", "details, or what to do", box=None, pad_edge=False)
        for finding in diagnosis.findings:
            if finding.engine == engine:
                word = Text("no", style="yellow")
                if finding.present:
                    is_module = finding.state == "loadable"
                    word = Text("loadable" if is_module else "yes", style="green")
                more = filter(None, (finding.detail, finding.remedy))
                table.add_row(finding.feature, word, "; ".join(more))
        console.print(Text(title, style="bold"))
        console.print(table)
        console.print()
    for engine, able in diagnosis.engines.items():
        console.print(
            f"engine {engine}: {'can' if able else 'cannot'} run the default experiment here"
        )


@shared.verbs("guest", "outcast guest info")
def guest() -> None:
    """Show or check the virtual engine's kernel, and what its guest sees as `/`."""


@shared.verb("info", "outcast guest info", "outcast guest info --packages", group=guest)
@shared.flag("--packages", "List the packages of the roots with their versions.", "listed")
def info(listed: bool) -> None:
    """Show the roots and the kernels; the first of each is the one that runs use by default."""
    from outcast.engines.guest import kernels

    _show_roots(listed=listed)
    default = kernels.require()
    others = (kernel for kernel in kernels.find_all() if kernel != default)
    terminal.echo("\n\n".join(map(_kernel_text, [default, *others])))


@shared.verb("check", "outcast guest check", group=guest)
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


@shared.verb("clean", "outcast clean")
def clean() -> None:
    """Remove what a crashed or killed run left behind, and nothing else.

    Exit status 1 if something could not be removed.
    """
    from outcast.engines import ledger

    done = ledger.undo_dead(waits=True)
    terminal.echo_lines(done or ["nothing was left behind"])
    dead = [entry.file for entry in ledger.read_entries(ledger.default_folder()) if entry.is_dead()]
    if dead:
        raise RunError(f"could not undo everything: {', '.join(map(str, dead))}")


@shared.verb("completion", "outcast completion bash")
@click.argument("shell", type=shared.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script with which a shell completes verbs, options and their values.

    For bash, add this line to ~/.bashrc: eval "$(outcast completion bash)". For zsh, add the same
    with zsh to ~/.zshrc. For fish, run once:
    outcast completion fish > ~/.config/fish/completions/outcast.fish
    """
    from click.shell_completion import get_completion_class

    completion_class = get_completion_class(shell)
    assert completion_class is not None, "click knows the three shells that are offered"
    completion = completion_class(ctx.find_root().command, {}, "outcast", COMPLETE_VARIABLE)
    try:
        terminal.echo(completion.source())
    except RuntimeError as error:
        # click runs bash to ask for its version.
        raise FeatureMissingError(f"no completion for {shell}: {error}") from None
