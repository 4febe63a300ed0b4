"""`outcast completion`: what a shell needs to complete outcast's command line."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from outcast.cli import shared, terminal
from outcast.errors import FeatureMissingError

VARIABLE = "_OUTCAST_COMPLETE"
"""click looks here for a shell's question, before anything else is done."""


@click.command("completion")
@click.argument("shell", type=shared.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script that completes verbs, options and their values in a shell.

    In ~/.bashrc: eval "$(outcast completion bash)"; in ~/.zshrc the same with zsh; for fish:
    outcast completion fish > ~/.config/fish/completions/outcast.fish
    """
    completion_class = get_completion_class(shell)
    assert completion_class is not None, "click knows the three shells that are offered"
    completion = completion_class(ctx.find_root().command, {}, "outcast", VARIABLE)
    try:
        terminal.echo(completion.source())
    except RuntimeError as error:
        # click runs bash to ask for its version.
        raise FeatureMissingError(f"no completion for {shell}: {error}") from None
